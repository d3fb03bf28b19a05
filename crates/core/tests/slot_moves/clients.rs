//! What clients believe to hold, and until when, by what they are told.
//!
//! A client loses answers and notices. It counts on a hold until a TTL after the last answer which showed that the hold
//! was there: the grant, a renewal, or a heartbeat that told of no departure which the client had not known. It ignores
//! its guests until one of them answers it. So no other client may get a lock as long as the client can believe that.
//!
//! Time is that of an outside clock which runs as slowly as the times of all groups allow: between two entries of one
//! group passes at least what their stamps say.

use std::collections::BTreeMap;

use holdfast_core::command::Mode;
use holdfast_core::{Departures, FenceToken, LockName, RequestId, SessionId};

use crate::groups::{GROUPS, TTL_MS};

/// What a client makes of the departures that a heartbeat tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// If they have changed, the heartbeat does not count for the holds that the client has. It asks about each.
    Careful,
    /// Every heartbeat counts for every hold.
    Careless,
}

#[derive(Clone, Debug)]
pub(crate) struct Belief {
    pub(crate) token: FenceToken,
    mode: Mode,
    /// By the lease of its session.
    lease_end: i64,
    own_ttl_ms: Option<u64>,
    own_end: Option<i64>,
    /// Heartbeats count for it.
    is_counted: bool,
}

impl Belief {
    fn end(&self) -> i64 {
        self.own_end.map_or(self.lease_end, |own| own.min(self.lease_end))
    }
}

#[derive(Debug, Default)]
struct Session {
    lease_end: i64,
    departures: Option<Departures>,
}

/// No two requests of a history have one id.
type Key = (LockName, RequestId, usize, SessionId);

#[derive(Debug)]
pub(crate) struct Clients {
    care: Care,
    now: i64,
    /// From the time of each group to the outside clock.
    offsets: [i64; GROUPS],
    sessions: BTreeMap<(usize, SessionId), Session>,
    beliefs: BTreeMap<Key, Belief>,
}

/// A hold as the table grants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) request: RequestId,
    pub(crate) at: usize,
    pub(crate) session: SessionId,
    pub(crate) mode: Mode,
    pub(crate) token: FenceToken,
    pub(crate) own_ttl_ms: Option<u64>,
}

impl Clients {
    pub(crate) fn new(care: Care, starts: [u64; GROUPS]) -> Clients {
        Clients {
            care,
            now: 0,
            offsets: starts.map(|start| -(start as i64)),
            sessions: BTreeMap::new(),
            beliefs: BTreeMap::new(),
        }
    }

    /// A group stamps an entry.
    pub(crate) fn pass(&mut self, at: usize, stamp: u64) {
        let stamp = stamp as i64;
        self.now = self.now.max(self.offsets[at] + stamp);
        self.offsets[at] = self.now - stamp;
    }

    fn own_end(&self, own_ttl_ms: Option<u64>) -> Option<i64> {
        own_ttl_ms.map(|ttl| self.now + ttl as i64)
    }

    /// The lock is granted: no other client may believe that it has it.
    pub(crate) fn expect_free(&self, granted: Granted<'_>) {
        let Granted { name, request, mode, .. } = granted;
        let other = self.beliefs.iter().find(|((held, by, ..), belief)| {
            let both_read = (belief.mode, mode) == (Mode::Shared, Mode::Shared);
            held == name && *by != request && !both_read && self.now < belief.end()
        });
        assert!(other.is_none(), "two clients believe to hold {name}: {granted:?}, {other:?}");
    }

    /// The client is told of a grant: by the answer to its request, or after a wait.
    pub(crate) fn believe(&mut self, granted: Granted<'_>, is_answer: bool) {
        let Granted { name, request, at, session, mode, token, own_ttl_ms } = granted;
        let lease_end = match is_answer {
            true => self.now + TTL_MS as i64,
            false => self.sessions.get(&(at, session)).map_or(self.now, |it| it.lease_end),
        };
        let own_end = self.own_end(own_ttl_ms);
        let belief = Belief { token, mode, lease_end, own_ttl_ms, own_end, is_counted: true };
        self.beliefs.insert((name.clone(), request, at, session), belief);
    }

    /// A renewal was answered: the hold is there.
    pub(crate) fn confirm(&mut self, granted: Granted<'_>) {
        self.believe(granted, true);
    }

    pub(crate) fn belief(&self, key: &Key) -> Option<&Belief> {
        self.beliefs.get(key)
    }

    pub(crate) fn renewed(&mut self, key: &Key) {
        let lease_end = self.now + TTL_MS as i64;
        let own_ttl_ms = self.beliefs.get(key).and_then(|belief| belief.own_ttl_ms);
        let own_end = self.own_end(own_ttl_ms);
        if let Some(belief) = self.beliefs.get_mut(key) {
            *belief = Belief { lease_end, own_end, is_counted: true, ..belief.clone() };
        }
    }

    /// The client gives the hold up, in whichever group it is.
    pub(crate) fn gives_up(&mut self, name: &LockName, request: RequestId) {
        self.beliefs.retain(|(held, by, ..), _| held != name || *by != request);
    }

    /// The client closes the session.
    pub(crate) fn closes(&mut self, at: usize, session: SessionId) {
        self.beliefs.retain(|(_, _, group, of), _| (*group, *of) != (at, session));
    }

    /// The client is told that the hold has left.
    pub(crate) fn is_told_of_departure(&mut self, key: &Key) {
        if let Some(belief) = self.beliefs.get_mut(key) {
            belief.is_counted = false;
        }
    }

    /// A heartbeat was answered. Returns the holds about which the client has to ask.
    pub(crate) fn heard(
        &mut self,
        at: usize,
        session: SessionId,
        departures: Option<Departures>,
    ) -> Vec<Key> {
        let lease_end = self.now + TTL_MS as i64;
        let known = self.sessions.entry((at, session)).or_default();
        let has_changed = self.care == Care::Careful && known.departures != departures;
        *known = Session { lease_end, departures };
        let mut to_ask = Vec::new();
        for (key, belief) in &mut self.beliefs {
            if (key.2, key.3) != (at, session) {
                continue;
            }
            if has_changed {
                belief.is_counted = false;
                to_ask.push(key.clone());
            } else if belief.is_counted {
                belief.lease_end = belief.lease_end.max(lease_end);
            }
        }
        to_ask
    }
}
