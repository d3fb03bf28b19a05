//! One task owns a session and its stream; all others talk to it through a [`Handle`].
//!
//! - [`groups`]: the sessions of a client, one in each group of the cluster whose locks it uses.
//! - [`task`]: drives the state machine of [`holdfast_client_core::session`] with a socket and a clock.
//! - [`dial`], [`stream`], [`plain`]: the connection and the stream on it.
//! - [`alarm`]: the task's timer.
//!
//! Nothing grows without bound: the queue to the task holds what belongs to the [`CALLS_MAX`] callers at most
//! that are let in, and the release of each guard once; a guard that is dropped cannot wait for room. What
//! goes to a node waits in a short queue, the rest with the session.

mod alarm;
mod dial;
mod groups;
mod plain;
mod stream;
mod task;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_client_core::circuit::CircuitState;
use holdfast_client_core::connect_errors::ConnectErrors;
use holdfast_client_core::endpoints::Endpoints;
use holdfast_client_core::error::{RequestError, Unavailable};
use holdfast_client_core::groups::GroupId;
use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::session::{
    self as core, NoSessionId, NotOpened, Outcome, Request, Success,
};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::circuit::Circuit;
use crate::companion::Companion;
use crate::connection::Transport;
use crate::jitter_seed;
use crate::known_nodes::KnownNodes;
use crate::unary::Unary;
use holdfast_lease_clock as clock;

pub(crate) use groups::Sessions;
use groups::Starter;
use task::Task;

/// What every session of a client is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) session: core::Settings,
    pub(crate) request_timeout: Duration,
    pub(crate) waits_for_rates: bool,
    pub(crate) companion: Option<Companion>,
    pub(crate) transport: Transport,
}

/// Called with the place in the queue of an acquire.
pub(crate) type OnQueued = Box<dyn FnOnce(u64) + Send>;

/// A caller that waits for the answer to a request.
struct Caller {
    reply: oneshot::Sender<Outcome>,
    on_queued: Option<OnQueued>,
}

enum Command {
    Ask {
        request: Request,
        caller: Option<Caller>,
        waits_until: LocalTime,
        /// For the number of the call.
        call: Option<Arc<AtomicU64>>,
    },
    /// The caller of this acquire or convert is gone.
    Abandon(Arc<AtomicU64>),
    Close {
        caller: Caller,
    },
}

/// The way to the session's task. The task ends when the last handle is gone.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    /// Each guard has a handle, so one is cheap to clone.
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: mpsc::UnboundedSender<Command>,
    request_timeout: Duration,
    view: View,
    transport: Transport,
    circuit: Circuit,
    limits: CallLimits,
}

/// What the task tells all callers: which nodes there are, and why there is no answer.
#[derive(Debug, Clone)]
struct View {
    nodes: KnownNodes,
    errors: Arc<Mutex<ConnectErrors>>,
}

/// Calls of a kind that are under way at a time; more wait for their turn. No session may stand in more queues.
const CALLS_MAX: usize = 100_000;

/// Reads that are under way at a time. A node takes no more from one stream.
const READS_MAX: usize = 64;

/// Longer than any caller waits, and still a time that a clock can show.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Calls that wait for locks do not keep calls about held locks from being made.
#[derive(Debug)]
struct CallLimits {
    waits: Semaphore,
    about_holds: Semaphore,
    reads: Semaphore,
}

impl Handle {
    /// Starts the task of a session. The task opens the session at once if `opened` is there to be told so. Otherwise a
    /// request opens it, and the task connects to nothing before.
    fn start(
        group: GroupId,
        endpoints: Endpoints,
        starter: &Starter,
        opened: Option<oneshot::Sender<Result<(), NotOpened>>>,
    ) -> Result<Handle, NoSessionId> {
        let Starter { settings, routes, circuits, ids } = starter.clone();
        let (commands, inbox) = mpsc::unbounded_channel();
        let (circuit, circuit_state) = watch::channel(CircuitState::Closed);
        let view = View { nodes: KnownNodes::new(endpoints.clone()), errors: Arc::default() };
        let config = core::Config {
            settings: settings.session.clone(),
            group,
            endpoints,
            opens_at_once: opened.is_some(),
            waits_for_rates: settings.waits_for_rates,
            jitter_seed: jitter_seed(),
            session_ids: ids.of_one_group(),
        };
        let session = core::SessionMachine::new(config, clock::now())?;
        let handle = Handle {
            shared: Arc::new(Shared {
                commands,
                request_timeout: settings.request_timeout,
                view: view.clone(),
                transport: settings.transport.clone(),
                circuit: Circuit(circuit_state),
                limits: CallLimits {
                    waits: Semaphore::new(CALLS_MAX),
                    about_holds: Semaphore::new(CALLS_MAX),
                    reads: Semaphore::new(READS_MAX),
                },
            }),
        };
        let Settings { companion, transport, .. } = settings;
        let task =
            Task { session, inbox, companion, transport, view, routes, circuits, circuit, opened };
        tokio::spawn(task.run());
        Ok(handle)
    }

