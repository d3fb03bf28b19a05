//! Which node serves the session. The client connects to a node and sends a hello, which opens or resumes the session.
//! The client keeps the connection as long as the node serves the session. Then it tries the next node.
//!
//! A node that does not lead forwards every request to the leader. That costs a network hop and the work of a second
//! node. So after `SETTLING_TIME` the client also connects to the leader. The first node serves the session until that
//! connection exists. If the client cannot connect to the leader, the first node continues to serve the session.
//!
//! The session takes a new stream to the same node in the same way, if a group has refused by a newer map of the groups
//! than the client has: the welcome tells the newest map that the node knows.

use std::time::Duration;

use holdfast_proto::failure::refused;
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::{Failure, OpenSessionResponse, Reason, ServerFrame};

use super::SessionMachine;
use super::answers::Verdict;
use super::output::{NotOpened, Output};
use super::state::Hello;
use crate::connect_errors::{Contact, REFUSED_PATIENCE};
use crate::error::{LossReason, Rejection, RequestError, retry_after};
use crate::lease::LocalTime;

/// Within this time a node has to answer the hello, or the next one is asked.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a session is served by a node that does not lead, before the client connects to the leader. A client that
/// runs one short command under a lock has ended by then, so it does not move.
const SETTLING_TIME: Duration = Duration::from_millis(250);

/// Between two welcomes that are asked for only to learn a newer map. Until a node knows the newest one, another welcome
/// tells nothing new.
const MAP_FETCH_INTERVAL: Duration = Duration::from_secs(1);

/// A session moves to the leader only if its lease span is at least this long. If the leader accepts the connection but
/// does not answer, the move costs one or two seconds. A session with a shorter lease could be lost in that time.
const MOVE_LEASE_SPAN_MIN: Duration = Duration::from_secs(6);

#[derive(Debug)]
pub(super) enum Link {
    /// The program asks for nothing.
    Idle,
    /// The next node is tried then.
    Paused {
        until: LocalTime,
    },
    /// The driver connects.
    Connecting {
        address: String,
    },
    /// There is a connection, and the hello has no answer yet.
    Greeting {
        address: String,
        hello: Hello,
        until: LocalTime,
        is_move: bool,
    },
    Open(OpenLink),
    Finished,
}

/// The node serves the session.
#[derive(Debug)]
pub(super) struct OpenLink {
    address: String,
    planned_move: PlannedMove,
    /// Since when the connection has no room for what is to be sent.
    pub(super) blocked_since: Option<LocalTime>,
}

/// Whether the session takes another stream: to the leader, or to the same node for its welcome.
#[derive(Debug)]
enum PlannedMove {
    No,
    At(LocalTime, String),
    Connecting(String),
}

impl Link {
    pub(super) fn cancel_move(&mut self) {
        if let Link::Open(open) = self {
            open.planned_move = PlannedMove::No;
        }
    }
}

impl<C> SessionMachine<C> {
    /// There is a connection, as [`Output::Connect`] asked for. False if it is not wanted any more; otherwise it is the
    /// present one once the outputs were polled.
    pub fn handle_connected(&mut self, now: LocalTime) -> bool {
        let (address, is_move) = match &mut self.link {
            Link::Connecting { address } => (std::mem::take(address), false),
            Link::Open(OpenLink { planned_move: PlannedMove::Connecting(leader), .. }) => {
                let leader = std::mem::take(leader);
                self.state.stream_broke();
                self.disconnect(true);
                self.breaker.handle_try(now);
                (leader, true)
            }
            _ => return false,
        };
        let hello = self.state.hello(&self.config.settings, now);
        let until = LocalTime(now.0 + HELLO_TIMEOUT);
        self.link = Link::Greeting { address, hello, until, is_move };
        true
    }

    /// There is no connection; `contact` tells how far it got.
    pub fn handle_connect_failed(&mut self, now: LocalTime, words: &str, contact: Contact) {
        match &mut self.link {
            Link::Connecting { address } => {
                let address = std::mem::take(address);
                self.config.endpoints.could_not_reach(&address);
                let failure = match contact {
                    // Another node may accept it. If none does, there will be no session.
                    Contact::Denied => refused(Reason::Unauthenticated, words),
                    _ => no_answer(&address, words),
                };
                self.on_no_stream(now, &address, contact, failure);
            }
            // It is served where it is.
            Link::Open(open) => open.planned_move = PlannedMove::No,
            _ => {}
        }
    }

