//! What the task knows about its current session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_proto::v1;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::{Guarantee, SessionId};

use super::request::{Request, whole_ms};
use super::{Command, Settings, StatusReply};
use crate::error::{ConnectError, LossReason};
use crate::hold::{Hold, HoldKey};
use crate::in_flight::InFlight;
use crate::lease::{HoldId, Leases, LocalTime, LogicalTime};
use crate::tier::Tier;

/// How long an answer may take, beyond the request's own wait, before another node is asked.
const ANSWER_PATIENCE_MIN: Duration = Duration::from_millis(500);
const ANSWER_PATIENCE_MAX: Duration = Duration::from_secs(3);

/// Callers are let go so much too late at the most. However many there are, they are not looked through more often.
const PATIENCE_STEP: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Counts the sessions of this client.
    pub(crate) number: u64,
    pub(crate) requests: InFlight<Request>,
    pub(crate) holds: BTreeMap<HoldKey, Arc<Hold>>,
    /// Holds whose conversion has no answer yet, and what has to wait for it: until then it is not known
    /// under which token they are held.
    pub(crate) converting: BTreeMap<HoldKey, Vec<Command>>,
    /// What need not wait any longer.
    pub(crate) ready: Vec<Command>,
    /// `None` until the session is open.
    leases: Option<Arc<Mutex<Leases>>>,
    /// When the open was first sent: the answer to a retry may be that of the first try.
    open_sent_at: Option<LocalTime>,
    pub(crate) heartbeat: Option<u64>,
    /// Requests that an overloaded node sent back, and when to try them again.
    pub(crate) retries_due: BTreeSet<(Instant, u64)>,
    pub(crate) answer_patience: Duration,
    /// No caller's patience ends before then. It may be too early, and is set right when it is reached.
    pub(crate) patience_ends_from: Option<Instant>,
    /// In which the node leads that serves the session: the efficiency tier ends with it.
    term: u64,
    /// The nodes of the cluster, if it has said so since the task last looked.
    pub(crate) endpoints_told: Option<Vec<String>>,
}

/// The first operation of a stream.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) request_id: u64,
    pub(crate) kind: Kind,
    pub(crate) acked_through: u64,
    /// What its answer's logical time is counted from.
    pub(crate) sent_at: LocalTime,
}

impl Session {
    pub(crate) fn new(number: u64, lease_span: Duration) -> Result<Session, ConnectError> {
        let id = SessionId::random().map_err(|_| ConnectError::NoRandomness)?;
        Ok(Session {
            id,
            number,
            requests: InFlight::new(),
            holds: BTreeMap::new(),
            converting: BTreeMap::new(),
            ready: Vec::new(),
            leases: None,
            open_sent_at: None,
            heartbeat: None,
            retries_due: BTreeSet::new(),
            answer_patience: (lease_span / 4).clamp(ANSWER_PATIENCE_MIN, ANSWER_PATIENCE_MAX),
            patience_ends_from: None,
            endpoints_told: None,
            term: 0,
        })
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
        if self.is_open() {
            let kind = Kind::Resume(v1::ResumeSessionRequest { session_id, request_id });
            return Hello { request_id, kind, acked_through, sent_at: now };
        }
        let sent_at = *self.open_sent_at.get_or_insert(now);
        let kind = Kind::Open(v1::OpenSessionRequest {
            session_id,
            request_id,
            ttl_ms: whole_ms(settings.ttl),
            linger_ms: settings.linger.map(whole_ms),
            owner: Some(settings.owner.clone()),
        });
        Hello { request_id, kind, acked_through: 0, sent_at }
    }

    pub(crate) fn welcomed(&mut self, sent_at: LocalTime, welcome: &v1::OpenSessionResponse) {
        let logical_time = LogicalTime(welcome.logical_time_ms);
        if self.term != welcome.term {
            self.term = welcome.term;
            self.begin_efficiency_tier_anew();
        }
        if let Some(mut leases) = self.leases() {
            leases.answered(sent_at, logical_time);
            return;
        }
        let [ttl, linger] = [welcome.ttl_ms, welcome.linger_ms].map(Duration::from_millis);
        let leases = Leases::opened(sent_at, logical_time, ttl, linger);
        self.leases = Some(Arc::new(Mutex::new(leases)));
    }

