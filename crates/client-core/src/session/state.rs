//! What is known about the present session: its holds, its lease, and what has no answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_proto::plain::EncodedClientFrame;
use holdfast_proto::v1;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::{GroupMap, Guarantee, SessionId};

use super::config::Settings;
use super::output::Output;
use super::request::{Caller, Operation, Outcome, PendingRequest, Request, Success};
use crate::backoff::Backoff;
use crate::connect_errors::ConnectErrors;
use crate::error::{LossReason, RequestError};
use crate::group_id::GroupId;
use crate::hold::{Hold, HoldKey};
use crate::in_flight::InFlight;
use crate::lease::{HoldId, Leases, LocalTime, LogicalTime, RenewalId};
use crate::tier::Tier;
use crate::wire_time::whole_ms;

/// How long an answer may take, beyond the request's own wait, before another node is asked.
const ANSWER_PATIENCE_MIN: Duration = Duration::from_millis(500);
const ANSWER_PATIENCE_MAX: Duration = Duration::from_secs(3);

/// Callers are let go so much too late at the most. However many there are, they are not looked through more often.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// So that a frame stays far below the servers' message limit, whatever the operations hold.
const NAMES_PER_FRAME_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct State<C> {
    pub(crate) id: SessionId,
    /// As [`Config`](super::Config) has it.
    pub(crate) group: GroupId,
    /// The newest map that a welcome has told.
    pub(crate) map: Option<Arc<GroupMap>>,
    /// A group has refused by a newer map than that, with this epoch.
    pub(crate) newer_map: Option<u64>,
    /// Ids go on over the sessions of a client, so that a hold of a lost session is never taken for one of the next.
    pub(crate) requests: InFlight<PendingRequest<C>>,
    pub(crate) holds: BTreeMap<HoldKey, Arc<Hold>>,
    /// Holds without a guard whose release has no answer yet. They keep their leases: an acquire that went out before
    /// the release may have entered the hold again, under what renewals have left of it.
    releasing: BTreeMap<HoldKey, Arc<Hold>>,
    /// The highest acquire whose hold has got another TTL by a renewal, and is forgotten here.
    forgotten_with_new_ttl: u64,
    /// Holds whose conversion has no answer yet, and the requests that wait for it: until then it is not known
    /// under which token they are held.
    pub(crate) converting: BTreeMap<HoldId, Vec<u64>>,
    /// `None` until the session is open.
    leases: Option<Arc<Mutex<Leases>>>,
    /// When the open was first sent: the answer to a retry may be that of the first try.
    open_sent_at: Option<LocalTime>,
    pub(crate) heartbeat: Option<u64>,
    /// Requests that an overloaded node sent back, and when to try them again.
    pub(crate) retries_due: BTreeSet<(LocalTime, u64)>,
    pub(crate) answer_patience: Duration,
    /// As [`Config`](super::Config) has it.
    pub(crate) waits_for_rates: bool,
    /// No caller stops waiting before then. It may be too early, and is set right when it is reached.
    pub(crate) callers_wait_until: Option<LocalTime>,
    /// In which the node leads that serves the session: the efficiency tier ends with it.
    term: u64,
    /// The nodes of the cluster, if it has said so since this was last taken.
    pub(crate) announced_endpoints: Option<Vec<String>>,
    pub(crate) backoff: Backoff,
    pub(crate) errors: ConnectErrors,
    pub(crate) outputs: VecDeque<Output<C>>,
}

/// The first operation of a stream.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) request_id: u64,
    /// What its answer's logical time is counted from.
    pub(crate) sent_at: LocalTime,
    pub(crate) frame: Option<EncodedClientFrame>,
}

