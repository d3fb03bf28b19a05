//! The lock table: its parts, and the small changes that keep them in step.
//!
//! Outside of `state` no field can be reached. Rules read by the methods that give a part, and change by the methods of
//! the modules below, each of which moves every index, count and size that its change concerns.

mod access;
mod costs;
mod holds;
mod locks;
mod moves;
mod queues;
mod sessions;
mod settings;
mod usage;

use alloc::collections::{BTreeMap, BTreeSet};

use crate::model::access::policy::Access;
use crate::model::event::EndReason;
use crate::model::id::{LogIndex, PublicSessionId, RequestId, SessionId};
use crate::model::limits::Limits;
use crate::model::name::LockName;
use crate::model::publication::Publication;
use crate::model::rules_version::RulesVersion;
use crate::model::table_limits::TableLimits;
use crate::model::time::LogicalTime;
use crate::state::access::CompiledGrants;
use crate::state::budget::{EntryBudget, SearchCost};
use crate::state::deadlines::Deadlines;
use crate::state::deferred::Deferred;
use crate::state::dense_map::DenseMap;
use crate::state::ended_sessions::EndedSessions;
use crate::state::freezes::Freezes;
use crate::state::lock::Lock;
use crate::state::moves::Moves;
use crate::state::ownership::Ownership;
use crate::state::session::Session;
use crate::state::size;
use crate::state::snapshot_map::SnapshotMap;
use crate::state::unfinished_snapshot::UnfinishedSnapshot;
use crate::state::usage::Usage;

/// The replicated state: sessions, locks, queues.
///
/// Change it with [`apply`](LockTable::apply), in log order. Ask it anything at any time. Move it as
/// bytes with [`encode`](LockTable::encode) and [`decode`](LockTable::decode).
#[derive(Clone, Debug)]
pub struct LockTable {
    pub(super) limits: Limits,
    pub(super) now: LogicalTime,
    pub(super) applied_index: LogIndex,
    pub(super) last_token: u64,
    pub(super) sessions: SnapshotMap<SessionId, Session>,
    pub(super) ended: EndedSessions,
    pub(super) locks: SnapshotMap<LockName, Lock>,
    /// Numbers of permits that operators have set.
    pub(super) permits: BTreeMap<LockName, u32>,
    pub(super) freezes: Freezes,
    /// What `apply` does depends on them.
    pub(super) rules: RulesVersion,
    pub(super) table_limits: TableLimits,
    /// None unless events are published.
    pub(super) publication: Option<Publication>,
    /// Empty before rules 3.
    pub(super) deferred: Deferred,
    /// Who may do what; empty before rules 4.
    pub(super) access: Access,
    /// All slots before rules 7.
    pub(super) ownership: Ownership,
    /// Empty before rules 10.
    pub(super) moves: Moves,
    // What follows can be computed from the above, and is not in the snapshot.
    pub(super) deadlines: Deadlines,
    /// Those that have not ended.
    pub(super) public_ids: BTreeSet<(PublicSessionId, SessionId)>,
    /// The sessions that have ended and have holds or waits left, by the time of their end.
    pub(super) ending: BTreeSet<(LogicalTime, SessionId)>,
    pub(super) waiter_count: usize,
    /// Those with an identity. If there are none, nothing is checked.
    pub(super) identified_sessions: usize,
    /// None unless the policy has quotas that the table counts for.
    usage: Option<Usage>,
    /// What all of it takes, in bytes, as all replicas estimate it.
    pub(super) size: u64,
    /// Locks that a lock delay keeps closed, by the end of it.
    pub(super) closed: BTreeSet<(LogicalTime, LockName)>,
    pub(super) unfinished: Option<UnfinishedSnapshot>,
    /// How large the last snapshot was.
    pub(super) snapshot_bytes_last: usize,
    /// What the present command has freed, or made easier to get. Empty between two commands.
    freed: BTreeSet<LockName>,
    /// How much of what is due the present command may still end.
    endings_left: usize,
    search_budget: EntryBudget,
    search_cost: SearchCost,
    promotion_budget: EntryBudget,
    /// For the holds and queue places of sessions that end in this entry.
    fresh_end_budget: EntryBudget,
    /// For those of sessions that are left in `ending`.
    ending_budget: EntryBudget,
    move_budget: EntryBudget,
    compiled_grants: CompiledGrants,
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
            sessions: SnapshotMap::default(),
            ended: EndedSessions::default(),
            locks: SnapshotMap::default(),
            permits: BTreeMap::new(),
            freezes: Freezes::default(),
            table_limits: TableLimits::default(),
            publication: None,
            deferred: Deferred::default(),
            access: Access::default(),
            ownership: Ownership::default(),
            moves: Moves::default(),
            compiled_grants: CompiledGrants::default(),
            deadlines: Deadlines::default(),
            public_ids: BTreeSet::new(),
            ending: BTreeSet::new(),
            waiter_count: 0,
            identified_sessions: 0,
            usage: None,
            size: 0,
            closed: BTreeSet::new(),
            unfinished: None,
            snapshot_bytes_last: 0,
            freed: BTreeSet::new(),
            endings_left: 0,
            search_budget: EntryBudget::UNUSED,
            search_cost: SearchCost::default(),
            promotion_budget: EntryBudget::UNUSED,
            fresh_end_budget: EntryBudget::UNUSED,
            ending_budget: EntryBudget::UNUSED,
            move_budget: EntryBudget::UNUSED,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// All sessions, also those that have ended and have holds or waits left.
    pub(crate) fn session_map(&self) -> &DenseMap<SessionId, Session> {
        &self.sessions
    }