    pub fn handle_frame(&mut self, now: LocalTime, mut frame: ServerFrame) {
        if let Link::Greeting { hello, .. } = &self.link {
            let id = hello.request_id;
            let answer = frame.answers.iter_mut().find(|answer| answer.request_id == id);
            match answer.and_then(|answer| answer.result.take()) {
                Some(AnswerResult::Open(welcome) | AnswerResult::Resume(welcome)) => {
                    self.on_welcome(now, welcome);
                }
                Some(AnswerResult::Failure(mut failure)) => {
                    self.state.ignore_other_leader(&mut failure);
                    return self.on_hello_failed(now, failure, false);
                }
                _ => {
                    let words = "the first frame does not answer the hello";
                    return self.on_hello_unanswered(now, words);
                }
            }
            frame.answers.retain(|answer| answer.request_id != id);
        }
        if !matches!(self.link, Link::Open(_)) {
            return;
        }
        let verdict = self.state.on_frame(now, frame);
        if let Some(epoch) = self.state.newer_map.take() {
            self.fetch_map(now, epoch);
        }
        if let Some(announced) = self.state.announced_endpoints.take() {
            self.learn(&announced);
        }
        self.act_on(now, verdict);
    }

    /// The connection is gone.
    pub fn handle_disconnected(&mut self, now: LocalTime, mut failure: Failure) {
        self.state.ignore_other_leader(&mut failure);
        match &self.link {
            Link::Greeting { .. } => self.on_hello_failed(now, failure, false),
            Link::Open(_) if failure.reason() == Reason::UnknownSession => {
                self.act_on(now, Verdict::SessionLost(LossReason::SessionExpired));
            }
            Link::Open(_) => self.leave_node(now, failure.leader, failure.message),
            _ => {}
        }
    }

    /// The connection has no room for the next frame.
    pub fn handle_blocked(&mut self, now: LocalTime) {
        if let Link::Open(open) = &mut self.link {
            open.blocked_since.get_or_insert(now);
        }
    }

    pub(super) fn on_link_time(&mut self, now: LocalTime) {
        match &mut self.link {
            Link::Paused { until } if *until <= now => {
                self.link = Link::Idle;
                self.connect_if_needed(now);
            }
            // The node may still carry out the hello, so the failure says `may_have_happened`.
            Link::Greeting { until, .. } if *until <= now => {
                self.on_hello_unanswered(now, "no answer to the hello within a second");
            }
            Link::Open(open) => {
                if let PlannedMove::At(at, leader) = &mut open.planned_move
                    && *at <= now
                {
                    let leader = std::mem::take(leader);
                    self.state.outputs.push_back(Output::Connect { address: leader.clone() });
                    open.planned_move = PlannedMove::Connecting(leader);
                }
                self.state.stage_heartbeat_if_due(now);
                self.state.stage_due_retries(now);
                // Called for its side effect only: it updates the time at which the next answer is due.
                self.state.requests.is_answer_overdue(now);
            }
            _ => {}
        }
    }

    /// Plans another stream, whose welcome tells a newer map. The present one serves the session until then.
    fn fetch_map(&mut self, now: LocalTime, epoch: u64) {
        let is_known = self.state.map.as_ref().is_some_and(|map| epoch <= map.epoch().0);
        if is_known || self.closing_until.is_some() {
            return;
        }
        let Link::Open(open) = &mut self.link else { return };
        let due = self.map_fetched_at.map(|at| LocalTime(at.0 + MAP_FETCH_INTERVAL));
        let at = due.map_or(now, |due| due.max(now));
        let address = match &open.planned_move {
            // Its welcome comes anyway.
            PlannedMove::Connecting(_) => return,
            PlannedMove::At(planned, _) if *planned <= at => return,
            PlannedMove::At(_, leader) => leader.clone(),
            PlannedMove::No => open.address.clone(),
        };
        self.map_fetched_at = Some(at);
        open.planned_move = PlannedMove::At(at, address);
    }

    pub(super) fn link_timeout(&self) -> Option<LocalTime> {
        match &self.link {
            Link::Paused { until } | Link::Greeting { until, .. } => Some(*until),
            Link::Open(open) => {
                let move_at = match &open.planned_move {
                    PlannedMove::At(at, _) => Some(*at),
                    _ => None,
                };
                let patience = self.state.answer_patience;
                let blocked = open.blocked_since.map(|since| LocalTime(since.0 + patience));
                [self.state.next_due(), move_at, blocked].into_iter().flatten().min()
            }
            Link::Idle | Link::Connecting { .. } | Link::Finished => None,
        }
    }

    /// Connects to the next node if the client needs a session. After a session is lost, the client opens no new one
    /// until the program makes a request. While the circuit breaker is open, each request of the program fails at once.
    /// So the client then connects without a request: a node that serves it closes the circuit breaker.
    pub(super) fn connect_if_needed(&mut self, now: LocalTime) {
        let is_needed = self.state.is_open()
            || self.is_first_awaited
            || self.state.requests.has_staged()
            || !self.breaker.is_closed();
        if matches!(self.link, Link::Idle) && is_needed {
            self.breaker.handle_try(now);
            let address = self.config.endpoints.next_address();
            self.state.outputs.push_back(Output::ConnectivityChanged);
            self.state.outputs.push_back(Output::Connect { address: address.clone() });
            self.link = Link::Connecting { address };
        }
    }

