//! Looking at the table. Nothing here shows a session's secret id.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Bound;

use super::LockTable;
use super::queue::Waiter;
use super::resource::Hold;
use crate::command::{Mode, Owner};
use crate::id::{ActorId, FenceToken, PublicSessionId, SessionId};
use crate::name::LockName;
use crate::time::{LogicalTime, Span};

/// One resource: who holds it, who waits. A free one has neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockStatus {
    pub holders: Vec<HolderInfo>,
    /// The first in line.
    pub waiters: Vec<WaiterInfo>,
    /// All of them.
    pub waiter_count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderInfo {
    pub session: PublicSessionId,
    pub owner: Owner,
    pub actor: ActorId,
    pub mode: Mode,
    pub token: FenceToken,
    pub granted_at: LogicalTime,
    /// When the hold ends on its own; none if only the session bounds it.
    pub deadline: Option<LogicalTime>,
    pub session_deadline: LogicalTime,
    pub metadata: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterInfo {
    pub session: PublicSessionId,
    pub owner: Owner,
    pub actor: ActorId,
    pub mode: Mode,
    /// 1 is next in line.
    pub position: u64,
    pub queued_at: LogicalTime,
    /// When it stops waiting.
    pub deadline: LogicalTime,
}

/// One line of a listing of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSummary {
    pub name: LockName,
    pub mode: Mode,
    pub holder_count: usize,
    pub waiter_count: usize,
    /// This and what follows: of the first holder.
    pub token: FenceToken,
    pub session: PublicSessionId,
    pub owner: Owner,
    pub granted_at: LogicalTime,
}

/// One line of a listing of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    pub public: PublicSessionId,
    pub owner: Owner,
    pub ttl: Span,
    pub linger: Span,
    pub opened_at: LogicalTime,
    /// When it ends unless it is heard of again.
    pub deadline: LogicalTime,
    pub hold_count: usize,
    pub wait_count: usize,
    /// Its stream is open, as far as the table knows.
    pub connected: bool,
}

impl LockTable {
    /// Who holds a resource, and the first `waiters_max` of those who wait for it.
    pub fn status(&self, name: &str, waiters_max: usize) -> LockStatus {
        let Some(resource) = self.resources.get(name) else { return LockStatus::default() };
        let waiters = resource.queue.iter().flat_map(|queue| queue.iter()).take(waiters_max);
        LockStatus {
            holders: resource.hold.iter().map(|hold| self.holder_info(hold)).collect(),
            waiters: waiters
                .zip(1..)
                .map(|((_, waiter), position)| self.waiter_info(waiter, position))
                .collect(),
            waiter_count: resource.waiter_count(),
        }
    }

    /// Locks whose names begin with `prefix`, in order of names, those that come after `after`.
    pub fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Vec<LockSummary> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.resources
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(prefix))
            .filter_map(|(name, resource)| {
                let hold = resource.hold.as_ref()?;
                let (session, owner, _) = self.who(hold.session);
                Some(LockSummary {
                    name: name.clone(),
                    mode: hold.mode,
                    holder_count: 1,
                    waiter_count: resource.waiter_count(),
                    token: hold.token,
                    session,
                    owner,
                    granted_at: hold.granted_at,
                })
            })
            .take(limit)
            .collect()
    }

    /// Sessions in order of their public ids, those that come after `after`.
    pub fn sessions(&self, after: Option<PublicSessionId>, limit: usize) -> Vec<SessionSummary> {
        let start = match after {
            Some(after) => Bound::Excluded((after, SessionId(u128::MAX))),
            None => Bound::Unbounded,
        };
        self.public_ids
            .range((start, Bound::Unbounded))
            .filter_map(|(public, id)| {
                let session = self.sessions.get(id)?;
                Some(SessionSummary {
                    public: *public,
                    owner: session.owner.clone(),
                    ttl: session.ttl,
                    linger: session.linger,
                    opened_at: session.opened_at,
                    deadline: session.deadline,
                    hold_count: session.holds.len(),
                    wait_count: session.waits.len(),
                    connected: session.connected,
                })
            })
            .take(limit)
            .collect()
    }

    fn holder_info(&self, hold: &Hold) -> HolderInfo {
        let (session, owner, session_deadline) = self.who(hold.session);
        HolderInfo {
            session,
            owner,
            actor: hold.actor,
            mode: hold.mode,
            token: hold.token,
            granted_at: hold.granted_at,
            deadline: hold.deadline(),
            session_deadline,
            metadata: Box::from(hold.metadata()),
        }
    }

    fn waiter_info(&self, waiter: &Waiter, position: u64) -> WaiterInfo {
        let (session, owner, _) = self.who(waiter.claim.session);
        WaiterInfo {
            session,
            owner,
            actor: waiter.claim.actor,
            mode: waiter.claim.mode,
            position,
            queued_at: waiter.queued_at,
            deadline: waiter.deadline,
        }
    }

    fn who(&self, id: SessionId) -> (PublicSessionId, Owner, LogicalTime) {
        match self.sessions.get(&id) {
            Some(session) => (session.public, session.owner.clone(), session.deadline),
            None => (PublicSessionId(0), Owner::default(), LogicalTime::ZERO),
        }
    }
}
