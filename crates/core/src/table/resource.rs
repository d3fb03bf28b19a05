//! A resource: who holds it, and who waits.
//!
//! Between two commands a resource in the table is held; a free one is not there at all. It is kept
//! small, because there are many: a queue exists only while somebody waits, and what few holds have
//! (a TTL of their own, metadata) is boxed.

use alloc::boxed::Box;

use super::queue::WaitQueue;
use crate::command::Mode;
use crate::id::{ActorId, FenceToken, RequestId, SessionId};
use crate::time::{LogicalTime, Span};

#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// None only while a command is being applied: between the end of a hold and the next.
    pub(crate) hold: Option<Hold>,
    /// Never empty.
    pub(crate) queue: Option<Box<WaitQueue>>,
}

/// What an acquire asks for. It becomes a hold, at once or after a wait.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) actor: ActorId,
    pub(crate) mode: Mode,
    pub(crate) ttl: Option<Span>,
    pub(crate) max_hold: Option<Span>,
    pub(crate) metadata: Box<[u8]>,
}

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) session: SessionId,
    /// The acquire that it answers.
    pub(crate) request: RequestId,
    pub(crate) actor: ActorId,
    pub(crate) token: FenceToken,
    pub(crate) granted_at: LogicalTime,
    extras: Option<Box<Extras>>,
    pub(crate) mode: Mode,
}

#[derive(Clone, Debug, Default)]
struct Extras {
    ttl: Option<Span>,
    deadline: Option<LogicalTime>,
    max_hold_end: Option<LogicalTime>,
    /// The deadline was moved by a new leader since the hold was last renewed.
    graced: bool,
    metadata: Box<[u8]>,
}

/// What there is to tell when a hold begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) actor: ActorId,
    pub(crate) token: FenceToken,
    pub(crate) deadline: Option<LogicalTime>,
}

/// The parts of a hold that bound it, as snapshots keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) ttl: Option<Span>,
    pub(crate) deadline: Option<LogicalTime>,
    pub(crate) max_hold_end: Option<LogicalTime>,
    pub(crate) graced: bool,
}

impl Resource {
    pub(crate) fn held(hold: Hold) -> Resource {
        Resource { hold: Some(hold), queue: None }
    }

    pub(crate) fn waiter_count(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }
}

impl Hold {
    pub(crate) fn new(claim: Claim, token: FenceToken, now: LogicalTime) -> Hold {
        let max_hold_end = claim.max_hold.map(|max_hold| now.after(max_hold));
        let deadline = earlier(claim.ttl.map(|ttl| now.after(ttl)), max_hold_end);
        let bounds = Bounds { ttl: claim.ttl, deadline, max_hold_end, graced: false };
        Hold::with_bounds(claim, token, now, bounds)
    }

    /// The bounds are as given; those that the claim asks for do not count.
    pub(crate) fn with_bounds(
        claim: Claim,
        token: FenceToken,
        granted_at: LogicalTime,
        bounds: Bounds,
    ) -> Hold {
        Hold {
            session: claim.session,
            request: claim.request,
            actor: claim.actor,
            token,
            granted_at,
            extras: Extras::boxed(bounds, claim.metadata),
            mode: claim.mode,
        }
    }

    pub(crate) fn begun(&self) -> Begun {
        Begun {
            session: self.session,
            request: self.request,
            actor: self.actor,
            token: self.token,
            deadline: self.deadline(),
        }
    }

    /// Counts the TTL from now: a new one, or the one it had. Returns the new deadline.
    pub(crate) fn renew(&mut self, ttl: Option<Span>, now: LogicalTime) -> Option<LogicalTime> {
        let Some(ttl) = ttl.or(self.bounds().ttl) else { return self.deadline() };
        let extras = self.extras.get_or_insert_default();
        extras.ttl = Some(ttl);
        extras.deadline = earlier(Some(now.after(ttl)), extras.max_hold_end);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RenewPastMaxHold.is_active() {
            extras.deadline = Some(now.after(ttl));
        }
        extras.graced = false;
        extras.deadline
    }

    /// Moves the deadline to `until`, once since the last renewal and never past max-hold. Returns
    /// the new deadline if it moved.
    pub(crate) fn grace(&mut self, until: LogicalTime) -> Option<LogicalTime> {
        let extras = self.extras.as_mut()?;
        let graced = earlier(Some(until), extras.max_hold_end);
        if extras.graced || extras.deadline.is_none() || graced <= extras.deadline {
            return None;
        }
        extras.deadline = graced;
        extras.graced = true;
        graced
    }

    /// When it ends on its own.
    pub(crate) fn deadline(&self) -> Option<LogicalTime> {
        self.extras.as_ref()?.deadline
    }

    /// Its deadline is one that no renewal can move.
    pub(crate) fn ends_by_max_hold(&self) -> bool {
        let bounds = self.bounds();
        bounds.max_hold_end.is_some() && bounds.deadline == bounds.max_hold_end
    }

    pub(crate) fn is(&self, session: SessionId, token: FenceToken) -> bool {
        self.session == session && self.token == token
    }

    pub(crate) fn metadata(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.metadata)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        match &self.extras {
            None => Bounds { ttl: None, deadline: None, max_hold_end: None, graced: false },
            Some(extras) => Bounds {
                ttl: extras.ttl,
                deadline: extras.deadline,
                max_hold_end: extras.max_hold_end,
                graced: extras.graced,
            },
        }
    }
}

impl Extras {
    fn boxed(bounds: Bounds, metadata: Box<[u8]>) -> Option<Box<Extras>> {
        let Bounds { ttl, deadline, max_hold_end, graced } = bounds;
        if deadline.is_none() && metadata.is_empty() {
            return None;
        }
        Some(Box::new(Extras { ttl, deadline, max_hold_end, graced, metadata }))
    }
}

fn earlier(a: Option<LogicalTime>, b: Option<LogicalTime>) -> Option<LogicalTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_small() {
        assert!(size_of::<Hold>() <= 64, "{}", size_of::<Hold>());
        assert!(size_of::<Resource>() <= 80, "{}", size_of::<Resource>());
    }
}
