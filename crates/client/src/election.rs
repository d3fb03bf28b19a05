//! Leader election: `client.election(name).campaign(value).await`.
//!
//! An election is an exclusive lock. The leader holds it, the candidates wait for it, the value of a leader is
//! the metadata of its hold, and the fencing token is the epoch.

mod campaign_error;
mod leadership;
mod observer;

use std::time::Duration;

use holdfast_proto::PublicSessionId;
use holdfast_proto::v1::{Mode, Owner, StatusResponse, Waiter};

use crate::error::AcquireError;
use crate::lock::LockRequest;
use crate::session::Sessions;
use crate::unary::CallError;

pub use campaign_error::CampaignError;
pub use leadership::Leadership;
pub use observer::{Observed, Observer};

/// The longest wait that a cluster allows. A longer campaign asks again.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// An election. Nothing is sent to the cluster before a campaign or an observation.
///
/// ```no_run
/// # async fn example(client: holdfast_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let leadership = client.election("reports").campaign("worker-7:8080").await?;
/// // Hand the epoch to whatever is written: what an earlier leader still writes has a lower one.
/// let epoch = leadership.epoch()?;
/// # async fn lead(_: u64) {}
/// leadership.run_while_held(lead(epoch)).await?;
/// leadership.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    sessions: Sessions,
    name: String,
    wait: Option<Duration>,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    pub value: Vec<u8>,
    /// The fencing token: higher than that of every leader before.
    pub epoch: u64,
    pub session: PublicSessionId,
}

/// Who stands for election.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// With which it will lead.
    pub value: Vec<u8>,
    pub session: PublicSessionId,
    pub owner: Owner,
    pub waiting_for: Duration,
}

impl Election {
    pub(crate) fn new(sessions: Sessions, name: String) -> Election {
        Election { sessions, name, wait: None }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long to campaign; without it, until elected.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Election {
        self.wait = Some(wait);
        self
    }

    /// Stands for election, and returns when elected. Candidates are elected in the order in which they came.
    /// Dropping the future takes the candidacy back.
    pub async fn campaign(&self, value: impl Into<Vec<u8>>) -> Result<Leadership, CampaignError> {
        let value = value.into();
        loop {
            let request = LockRequest::new(self.sessions.clone(), self.name.clone())
                .metadata(value.clone())
                .wait(self.wait.unwrap_or(WAIT_MAX));
            match request.acquire().await {
                Ok(guard) => return Ok(Leadership::new(guard)),
                Err(AcquireError::TimedOut) if self.wait.is_none() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Who leads from now on: the leader of the moment first, then each leader, each value and each vacancy,
    /// once and in order.
    pub fn observe(&self) -> Observer {
        Observer::new(self.sessions.calls(), self.name.clone())
    }

    /// The present leader, if there is one.
    pub async fn leader(&self) -> Result<Option<Leader>, CallError> {
        let StatusResponse { holders, .. } = self.sessions.calls().status(&self.name).await?;
        let leader = holders.into_iter().find(|holder| holder.mode() == Mode::Exclusive);
        Ok(leader.and_then(|holder| {
            let session = holder.public_session_id.parse().ok()?;
            Some(Leader { value: holder.metadata, epoch: holder.token, session })
        }))
    }

    /// Who would come next, in order; the first hundred.
    pub async fn candidates(&self) -> Result<Vec<Candidate>, CallError> {
        let StatusResponse { waiters, .. } = self.sessions.calls().status(&self.name).await?;
        let could_lead =
            |waiter: &Waiter| waiter.mode() == Mode::Exclusive && waiter.also.is_empty();
        let candidates = waiters.into_iter().filter(could_lead).filter_map(|waiter| {
            Some(Candidate {
                session: waiter.public_session_id.parse().ok()?,
                value: waiter.metadata,
                owner: waiter.owner.unwrap_or_default(),
                waiting_for: Duration::from_millis(waiter.waiting_for_ms),
            })
        });
        Ok(candidates.collect())
    }
}
