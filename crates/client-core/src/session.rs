//! The state machine of a client's session with the cluster.
//!
//! - `config`, `output`: its configuration, and the actions that it asks for.
//! - `request`: the requests of a program, and their form on the wire.
//! - `state`: the present session: holds, lease, unanswered requests.
//! - `answers`: what an answer or a notice changes. `convert`: requests that wait for the end of a conversion.
//! - `link`: which node serves the session, and what happens when one stops serving it.
//! - `denials`: when a client that the nodes deny gives its session up.
//!
//! Invariants:
//! - an operation goes out only on a stream whose hello (open or resume) was answered;
//! - an operation without an answer goes out again on the next stream under its old request id;
//! - when the client moves to another stream, it first sends a farewell (an empty frame), so that the cluster does not
//!   start the session's linger time;
//! - the loss of a session is reported to every holder and waiter; the next operation opens a new one.

mod answers;
mod config;
mod convert;
mod denials;
mod link;
mod output;
mod request;
mod state;

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::plain::EncodedClientFrame;
use holdfast_proto::{GroupMap, SessionId};

use crate::circuit::{Breaker, CircuitState};
use crate::connect_errors::ConnectErrors;
use crate::endpoints::Endpoints;
use crate::error::{LossReason, RequestError};
use crate::group_id::GroupId;
use crate::lease::LocalTime;
use denials::Denials;
use link::Link;
use request::{Caller, Operation, PendingRequest};
use state::State;

pub use config::{Config, NoSessionId, Settings};
pub use output::{NotOpened, Output, Queued};
pub use request::{Outcome, Request, Success};

/// How long a client that closes waits for the cluster's answer.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// Keeps a client in a session with the cluster: it reconnects, resumes the session, and opens a new one when a session
/// is lost. So [`id`](SessionMachine::id) changes; `state` is the present session. `C` is what the driver knows a
/// caller by.
///
/// It does nothing by itself. Its driver owns the sockets, the clock and the callers:
///
/// - what happened goes in: [`handle_request`](SessionMachine::handle_request),
///   [`handle_abandoned`](SessionMachine::handle_abandoned), [`handle_close`](SessionMachine::handle_close) for what the program
///   wants; [`handle_connected`](SessionMachine::handle_connected), [`handle_connect_failed`](SessionMachine::handle_connect_failed),
///   [`handle_frame`](SessionMachine::handle_frame), [`handle_disconnected`](SessionMachine::handle_disconnected),
///   [`handle_blocked`](SessionMachine::handle_blocked) for what the network did; [`handle_timeout`](SessionMachine::handle_timeout)
///   and [`handle_quiet`](SessionMachine::handle_quiet) for time that passed;
/// - what has to be done comes out: [`poll_output`](SessionMachine::poll_output), [`poll_frame`](SessionMachine::poll_frame);
/// - [`next_timeout`](SessionMachine::next_timeout) tells when to wake;
/// - the rest only reads.
///
/// The order of calls: after each input, `poll_output` until there is none; then, as long as the connection has room,
/// `poll_frame` until there is none; then sleep until `next_timeout` or the next input. Times never go back.
#[derive(Debug)]
pub struct SessionMachine<C> {
    config: Config,
    state: State<C>,
    link: Link,
    breaker: Breaker,
    /// A leader that accepted a connection but did not serve the session. The session does not move to it again until
    /// it has served it.
    avoided_leader: Option<String>,
    /// True until the first session is open or has failed to open, if the program waits for it.
    is_first_awaited: bool,
    /// When the first attempt began. `None` as soon as a node did anything but refuse the connection.
    refused_since: Option<LocalTime>,
    /// What the nodes said that did not let the client resume, since a node last served the session.
    denials: Denials,
    /// When the session last took a new stream to the same node, to learn a newer map.
    map_fetched_at: Option<LocalTime>,
    /// Set once the program does not need the session any more.
    closing_until: Option<LocalTime>,
}

impl<C> SessionMachine<C> {
    pub fn new(mut config: Config, now: LocalTime) -> Result<SessionMachine<C>, NoSessionId> {
        let id = (config.session_ids)().ok_or(NoSessionId)?;
        let mut state = State::new(id, config.settings.lease_span(), config.jitter_seed);
        state.group = config.group;
        state.waits_for_rates = config.waits_for_rates;
        let mut session = SessionMachine {
            state,
            link: Link::Idle,
            breaker: Breaker::new(),
            avoided_leader: None,
            is_first_awaited: config.opens_at_once,
            refused_since: Some(now),
            denials: Denials::new(config.settings.ttl),
            map_fetched_at: None,
            closing_until: None,
            config,
        };
        session.connect_if_needed(now);
        Ok(session)
    }

    /// Returns the number of this call, for [`SessionMachine::handle_abandoned`] and [`SessionMachine::caller_mut`]; 0
    /// if the machine is finished. At `waits_until` the caller gets a timeout, and the request itself stays in flight.
    pub fn handle_request(
        &mut self,
        now: LocalTime,
        request: Request,
        caller: Option<C>,
        waits_until: LocalTime,
    ) -> u64 {
        let caller = caller.map(|caller| Caller { caller, waits_until });
        if self.is_finished() {
            self.state.complete(caller, Err(RequestError::Closed));
            return 0;
        }
        let call = self
            .state
            .ask(PendingRequest { caller, ..PendingRequest::own(Operation::OfProgram(request)) });
        self.connect_if_needed(now);
        call
    }

    /// The caller of an acquire or a convert is gone, and whatever it was granted is not wanted.
    pub fn handle_abandoned(&mut self, now: LocalTime, call: u64) {
        if !self.is_finished() {
            self.state.abandon(call);
            self.connect_if_needed(now);
        }
    }