impl<C> State<C> {
    pub(crate) fn new(id: SessionId, lease_span: Duration, jitter_seed: u64) -> State<C> {
        State {
            id,
            group: GroupId::ROOT,
            map: None,
            newer_map: None,
            requests: InFlight::new(),
            holds: BTreeMap::new(),
            releasing: BTreeMap::new(),
            forgotten_with_new_ttl: 0,
            converting: BTreeMap::new(),
            leases: None,
            open_sent_at: None,
            heartbeat: None,
            retries_due: BTreeSet::new(),
            answer_patience: (lease_span / 4).clamp(ANSWER_PATIENCE_MIN, ANSWER_PATIENCE_MAX),
            waits_for_rates: true,
            callers_wait_until: None,
            term: 0,
            announced_endpoints: None,
            backoff: Backoff::new(jitter_seed),
            errors: ConnectErrors::default(),
            outputs: VecDeque::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.leases.is_some()
    }

    /// Each has a higher id than the one before, by which the servers tell which stream is the newest.
    pub(crate) fn hello(&mut self, settings: &Settings, now: LocalTime) -> Hello {
        // Read before the new id is reserved: a hello must not acknowledge its own answer.
        let acked_through = self.requests.acked_through();
        let session_id = self.id.to_secret_text();
        let request_id = self.requests.reserve_id();
        let group = self.group.to_wire();
        #[cfg(feature = "planted")]
        let group = crate::planted::Bug::GroupNotTold.instead(group, 0);
        let (kind, acked_through, sent_at) = if self.is_open() {
            let resume = v1::ResumeSessionRequest { session_id, request_id, group };
            (Kind::Resume(resume), acked_through, now)
        } else {
            let open = v1::OpenSessionRequest {
                session_id,
                request_id,
                ttl_ms: whole_ms(settings.ttl),
                linger_ms: settings.linger.map(whole_ms),
                owner: Some(settings.owner.clone()),
                group,
            };
            (Kind::Open(open), 0, *self.open_sent_at.get_or_insert(now))
        };
        let mut frame = EncodedClientFrame::new(acked_through);
        frame.push(&v1::Operation { kind: Some(kind) });
        Hello { request_id, sent_at, frame: Some(frame) }
    }

    pub(crate) fn welcomed(&mut self, sent_at: LocalTime, welcome: &v1::OpenSessionResponse) {
        let logical_time = LogicalTime(welcome.logical_time_ms);
        if self.term != welcome.term {
            self.term = welcome.term;
            self.restart_efficiency_tier();
        }
        if let Some(mut leases) = self.leases() {
            leases.answered(sent_at, logical_time);
            return;
        }
        let [ttl, linger] = [welcome.ttl_ms, welcome.linger_ms].map(Duration::from_millis);
        let leases = Leases::opened(sent_at, logical_time, ttl, linger);
        self.leases = Some(Arc::new(Mutex::new(leases)));
    }

    /// A map that gives a slot to no group, or to two, is no map: the client goes on with the one that it has.
    pub(crate) fn learn_map(&mut self, map: v1::GroupMap) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::MapIgnored.is_active() {
            return;
        }
        let Ok(map) = GroupMap::decode(map) else { return };
        if self.map.as_ref().is_none_or(|known| known.epoch() <= map.epoch()) {
            self.map = Some(Arc::new(map));
        }
    }

    /// A group has refused by the map with this epoch.
    pub(crate) fn note_map_epoch(&mut self, epoch: u64) {
        if self.map.as_ref().is_some_and(|map| map.epoch().0 < epoch) {
            self.newer_map = Some(epoch);
        }
    }

    /// The leader of another group does not serve this session.
    pub(crate) fn ignore_other_leader(&self, failure: &mut v1::Failure) {
        if failure.group != 0 && GroupId::from_wire(failure.group) != self.group {
            failure.leader.clear();
        }
    }

    /// The leader is another one, and what was held and awaited in the memory of the last is gone.
    fn restart_efficiency_tier(&mut self) {
        if let Some(mut leases) = self.leases() {
            leases.best_effort_restarts();
        }
        let is_gone = |hold: &&Arc<Hold>| hold.guarantee == Guarantee::BestEffort;
        let gone = self.holds.values().filter(is_gone).cloned().collect();
        self.end_holds(gone, LossReason::LeaderChanged);
        self.ask_again_under_new_ids(|operation| {
            operation.is_acquire() && operation.tier() == Tier::Efficiency
        });
    }