    /// The leader is another one, and what was held and awaited in the memory of the last is gone.
    fn begin_efficiency_tier_anew(&mut self) {
        if let Some(mut leases) = self.leases() {
            leases.best_effort_begins_anew();
        }
        let is_gone = |hold: &&Arc<Hold>| hold.guarantee == Guarantee::BestEffort;
        for hold in self.holds.values().filter(is_gone).cloned().collect::<Vec<_>>() {
            hold.end(LossReason::LeaderChanged);
            self.forget_hold(&hold);
        }
        let is_gone = |request: &Request| {
            matches!(request, Request::Acquire(_)) && request.tier() == Tier::Efficiency
        };
        for id in self.requests.sent(is_gone) {
            let Some((request, _)) = self.requests.settle(id) else { continue };
            if !request.is_abandoned() {
                self.stage(request);
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
            let release = Command::Release { hold: Arc::clone(&hold), reply: None };
            // Under which token it is held is not known until a conversion has its answer.
            if self.unless_converting(release).is_some() {
                let request = hold.release_request();
                hold.end(reason);
                self.forget_hold(&hold);
                self.requests.stage(Request::Release { request, reply: None });
            }
        }
    }

    pub(crate) fn stage(&mut self, request: Request) {
        let ticket = request.ticket().cloned();
        let id = self.requests.stage(request);
        if let Some(ticket) = ticket {
            ticket.note_staged(id);
        }
    }

    pub(crate) fn look(&mut self, name: String, reply: StatusReply) -> u64 {
        let id = self.requests.stage(Request::Status { name, reply });
        // The servers keep no answer to it.
        self.requests.mark_waiting(id);
        id
    }

    /// What was not answered will be sent again, except heartbeats, because the resume does their work, and looks, which
    /// are asked by calls then.
    pub(crate) fn stream_broke(&mut self) {
        let is_over =
            |request: &Request| matches!(request, Request::KeepAlive | Request::Status { .. });
        self.requests.retain(|request| !is_over(request));
        self.requests.stage_all_again();
        self.retries_due.clear();
        self.heartbeat = None;
    }

    /// The session is over: whoever waits or holds is told.
    pub(crate) fn end(&mut self, reason: LossReason) {
        for hold in std::mem::take(&mut self.holds).into_values() {
            hold.end(reason);
        }
        for request in self.requests.drain() {
            request.fail_with_lost_session(reason);
        }
        for waiting in std::mem::take(&mut self.converting).into_values() {
            self.ready.extend(waiting);
        }
    }

    /// The hold is no longer this client's, or will not be in a moment.
    pub(crate) fn forget_hold(&mut self, hold: &Hold) {
        self.holds.remove(&hold.key);
        // Guards that entered it again still need the lease.
        let is_entered = self.holds_of(hold.key.acquire).any(|other| other.lease == hold.lease);
        if !is_entered && let Some(mut leases) = self.leases() {
            leases.ended(hold.lease);
        }
    }

    /// The holds that the cluster knows by this acquire.
    pub(crate) fn holds_of(&self, acquire: u64) -> impl Iterator<Item = &Arc<Hold>> {
        let key = |entry| HoldKey { acquire, entry };
        self.holds.range(key(0)..=key(u64::MAX)).map(|(_, hold)| hold)
    }

    pub(crate) fn stage_heartbeat_if_due(&mut self, now: LocalTime) {
        let due = self.leases().is_some_and(|leases| leases.heartbeat_due() <= now);
        if due && self.heartbeat.is_none() {
            self.heartbeat = Some(self.requests.stage(Request::KeepAlive));
        }
    }

    pub(crate) fn stage_due_retries(&mut self, now: Instant) {
        while let Some((due, id)) = self.retries_due.first().copied() {
            if due > now {
                return;
            }
            self.retries_due.remove(&(due, id));
            self.requests.stage_again(id);
        }
    }

    pub(crate) fn note_awaited(&mut self, until: Option<Instant>) {
        self.patience_ends_from = self.patience_ends_from.into_iter().chain(until).min();
    }

    /// Callers who have waited as long as they wanted to. What they asked for goes on until they abandon it.
    pub(crate) fn let_go_of_the_impatient(&mut self, now: Instant) {
        if self.patience_ends_from.is_none_or(|from| now < from) {
            return;
        }
        let requests = self.requests.iter_mut().filter_map(|request| request.let_go_if_over(now));
        let commands = self.converting.values_mut().flatten().chain(&mut self.ready);
        let commands = commands.filter_map(|command| command.let_go_if_over(now));
        let next = requests.chain(commands).min();
        self.patience_ends_from = next.map(|next| next.max(now + PATIENCE_STEP));
    }

    /// After which [`Session::let_go_of_the_impatient`] may find somebody.
    pub(crate) fn patience_left(&self, now: Instant) -> Option<Duration> {
        self.patience_ends_from.map(|from| from.saturating_duration_since(now))
    }

    /// When the task has to look at the clock again, if nothing arrives.
    pub(crate) fn next_due(&self, now: Instant, local_now: LocalTime) -> Option<Instant> {
        let heartbeat = match self.heartbeat {
            Some(_) => None,
            None => {
                self.leases().map(|leases| now + leases.heartbeat_due().saturating_since(local_now))
            }
        };
        let retry = self.retries_due.first().map(|(due, _)| *due);
        let dues = [heartbeat, self.requests.answers_due_from(), retry, self.patience_ends_from];
        dues.into_iter().flatten().min()
    }

    pub(crate) fn leases(&self) -> Option<MutexGuard<'_, Leases>> {
        let leases = self.leases.as_ref()?;
        Some(leases.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn shared_leases(&self) -> Option<Arc<Mutex<Leases>>> {
        self.leases.clone()
    }
}