    /// Asks for something that can stand in a queue. If the future is dropped, nothing is left behind.
    pub(crate) async fn ask_and_wait(
        &self,
        request: Request,
        wait: Duration,
        on_queued: Option<OnQueued>,
    ) -> Outcome {
        let waits_until = self.waits_until(wait);
        let _permit = self.admit(&self.shared.limits.waits, waits_until).await?;
        let call = Arc::new(AtomicU64::new(0));
        let mut abandon = AbandonOnDrop { handle: self, call: &call, is_needed: true };
        let outcome = self.answer(request, waits_until, on_queued, Some(Arc::clone(&call))).await;
        abandon.is_needed = matches!(outcome, Err(RequestError::Unavailable(_)));
        outcome
    }

    /// Asks for something about a hold that is answered at once.
    pub(crate) async fn ask(&self, request: Request) -> Outcome {
        self.ask_within(&self.shared.limits.about_holds, request).await
    }

    /// Reads something.
    pub(crate) async fn read(&self, request: Request) -> Outcome {
        self.ask_within(&self.shared.limits.reads, request).await
    }

    async fn ask_within(&self, limit: &Semaphore, request: Request) -> Outcome {
        let waits_until = self.waits_until(Duration::ZERO);
        let _permit = self.admit(limit, waits_until).await?;
        if let Request::Transfer { hold, .. } = &request {
            // From here on the lock may be another session's.
            hold.set_leaving(true);
        }
        self.answer(request, waits_until, None, None).await
    }

    /// The release is on its way before the future is first polled.
    pub(crate) fn start_release(&self, request: Request) -> impl Future<Output = Outcome> + use<> {
        let waits_until = self.waits_until(Duration::ZERO);
        // A caller does not have to wait for what the session goes on trying.
        let answer = match self.check_circuit() {
            Ok(()) => Ok(self.answer(request, waits_until, None, None)),
            Err(_) => {
                self.release(request);
                Err(RequestError::Unavailable(self.unavailable(true)))
            }
        };
        async move { answer?.await }
    }

    /// Hands a release to the task.
    pub(crate) fn release(&self, request: Request) {
        let waits_until = LocalTime(Duration::ZERO);
        self.send(Command::Ask { request, caller: None, waits_until, call: None });
    }

    /// The close is on its way before the future is first polled.
    fn start_close(&self) -> impl Future<Output = Outcome> + use<> {
        let (reply, answer) = oneshot::channel();
        let is_open = self.send(Command::Close { caller: Caller { reply, on_queued: None } });
        let (handle, answer) = (self.clone(), timeout(self.shared.request_timeout, answer));
        async move {
            match answer.await {
                // The task has ended before: a clone was closed.
                _ if !is_open => Ok(Success::Closed),
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => Err(RequestError::Unavailable(handle.unavailable(true))),
            }
        }
    }

    /// The request is on its way before the future is first polled.
    fn answer(
        &self,
        request: Request,
        waits_until: LocalTime,
        on_queued: Option<OnQueued>,
        call: Option<Arc<AtomicU64>>,
    ) -> impl Future<Output = Outcome> + use<> {
        let (reply, answer) = oneshot::channel();
        let caller = Some(Caller { reply, on_queued });
        self.send(Command::Ask { request, caller, waits_until, call });
        async move { answer.await.unwrap_or(Err(RequestError::Closed)) }
    }

    /// A permit for one more call of its kind. Fails at once while the circuit is open.
    async fn admit<'a>(
        &self,
        limit: &'a Semaphore,
        waits_until: LocalTime,
    ) -> Result<SemaphorePermit<'a>, RequestError> {
        self.check_circuit().map_err(RequestError::Unavailable)?;
        if let Ok(permit) = limit.try_acquire() {
            return Ok(permit);
        }
        // The semaphore is never closed.
        match timeout(waits_until.saturating_since(clock::now()), limit.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(RequestError::Unavailable(self.unavailable(false))),
        }
    }

    fn check_circuit(&self) -> Result<(), Unavailable> {
        match self.shared.circuit.state() {
            CircuitState::Closed => Ok(()),
            CircuitState::Open | CircuitState::HalfOpen => Err(self.unavailable(false)),
        }
    }

    pub(crate) fn circuit(&self) -> Circuit {
        self.shared.circuit.clone()
    }

    /// False if the task has ended. Callers who wait for an answer also see it on their reply channel.
    fn send(&self, command: Command) -> bool {
        self.shared.commands.send(command).is_ok()
    }

    fn known_nodes(&self) -> &KnownNodes {
        &self.shared.view.nodes
    }

    /// For calls beside the session.
    pub(crate) fn calls(&self) -> Unary {
        let (nodes, transport) = (self.shared.view.nodes.clone(), self.shared.transport.clone());
        Unary::to(nodes, transport).timeout(self.shared.request_timeout)
    }

    /// Of a caller who asks now, and is ready to wait so long for what it asks for.
    fn waits_until(&self, wait: Duration) -> LocalTime {
        let patience = wait.saturating_add(self.shared.request_timeout).min(FOR_EVER);
        LocalTime(clock::now().0 + patience)
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.shared.request_timeout
    }

    pub(crate) fn unavailable(&self, may_have_happened: bool) -> Unavailable {
        self.shared.view.errors().to_unavailable(may_have_happened)
    }
}

impl View {
    fn errors(&self) -> MutexGuard<'_, ConnectErrors> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the session's task that the caller is gone.
struct AbandonOnDrop<'a> {
    handle: &'a Handle,
    call: &'a Arc<AtomicU64>,
    is_needed: bool,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_needed {
            self.handle.send(Command::Abandon(Arc::clone(self.call)));
        }
    }
}
