//! The task that drives a session: it owns the socket and the callers, reads the clock, and decides nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_client_core::circuit::CircuitState;
use holdfast_client_core::error::LossReason;
use holdfast_client_core::session::{NotOpened, Output, Request, SessionMachine};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason, ServerFrame};
use holdfast_tls::explain_any;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;
use tracing::Instrument;

use super::alarm::Alarm;
use super::dial::{Dialled, dial};
use super::groups::{Circuits, SharedRoutes};
use super::stream::{Inbound, Outbound, Stream};
use super::{Caller, Command, View};
use crate::auth_file::AuthFile;
use crate::companion::{self, Companion, Message};
use crate::connection::{Transport, why_not};
use crate::tls::Tls;
use holdfast_lease_clock as clock;

/// tokio's timers do not run while the machine sleeps. After a sleep the task notices within this time what is due.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The timer of a session that has nothing to do.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);

pub(super) struct Task {
    pub(super) session: SessionMachine<Caller>,
    pub(super) inbox: mpsc::UnboundedReceiver<Command>,
    pub(super) companion: Option<Companion>,
    pub(super) transport: Transport,
    pub(super) view: View,
    pub(super) routes: Arc<SharedRoutes>,
    pub(super) circuits: Arc<Circuits>,
    pub(super) circuit: watch::Sender<CircuitState>,
    /// Set if the client opens its first session at once. The task sends here whether the session was opened.
    pub(super) opened: Option<oneshot::Sender<Result<(), NotOpened>>>,
}

/// What belongs to the task while it runs.
#[derive(Default)]
struct Io {
    stream: Option<Stream>,
    /// Which version of the credential the stream has shown.
    credential: u64,
    dialling: Option<Pin<Box<dyn Future<Output = Dialled> + Send>>>,
}

/// What came first.
enum Input {
    Room,
    Dialled(Dialled),
    Frame(Result<Option<ServerFrame>, Status>),
    Command(Option<Command>),
    Alarm,
}

impl Task {
    pub(super) async fn run(mut self) {
        let (mut io, mut alarm) = (Io::default(), Alarm::new());
        let mut answered = 0;
        loop {
            self.let_callers_run(answered).await;
            while let Ok(command) = self.inbox.try_recv() {
                self.on_command(command);
            }
            if alarm.has_gone_off(Instant::now()) {
                self.on_time(&mut io);
            }
            if self.carry_out(&mut io) {
                return;
            }
            self.flush(&mut io);
            alarm.set(self.next_timeout());
            answered = 0;
            match self.next_input(&mut io, &mut alarm).await {
                Input::Room => {}
                Input::Dialled(dialled) => self.on_dialled(dialled, &mut io),
                Input::Frame(Ok(Some(frame))) => {
                    answered = frame.answers.len();
                    self.session.handle_frame(clock::now(), frame);
                }
                Input::Frame(Ok(None)) => self.on_broken("the stream ended"),
                Input::Frame(Err(status)) => {
                    let failure = why_ended(&status, self.session.is_open());
                    self.session.handle_disconnected(clock::now(), failure);
                }
                Input::Command(Some(command)) => self.on_command(command),
                Input::Command(None) => self.session.handle_close(clock::now(), None),
                Input::Alarm => self.session.handle_quiet(clock::now()),
            }
            if self.carry_out(&mut io) {
                return;
            }
        }
    }

