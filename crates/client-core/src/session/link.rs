//! Which node serves the session: connect, say hello, stay as long as it serves, and find the next.
//!
//! A node that does not lead passes everything on, which costs a hop and the work of another node. So a session
//! that lasts goes to the leader itself, once there is a connection: until then it is served where it is, and if
//! the leader cannot be reached from here it stays.

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

/// One command under one lock is served before it would pay to move.
const SETTLING_TIME: Duration = Duration::from_millis(250);

/// A leader that takes the connection and then says nothing costs a second or two. A session that could end of that
/// stays where it is.
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
    move_to_leader: MoveToLeader,
    /// Since when the connection has no room for what is to be sent.
    pub(super) blocked_since: Option<LocalTime>,
}

/// Whether the session moves on to the leader.
#[derive(Debug)]
enum MoveToLeader {
    No,
    At(LocalTime, String),
    Connecting(String),
}

impl Link {
    pub(super) fn cancel_move(&mut self) {
        if let Link::Open(open) = self {
            open.move_to_leader = MoveToLeader::No;
        }
    }
}

impl<C> SessionMachine<C> {
    /// There is a connection, as [`Output::Connect`] asked for. False if it is not wanted any more; otherwise it is the
    /// present one once the outputs were polled.
    pub fn handle_connected(&mut self, now: LocalTime) -> bool {
        let (address, is_move) = match &mut self.link {
            Link::Connecting { address } => (std::mem::take(address), false),
            Link::Open(OpenLink { move_to_leader: MoveToLeader::Connecting(leader), .. }) => {
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
            Link::Open(open) => open.move_to_leader = MoveToLeader::No,
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
                Some(AnswerResult::Failure(failure)) => {
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
        if let Some(announced) = self.state.announced_endpoints.take() {
            self.learn(&announced);
        }
        self.act_on(now, verdict);
    }

    /// The connection is gone.
    pub fn handle_disconnected(&mut self, now: LocalTime, failure: Failure) {
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
            // It may be carried out yet.
            Link::Greeting { until, .. } if *until <= now => {
                self.on_hello_unanswered(now, "no answer to the hello within a second");
            }
            Link::Open(open) => {
                if let MoveToLeader::At(at, leader) = &mut open.move_to_leader
                    && *at <= now
                {
                    let leader = std::mem::take(leader);
                    self.state.outputs.push_back(Output::Connect { address: leader.clone() });
                    open.move_to_leader = MoveToLeader::Connecting(leader);
                }
                self.state.stage_heartbeat_if_due(now);
                self.state.stage_due_retries(now);
                // Only so that it is known when the next answer is due.
                self.state.requests.is_answer_overdue(now);
            }
            _ => {}
        }
    }

    pub(super) fn link_timeout(&self) -> Option<LocalTime> {
        match &self.link {
            Link::Paused { until } | Link::Greeting { until, .. } => Some(*until),
            Link::Open(open) => {
                let move_at = match &open.move_to_leader {
                    MoveToLeader::At(at, _) => Some(*at),
                    _ => None,
                };
                let patience = self.state.answer_patience;
                let blocked = open.blocked_since.map(|since| LocalTime(since.0 + patience));
                [self.state.next_due(), move_at, blocked].into_iter().flatten().min()
            }
            Link::Idle | Link::Connecting { .. } | Link::Finished => None,
        }
    }

    /// After a session was lost there is none until the program asks for something. While the circuit is open
    /// it cannot, so it has to be closed first.
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
        self.config.endpoints.reached();
        self.avoided_leader.take_if(|leader| *leader == address);
        self.state.errors.reached(&address);
        self.state.outputs.push_back(Output::ConnectivityChanged);
        self.state.welcomed(hello.sent_at, &welcome);
        let move_to_leader = match self.is_better_served_by(&welcome.leader, &address) {
            true => MoveToLeader::At(LocalTime(now.0 + SETTLING_TIME), welcome.leader),
            false => MoveToLeader::No,
        };
        self.link = Link::Open(OpenLink { address, move_to_leader, blocked_since: None });
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
        self.on_no_stream(now, &address, Contact::Made, failure);
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
        // A client that is about to end its session has nothing against its lingering.
        self.disconnect(self.closing_until.is_none());
        // Not at once: the next node may not know yet that it leads.
        self.pause(now, None);
    }

    fn replace_session(&mut self, now: LocalTime, reason: LossReason) {
        // What the lost session never asked for, the next can.
        let is_wanted = self.closing_until.is_none();
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