    /// None if it has ended.
    pub(crate) fn live_session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).filter(|session| session.ending.is_none())
    }

    /// Why the session has ended, if it has holds or waits left.
    pub(crate) fn ending_of(&self, id: SessionId) -> Option<EndReason> {
        if self.ending.is_empty() {
            return None;
        }
        self.sessions.get(&id)?.ending
    }

    /// Those that have ended and have holds or waits left, in the order in which they are taken up.
    pub(crate) fn ending_index(&self) -> &BTreeSet<(LogicalTime, SessionId)> {
        &self.ending
    }

    pub(crate) fn lock_map(&self) -> &DenseMap<LockName, Lock> {
        &self.locks
    }

    pub(crate) fn ended_sessions(&self) -> &EndedSessions {
        &self.ended
    }

    pub(crate) fn stored_permits(&self) -> &BTreeMap<LockName, u32> {
        &self.permits
    }

    pub(crate) fn freezes_in_force(&self) -> &Freezes {
        &self.freezes
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    pub(crate) fn closed_locks(&self) -> &BTreeSet<(LogicalTime, LockName)> {
        &self.closed
    }

    pub(crate) fn identified_sessions(&self) -> usize {
        self.identified_sessions
    }

    pub(crate) fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    pub(crate) fn public_ids(&self) -> &BTreeSet<(PublicSessionId, SessionId)> {
        &self.public_ids
    }

    /// All parts, counted again.
    pub(crate) fn count_bytes(&self) -> u64 {
        let sessions: u64 = self.sessions.values().map(|session| session.size_bytes()).sum();
        let locks: u64 = self.locks.keys().map(size::of_lock).sum();
        let permits: u64 = self.permits.keys().map(size::of_lock).sum();
        sessions + locks + permits + self.moves.bytes()
    }

    /// What the session holds, counted again.
    pub(crate) fn count_held_bytes(&self, id: SessionId, session: &Session) -> u64 {
        let holds = session.holds().map(|(request, name)| {
            let lock = self.locks.get(name);
            let hold = lock.and_then(|lock| lock.hold((id, request)));
            hold.map_or(0, |hold| size::of_hold(name, hold.metadata()))
        });
        holds.sum()
    }

    /// What all searches for deadlocks have cost, since the table was made or read.
    pub fn search_cost(&self) -> SearchCost {
        self.search_cost
    }

    /// Who may do what.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The slots in which the table grants.
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// The moves of slots from and to the group.
    pub fn moves(&self) -> &Moves {
        &self.moves
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

    /// The earliest of all deadlines: when the leader should write a [`Command::Tick`](crate::Command::Tick).
    /// Promotions, ended sessions and moves that are left for later go on with any entry, so a tick is due at once for
    /// them.
    pub fn next_deadline(&self) -> Option<LogicalTime> {
        let reopening = self.closed.first().map(|(until, _)| *until);
        let is_work_left =
            !self.deferred.is_empty() || !self.ending.is_empty() || self.moves.has_work();
        let deferred = is_work_left.then_some(self.now);
        let all = [self.deadlines.first(), reopening, self.freezes.first_end(), deferred];
        all.into_iter().flatten().min()
    }

    /// The highest token granted so far; 0 before the first.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// How many locks are in the table: those that are held, and the few that are free but awaited
    /// or closed.
    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len() - self.ending.len()
    }

    /// Sessions that have ended, and whose last holds and waits are left for later entries.
    pub fn ending_session_count(&self) -> usize {
        self.ending.len()
    }

    pub fn has_session(&self, id: SessionId) -> bool {
        self.live_session(id).is_some()
    }

    /// Is this request answered, as far as that can be told? One that waits is not.
    pub fn has_answered(&self, session: SessionId, request: RequestId) -> bool {
        let session = self.live_session(session);
        session.is_some_and(|it| it.knows(request) && !it.waits.contains(request))
    }

    /// How many acquires stand in queues, over all locks.
    pub fn waiter_count(&self) -> usize {
        self.waiter_count
    }

    /// How many bytes the table takes, as all replicas estimate it.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    pub fn table_limits(&self) -> TableLimits {
        self.table_limits
    }

    /// None if no events were ever published.
    pub fn publication(&self) -> Option<Publication> {
        self.publication
    }

    /// Promotions that are left for later entries.
    pub fn deferred_promotions(&self) -> usize {
        self.deferred.len()
    }
}
