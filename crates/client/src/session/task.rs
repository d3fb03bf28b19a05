//! The loop that owns the session: get a stream, converse on it, and when it breaks get another.
//!
//! Invariants:
//! - an operation goes out only on a stream whose hello (open or resume) was answered;
//! - an operation without an answer goes out again on the next stream under its old request id;
//! - a stream is left with a farewell as long as the session is wanted;
//! - a session that is lost is told to every holder and waiter; the next operation opens a new one.

use std::pin::Pin;
use std::time::{Duration, Instant};

use holdfast_proto::v1::{Failure, Reason, ServerFrame};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use super::answers::Verdict;
use super::frame::Frame;
use super::hello::{NoStream, say_hello};
use super::request::Request;
use super::state::Session;
use super::stream::{Outbound, Stream};
use super::{Command, Settings, Trouble};
use crate::backoff::Backoff;
use crate::circuit::{Breaker, Circuit};
use crate::clock;
use crate::companion::{self, Message};
use crate::connection::REFUSED_PATIENCE;
use crate::endpoints::{Endpoints, KnownNodes};
use crate::error::{ConnectError, LossReason, Rejection};
use crate::lease::{LocalTime, RenewalId};
use crate::trouble::Contact;
use alarm::Alarm;
use leader::{Dialled, dial_later};

/// So that a frame stays far below the servers' message limit, whatever the operations hold.
const NAMES_PER_FRAME_MAX: usize = 256;

/// A client that is done does not wait longer than this for the cluster to hear it.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// Timers stand still while the machine sleeps. A heartbeat that came due then goes out this long
/// after waking up at the latest.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

mod accept;
mod alarm;
mod leader;

pub(crate) struct Task {
    inbox: mpsc::UnboundedReceiver<Command>,
    settings: Settings,
    endpoints: Endpoints,
    backoff: Backoff,
    trouble: Trouble,
    nodes: KnownNodes,
    /// The node that was asked last.
    address: String,
    /// The leader, once there is a connection to it.
    dialled: Option<Dialled>,
    /// A leader that could be dialled, and yet did not serve: it is not approached again.
    unhelpful: Option<String>,
    session: Session,
    breaker: Breaker,
    /// Of the client's first session, if it is opened at once: told when it is open, or will not be.
    opened: Option<oneshot::Sender<Result<(), NotOpened>>>,
    /// When the first try began, as long as all that the nodes ever did was to refuse the connection.
    refused_since: Option<Instant>,
    /// By the frame that has just come.
    answered: usize,
    /// Since when the stream has no room for what is to be sent.
    held_up_since: Option<Instant>,
    /// Set once nobody needs the session any more.
    closing_until: Option<Instant>,
}

/// Why the client's first session is not there.
#[derive(Debug)]
pub(super) enum NotOpened {
    Refused(Rejection),
    /// Nothing listens at any of the endpoints.
    NobodyThere,
}

/// The task is done: its session is closed, or cannot be.
#[derive(Debug)]
struct Finished;

impl Task {
    pub(crate) fn new(
        inbox: mpsc::UnboundedReceiver<Command>,
        endpoints: Endpoints,
        settings: Settings,
        trouble: Trouble,
        nodes: KnownNodes,
        opened: Option<oneshot::Sender<Result<(), NotOpened>>>,
    ) -> Result<Task, ConnectError> {
        let session = Session::new(1, settings.lease_span())?;
        Ok(Task {
            inbox,
            settings,
            endpoints,
            backoff: Backoff::new(),
            trouble,
            nodes,
            address: String::new(),
            dialled: None,
            unhelpful: None,
            session,
            breaker: Breaker::new(),
            opened,
            refused_since: Some(Instant::now()),
            answered: 0,
            held_up_since: None,
            closing_until: None,
        })
    }

    pub(super) fn circuit(&self) -> Circuit {
        self.breaker.observe()
    }