    /// The program does not need the session any more.
    pub fn handle_close(&mut self, now: LocalTime, caller: Option<C>) {
        let waits_until = LocalTime(now.0 + CLOSING_PATIENCE);
        let caller = caller.map(|caller| Caller { caller, waits_until });
        if self.is_finished() || !self.state.is_open() {
            self.state.complete(caller, Ok(Success::Closed));
            return self.finish();
        }
        if self.closing_until.is_none() {
            self.closing_until = Some(waits_until);
            self.link.cancel_move();
            // Closing the session releases all its holds. Staged releases without a caller would only delay the close,
            // and there may be one for each guard, so they are dropped.
            let is_superfluous = |entry: &PendingRequest<C>| {
                let is_release = matches!(
                    entry.operation,
                    Operation::OfProgram(Request::Release { .. }) | Operation::GiveBack(_)
                );
                is_release && entry.caller.is_none()
            };
            self.state.requests.take_out(is_superfluous);
        }
        self.state
            .requests
            .stage(PendingRequest { caller, ..PendingRequest::own(Operation::Close) });
    }

    pub fn poll_output(&mut self) -> Option<Output<C>> {
        self.state.outputs.pop_front()
    }

    /// The next frame. Call it as long as the connection has room.
    pub fn poll_frame(&mut self, now: LocalTime) -> Option<EncodedClientFrame> {
        match &mut self.link {
            Link::Greeting { hello, .. } => hello.frame.take(),
            Link::Open(open) => {
                open.blocked_since = None;
                self.state.next_frame(now)
            }
            _ => None,
        }
    }

    /// Whether [`SessionMachine::poll_frame`] has something to give.
    pub fn has_frame(&self) -> bool {
        match &self.link {
            Link::Greeting { hello, .. } => hello.frame.is_some(),
            Link::Open(_) => self.state.requests.has_staged(),
            _ => false,
        }
    }

    /// Time has passed. Call it at [`SessionMachine::next_timeout`], and not much later.
    pub fn handle_timeout(&mut self, now: LocalTime) {
        if self.closing_until.is_some_and(|until| until <= now) {
            return self.finish();
        }
        self.state.let_callers_go(now);
        self.on_link_time(now);
    }

    /// Disconnects from a node whose answer is overdue. Call it after [`SessionMachine::handle_timeout`], once all
    /// received frames were handled.
    pub fn handle_quiet(&mut self, now: LocalTime) {
        let Link::Open(open) = &self.link else { return };
        let blocked_until =
            open.blocked_since.map(|since| LocalTime(since.0 + self.state.answer_patience));
        if self.state.requests.is_answer_overdue(now) {
            self.leave_node(now, String::new(), "the node does not answer".to_owned());
        } else if blocked_until.is_some_and(|until| until <= now) {
            self.leave_node(now, String::new(), "the node does not read".to_owned());
        }
    }

    /// When to call [`SessionMachine::handle_timeout`], if nothing happens before.
    pub fn next_timeout(&self) -> Option<LocalTime> {
        let callers = self.state.callers_wait_until;
        [self.link_timeout(), callers, self.closing_until].into_iter().flatten().min()
    }

    /// The caller of a request that has no answer yet.
    pub fn caller_mut(&mut self, call: u64) -> Option<&mut C> {
        let id = self.state.requests.find_by(call, |entry| entry.call == call)?;
        Some(&mut self.state.requests.get_mut(id)?.caller.as_mut()?.caller)
    }

    /// Whether the machine has ended: the program closed it, and it opens no further session.
    pub fn is_finished(&self) -> bool {
        matches!(self.link, Link::Finished)
    }

    /// Whether the program has said that it does not need the session any more.
    pub fn is_closing(&self) -> bool {
        self.closing_until.is_some()
    }

    /// Whether several requests may be unanswered. Acquires that the cluster has queued do not count.
    pub fn has_several_in_flight(&self) -> bool {
        self.state.requests.are_several()
    }

    /// Whether a request has no answer yet, heartbeats apart.
    pub fn has_unanswered(&self) -> bool {
        self.state.requests.has_any(|entry| !matches!(entry.operation, Operation::Heartbeat))
    }

    /// The id of the present session.
    pub fn id(&self) -> SessionId {
        self.state.id
    }

    /// Whether the present session was opened, so that the next hello is a resume.
    pub fn is_open(&self) -> bool {
        self.state.is_open()
    }

    pub fn settings(&self) -> &Settings {
        &self.config.settings
    }

    pub fn endpoints(&self) -> &Endpoints {
        &self.config.endpoints
    }

    /// In which group of the cluster the session is.
    pub fn group(&self) -> GroupId {
        self.state.group
    }

    /// Which group owns which locks, as the last node that served the session has told it. `None` of a cluster of one group.
    pub fn map(&self) -> Option<&Arc<GroupMap>> {
        self.state.map.as_ref()
    }

    pub fn circuit(&self) -> CircuitState {
        self.breaker.state()
    }

    pub fn connect_errors(&self) -> &ConnectErrors {
        &self.state.errors
    }

    fn finish(&mut self) {
        if !self.is_finished() {
            // A close without an answer fails, because the session may still be open at the cluster.
            for entry in
                self.state.requests.take_out(|entry| matches!(entry.operation, Operation::Close))
            {
                let unavailable = self.state.errors.to_unavailable(true);
                self.state.complete(entry.caller, Err(RequestError::Unavailable(unavailable)));
            }
            self.state.end(LossReason::SessionClosed, false);
            self.link = Link::Finished;
            self.state.outputs.push_back(Output::Finished);
        }
    }
}
