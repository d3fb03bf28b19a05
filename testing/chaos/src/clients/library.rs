//! A client through the client library: sessions on streams, guards, heartbeats.
//!
//! The library keeps session ids, request ids and retries to itself, so sessions and requests have ids
//! of our own here, and a lost session is followed by a new client. What the library does unasked
//! (heartbeats; a cancel or a release after the caller has given up) is not in the history; where it
//! could matter the client is closed, and the close is written down as an operation that may have
//! begun as early as the call that was given up.

use std::time::Duration;

use holdfast_client::{
    AcquireError, Client, ConnectError, Guard, ReleaseError, ReleaseOutcome, RenewError,
};
use holdfast_core::command::Mode;
use holdfast_core::{
    FenceToken, Grant, LockName, LogicalTime, Outcome, PublicSessionId, ReleaseAnswer, RequestId,
    SessionId, Span,
};
use holdfast_sim::history::{Input, Output, RealTime};

use super::ClientContext;
use crate::random::Random;
use crate::recorder::{Begun, Recorder};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Above all random ids of the plain clients, for all that matters.
const OWN_IDS: u128 = 0x00c0_ffee << 96;

struct Worker {
    client: Client,
    recorder: Recorder,
    session: SessionId,
    requests: u64,
}

/// The session is lost, or what became of it is not known.
struct Over;

pub(super) async fn work(number: u64, context: ClientContext, mut random: Random) {
    let addresses: Vec<&str> = context.addresses.values().map(String::as_str).collect();
    let endpoints = addresses.join(",");
    let mut sessions = 0;
    while !context.is_over() {
        sessions += 1;
        let session = SessionId(OWN_IDS | u128::from(number) << 64 | sessions);
        let ttl = Duration::from_millis(random.within(3_000..8_000));
        let opened = Worker::open(&endpoints, session, ttl, &context.recorder).await;
        let Some(mut worker) = opened else { continue };
        let mut given_up = None;
        while !context.is_over() && given_up.is_none() {
            let began = context.recorder.now();
            if worker.turn(&context, &mut random).await.is_err() {
                given_up = Some(began);
            }
            context.pause(Duration::from_millis(random.within(2..25))).await;
        }
        worker.close(given_up).await;
    }
}

