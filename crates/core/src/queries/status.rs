//! Reads of the table. No answer contains a session's secret id.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::model::access::principal::Principal;
use crate::model::command::{Mode, Owner};
use crate::model::id::{ActorId, FenceToken, PublicSessionId, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::Rejection;
use crate::model::slot_move::Departures;
use crate::model::time::{LogicalTime, Span};
use crate::state::freezes::Freeze;
use crate::state::hold::Hold;
use crate::state::lock::Lock;
use crate::state::queue::Waiter;
use crate::state::session::Session;
use crate::state::table::LockTable;

/// One lock, with its holders and waiters. A free one has neither, unless it is closed or frozen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockStatus {
    /// Some of them.
    pub holders: Vec<HolderInfo>,
    /// All of them.
    pub holder_count: usize,
    /// The first waiters.
    pub waiters: Vec<WaiterInfo>,
    /// All of them.
    pub waiter_count: usize,
    /// The end of a lock delay: nothing is granted before.
    pub closed_until: Option<LogicalTime>,
    pub frozen: Option<FreezeInfo>,
    /// The number of permits that an operator has set.
    pub permits: Option<u32>,
}

/// A prefix under which nothing is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeInfo {
    pub prefix: String,
    pub until: LogicalTime,
    pub by: Box<str>,
    pub reason: Box<str>,
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
    pub session_ttl: Span,
    /// A stream of the session is open: its client keeps it alive.
    pub session_connected: bool,
    /// The session's stream broke, not before this time, and the session was not heard of since.
    pub disconnected_after: Option<LogicalTime>,
    /// How often its holder entered it again.
    pub reentries: u32,
    pub preemptible: bool,
    pub metadata: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterInfo {
    pub session: PublicSessionId,
    pub owner: Owner,
    pub actor: ActorId,
    pub mode: Mode,
    /// 1 is the first in the queue.
    pub position: u64,
    pub queued_at: LogicalTime,
    /// When it stops waiting.
    pub deadline: LogicalTime,
    /// The other locks of its acquire-all.
    pub also: Vec<LockName>,
    /// It holds the lock shared, and wants it exclusively.
    pub converts: bool,
    /// What its hold will show.
    pub metadata: Box<[u8]>,
}

/// One lock in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSummary {
    pub name: LockName,
    pub holder_count: usize,
    pub waiter_count: usize,
    /// The number of permits that an operator has set.
    pub permits: Option<u32>,
    /// None if it is free: awaited or closed.
    pub first_holder: Option<HolderInfo>,
}

/// One session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    pub public: PublicSessionId,
    pub owner: Owner,
    /// None if what the session does is not checked.
    pub principal: Option<Principal>,
    pub ttl: Span,
    pub linger: Span,
    pub opened_at: LogicalTime,
    /// When it ends without another sign of life.
    pub deadline: LogicalTime,
    pub hold_count: usize,
    pub wait_count: usize,
    /// Its stream is open, as far as the table knows.
    pub connected: bool,
}

/// What the table knows about the tokens of one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenStanding {
    /// It is held under the token that was asked about.
    pub is_held: bool,
    /// The highest under which it is held now.
    pub current: Option<FenceToken>,
    /// The highest that was given for any lock; 0 before the first.
    pub last_given: u64,
}

impl LockTable {
    /// Whether a lock is held under this token.
    pub fn token_standing(&self, name: &str, token: FenceToken) -> TokenStanding {
        let tokens = || {
            self.lock_map()
                .get(name)
                .into_iter()
                .flat_map(|lock| lock.holds())
                .map(|hold| hold.token)
        };
        TokenStanding {
            is_held: tokens().any(|held| held == token),
            current: tokens().max(),
            last_given: self.last_token(),
        }
    }

    /// Refuses a read of a lock of another group: here it would look free. A lock that is in the table is shown.
    pub fn check_read(&self, name: &LockName) -> Result<(), Rejection> {
        let ownership = self.ownership();
        if ownership.covers(name) || self.lock_map().get(name.as_str()).is_some() {
            return Ok(());
        }
        Err(Rejection::WrongGroup { epoch: ownership.epoch() })
    }

    /// The holders and the waiters of a lock, at most `shown_max` of each.
    pub fn status(&self, name: &str, shown_max: usize) -> LockStatus {
        let frozen = self.freezes_in_force().over(name).map(freeze_info);
        let permits = self.stored_permits().get(name).copied();
        let Some(lock) = self.lock_map().get(name) else {
            return LockStatus { frozen, permits, ..LockStatus::default() };
        };
        let waiters = lock.queue().iter().take(shown_max);
        LockStatus {
            holders: lock.holds().take(shown_max).map(|hold| self.holder_info(hold)).collect(),
            holder_count: lock.holder_count(),
            waiters: waiters
                .zip(1..)
                .map(|((_, waiter), position)| self.waiter_info(name, waiter, position))
                .collect(),
            waiter_count: lock.waiter_count(),
            closed_until: lock.closed_until(),
            frozen,
            permits,
        }
    }

    /// Numbers of permits that operators have set, in order of names.
    pub fn permits(&self) -> impl ExactSizeIterator<Item = (&LockName, u32)> {
        self.stored_permits().iter().map(|(name, permits)| (name, *permits))
    }