    /// The cluster forgot what was asked. What is still wanted is asked for again.
    fn ask_again_under_new_ids(&mut self, is_meant: impl Fn(&Operation) -> bool) {
        for id in self.requests.sent(|entry| is_meant(&entry.operation)) {
            let Some((entry, _)) = self.requests.settle(id) else { continue };
            if !entry.is_abandoned {
                self.requests.stage(entry);
            }
        }
    }

    /// There is no stream to the leader any more, and another leader may be elected without this client hearing of it.
    /// What is held in the memory of the last one ends. If that leader still leads, it is told so by the next stream.
    pub(crate) fn leader_lost(&mut self, reason: LossReason) {
        let ended: BTreeSet<HoldId> = match self.leases() {
            Some(mut leases) => leases.leader_lost().into_iter().collect(),
            None => return,
        };
        let is_lost = |hold: &&Arc<Hold>| ended.contains(&hold.lease);
        for hold in self.holds.values().filter(is_lost).cloned().collect::<Vec<_>>() {
            hold.lose(reason);
            // Under which token it is held is not known until a conversion has its answer.
            self.ask(PendingRequest::own(Operation::OfProgram(Request::Release {
                hold: Arc::clone(&hold),
            })));
            if !self.converting.contains_key(&hold.lease) {
                hold.end(reason);
            }
        }
    }

    /// Takes a request in. Returns its id.
    pub(crate) fn ask(&mut self, entry: PendingRequest<C>) -> u64 {
        let until = entry.caller.as_ref().map(|caller| caller.waits_until);
        self.callers_wait_until = self.callers_wait_until.into_iter().chain(until).min();
        let is_about_hold = entry.operation.request().and_then(Request::hold).is_some();
        let is_status = entry.operation.is_status();
        let id = self.requests.park(entry);
        if let Some(entry) = self.requests.get_mut(id) {
            entry.call = id;
        }
        if is_about_hold {
            self.start(id);
        } else {
            self.requests.unpark(id);
        }
        if is_status {
            // The servers keep no answer to it.
            self.requests.mark_waiting(id);
        }
        id
    }

    /// A request that the session makes by itself.
    pub(crate) fn stage_own(&mut self, operation: Operation) -> u64 {
        self.requests.stage(PendingRequest::own(operation))
    }

    /// The caller of an acquire or a convert is gone. A request that never went out is forgotten. One that did is
    /// cancelled, and kept until either its own answer or that of the cancel tells whether there is something to
    /// release. What was granted meanwhile, and did not reach the caller, is released.
    pub(crate) fn abandon(&mut self, call: u64) {
        let Some(id) = self.requests.find_by(call, |entry| entry.call == call) else {
            return self.release_granted_to(call);
        };
        if !self.requests.was_sent(id) {
            let is_parked = self.requests.is_parked(id);
            let settled = self.requests.settle(id);
            if let Some((entry, _)) = settled.filter(|_| !is_parked) {
                self.note_settled(&entry.operation);
            }
        } else if let Some(entry) = self.requests.get_mut(id) {
            entry.caller = None;
            entry.is_abandoned = true;
            let tier = entry.operation.tier();
            #[cfg(feature = "planted")]
            if crate::planted::Bug::ForgetCancel.is_active() {
                return;
            }
            self.stage_own(Operation::Cancel { target: id, tier });
        }
    }

