//! The lock table itself: its state, and the one way to change it.
//!
//! What a command does is told in its own file under `command/`. Here and in the files of this
//! folder stand the parts that several commands share: sessions, resources, queues, the index of
//! deadlines, the answers that are kept, and how a freed resource goes to its next holder.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::command::{Call, Command, HoldRef};
use crate::event::Event;
use crate::id::{LogIndex, PublicSessionId, RequestId, SessionId};
use crate::limits::Limits;
use crate::name::LockName;
use crate::outcome::{Outcome, Rejection};
use crate::rules::RulesVersion;
use crate::time::LogicalTime;

mod admission;
mod ages;
mod anew;
pub(crate) mod answers;
mod check;
pub(crate) mod deadlines;
pub(crate) mod deadlock;
pub(crate) mod deferred;
mod dense;
pub(crate) mod ended;
mod ending;
pub(crate) mod freeze;
pub(crate) mod hold;
mod once;
mod promotion;
pub(crate) mod publication;
pub(crate) mod query;
pub(crate) mod queue;
pub(crate) mod resource;
pub(crate) mod session;
mod shelf;
pub(crate) mod size;
mod snapshot;
pub(crate) mod survey;
pub(crate) mod wait;
mod waiting;
mod waits;
pub(crate) mod why;

pub use anew::{EndedByNewBeginning, NewBeginning};
pub use publication::Publication;
pub use size::TableLimits;
pub use snapshot::Digest;

use deadlines::{Deadlines, Due};
use deadlock::SearchCost;
use deferred::Deferred;
use ended::EndedSessions;
use freeze::Freezes;
use hold::Hold;
use resource::Resource;
use session::Session;
use shelf::Shelf;
use snapshot::Unfinished;

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
    pub(crate) sessions: Shelf<SessionId, Session>,
    pub(crate) ended: EndedSessions,
    pub(crate) resources: Shelf<LockName, Resource>,
    /// Numbers of permits that operators have set.
    pub(crate) permits: BTreeMap<LockName, u32>,
    pub(crate) freezes: Freezes,
    /// What `apply` does depends on them.
    pub(crate) rules: RulesVersion,
    pub(crate) table_limits: TableLimits,
    /// None unless events are published.
    publication: Option<Publication>,
    /// Empty before rules 3.
    pub(crate) deferred: Deferred,
    // What follows can be computed from the above, and is not in the snapshot.
    pub(crate) deadlines: Deadlines,
    pub(crate) public_ids: BTreeSet<(PublicSessionId, SessionId)>,
    pub(crate) waiter_count: usize,
    /// What all of it takes, in bytes, as all replicas estimate it.
    pub(crate) size: u64,
    /// Resources that a lock delay keeps closed, by the end of it.
    pub(crate) closed: BTreeSet<(LogicalTime, LockName)>,
    /// A snapshot that is being written.
    unfinished: Option<Unfinished>,
    /// How large the last one was.
    snapshot_bytes_last: usize,
    /// What the present command has freed, or made easier to get. Empty between two commands.
    pub(crate) freed: BTreeSet<LockName>,
    /// How much of what is due the present command may still end.
    endings_left: usize,
    search_budget: EntryBudget,
    search_cost: SearchCost,
    promotion_budget: EntryBudget,
}

/// Steps that a log entry may still take.
#[derive(Clone, Copy, Debug)]
struct EntryBudget {
    /// Which entry it is: its index, and its time for a table that is driven without a log.
    entry: (LogIndex, LogicalTime),
    left: usize,
}

impl EntryBudget {
    const UNUSED: EntryBudget =
        EntryBudget { entry: (LogIndex(0), LogicalTime::ZERO), left: usize::MAX };
}

impl LockTable {
    /// An empty table, as every log begins: under [the first rules](RulesVersion::ONE). All replicas must have the
    /// same limits.
    pub fn new(limits: Limits) -> LockTable {
        LockTable::with_rules(limits, RulesVersion::ONE)
    }