    /// Yields to tokio, so that callers that were just answered can send their next requests. The task then sends all
    /// of these in one frame. With a single caller there is nothing to collect, so the task does not yield.
    async fn let_callers_run(&mut self, answered: usize) {
        if answered > 1 || self.session.has_several_in_flight() {
            tokio::task::yield_now().await;
            // The first request wakes this task before the other callers have run. So the task yields once more.
            if self.inbox.len() < answered {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn next_input(&mut self, io: &mut Io, alarm: &mut Alarm) -> Input {
        let stream = io.stream.as_mut().map(|stream| (&mut stream.outbound, &mut stream.inbound));
        let (outbound, inbound) = stream.unzip();
        tokio::select! {
            // `biased` polls the branches in this order, rare inputs first. Frames cannot starve commands or timers:
            // before each call of this function, `run` takes all commands and checks the alarm. The alarm is last,
            // because `handle_quiet` disconnects from a node whose answer is overdue. That answer may be readable now.
            biased;
            () = room(outbound) => Input::Room,
            dialled = dialled(&mut io.dialling) => Input::Dialled(dialled),
            frame = message(inbound) => Input::Frame(frame),
            command = self.inbox.recv(), if !self.session.is_closing() => Input::Command(command),
            () = alarm.goes_off() => Input::Alarm,
        }
    }

    fn on_command(&mut self, command: Command) {
        let now = clock::now();
        match command {
            Command::Ask { request, caller, waits_until, call } => {
                if let Some(companion) = &self.companion
                    && wants_lock_delay(&request)
                {
                    companion.tell(&Message::LockDelay);
                }
                let number = self.session.handle_request(now, request, caller, waits_until);
                if let Some(call) = call {
                    call.store(number, Ordering::Relaxed);
                }
            }
            Command::Abandon(call) => {
                self.session.handle_abandoned(now, call.load(Ordering::Relaxed));
            }
            Command::Close { caller } => self.session.handle_close(now, Some(caller)),
        }
    }

    fn on_time(&mut self, io: &mut Io) {
        if let Some(stream) = &mut io.stream {
            if stream.inbound.has_fallen_silent(Instant::now()) {
                return self.on_broken("the node has fallen silent");
            }
            stream.outbound.ping_if_due(Instant::now());
        }
        // The node compares each request with the credential that the connection has shown, which may end soon.
        if io.stream.is_some() && self.credential() != io.credential {
            if let Some(stream) = io.stream.take() {
                stream.leave();
            }
            return self.on_broken("there is another credential; it is shown on a new connection");
        }
        self.session.handle_timeout(clock::now());
    }

    /// Which version of the credential is in the file.
    fn credential(&self) -> u64 {
        self.transport.auth_file().map_or(0, AuthFile::generation)
    }

    fn on_dialled(&mut self, dialled: Dialled, io: &mut Io) {
        io.dialling = None;
        match dialled {
            Ok(connection) => {
                if self.session.handle_connected(clock::now()) {
                    self.carry_out(io);
                    io.stream = Some(Stream::open(connection));
                }
            }
            Err(error) => {
                let (contact, words) = why_not(&*error);
                tracing::debug!("no connection: {words}");
                self.session.handle_connect_failed(clock::now(), &words, contact);
            }
        }
    }

    fn on_broken(&mut self, words: &str) {
        tracing::debug!("{words}");
        let failure = Failure { message: words.to_owned(), retryable: true, ..Failure::default() };
        self.session.handle_disconnected(clock::now(), failure);
    }

    /// Carries out what the session machine asks for. Returns true if the session has finished.
    fn carry_out(&mut self, io: &mut Io) -> bool {
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Connect { address } => {
                    let session = self.session.id().public_id();
                    let resumes = self.session.is_open();
                    let span = tracing::info_span!("connect", %session, address, resumes);
                    if let Some(file) = self.transport.auth_file() {
                        file.refresh();
                    }
                    io.credential = self.credential();
                    io.dialling =
                        Some(Box::pin(dial(self.transport.clone(), address).instrument(span)));
                }
                Output::Disconnect { with_farewell } => {
                    io.dialling = None;
                    if let Some(stream) = io.stream.take()
                        && with_farewell
                    {
                        stream.leave();
                    }
                }
                // Sending fails if the caller is gone. Then the caller has abandoned its request by itself.
                Output::Completed { caller, outcome } => drop(caller.reply.send(outcome)),
                Output::Queued(queued) => {
                    let caller = self.session.caller_mut(queued.call);
                    if let Some(on_queued) = caller.and_then(|caller| caller.on_queued.take()) {
                        on_queued(queued.position);
                    }
                }
                Output::Opened => self.tell_opened(Ok(())),
                Output::NotOpened(why) => self.tell_opened(Err(why)),
                Output::EndpointsLearned => {
                    self.routes.learn(self.session.map());
                    self.tell_endpoints();
                }
                Output::ConnectivityChanged => {
                    let state = self.session.circuit();
                    let change = |now: &mut CircuitState| std::mem::replace(now, state) != state;
                    if self.circuit.send_if_modified(change) {
                        self.circuits.set(self.session.group(), state);
                    }
                    self.view.errors().clone_from(self.session.connect_errors());
                }
                Output::SessionEnded { session, reason } => {
                    let public_id = session.public_id();
                    match reason {
                        LossReason::SessionClosed => {}
                        LossReason::Denied => {
                            let said = self.session.connect_errors().to_unavailable(false).message;
                            tracing::warn!(session = %public_id, "session lost: {reason}: {said}");
                        }
                        _ => tracing::warn!(session = %public_id, "session lost: {reason}"),
                    }
                    // A session that the nodes denied may still be open. The companion ends it after this program, if
                    // the credential allows that by then.
                    if let Some(companion) = &self.companion
                        && reason != LossReason::Denied
                    {
                        companion
                            .tell(&Message::NoSession { group: self.session.group().number() });
                    }
                }
                Output::Finished => return true,
            }
        }
        false
    }

    fn tell_opened(&mut self, outcome: Result<(), NotOpened>) {
        if let Some(opened) = self.opened.take() {
            let _ = opened.send(outcome);
        }
    }

    fn tell_endpoints(&self) {
        let endpoints = self.session.endpoints();
        self.view.nodes.publish(endpoints);
        if let Some(companion) = &self.companion {
            if let Some(tls) = self.transport.tls().and_then(Tls::absolute) {
                companion.tell(&Message::Tls(tls));
            }
            let auth_file = self.transport.auth_file().map(|file| std::path::absolute(file.path()));
            if let Some(Ok(path)) = auth_file {
                companion.tell(&Message::AuthFile(path));
            }
            companion.tell(&Message::Session(companion::Session {
                id: self.session.id(),
                group: self.session.group().number(),
                ttl: self.session.settings().ttl,
                endpoints: endpoints.all().to_vec(),
                has_tls: self.transport.tls().is_some(),
            }));
        }
    }

    /// Sends frames for as long as the connection has room. If the connection is broken, `flush` reports nothing: the
    /// task reads on, and learns the reason from the node's last frame or from the read error.
    fn flush(&mut self, io: &mut Io) {
        let Some(stream) = &mut io.stream else { return };
        let now = clock::now();
        while stream.outbound.has_room() {
            match self.session.poll_frame(now) {
                Some(frame) => stream.outbound.send(frame),
                None => return,
            }
        }
        if self.session.has_frame() {
            self.session.handle_blocked(now);
        }
    }

    fn next_timeout(&self) -> Instant {
        let left = match self.session.next_timeout() {
            Some(at) => at.saturating_since(clock::now()).min(PAUSE_CHECK_INTERVAL),
            None => IDLE_INTERVAL,
        };
        Instant::now() + left
    }
}

/// Why a stream of gRPC has ended.
fn why_ended(status: &Status, is_open: bool) -> Failure {
    match explain_any(status) {
        // That is no word of a node about the session: the certificate may be replaced.
        Some(message) if is_open => Failure { message, retryable: true, ..Failure::default() },
        // There is no session, and will be none.
        Some(words) => refused(Reason::Unauthenticated, words),
        None => Failure::from_status(status),
    }
}

async fn room(outbound: Option<&mut Outbound>) {
    match outbound.filter(|outbound| outbound.may_get_room()) {
        Some(outbound) => outbound.room().await,
        None => std::future::pending().await,
    }
}

async fn message(inbound: Option<&mut Inbound>) -> Result<Option<ServerFrame>, Status> {
    match inbound {
        Some(inbound) => inbound.message().await,
        None => std::future::pending().await,
    }
}

async fn dialled(dialling: &mut Option<Pin<Box<dyn Future<Output = Dialled> + Send>>>) -> Dialled {
    match dialling {
        Some(dialling) => dialling.await,
        None => std::future::pending().await,
    }
}

fn wants_lock_delay(request: &Request) -> bool {
    let delay_ms = match request {
        Request::Acquire(request) => request.lock_delay_ms,
        Request::AcquireAll(request) => request.lock_delay_ms,
        _ => None,
    };
    delay_ms.is_some_and(|ms| ms > 0)
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::{AlertDescription, Error};

    use super::*;

    #[test]
    fn an_error_of_tls_denies_only_a_client_without_a_session() {
        let alert = Error::AlertReceived(AlertDescription::CertificateExpired);
        let status = Status::from_error(Box::new(io::Error::other(alert)));
        let while_open = why_ended(&status, true);
        assert_eq!((while_open.reason(), while_open.retryable), (Reason::Unspecified, true));
        let before = why_ended(&status, false);
        assert_eq!((before.reason(), before.retryable), (Reason::Unauthenticated, false));
        assert_eq!(while_open.message, before.message);
    }

    #[test]
    fn a_denial_that_a_proxy_said_is_none_of_a_node() {
        let by_proxy = why_ended(&Status::unauthenticated("who are you?"), true);
        assert_eq!(by_proxy.reason(), Reason::Unspecified);
        let by_node = refused(Reason::Unauthenticated, "the token is not known").to_status();
        assert_eq!(why_ended(&by_node, true).reason(), Reason::Unauthenticated);
    }
}