    fn release_granted_to(&mut self, call: u64) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AbandonedGrantKept.is_active() {
            return;
        }
        let granted = self.holds.values().filter(|hold| hold.call == call);
        for hold in granted.cloned().collect::<Vec<_>>() {
            self.ask(PendingRequest::own(Operation::OfProgram(Request::Release { hold })));
        }
    }

    /// The next frame, if there is something to send.
    pub(crate) fn next_frame(&mut self, now: LocalTime) -> Option<EncodedClientFrame> {
        if !self.requests.has_staged() {
            return None;
        }
        let name_count = |entry: &PendingRequest<C>| entry.operation.name_count();
        let ids = self.requests.take_staged(NAMES_PER_FRAME_MAX, name_count);
        let mut frame = EncodedClientFrame::new(self.requests.acked_through());
        for id in ids {
            let Some(entry) = self.requests.get_mut(id) else { continue };
            entry.operation.write_to(&mut frame, id);
            let answer_due = LocalTime(now.0 + entry.operation.own_wait() + self.answer_patience);
            if let Operation::OfProgram(Request::Renew { hold, ttl }) = &entry.operation {
                let (lease, ttl) = (hold.lease, *ttl);
                if let Some(mut leases) = self.leases() {
                    leases.renewal_sent(lease, RenewalId(id), now, ttl);
                }
            }
            self.requests.mark_sent(id, now, answer_due);
        }
        Some(frame)
    }

    /// What was not answered will be sent again, except heartbeats, because the resume does their work, and looks,
    /// which are asked by calls then.
    pub(crate) fn stream_broke(&mut self) {
        self.give_up_status_requests();
        self.requests.take_out(|entry| matches!(entry.operation, Operation::Heartbeat));
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ResendUnderNewId.is_active() {
            self.ask_again_under_new_ids(|_| true);
        }
        self.requests.stage_all_again();
        self.retries_due.clear();
        self.heartbeat = None;
    }

    pub(crate) fn give_up_status_requests(&mut self) {
        for entry in self.requests.take_out(|entry| entry.operation.is_status()) {
            self.complete(entry.caller, Err(RequestError::NotServed));
        }
    }

    /// The session is over: each holder and each waiter is told. Acquires that it never sent are kept for the next one.
    pub(crate) fn end(&mut self, reason: LossReason, keeps_unsent: bool) {
        for hold in std::mem::take(&mut self.holds).into_values() {
            hold.end(reason);
        }
        self.releasing.clear();
        self.converting.clear();
        for entry in self.requests.drain(|entry| keeps_unsent && entry.operation.is_acquire()) {
            let outcome = match &entry.operation {
                Operation::OfProgram(request) => request.outcome_if_lost(reason),
                _ => Ok(Success::Closed),
            };
            self.complete(entry.caller, outcome);
        }
        self.leases = None;
        self.open_sent_at = None;
        self.heartbeat = None;
        self.retries_due.clear();
    }

    pub(crate) fn complete(&mut self, caller: Option<Caller<C>>, outcome: Outcome) {
        if let Some(Caller { caller, .. }) = caller {
            self.outputs.push_back(Output::Completed { caller, outcome });
        }
    }

    /// The hold is no longer this client's.
    pub(crate) fn forget_hold(&mut self, hold: &Hold) {
        if self.holds.remove(&hold.key).is_some() {
            self.forget_lease(hold);
        }
    }

    /// No guard has it any more, and its release is about to go out.
    pub(crate) fn begin_release(&mut self, hold: &Hold) {
        if let Some((key, hold)) = self.holds.remove_entry(&hold.key) {
            self.releasing.insert(key, hold);
        }
    }

    pub(crate) fn end_release(&mut self, hold: &Hold) {
        if self.releasing.remove(&hold.key).is_some() {
            self.forget_lease(hold);
        }
    }

    /// Guards that entered the hold again still need its lease.
    fn forget_lease(&mut self, hold: &Hold) {
        let range = || HoldKey::range_of(hold.key.acquire);
        let mut others = self.holds.range(range()).chain(self.releasing.range(range()));
        let is_needed = others.any(|(_, other)| other.lease == hold.lease);
        if is_needed {
            return;
        }
        let Some(mut leases) = self.leases() else { return };
        let has_new_ttl = leases.has_new_ttl(hold.lease);
        leases.ended(hold.lease);
        drop(leases);
        if has_new_ttl {
            self.forgotten_with_new_ttl = self.forgotten_with_new_ttl.max(hold.key.acquire);
        }
    }

    /// The hold of this name that an acquire has entered again, if its lease is known.
    pub(crate) fn entered_by(&self, acquire: u64, name: &str) -> Option<Arc<Hold>> {
        let range = HoldKey::range_of(acquire);
        let releasing = self.releasing.range(range).map(|(_, hold)| hold);
        let mut holds = self.holds_of(acquire).chain(releasing);
        holds.find(|hold| hold.name == name && hold.valid_until().is_some()).cloned()
    }

    /// Whether an acquire has entered a hold again whose lease is forgotten. Its answer came after that of a later
    /// release, and may name a deadline from before a renewal.
    pub(crate) fn has_unknown_lease(&self, id: u64, acquire: u64, name: &str) -> bool {
        let is_forgotten = acquire != id && acquire <= self.forgotten_with_new_ttl;
        is_forgotten && self.entered_by(acquire, name).is_none()
    }

    /// The holds that the cluster knows by this acquire.
    pub(crate) fn holds_of(&self, acquire: u64) -> impl Iterator<Item = &Arc<Hold>> {
        self.holds.range(HoldKey::range_of(acquire)).map(|(_, hold)| hold)
    }

    pub(crate) fn stage_heartbeat_if_due(&mut self, now: LocalTime) {
        let is_due = self.leases().is_some_and(|leases| leases.heartbeat_due() <= now);
        if is_due && self.heartbeat.is_none() {
            self.heartbeat = Some(self.stage_own(Operation::Heartbeat));
        }
    }

    pub(crate) fn stage_due_retries(&mut self, now: LocalTime) {
        while let Some((due, id)) = self.retries_due.first().copied() {
            if due > now {
                return;
            }
            self.retries_due.remove(&(due, id));
            self.requests.stage_again(id);
        }
    }

    /// Callers who have waited as long as they wanted to. What they asked for goes on until they abandon it.
    pub(crate) fn let_callers_go(&mut self, now: LocalTime) {
        if self.callers_wait_until.is_none_or(|until| now < until) {
            return;
        }
        let mut next: Option<LocalTime> = None;
        let mut gone = Vec::new();
        for (id, entry) in self.requests.iter_mut() {
            match &entry.caller {
                Some(caller) if caller.waits_until <= now => gone.push((id, entry.caller.take())),
                Some(caller) => {
                    next = Some(next.map_or(caller.waits_until, |it| it.min(caller.waits_until)));
                }
                None => {}
            }
        }
        gone.sort_unstable_by_key(|(id, _)| *id);
        for (id, caller) in gone {
            let unavailable = self.errors.to_unavailable(self.requests.was_sent(id));
            self.complete(caller, Err(RequestError::Unavailable(unavailable)));
        }
        let not_before = LocalTime(now.0 + CALLER_CHECK_INTERVAL);
        self.callers_wait_until = next.map(|next| next.max(not_before));
    }

    /// When a heartbeat, a retry or an overdue answer has to be seen to, if nothing arrives.
    pub(crate) fn next_due(&self) -> Option<LocalTime> {
        let heartbeat = match self.heartbeat {
            Some(_) => None,
            None => self.leases().map(|leases| leases.heartbeat_due()),
        };
        let retry = self.retries_due.first().map(|(due, _)| *due);
        [heartbeat, self.requests.answers_due_from(), retry].into_iter().flatten().min()
    }

    pub(crate) fn leases(&self) -> Option<MutexGuard<'_, Leases>> {
        let leases = self.leases.as_ref()?;
        Some(leases.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn shared_leases(&self) -> Option<Arc<Mutex<Leases>>> {
        self.leases.clone()
    }
}