    fn on_welcome(&mut self, now: LocalTime, welcome: OpenSessionResponse) {
        let Link::Greeting { address, hello, .. } = std::mem::replace(&mut self.link, Link::Idle)
        else {
            return;
        };
        self.state.backoff.reset();
        self.breaker.handle_success();
        self.refused_since = None;
        self.denials.clear();
        self.config.endpoints.reached();
        self.avoided_leader.take_if(|leader| *leader == address);
        self.state.errors.reached(&address);
        self.state.outputs.push_back(Output::ConnectivityChanged);
        self.state.welcomed(hello.sent_at, &welcome);
        if let Some(map) = welcome.map {
            self.state.learn_map(map);
        }
        let planned_move = match self.is_better_served_by(&welcome.leader, &address) {
            true => PlannedMove::At(LocalTime(now.0 + SETTLING_TIME), welcome.leader),
            false => PlannedMove::No,
        };
        self.link = Link::Open(OpenLink { address, planned_move, blocked_since: None });
        self.learn(&welcome.endpoints);
        if std::mem::take(&mut self.is_first_awaited) {
            self.state.outputs.push_back(Output::Opened);
        }
    }

    /// Whether the node only passes on what it is sent.
    fn is_better_served_by(&self, leader: &str, present: &str) -> bool {
        leader != present
            && self.config.endpoints.may_follow(leader)
            && self.avoided_leader.as_deref() != Some(leader)
            && self.config.settings.lease_span() >= MOVE_LEASE_SPAN_MIN
            && self.closing_until.is_none()
    }

    fn learn(&mut self, addresses: &[String]) {
        self.config.endpoints.learn(addresses);
        self.state.outputs.push_back(Output::EndpointsLearned);
    }

    fn on_hello_unanswered(&mut self, now: LocalTime, words: &str) {
        let Link::Greeting { address, .. } = &self.link else { return };
        let failure = no_answer(address, words);
        self.on_hello_failed(now, failure, true);
    }

    /// There was a connection, and the node does not serve the session.
    fn on_hello_failed(&mut self, now: LocalTime, failure: Failure, with_farewell: bool) {
        let Link::Greeting { address, is_move, .. } = &mut self.link else { return };
        let (address, is_move) = (std::mem::take(address), *is_move);
        self.disconnect(with_farewell);
        if is_move {
            self.avoided_leader = Some(address.clone());
        }
        self.config.endpoints.reached();
        let known = self.config.endpoints.all();
        let is_given_up = self.state.is_open() && self.denials.note(now, &address, &failure, known);
        #[cfg(feature = "planted")]
        let is_given_up = crate::planted::Bug::FailureIsSample.instead(is_given_up, false);
        if is_given_up {
            self.give_up_denied_session(now, &address, &failure);
        } else {
            self.on_no_stream(now, &address, Contact::Made, failure);
        }
    }

    /// The nodes have denied the client its session for as long as the client waits for another answer. What becomes of
    /// the session in the cluster is not known: the client can neither renew nor end it.
    fn give_up_denied_session(&mut self, now: LocalTime, address: &str, failure: &Failure) {
        self.breaker.handle_success();
        self.state.errors.note(address, Contact::Made, failure);
        self.state.outputs.push_back(Output::ConnectivityChanged);
        let sent = self.state.requests.drain(|_| true);
        let unsent = self.state.requests.take_out(|_| true);
        for (entries, may_have_happened) in [(sent, true), (unsent, false)] {
            for entry in entries {
                let failure = Failure { may_have_happened, ..failure.clone() };
                let rejected = RequestError::Rejected(Rejection::of(failure));
                self.state.complete(entry.caller, Err(rejected));
            }
        }
        self.replace_session(now, LossReason::Denied);
    }

