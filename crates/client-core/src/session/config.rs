//! With what a client's session begins.

use std::fmt;
use std::time::Duration;

use holdfast_proto::SessionId;
use holdfast_proto::v1::Owner;

use crate::endpoints::Endpoints;
use crate::group_id::GroupId;
use crate::lease::lease_span;

/// What every session of a client is opened with.
#[derive(Debug, Clone)]
pub struct Settings {
    pub ttl: Duration,
    /// How long the session outlives a broken stream; the TTL if it is not given.
    pub linger: Option<Duration>,
    pub owner: Owner,
}

impl Settings {
    /// How long the session certainly outlives its last answered request.
    pub fn lease_span(&self) -> Duration {
        lease_span(self.ttl, self.linger.unwrap_or(self.ttl))
    }
}

pub struct Config {
    pub settings: Settings,
    /// In which group of the cluster the session is. A client has one machine for each group whose locks it uses.
    pub group: GroupId,
    pub endpoints: Endpoints,
    /// Whether a session is opened before a request needs one.
    pub opens_at_once: bool,
    /// Whether a request, or the opening of the first session, waits if a node says when to send it again. Otherwise its
    /// caller is told at once.
    pub waits_for_rates: bool,
    /// Clients with different seeds pause for different times.
    pub jitter_seed: u64,
    /// A secret for each session. `None` if the system has none to give.
    pub session_ids: Box<dyn FnMut() -> Option<SessionId> + Send>,
}

/// There is no secret for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSessionId;

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("settings", &self.settings)
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}