    /// All prefixes that are frozen, in order.
    pub fn freezes(&self) -> Vec<FreezeInfo> {
        self.freezes_in_force().iter().map(freeze_info).collect()
    }

    /// Locks whose names begin with `prefix`, in order of names, those that come after `after`.
    pub fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Vec<LockSummary> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.lock_map()
            .from(start)
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, lock)| self.summary(name, lock))
            .take(limit)
            .collect()
    }

    pub(super) fn summary(&self, name: &LockName, lock: &Lock) -> LockSummary {
        LockSummary {
            name: name.clone(),
            holder_count: lock.holder_count(),
            waiter_count: lock.waiter_count(),
            permits: self.stored_permits().get(name).copied(),
            first_holder: lock.holds().next().map(|hold| self.holder_info(hold)),
        }
    }

    /// Sessions in order of their public ids, those that come after `after`.
    pub fn sessions(&self, after: Option<PublicSessionId>, limit: usize) -> Vec<SessionSummary> {
        let start = match after {
            Some(after) => Bound::Excluded((after, SessionId(u128::MAX))),
            None => Bound::Unbounded,
        };
        self.public_ids()
            .range((start, Bound::Unbounded))
            .filter_map(|(_, id)| self.session(*id))
            .take(limit)
            .collect()
    }

    /// The tokens of the session's latest holds that ended without a release. A shared hold also has the acquire that
    /// identifies it.
    pub fn losses(&self, id: SessionId) -> Vec<(FenceToken, Option<RequestId>)> {
        let Some(session) = self.live_session(id) else { return Vec::new() };
        let losses = session.losses().iter().map(|token| (*token, None));
        let shared = session.shared_losses().iter();
        losses.chain(shared.map(|(token, acquire)| (*token, Some(*acquire)))).collect()
    }

    /// How long the session still lives if it is not heard of again, at most its TTL. None if there is no such session, or
    /// its time is over.
    pub fn session_time_left(&self, id: SessionId) -> Option<Span> {
        let session = self.live_session(id)?;
        let left = session.deadline.since(self.now()).min(session.ttl);
        (left > Span::ZERO).then_some(left)
    }

    /// What has left of the session by moves of slots, if something has.
    pub fn departures(&self, id: SessionId) -> Option<Departures> {
        self.live_session(id)?.departures()
    }

    /// None if it is not open.
    pub fn session(&self, id: SessionId) -> Option<SessionSummary> {
        let session = self.live_session(id)?;
        Some(SessionSummary {
            public: session.public,
            owner: session.owner.clone(),
            principal: session.identity.as_ref().map(|identity| identity.principal.clone()),
            ttl: session.ttl,
            linger: session.linger,
            opened_at: session.opened_at,
            deadline: session.deadline,
            hold_count: session.hold_count(),
            wait_count: session.waits.len(),
            connected: session.connected,
        })
    }

    pub(super) fn holder_info(&self, hold: &Hold) -> HolderInfo {
        let (session, owner, session_deadline) = self.who(hold.session);
        let of_session = self.session_map().get(&hold.session);
        HolderInfo {
            session,
            owner,
            actor: hold.actor,
            mode: hold.mode,
            token: hold.token,
            granted_at: hold.granted_at,
            deadline: hold.deadline(),
            session_deadline,
            session_ttl: of_session.map_or(Span::ZERO, |session| session.ttl),
            session_connected: of_session.is_some_and(|session| session.connected),
            disconnected_after: of_session.and_then(Session::disconnected_after),
            reentries: hold.reentries(),
            preemptible: hold.is_preemptible(),
            metadata: Box::from(hold.metadata()),
        }
    }

    pub(super) fn waiter_info(&self, name: &str, waiter: &Waiter, position: u64) -> WaiterInfo {
        let (session, owner, _) = self.who(waiter.session);
        let wait = self.session_map().get(&waiter.session);
        let wait = wait.and_then(|session| session.waits.get(waiter.request));
        let places = wait.map_or(&[][..], |wait| wait.places.as_slice());
        let others = places.iter().filter(|place| &*place.name != name);
        WaiterInfo {
            session,
            owner,
            actor: waiter.actor,
            mode: waiter.mode,
            position,
            queued_at: wait.map_or(self.now(), |wait| wait.queued_at),
            deadline: wait.map_or(self.now(), |wait| wait.deadline),
            also: others.map(|place| place.name.clone()).collect(),
            converts: wait.is_some_and(|wait| wait.converts.is_some()),
            metadata: wait.map(|wait| wait.terms.metadata.clone()).unwrap_or_default(),
        }
    }

    fn who(&self, id: SessionId) -> (PublicSessionId, Owner, LogicalTime) {
        match self.session_map().get(&id) {
            Some(session) => (session.public, session.owner.clone(), session.deadline),
            None => (PublicSessionId(0), Owner::default(), LogicalTime::ZERO),
        }
    }
}

fn freeze_info((prefix, freeze): (&str, &Freeze)) -> FreezeInfo {
    FreezeInfo {
        prefix: String::from(prefix),
        until: freeze.until,
        by: freeze.by.clone(),
        reason: freeze.reason.clone(),
    }
}
