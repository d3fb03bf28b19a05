//! The lock table: its parts, and the small changes that keep them in step.
//!
//! Outside of `state` no field can be reached. Rules read by the methods that give a part, and change by the methods
//! below, each of which moves every index, count and size that its change concerns.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use crate::model::event::Event;
use crate::model::id::{FenceToken, LogIndex, PublicSessionId, RequestId, SessionId};
use crate::model::limits::Limits;
use crate::model::name::LockName;
use crate::model::publication::Publication;
use crate::model::rules_version::RulesVersion;
use crate::model::table_limits::TableLimits;
use crate::model::time::LogicalTime;
use crate::state::answers::Answers;
use crate::state::budget::{EntryBudget, EntryId, SearchCost};
use crate::state::deadlines::{Deadlines, Due};
use crate::state::deferred::{Deferred, Promotion};
use crate::state::dense_map::DenseMap;
use crate::state::ended_sessions::{End, EndedSessions};
use crate::state::freezes::{Freeze, Freezes};
use crate::state::hold::{Actor, Hold, HoldKey};
use crate::state::queue::{Ticket, Waiter};
use crate::state::resource::Resource;
use crate::state::session::Session;
use crate::state::size;
use crate::state::snapshot_map::SnapshotMap;
use crate::state::unfinished_snapshot::UnfinishedSnapshot;
use crate::state::wait::{Place, Wait};

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
    pub(super) locks: SnapshotMap<LockName, Resource>,
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
    // What follows can be computed from the above, and is not in the snapshot.
    pub(super) deadlines: Deadlines,
    pub(super) public_ids: BTreeSet<(PublicSessionId, SessionId)>,
    pub(super) waiter_count: usize,
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

    // Time, and what one command may do.

    /// A command of the entry at `index` begins. A stamp lower than an earlier one counts as that.
    pub(crate) fn begin_command(&mut self, index: LogIndex, at: LogicalTime) {
        self.applied_index = self.applied_index.max(index);
        self.now = self.now.max(at);
        self.endings_left = self.limits.expiries_per_tick_max;
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

    fn entry(&self) -> EntryId {
        (self.applied_index, self.now)
    }

    /// What a search, or several that share it, may cost now.
    pub(crate) fn search_steps(&self) -> usize {
        let steps_max = self.limits.deadlock_walk_max;
        match self.rules >= RulesVersion::TWO {
            true => self.search_budget.left(self.entry(), steps_max),
            false => steps_max,
        }
    }

    /// Of what a search might have cost, so much is left.
    pub(crate) fn search_ended(&mut self, before: usize, left: usize, skipped: u64) {
        self.search_budget.set_left(self.entry(), left);
        self.search_cost.steps += before.saturating_sub(left) as u64;
        self.search_cost.skipped += skipped;
    }

    /// What the promotions of this entry may still cost.
    pub(crate) fn promotion_steps(&self) -> usize {
        self.promotion_budget.left(self.entry(), self.limits.promotion_walk_max)
    }

    pub(crate) fn spend_promotion_steps(&mut self, steps: usize) {
        let left = self.promotion_steps().saturating_sub(steps);
        self.promotion_budget.set_left(self.entry(), left);
    }

    // Sessions.

    pub(crate) fn add_session(&mut self, id: SessionId, session: Session) {
        self.size += session.size_bytes();
        self.deadlines.insert(session.deadline, Due::Session(id));
        self.public_ids.insert((session.public, id));
        self.sessions.insert(id, session);
    }

    /// Its waits still stand in their queues, and its holds are still held.
    pub(crate) fn remove_session(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.size = self.size.saturating_sub(session.size_bytes());
        self.deadlines.remove(session.deadline, Due::Session(id));
        self.public_ids.remove(&(session.public, id));
        Some(session)
    }

    /// Changes how long a session lives, or by which stream it came: nothing that has a size.
    pub(crate) fn change_lease<R>(
        &mut self,
        id: SessionId,
        change: impl FnOnce(&mut Session) -> R,
    ) -> Option<R> {
        let session = self.sessions.get_mut(&id)?;
        let before = session.deadline;
        let changed = change(session);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TouchNotIndexed.is_active() {
            return Some(changed);
        }
        self.deadlines.replace(before, session.deadline, Due::Session(id));
        Some(changed)
    }

    /// Changes what a session remembers, but for its deadline.
    pub(crate) fn change_session<R>(
        &mut self,
        id: SessionId,
        change: impl FnOnce(&mut Session) -> R,
    ) -> Option<R> {
        let session = self.sessions.get_mut(&id)?;
        let before = session.size_bytes();
        let changed = change(session);
        self.size = (self.size + session.size_bytes()).saturating_sub(before);
        Some(changed)
    }

    pub(crate) fn change_answers<R>(
        &mut self,
        id: SessionId,
        change: impl FnOnce(&mut Answers) -> R,
    ) -> Option<R> {
        let answers = &mut self.sessions.get_mut(&id)?.answers;
        let before = answers.bytes();
        let changed = change(answers);
        self.size = (self.size + answers.bytes()).saturating_sub(before);
        Some(changed)
    }

    /// A session has ended, and is remembered for a while.
    pub(crate) fn remember_end(&mut self, id: SessionId, end: End) {
        if self.rules >= RulesVersion::TWO {
            self.ended.remember(id, end, self.now);
            self.forget_old_ends();
        } else {
            self.ended.remember(id, end, LogicalTime::ZERO);
            self.ended.forget_beyond(self.limits.ended_sessions_max);
        }
    }

    pub(crate) fn forget_old_ends(&mut self) {
        let Limits { ended_sessions_max, ended_sessions_span, .. } = self.limits;
        self.ended.forget_older(self.now, ended_sessions_span, ended_sessions_max);
    }

    // Holds.

    /// Gives the name as the table has it: its own copy of the text.
    pub(crate) fn add_hold(&mut self, name: &LockName, hold: Hold) -> LockName {
        let ((id, request), token) = (hold.key(), hold.token);
        if let Some(deadline) = hold.deadline() {
            self.deadlines.insert(deadline, Due::Hold(id, request, token));
        }
        let bytes = size::of_hold(name, hold.metadata());
        let name = self.change_or_add_lock(name, |name, lock| {
            lock.add_hold(hold);
            name.clone()
        });
        if let Some(session) = self.sessions.get_mut(&id) {
            session.add_hold(request, name.clone());
            session.held_bytes += bytes;
            self.size += bytes;
            session.note_token(token);
        }
        name
    }

    pub(crate) fn remove_hold(&mut self, name: &LockName, key: HoldKey) -> Option<Hold> {
        let lock = self.locks.get_mut(name)?;
        let hold = lock.remove_hold(key)?;
        if lock.is_unused() {
            self.forget_lock(name);
        }
        if let Some(session) = self.sessions.get_mut(&key.0) {
            session.remove_hold(key.1, name);
            session.forget_conversion(hold.converted_by());
            let bytes = size::of_hold(name, hold.metadata());
            session.held_bytes = session.held_bytes.saturating_sub(bytes);
            self.size = self.size.saturating_sub(bytes);
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::HoldDeadlineLeftBehind.is_active() {
            return Some(hold);
        }
        if let Some(deadline) = hold.deadline() {
            self.deadlines.remove(deadline, Due::Hold(hold.session, hold.request, hold.token));
        }
        Some(hold)
    }

    pub(crate) fn change_hold<R>(
        &mut self,
        name: &LockName,
        key: HoldKey,
        change: impl FnOnce(&mut Hold) -> R,
    ) -> Option<R> {
        let hold = self.locks.get_mut(name)?.hold_mut(key)?;
        let (deadline, token) = (hold.deadline(), hold.token);
        let bytes = size::of_hold(name, hold.metadata());
        let changed = change(hold);
        let (new_deadline, new_token) = (hold.deadline(), hold.token);
        let new_bytes = size::of_hold(name, hold.metadata());
        #[cfg(feature = "planted")]
        let new_deadline = new_deadline.map(|deadline| {
            let loses = crate::planted::Bug::UpgradeLosesDeadline.is_active() && token != new_token;
            if loses {
                deadline.after(crate::model::time::Span::from_secs(86_400))
            } else {
                deadline
            }
        });
        if (deadline, token) != (new_deadline, new_token) {
            if let Some(deadline) = deadline {
                self.deadlines.remove(deadline, Due::Hold(key.0, key.1, token));
            }
            if let Some(deadline) = new_deadline {
                self.deadlines.insert(deadline, Due::Hold(key.0, key.1, new_token));
            }
        }
        if bytes != new_bytes
            && let Some(session) = self.sessions.get_mut(&key.0)
        {
            session.held_bytes = (session.held_bytes + new_bytes).saturating_sub(bytes);
            self.size = (self.size + new_bytes).saturating_sub(bytes);
        }
        Some(changed)
    }

    // Locks.

    fn change_or_add_lock<R>(
        &mut self,
        name: &LockName,
        change: impl FnOnce(&LockName, &mut Resource) -> R,
    ) -> R {
        let locks = self.locks.len();
        let changed = self.locks.change_or_add(name, change);
        if self.locks.len() > locks {
            self.size += size::of_lock(name);
        }
        changed
    }

    /// No session holds it or waits for it, and nothing keeps it closed: it costs nothing.
    pub(crate) fn forget_lock(&mut self, name: &LockName) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::FreeNameKept.is_active() {
            return;
        }
        if self.locks.remove(name).is_some() {
            self.size = self.size.saturating_sub(size::of_lock(name));
        }
    }

    /// Closes a lock until then, or until a later time that it is closed for already.
    pub(crate) fn close_lock(&mut self, name: &LockName, end: LogicalTime) {
        let (before, until) = self.change_or_add_lock(name, |_, lock| {
            let before = lock.closed_until();
            let until = before.map_or(end, |before| before.max(end));
            lock.close_until(Some(until));
            (before, until)
        });
        if let Some(before) = before {
            self.closed.remove(&(before, name.clone()));
        }
        self.closed.insert((until, name.clone()));
    }

    /// Was it closed?
    pub(crate) fn open_lock(&mut self, name: &LockName) -> bool {
        let Some(lock) = self.locks.get_mut(name) else { return false };
        let Some(until) = lock.closed_until() else { return false };
        lock.close_until(None);
        self.closed.remove(&(until, name.clone()));
        true
    }

    /// Notes that a lock has become free, or easier to get.
    pub(crate) fn note_freed(&mut self, name: LockName) {
        self.freed.insert(name);
    }

    pub(crate) fn take_freed(&mut self) -> BTreeSet<LockName> {
        core::mem::take(&mut self.freed)
    }

    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    pub(crate) fn defer(&mut self, promotion: Promotion) {
        self.deferred.push(promotion);
    }

    /// One that was taken out and is not finished.
    pub(crate) fn put_back_deferred(&mut self, promotion: Promotion) {
        self.deferred.put_back(promotion);
    }

    pub(crate) fn take_deferred(&mut self) -> Option<Promotion> {
        self.deferred.pop()
    }

    // Waits.

    /// Takes a place in a queue. Gives the name as the table has it, the place, and how many stood there.
    pub(crate) fn enqueue(
        &mut self,
        name: &LockName,
        waiter: Waiter,
        is_first: bool,
    ) -> (LockName, Ticket, usize) {
        self.waiter_count += 1;
        self.change_or_add_lock(name, |name, lock| {
            let queue = lock.queue_mut();
            let ahead = queue.len();
            let ticket = if is_first { queue.push_front(waiter) } else { queue.push(waiter) };
            (name.clone(), ticket, ahead)
        })
    }

    /// A wait whose places are taken.
    pub(crate) fn add_wait(&mut self, id: SessionId, request: RequestId, wait: Wait) {
        let actor = (id, wait.actor);
        let waited = self.waits_of(actor).next().is_some();
        let before = if waited { self.place_if_only(actor) } else { None };
        self.deadlines.insert(wait.deadline, Due::Wait(id, request));
        let places = wait.places.as_slice();
        if waited || places.len() > 1 {
            for place in places.iter().chain(&before) {
                self.set_tangled(place, true);
            }
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            self.size += wait.size_bytes();
            session.waits.insert(request, wait);
        }
    }

    /// Takes a wait from its session, and out of its queues.
    pub(crate) fn remove_wait(&mut self, id: SessionId, request: RequestId) -> Option<Box<Wait>> {
        let wait = self.sessions.get_mut(&id)?.waits.remove(request)?;
        self.size = self.size.saturating_sub(wait.size_bytes());
        self.leave_queues(id, request, &wait);
        Some(wait)
    }

    /// Gives up the places of a wait that its session no longer has.
    pub(crate) fn leave_queues(&mut self, id: SessionId, request: RequestId, wait: &Wait) {
        for place in wait.places.as_slice() {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::AcquireAllLeavesAPlace.is_active()
                && wait.places.as_slice().iter().position(|it| it.name == place.name) == Some(1)
            {
                continue;
            }
            self.leave_queue(&place.name, place.ticket);
        }
        self.deadlines.remove(wait.deadline, Due::Wait(id, request));
        if let Some(place) = self.place_if_only((id, wait.actor)) {
            self.set_tangled(&place, false);
        }
    }

    pub(crate) fn leave_queue(&mut self, name: &LockName, ticket: Ticket) -> Option<Waiter> {
        let lock = self.locks.get_mut(name)?;
        let waiter = lock.queue_mut().remove(ticket);
        self.waiter_count -= usize::from(waiter.is_some());
        lock.forget_empty_line();
        waiter
    }

    /// Who stands in more than one place is marked in each: only such a waiter can be in the way of
    /// others for a reason that its queue does not show.
    fn set_tangled(&mut self, place: &Place, tangled: bool) {
        if let Some(lock) = self.locks.get_mut(&place.name) {
            lock.queue_mut().set_tangled(place.ticket, tangled);
        }
    }

    /// Puts a waiter where no rule would put it.
    #[cfg(test)]
    pub(crate) fn move_waiter(
        &mut self,
        name: &LockName,
        from: Ticket,
        to: Ticket,
    ) -> Option<Ticket> {
        let queue = self.locks.get_mut(name)?.queue_mut();
        let waiter = queue.remove(from)?;
        queue.insert(to, waiter);
        Some(to)
    }

    // Tokens, and what operators and the leader set.

    /// The token of the next grant. There are enough for a million grants a second over thousands of
    /// centuries; should they ever run out, nothing is granted any more.
    pub(crate) fn next_token(&mut self) -> Option<FenceToken> {
        if !self.has_tokens_for(1) {
            return None;
        }
        self.last_token += 1;
        Some(FenceToken(self.last_token))
    }

    pub(crate) fn has_tokens_for(&self, grants: usize) -> bool {
        self.last_token.saturating_add(grants as u64) <= FenceToken::MAX.0
    }

    /// None forgets the number.
    pub(crate) fn store_permits(&mut self, name: &LockName, limit: Option<u32>) {
        let before = match limit {
            Some(limit) => self.permits.insert(name.clone(), limit),
            None => self.permits.remove(name),
        };
        match (before, limit) {
            (None, Some(_)) => self.size += size::of_lock(name),
            (Some(_), None) => self.size = self.size.saturating_sub(size::of_lock(name)),
            _ => {}
        }
    }

    pub(crate) fn add_freeze(&mut self, prefix: Box<str>, freeze: Freeze) {
        self.freezes.insert(prefix, freeze);
    }

    pub(crate) fn remove_freeze(&mut self, prefix: &str) -> Option<Freeze> {
        self.freezes.remove(prefix)
    }

    pub(crate) fn set_table_limits(&mut self, limits: TableLimits) {
        self.table_limits = limits;
    }

    /// Rules never go back.
    pub(crate) fn set_rules(&mut self, rules: RulesVersion) {
        self.rules = self.rules.max(rules);
    }

    pub(crate) fn set_publication(&mut self, publication: Publication) {
        self.publication = Some(publication);
    }

    pub(crate) fn count_events(&mut self, events: &[Event]) {
        if let Some(publication) = &mut self.publication {
            let news = events.iter().filter(|event| event.is_news()).count();
            publication.events = publication.events.saturating_add(news as u64);
        }
    }

    /// Tokens and log indexes go on from these, if they are higher. What was published and what was deferred is
    /// forgotten.
    pub(crate) fn leap_to(&mut self, token: u64, index: LogIndex) {
        self.last_token = self.last_token.max(token);
        self.applied_index = self.applied_index.max(index);
        self.publication = None;
        self.deferred = Deferred::default();
    }

    /// A token as no table would count it.
    #[cfg(feature = "planted")]
    pub(crate) fn set_last_token(&mut self, token: u64) {
        self.last_token = token;
    }

    /// As if something took so much that does not.
    #[cfg(feature = "planted")]
    pub(crate) fn leak_bytes(&mut self, bytes: u64) {
        self.size += bytes;
    }

    #[cfg(feature = "planted")]
    pub(crate) fn forget_first_due_of_the_dead(&mut self) {
        self.deadlines.forget_first_due_of_the_dead(self.now, |id| self.sessions.contains_key(&id));
    }

    // Parts, to be read.

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn session_map(&self) -> &DenseMap<SessionId, Session> {
        &self.sessions
    }

    pub(crate) fn lock_map(&self) -> &DenseMap<LockName, Resource> {
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

    pub(crate) fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    pub(crate) fn public_ids(&self) -> &BTreeSet<(PublicSessionId, SessionId)> {
        &self.public_ids
    }

    /// The sessions that are shown under this id. There is one, unless two ids are shown alike.
    pub(crate) fn sessions_shown_as(
        &self,
        public: PublicSessionId,
    ) -> impl Iterator<Item = SessionId> {
        let ids = (public, SessionId(0))..=(public, SessionId(u128::MAX));
        self.public_ids.range(ids).map(|(_, id)| *id)
    }

    /// The requests by which an actor waits.
    pub(crate) fn waits_of(&self, actor: Actor) -> impl Iterator<Item = (RequestId, &Wait)> {
        let (id, actor) = actor;
        self.sessions.get(&id).into_iter().flat_map(move |session| session.waits.of(actor))
    }

    /// Where an actor stands, if that is only one place.
    pub(crate) fn place_if_only(&self, actor: Actor) -> Option<Place> {
        let mut waits = self.waits_of(actor);
        match (waits.next()?.1.places.as_slice(), waits.next()) {
            ([place], None) => Some(place.clone()),
            _ => None,
        }
    }

    /// All parts, counted again.
    pub(crate) fn count_bytes(&self) -> u64 {
        let sessions: u64 = self.sessions.values().map(|session| session.size_bytes()).sum();
        let locks: u64 = self.locks.keys().map(size::of_lock).sum();
        let permits: u64 = self.permits.keys().map(size::of_lock).sum();
        sessions + locks + permits
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

    /// The earliest of all deadlines: when the leader should write a [`Command::Tick`](crate::Command::Tick). Promotions
    /// that are left for later go on with any entry, so a tick is due at once for them.
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

    /// How many locks are in the table: those that are held, and the few that are free but awaited
    /// or closed.
    pub fn lock_count(&self) -> usize {
        self.locks.len()
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
