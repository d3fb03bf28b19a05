//! The lock table itself: its state, and the one way to change it.
//!
//! What a command does is told in its own file under `command/`. Here and in the files of this
//! folder stand the parts that several commands share: sessions, resources, queues, the index of
//! deadlines, the answers that are kept, and how a freed resource goes to its next holder.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::command::Command;
use crate::event::Event;
use crate::id::{LogIndex, PublicSessionId, SessionId};
use crate::limits::Limits;
use crate::name::LockName;
use crate::outcome::{Outcome, Rejection};
use crate::time::LogicalTime;

pub(crate) mod answers;
mod check;
pub(crate) mod deadlines;
pub(crate) mod ended;
mod ending;
mod once;
mod promotion;
pub(crate) mod query;
pub(crate) mod queue;
pub(crate) mod resource;
pub(crate) mod session;
mod snapshot;

pub use snapshot::Digest;

pub(crate) use ending::Left;
pub(crate) use promotion::next_token;

use deadlines::{Deadlines, Due};
use ended::EndedSessions;
use resource::Resource;
use session::Session;

/// The replicated state: sessions, locks, queues.
///
/// Change it with [`apply`](LockTable::apply), in log order. Ask it anything at any time. Move it as
/// bytes with [`encode`](LockTable::encode) and [`decode`](LockTable::decode).
#[derive(Clone, Debug)]
pub struct LockTable {
    pub(crate) limits: Limits,
    pub(crate) now: LogicalTime,
    applied_index: LogIndex,
    pub(crate) last_token: u64,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) ended: EndedSessions,
    pub(crate) resources: BTreeMap<LockName, Resource>,
    // What follows can be computed from the above, and is not in the snapshot.
    pub(crate) deadlines: Deadlines,
    pub(crate) public_ids: BTreeSet<(PublicSessionId, SessionId)>,
    pub(crate) waiter_count: usize,
}

impl LockTable {
    /// An empty table. All replicas must have the same limits.
    pub fn new(limits: Limits) -> LockTable {
        LockTable {
            limits,
            now: LogicalTime::ZERO,
            applied_index: LogIndex(0),
            last_token: 0,
            sessions: BTreeMap::new(),
            ended: EndedSessions::default(),
            resources: BTreeMap::new(),
            deadlines: Deadlines::default(),
            public_ids: BTreeSet::new(),
            waiter_count: 0,
        }
    }

    /// Carries out one command of the log entry at `index`, which is stamped `at`. A stamp lower than
    /// an earlier one counts as that: time does not go back.
    ///
    /// The outcome is for the sender; what happened to others is appended to `events`, in order.
    pub fn apply(
        &mut self,
        index: LogIndex,
        at: LogicalTime,
        command: Command,
        events: &mut Vec<Event>,
    ) -> Outcome {
        self.applied_index = self.applied_index.max(index);
        self.now = self.now.max(at);
        // Whatever a session says shows that it lives, even if it is refused. That its stream broke
        // is said about it, not by it.
        if !matches!(command, Command::DetachStream { .. })
            && let Some(session) = command.session()
        {
            self.touch(session);
        }
        if let Err(rejection) = command.check(&self.limits) {
            return Outcome::Rejected(rejection);
        }
        match command {
            Command::OpenSession(open) => self.open_session(open, events),
            Command::AttachStream { session, stream } => self.attach_stream(session, stream),
            Command::DetachStream { session, stream } => self.detach_stream(session, stream),
            Command::Touch { session, acked_through } => self.heartbeat(session, acked_through),
            Command::CloseSession { session } => self.close_session(session, events),
            Command::Acquire(acquire) => self.acquire(acquire, events),
            Command::Cancel { call, target } => self.cancel(call, target, events),
            Command::Release { call, name, token } => self.release(call, name, token, events),
            Command::Renew { call, name, token, ttl } => self.renew(call, name, token, ttl),
            Command::BeginTerm { grace } => self.begin_term(grace),
            Command::Tick => self.tick(events),
        }
    }

    /// The time of the last command.
    pub fn now(&self) -> LogicalTime {
        self.now
    }

    /// The log index of the last command.
    pub fn applied_index(&self) -> LogIndex {
        self.applied_index
    }

    /// The earliest of all deadlines: when the leader should write a [`Command::Tick`].
    pub fn next_deadline(&self) -> Option<LogicalTime> {
        self.deadlines.first()
    }

    /// The highest token granted so far; 0 before the first.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// How many resources are held.
    pub fn lock_count(&self) -> usize {
        self.resources.len()
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// How many acquires stand in queues, over all resources.
    pub fn waiter_count(&self) -> usize {
        self.waiter_count
    }

    /// The session was heard of. One that has ended stays so.
    pub(crate) fn touch(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let deadline = self.now.after(session.ttl);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TouchNotIndexed.is_active() {
            session.deadline = deadline;
        }
        self.deadlines.replace(session.deadline, deadline, Due::Session(id));
        session.deadline = deadline;
        session.graced = false;
        session.lingering = false;
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Result<&mut Session, Rejection> {
        self.sessions.get_mut(&id).ok_or(Rejection::UnknownSession)
    }
}