    pub(crate) async fn run(mut self) {
        let Err(Finished) = self.serve().await;
        // A close without an answer stays without one: its caller must not take it for done.
        self.session.requests.retain(|request| !matches!(request, Request::Close { .. }));
        self.session.end(LossReason::SessionClosed);
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, Finished> {
        loop {
            self.wait_until_needed().await?;
            let stream = self.next_stream().await?;
            if let Some(stream) = stream {
                self.converse(stream).await?;
            }
        }
    }

    /// After a session was lost there is none until somebody asks for something. While the circuit is open
    /// nobody can, so it has to be closed first.
    async fn wait_until_needed(&mut self) -> Result<(), Finished> {
        let is_needed = |task: &Task| {
            task.session.is_open()
                || task.opened.is_some()
                || task.session.requests.has_staged()
                || !task.breaker.is_closed()
        };
        while !is_needed(self) {
            match self.inbox.recv().await {
                Some(command) => self.accept(command)?,
                None => return Err(Finished),
            }
        }
        Ok(())
    }

    /// One try with one node. `None`: it failed, or the session turned out to be lost.
    async fn next_stream(&mut self) -> Result<Option<Stream>, Finished> {
        let (address, connection) = match self.dialled.take() {
            Some(leader) => (leader.address, Some(leader.connection)),
            None => (self.endpoints.next_address(), None),
        };
        self.address.clone_from(&address);
        let approached = connection.is_some().then(|| address.clone());
        self.breaker.handle_try(clock::now());
        let hello = self.session.hello(&self.settings, clock::now());
        let sent_at = hello.sent_at;
        let session = self.session.id.public_id();
        let resumes = self.session.is_open();
        let span = tracing::info_span!("connect", %session, address, resumes);
        let attempt = say_hello(address.clone(), connection, hello);
        match self.while_taking_commands(attempt.instrument(span)).await? {
            Ok(stream) => {
                tracing::debug!(%session, address, "stream is open");
                self.backoff.reset();
                self.breaker.handle_success();
                self.refused_since = None;
                self.endpoints.reached();
                self.unhelpful = self.unhelpful.take().filter(|leader| *leader != address);
                self.trouble.lock().reached(&address);
                self.session.welcomed(sent_at, &stream.welcome);
                self.learn(&stream.welcome.endpoints);
                if let Some(opened) = self.opened.take() {
                    let _ = opened.send(Ok(()));
                }
                Ok(Some(stream))
            }
            Err(no_stream) => {
                self.session.leader_lost(LossReason::LeaderUnreachable);
                self.unhelpful = approached.or(self.unhelpful.take());
                let (contact, failure) = match no_stream {
                    NoStream::Unreachable { failure, refused } => {
                        self.endpoints.could_not_reach(&address);
                        (if refused { Contact::Refused } else { Contact::NotMade }, failure)
                    }
                    NoStream::Failed(failure) => {
                        self.endpoints.reached();
                        (Contact::Made, failure)
                    }
                };
                if self.is_verdict(&failure) {
                    self.breaker.handle_success();
                } else {
                    self.breaker.handle_failure(clock::now());
                }
                self.trouble.lock().note(&address, contact, &failure);
                self.give_up_if_nobody_is_there(contact)?;
                if contact != Contact::Made && !self.endpoints.has_tried_all() {
                    // A node that is gone is no reason to keep the next one waiting.
                    return Ok(None);
                }
                self.on_hello_failed(failure).await?;
                Ok(None)
            }
        }
    }

    /// The node was of use, though there is no stream: it said what becomes of the session.
    fn is_verdict(&self, failure: &Failure) -> bool {
        match self.session.is_open() {
            true => failure.reason() == Reason::UnknownSession,
            false => !failure.retryable,
        }
    }

    async fn on_hello_failed(&mut self, failure: Failure) -> Result<(), Finished> {
        tracing::debug!(reason = ?failure.reason(), "no stream: {}", failure.message);
        if self.session.is_open() && failure.reason() == Reason::UnknownSession {
            return self.replace_session(LossReason::SessionExpired);
        }
        if !self.session.is_open() && !failure.retryable {
            return self.give_up_opening(failure);
        }
        self.endpoints.follow_leader(&failure.leader);
        self.pause().await
    }

    /// Before the next try: not so long that it would matter to a short lease.
    async fn pause(&mut self) -> Result<(), Finished> {
        let longest = self.settings.lease_span() / 20;
        let pause = tokio::time::sleep(self.backoff.next_delay().min(longest));
        self.while_taking_commands(pause).await
    }

    /// A client that has no session yet does not wait for nodes that are not there.
    fn give_up_if_nobody_is_there(&mut self, contact: Contact) -> Result<(), Finished> {
        self.refused_since = self.refused_since.filter(|_| contact == Contact::Refused);
        let is_refused = self.refused_since.is_some_and(|at| at.elapsed() >= REFUSED_PATIENCE);
        if !is_refused || !self.endpoints.has_tried_all() {
            return Ok(());
        }
        match self.opened.take() {
            Some(opened) => {
                let _ = opened.send(Err(NotOpened::NobodyThere));
                Err(Finished)
            }
            None => Ok(()),
        }
    }

    /// The cluster refuses a session with these settings, now and later.
    fn give_up_opening(&mut self, failure: Failure) -> Result<(), Finished> {
        let rejection = Rejection::of(failure);
        for request in self.session.requests.drain() {
            request.reject(rejection.clone());
        }
        match self.opened.take() {
            Some(opened) => {
                let _ = opened.send(Err(NotOpened::Refused(rejection)));
                Err(Finished)
            }
            // An earlier session was taken, so a later one may be: the limits change.
            None => self.replace_session(LossReason::Ended),
        }
    }

    async fn converse(&mut self, mut stream: Stream) -> Result<(), Finished> {
        self.held_up_since = None;
        let mut leader = std::pin::pin!(dial_later(self.leader_elsewhere(&stream)));
        let mut alarm = Alarm::new();
        let first_frame = std::mem::take(&mut stream.first_frame);
        let mut verdict = self.on_frame(first_frame);
        while verdict == Verdict::GoOn {
            // Whoever was just woken asks for the next thing at once. After its turn all of them go out in one
            // frame, instead of one frame each. For one alone it would only wake another of the runtime's threads.
            let answered = std::mem::take(&mut self.answered);
            if answered > 1 || self.session.requests.are_several() {
                tokio::task::yield_now().await;
                // The first who asks wakes this task, before the others had their turn.
                if self.inbox.len() < answered {
                    tokio::task::yield_now().await;
                }
            }
            self.accept_ready()?;
            while let Ok(command) = self.inbox.try_recv() {
                self.accept(command)?;
            }
            if self.is_past_closing() {
                return Err(Finished);
            }
            let (now, local_now) = (Instant::now(), clock::now());
            if alarm.has_gone_off(now) {
                verdict = self.on_alarm(&mut stream, now, local_now);
                if verdict != Verdict::GoOn {
                    break;
                }
            }
            self.flush(&mut stream.outbound, now, local_now);
            alarm.set(self.next_due(now, local_now));
            verdict = self.next_input(&mut stream, leader.as_mut(), &mut alarm).await?;
        }
        match verdict {
            Verdict::Closed => {
                self.dismiss_companion();
                Err(Finished)
            }
            Verdict::SessionLost(reason) => self.replace_session(reason),
            Verdict::Move { leader, words } => {
                tracing::debug!(leader, "stream ended: {words}");
                let failure = Failure { message: words, ..Failure::default() };
                self.trouble.lock().note(&self.address, Contact::Made, &failure);
                self.endpoints.follow_leader(&leader);
                self.session.stream_broke();
                self.session.leader_lost(LossReason::LeaderUnreachable);
                // A client that is about to end its session has nothing against its lingering.
                if self.closing_until.is_none() {
                    stream.leave();
                } else {
                    drop(stream);
                }
                // Not at once: the next node may not know yet that it leads.
                self.pause().await
            }
            Verdict::Approach => {
                self.session.stream_broke();
                stream.leave();
                Ok(())
            }
            Verdict::GoOn => Ok(()),
        }
    }

    /// Waits for whatever comes first: a frame, a command, or the time to do something.
    async fn next_input(
        &mut self,
        stream: &mut Stream,
        leader: Pin<&mut impl Future<Output = Dialled>>,
        alarm: &mut Alarm,
    ) -> Result<Verdict, Finished> {
        let may_get_room = stream.outbound.may_get_room();
        tokio::select! {
            // What is rare comes first. Before it comes here again the task takes all commands, and looks at the clock. Only
            // patience has to wait until nothing can be read: a node that says something all the time is alive.
            biased;
            // The connection has room for more.
            () = stream.outbound.room(), if may_get_room => Ok(Verdict::GoOn),
            dialled = leader, if self.closing_until.is_none() => {
                self.dialled = Some(dialled);
                Ok(Verdict::Approach)
            }
            frame = stream.inbound.message() => Ok(match frame {
                Ok(Some(frame)) => self.on_frame(frame),
                Ok(None) => broken("the stream ended"),
                Err(status) => self.on_stream_error(&Failure::from_status(&status)),
            }),
            command = self.inbox.recv(), if self.closing_until.is_none() => {
                match command {
                    Some(command) => self.accept(command)?,
                    None => self.start_closing(None)?,
                }
                Ok(Verdict::GoOn)
            }
            // It comes last: an answer that can be read is read first.
            () = alarm.goes_off() => Ok(self.check_patience()),
        }
    }

    /// What is to be done by the clock.
    fn on_alarm(&mut self, stream: &mut Stream, now: Instant, local_now: LocalTime) -> Verdict {
        self.session.stage_heartbeat_if_due(local_now);
        self.session.stage_due_retries(now);
        self.session.let_go_of_the_impatient(now);
        if stream.inbound.has_fallen_silent(now) {
            return broken("the node has fallen silent");
        }
        stream.outbound.ping_if_due(now);
        // Only so that it is known when the next answer is due: patience ends when nothing can be read.
        self.session.requests.is_answer_overdue(now);
        Verdict::GoOn
    }

    /// When there may be something to do though nothing comes.
    fn next_due(&self, now: Instant, local_now: LocalTime) -> Instant {
        let check = now + PAUSE_CHECK_INTERVAL;
        let session = self.session.next_due(now, local_now);
        let held_up = self.held_up_since.map(|since| since + self.session.answer_patience);
        [session, held_up, self.closing_until].into_iter().flatten().fold(check, Instant::min)
    }

    /// If the node only passes on what it is sent.
    fn leader_elsewhere(&self, stream: &Stream) -> Option<String> {
        let leader = &stream.welcome.leader;
        let is_elsewhere = *leader != self.address && self.endpoints.may_follow(leader);
        if self.settings.lease_span() < leader::LEASE_SPAN_MIN {
            return None;
        }
        (is_elsewhere && self.unhelpful.as_ref() != Some(leader)).then(|| leader.clone())
    }

    fn on_frame(&mut self, frame: ServerFrame) -> Verdict {
        self.answered = frame.answers.len();
        let verdict = self.session.on_frame(frame, &mut self.backoff);
        if let Some(told) = self.session.endpoints_told.take() {
            self.learn(&told);
        }
        verdict
    }

    fn learn(&mut self, addresses: &[String]) {
        self.endpoints.learn(addresses);
        self.nodes.publish(&self.endpoints);
        if let Some(companion) = &self.settings.companion {
            let session = companion::Session {
                id: self.session.id,
                ttl: self.settings.ttl,
                endpoints: self.endpoints.all().to_vec(),
            };
            companion.tell(&Message::Session(session));
        }
    }

    /// The session is over, or was never opened: if this program dies, nothing is left to be ended.
    fn dismiss_companion(&self) {
        if let Some(companion) = &self.settings.companion {
            companion.tell(&Message::NoSession);
        }
    }

    fn on_stream_error(&mut self, failure: &Failure) -> Verdict {
        match failure.reason() {
            Reason::UnknownSession => Verdict::SessionLost(LossReason::SessionExpired),
            _ => Verdict::Move { leader: failure.leader.clone(), words: failure.message.clone() },
        }
    }

    /// A node that is silent about a request for too long is left, even if the connection stands: it
    /// may be cut off from its quorum. So is one that takes nothing more: a heartbeat that cannot be sent is
    /// as good as one without an answer.
    fn check_patience(&mut self) -> Verdict {
        let now = Instant::now();
        let patience = self.session.answer_patience;
        if self.session.requests.is_answer_overdue(now) {
            return broken("the node does not answer");
        }
        match self.held_up_since {
            Some(since) if since + patience <= now => broken("the node takes nothing more"),
            _ => Verdict::GoOn,
        }
    }

    /// As much as the connection has room for. If it takes nothing any more, what is still to be read says why.
    fn flush(&mut self, outbound: &mut Outbound, now: Instant, local_now: LocalTime) {
        if outbound.has_room() {
            self.held_up_since = None;
        }
        let session = &mut self.session;
        while session.requests.has_staged() {
            if !outbound.has_room() {
                self.held_up_since.get_or_insert(now);
                return;
            }
            let ids = session.requests.take_staged(NAMES_PER_FRAME_MAX, Request::name_count);
            let mut frame = Frame::new(session.requests.acked_through());
            for id in ids {
                let Some(request) = session.requests.get_mut(id) else { continue };
                request.write_to(&mut frame, id);
                if let Some(ticket) = request.ticket() {
                    ticket.note_sent();
                }
                let answer_due = now + request.own_wait() + session.answer_patience;
                if let Request::Renew { hold, ttl: Some(ttl), .. } = request {
                    let (lease, ttl) = (hold.lease, *ttl);
                    if let Some(mut leases) = session.leases() {
                        leases.renewal_sent(lease, RenewalId(id), local_now, ttl);
                    }
                }
                session.requests.mark_sent(id, local_now, answer_due);
            }
            outbound.send(frame);
        }
    }

    /// Runs a step of connecting while commands are still taken, so that they are there when the
    /// stream is.
    async fn while_taking_commands<T>(
        &mut self,
        step: impl Future<Output = T>,
    ) -> Result<T, Finished> {
        tokio::pin!(step);
        loop {
            let now = Instant::now();
            self.session.let_go_of_the_impatient(now);
            let longest =
                self.closing_sleep().min(self.session.patience_left(now).unwrap_or(Duration::MAX));
            tokio::select! {
                done = &mut step => return Ok(done),
                command = self.inbox.recv(), if self.closing_until.is_none() => match command {
                    Some(command) => self.accept(command)?,
                    None => self.start_closing(None)?,
                },
                () = tokio::time::sleep(longest) => {
                    if self.is_past_closing() {
                        return Err(Finished);
                    }
                }
            }
        }
    }

    fn start_closing(&mut self, reply: Option<oneshot::Sender<()>>) -> Result<(), Finished> {
        if !self.session.is_open() {
            if let Some(reply) = reply {
                let _ = reply.send(());
            }
            return Err(Finished);
        }
        self.closing_until = Some(Instant::now() + CLOSING_PATIENCE);
        // What is held when a session is closed is given back by that. Releases that nobody asks after would only
        // keep it waiting, and there may be as many of them as there were guards.
        let is_unasked =
            |request: &Request| matches!(request, Request::Release { reply: None, .. });
        self.session.requests.retain(|request| !is_unasked(request));
        self.session.requests.stage(Request::Close { reply });
        Ok(())
    }

    fn closing_sleep(&self) -> Duration {
        match self.closing_until {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => Duration::from_secs(3600),
        }
    }

    fn is_past_closing(&self) -> bool {
        self.closing_until.is_some_and(|until| until <= Instant::now())
    }

    fn replace_session(&mut self, reason: LossReason) -> Result<(), Finished> {
        tracing::warn!(session = %self.session.id.public_id(), "session lost: {reason}");
        // What the lost session never asked for, the next can.
        let unsent = self.session.requests.take_unsent(|request| {
            self.closing_until.is_none() && matches!(request, Request::Acquire(_))
        });
        self.session.end(reason);
        self.dismiss_companion();
        if self.closing_until.is_some() {
            return Err(Finished);
        }
        let next = Session::new(self.session.number + 1, self.settings.lease_span())
            .map_err(|_| Finished)?;
        let lost = std::mem::replace(&mut self.session, next);
        for request in unsent {
            self.session.stage(request);
        }
        // They are told that their hold is lost.
        self.session.ready = lost.ready;
        self.session.patience_ends_from = lost.patience_ends_from;
        self.accept_ready()
    }
}

fn broken(words: &str) -> Verdict {
    Verdict::Move { leader: String::new(), words: words.to_owned() }
}