    fn on_no_stream(&mut self, now: LocalTime, address: &str, contact: Contact, failure: Failure) {
        self.link = Link::Idle;
        self.state.leader_lost(LossReason::LeaderUnreachable);
        #[cfg(feature = "planted")]
        self.state.trust_failure(now);
        // The node served if it said what becomes of the session.
        let is_verdict = match self.state.is_open() {
            true => failure.reason() == Reason::UnknownSession,
            false => !failure.retryable,
        };
        match is_verdict {
            true => self.breaker.handle_success(),
            false => self.breaker.handle_failure(now),
        }
        self.state.errors.note(address, contact, &failure);
        self.state.outputs.push_back(Output::ConnectivityChanged);
        self.refused_since = self.refused_since.filter(|_| contact == Contact::Refused);
        let has_tried_all = self.config.endpoints.has_tried_all();
        let is_refused =
            self.refused_since.is_some_and(|at| now.saturating_since(at) >= REFUSED_PATIENCE);
        if is_refused && has_tried_all && self.is_first_awaited {
            // A client that has no session yet does not wait for nodes that are not there.
            self.state.outputs.push_back(Output::NotOpened(NotOpened::NotReached));
            self.finish();
        } else if contact != Contact::Made && !has_tried_all {
            // A node that is gone is no reason to keep the next one waiting.
            self.connect_if_needed(now);
        } else if self.state.is_open() && is_verdict {
            self.replace_session(now, LossReason::SessionExpired);
        } else if is_verdict && failure.reason() == Reason::SessionExists {
            // An earlier try opened it, and its time is over by now. Nothing was asked in it.
            self.replace_session(now, LossReason::SessionExpired);
        } else if is_verdict || (self.is_first_awaited && self.is_too_often(&failure)) {
            self.give_up_opening(now, Rejection::of(failure));
        } else {
            self.config.endpoints.follow_leader(&failure.leader);
            self.pause(now, retry_after(&failure));
        }
    }

    /// The node would open the session later, and the program does not wait for that.
    fn is_too_often(&self, failure: &Failure) -> bool {
        !self.config.waits_for_rates && retry_after(failure).is_some()
    }

    /// The cluster refuses a session with these settings, now and later; or now, and the program does not wait.
    fn give_up_opening(&mut self, now: LocalTime, rejection: Rejection) {
        for entry in self.state.requests.take_out(|_| true) {
            let rejected = RequestError::Rejected(rejection.clone());
            self.state.complete(entry.caller, Err(rejected));
        }
        if std::mem::take(&mut self.is_first_awaited) {
            self.state.outputs.push_back(Output::NotOpened(NotOpened::Refused(rejection)));
            self.finish();
        } else {
            // An earlier session was taken, so a later one may be: the limits change.
            self.replace_session(now, LossReason::Ended);
        }
    }

    fn act_on(&mut self, now: LocalTime, verdict: Verdict) {
        match verdict {
            Verdict::GoOn => {}
            Verdict::Closed => {
                let (session, reason) = (self.state.id, LossReason::SessionClosed);
                self.state.outputs.push_back(Output::SessionEnded { session, reason });
                self.finish();
            }
            Verdict::SessionLost(reason) => {
                self.disconnect(false);
                self.replace_session(now, reason);
            }
            Verdict::Move { leader, words } => self.leave_node(now, leader, words),
        }
    }

    /// The node does not serve the session any more, and another has to.
    pub(super) fn leave_node(&mut self, now: LocalTime, leader: String, words: String) {
        if let Link::Open(open) = &self.link {
            let failure = Failure { message: words, ..Failure::default() };
            self.state.errors.note(&open.address, Contact::Made, &failure);
            self.state.outputs.push_back(Output::ConnectivityChanged);
        }
        self.config.endpoints.follow_leader(&leader);
        self.state.stream_broke();
        self.state.leader_lost(LossReason::LeaderUnreachable);
        // A farewell tells the node that the session continues at another node. A client that is closing sends none.
        // Then the cluster ends the session after its linger time, even if the close does not arrive.
        self.disconnect(self.closing_until.is_none());
        // Not at once: the next node may not know yet that it leads.
        self.pause(now, None);
    }

    fn replace_session(&mut self, now: LocalTime, reason: LossReason) {
        // What the lost session never asked for, the next can.
        let is_wanted = self.closing_until.is_none();
        self.denials.clear();
        self.state.end(reason, is_wanted);
        self.state.outputs.push_back(Output::SessionEnded { session: self.state.id, reason });
        match (self.config.session_ids)().filter(|_| is_wanted) {
            Some(id) => {
                self.state.id = id;
                self.link = Link::Idle;
                self.connect_if_needed(now);
            }
            None => self.finish(),
        }
    }

    /// Before the next try: not so long that it would matter to a short lease.
    fn pause(&mut self, now: LocalTime, retry_after: Option<Duration>) {
        let longest = match (retry_after, self.state.is_open()) {
            (Some(_), false) => Duration::MAX,
            _ => self.config.settings.lease_span() / 20,
        };
        let until = LocalTime(now.0 + self.state.backoff.delay_after(retry_after).min(longest));
        self.link = Link::Paused { until };
    }

    fn disconnect(&mut self, with_farewell: bool) {
        self.state.outputs.push_back(Output::Disconnect { with_farewell });
    }
}

fn no_answer(address: &str, words: &str) -> Failure {
    Failure {
        reason: Reason::Unspecified.into(),
        message: format!("{address}: {words}"),
        retryable: true,
        may_have_happened: true,
        ..Failure::default()
    }
}