impl Worker {
    async fn open(
        endpoints: &str,
        session: SessionId,
        ttl: Duration,
        recorder: &Recorder,
    ) -> Option<Worker> {
        let note = format!("chaos {:x}", session.0);
        recorder.knows_note(note.clone(), session);
        let input = Input::OpenSession { ttl_ms: ttl.as_millis() as u64 };
        let begun = recorder.begin(session, RequestId(1), input);
        let sent = recorder.now();
        let builder = Client::builder().ttl(ttl).note(note).request_timeout(REQUEST_TIMEOUT);
        // Every other one goes to the leader itself, past the wires that can be cut.
        let builder =
            if session.0.is_multiple_of(2) { builder } else { builder.without_discovery() };
        match builder.connect(endpoints).await {
            Ok(client) => {
                let span = Span::from_ms(ttl.as_millis() as u64);
                let public = PublicSessionId(0);
                let opened =
                    Outcome::SessionOpen { public, ttl: span, linger: span, departures: None };
                recorder.finish(begun, sent, Output::Outcome(opened));
                Some(Worker { client, recorder: recorder.clone(), session, requests: 1 })
            }
            Err(ConnectError::Unavailable(_)) => None,
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }

    /// Takes a lock, works under it, and gives it back.
    async fn turn(&mut self, context: &ClientContext, random: &mut Random) -> Result<(), Over> {
        let name = context.shared_lock(random).ok_or(Over)?;
        let wait = Duration::from_millis(random.within(0..2_500));
        let ttl = random.once_in(6).then(|| Duration::from_millis(random.within(300..1_500)));
        let Some(guard) = self.acquire(&name, wait, ttl).await? else { return Ok(()) };
        self.write(&name, &guard);
        context.pause(Duration::from_millis(random.within(0..30))).await;
        self.write(&name, &guard);
        if ttl.is_some() && random.once_in(2) {
            self.renew(&name, &guard, ttl).await?;
            self.write(&name, &guard);
        }
        if random.once_in(200) {
            // Works for longer than it holds; heartbeats may keep it alive.
            context.pause(Duration::from_millis(random.within(500..4_000))).await;
            self.write(&name, &guard);
        }
        self.release(&name, guard).await
    }

    async fn acquire(
        &mut self,
        name: &LockName,
        wait: Duration,
        ttl: Option<Duration>,
    ) -> Result<Option<Guard>, Over> {
        let (wait_ms, ttl_ms) = (wait.as_millis() as u64, ttl.map(|ttl| ttl.as_millis() as u64));
        let input = Input::Acquire { name: name.clone(), wait_ms, ttl_ms, max_hold_ms: None };
        let (begun, sent) = self.begin(input);
        let mut request = self.client.lock(name.as_str()).wait(wait);
        if let Some(ttl) = ttl {
            request = request.ttl(ttl);
        }
        match request.acquire().await {
            Ok(guard) => {
                let Ok(token) = guard.token() else { return Err(Over) };
                let grant = Grant {
                    name: name.clone(),
                    acquire: RequestId(0),
                    token: FenceToken(token),
                    mode: Mode::Exclusive,
                    deadline: None,
                    session_deadline: LogicalTime::ZERO,
                };
                self.finish(begun, sent, Outcome::Granted(grant));
                Ok(Some(guard))
            }
            Err(AcquireError::Busy) => {
                self.finish(begun, sent, Outcome::Busy);
                Ok(None)
            }
            Err(AcquireError::TimedOut) => {
                if nothing_was_granted(ttl) {
                    self.finish(begun, sent, Outcome::TimedOut);
                }
                Ok(None)
            }
            Err(_) => Err(Over),
        }
    }

    async fn renew(
        &mut self,
        name: &LockName,
        guard: &Guard,
        ttl: Option<Duration>,
    ) -> Result<(), Over> {
        let Ok(token) = guard.token() else { return Ok(()) };
        let ttl_ms = ttl.map(|ttl| ttl.as_millis() as u64);
        let input = Input::Renew { name: name.clone(), token: FenceToken(token), ttl_ms };
        let (begun, sent) = self.begin(input);
        match guard.renew(ttl).await {
            Ok(()) => {
                let session_deadline = LogicalTime::ZERO;
                self.finish(begun, sent, Outcome::Renewed { deadline: None, session_deadline });
                Ok(())
            }
            // The hold is over, or will be found to be.
            Err(RenewError::Lost(_) | RenewError::Rejected(_)) => Ok(()),
            Err(_) => Err(Over),
        }
    }

    async fn release(&mut self, name: &LockName, guard: Guard) -> Result<(), Over> {
        // A guard that is lost may be without a token, and is given back all the same.
        let Ok(token) = guard.token() else {
            let _ = guard.release().await;
            return Err(Over);
        };
        let (begun, sent) =
            self.begin(Input::Release { name: name.clone(), token: FenceToken(token) });
        let answer = match guard.release().await {
            Ok(ReleaseOutcome::Released) => ReleaseAnswer::Released,
            Ok(ReleaseOutcome::AlreadyReleased) => ReleaseAnswer::AlreadyReleased,
            Ok(ReleaseOutcome::NotOwner) => ReleaseAnswer::NotOwner,
            // Said by the cluster, or by the library because the session was over.
            Ok(_) => return Err(Over),
            Err(ReleaseError::Unavailable(_) | ReleaseError::Rejected(_)) => return Err(Over),
            Err(_) => return Err(Over),
        };
        self.finish(begun, sent, Outcome::Release(answer));
        Ok(())
    }

    async fn close(mut self, begun_since: Option<RealTime>) {
        let invoked = begun_since.unwrap_or_else(|| self.recorder.now());
        let request = self.next_request();
        let begun = self.recorder.begin_at(invoked, self.session, request, Input::CloseSession);
        let sent = self.recorder.now();
        if self.client.close().await.is_ok() && begun_since.is_none() {
            self.recorder.finish(begun, sent, Output::Outcome(Outcome::SessionClosed));
        }
    }

    fn write(&self, name: &LockName, guard: &Guard) {
        // A guard that is lost gives no token, and there is nothing to write with.
        let _ = self.recorder.write(self.session, name, || guard.token().map(FenceToken));
    }

    fn begin(&mut self, input: Input) -> (Begun, RealTime) {
        let request = self.next_request();
        let sent = self.recorder.now();
        (self.recorder.begin_at(sent, self.session, request, input), sent)
    }

    fn finish(&self, begun: Begun, sent: RealTime, outcome: Outcome) {
        self.recorder.finish(begun, sent, Output::Outcome(outcome));
    }

    fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }
}

/// Whether "timed out" tells that nothing was granted. While its stream was broken the library can miss both a
/// grant and the end of it, if the hold has a TTL of its own; any other hold it would find when it is back.
fn nothing_was_granted(own_ttl: Option<Duration>) -> bool {
    own_ttl.is_none()
}