    /// An empty table that has adopted these rules.
    pub fn with_rules(limits: Limits, rules: RulesVersion) -> LockTable {
        LockTable {
            rules,
            limits,
            now: LogicalTime::ZERO,
            applied_index: LogIndex(0),
            last_token: 0,
            sessions: Shelf::default(),
            ended: EndedSessions::default(),
            resources: Shelf::default(),
            permits: BTreeMap::new(),
            freezes: Freezes::default(),
            table_limits: TableLimits::default(),
            publication: None,
            deferred: Deferred::default(),
            deadlines: Deadlines::default(),
            public_ids: BTreeSet::new(),
            waiter_count: 0,
            size: 0,
            closed: BTreeSet::new(),
            unfinished: None,
            snapshot_bytes_last: 0,
            freed: BTreeSet::new(),
            endings_left: 0,
            search_budget: EntryBudget::UNUSED,
            search_cost: SearchCost::default(),
            promotion_budget: EntryBudget::UNUSED,
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
        // Whatever a session says shows that it lives, even if it is refused. That its stream broke, or that it hung up,
        // is said about it, not by it.
        if !matches!(command, Command::DetachStream { .. } | Command::Abandon { .. })
            && let Some(session) = command.session()
        {
            self.touch(session);
        }
        let in_tick = command == Command::Tick;
        self.endings_left = self.limits.expiries_per_tick_max;
        let before = events.len();
        let outcome = match command.check_under(&self.limits, self.rules) {
            Ok(()) => self.carry_out(command, events),
            Err(rejection) => Outcome::Rejected(rejection),
        };
        self.promote_freed(in_tick, events);
        self.continue_deferred(in_tick, events);
        self.count_events(events.get(before..).unwrap_or_default());
        outcome
    }

    fn carry_out(&mut self, command: Command, events: &mut Vec<Event>) -> Outcome {
        match command {
            Command::OpenSession(open) => self.open_session(open, events),
            Command::AttachStream { session, stream } => self.attach_stream(session, stream),
            Command::DetachStream { session, stream } => self.detach_stream(session, stream),
            Command::Touch { session, acked_through } => self.heartbeat(session, acked_through),
            Command::CloseSession { session } => self.close_session(session, events),
            Command::Acquire(acquire) => self.acquire(acquire, events),
            Command::AcquireAll(acquire) => self.acquire_all(acquire, events),
            Command::Convert { call, hold, to, wait, policy } => {
                self.convert(call, hold, to, wait, policy, events)
            }
            Command::Cancel { call, target } => self.cancel(call, target, events),
            Command::Abandon { session, request } => self.abandon(session, request, events),
            Command::Release { call, hold } => self.release(call, hold, events),
            Command::Renew { call, hold, ttl } => self.renew(call, hold, ttl),
            Command::Proclaim { call, hold, metadata } => {
                self.proclaim(call, hold, metadata, events)
            }
            Command::Transfer { call, hold, to } => self.transfer(call, hold, to, events),
            Command::Intervene(intervention) => self.intervene(intervention, events),
            Command::BeginTerm { grace } => self.begin_term(grace),
            Command::Tick => self.tick(events),
            Command::EventsPublished { through, index, term } => {
                self.events_published(through, index, term)
            }
            Command::AdoptRules { version } => {
                self.rules = self.rules.max(version);
                Outcome::Done
            }
        }
    }

    /// Counts one more end of something that is due, unless the present command has ended as much as one
    /// may: everybody else waits meanwhile.
    pub(crate) fn may_end_one_more(&mut self) -> bool {
        match self.endings_left.checked_sub(1) {
            Some(left) => self.endings_left = left,
            None => return false,
        }
        true
    }

    /// The rules that the table follows.
    pub fn rules(&self) -> RulesVersion {
        self.rules
    }

    /// The time of the last command.
    pub fn now(&self) -> LogicalTime {
        self.now
    }

    /// The log index of the last command.
    pub fn applied_index(&self) -> LogIndex {
        self.applied_index
    }

    /// The earliest of all deadlines: when the leader should write a [`Command::Tick`]. Promotions that are left for
    /// later go on with any entry, so a tick is due at once for them.
    pub fn next_deadline(&self) -> Option<LogicalTime> {
        let reopening = self.closed.first().map(|(until, _)| *until);
        let deferred = (!self.deferred.is_empty()).then_some(self.now);
        let all = [self.deadlines.first(), reopening, self.freezes.first_end(), deferred];
        all.into_iter().flatten().min()
    }

    /// The highest token granted so far; 0 before the first.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// How many resources are in the table: those that are held, and the few that are free but awaited
    /// or closed.
    pub fn lock_count(&self) -> usize {
        self.resources.len()
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub fn has_session(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some()
    }

    /// Is this request answered, as far as that can be told? One that waits is not.
    pub fn has_answered(&self, session: SessionId, request: RequestId) -> bool {
        let session = self.sessions.get(&session);
        session.is_some_and(|it| it.knows(request) && !it.waits.contains(request))
    }

    /// How many acquires stand in queues, over all resources.
    pub fn waiter_count(&self) -> usize {
        self.waiter_count
    }

    /// The session was heard of. One that has ended stays so.
    pub(crate) fn touch(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let was_due = session.deadline <= self.now;
        let deadline = self.now.after(session.ttl);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TouchNotIndexed.is_active() {
            session.deadline = deadline;
        }
        self.deadlines.replace(session.deadline, deadline, Due::Session(id));
        session.deadline = deadline;
        session.graced = false;
        session.lingering = false;
        if was_due {
            self.resume_lines_of(id);
        }
    }

    /// The hold that the sender of a request means.
    pub(crate) fn meant_by(
        &mut self,
        call: &Call,
        meant: &HoldRef,
    ) -> Result<&mut Hold, Rejection> {
        let resource = self.resources.get_mut(&meant.name).ok_or(Rejection::NotHeld)?;
        let key = resource.meant_by(call.session, meant)?.key();
        resource.hold_mut(key).ok_or(Rejection::NotHeld)
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Result<&mut Session, Rejection> {
        self.sessions.get_mut(&id).ok_or(Rejection::UnknownSession)
    }
}
