//! One task owns the session and its stream; everybody else talks to it through a [`Handle`].
//!
//! - [`task`]: the loop: connect, converse, reconnect.
//! - [`request`]: what is sent, and who waits for the answer.
//! - [`answers`]: what an answer or a notice changes.
//! - [`convert`]: what waits for the end of a conversion.
//! - [`frame`]: requests become bytes.
//! - [`hello`]: one try to get a stream from one node.
//! - [`stream`]: the stream itself.
//!
//! Nothing grows without bound: the queue to the task holds what belongs to the [`CALLS_MAX`] callers at most
//! that are let in, and the release of each guard once; a guard that is dropped cannot wait for room. What
//! goes to a node waits in a short queue, the rest with the session.

mod answers;
mod convert;
mod dial;
mod frame;
mod hello;
mod plain;
mod reply;
mod request;
mod state;
mod stream;
mod task;
mod ticket;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_proto::v1::{Owner, StatusResponse};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

use crate::circuit::{Circuit, CircuitState};
use crate::companion::Companion;
use crate::endpoints::{Endpoints, KnownNodes};
use crate::error::{
    ConnectError, ProclaimError, Rejection, RenewError, TransferError, Unavailable,
};
use crate::guard::ReleaseOutcome;
use crate::hold::Hold;
use crate::lease::lease_span;
use crate::trouble::Troubles;
use crate::unary::Unary;

pub(crate) use convert::ConvertCall;
pub(crate) use hello::words_of;
pub(crate) use reply::{Awaited, Reply, Unanswered, reply_until};
pub(crate) use request::{AcquireCall, Granted, Wanted, whole_ms};
use task::{NotOpened, Task};
pub(crate) use ticket::Ticket;

pub(crate) type ReleaseReply = Reply<Result<ReleaseOutcome, Rejection>>;

pub(crate) type StatusReply = oneshot::Sender<Result<StatusResponse, Rejection>>;

/// What every session of a client is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) linger: Option<Duration>,
    pub(crate) owner: Owner,
    pub(crate) request_timeout: Duration,
    pub(crate) companion: Option<Companion>,
}

impl Settings {
    /// How long the session certainly outlives its last answered request.
    pub(crate) fn lease_span(&self) -> Duration {
        lease_span(self.ttl, self.linger.unwrap_or(self.ttl))
    }
}

#[derive(Debug)]
pub(crate) enum Command {
    Acquire(Box<AcquireCall>),
    Convert(ConvertCall),
    /// The caller of this acquire or convert is gone.
    Abandon(Ticket),
    Release {
        hold: Arc<Hold>,
        reply: Option<ReleaseReply>,
    },
    Renew {
        hold: Arc<Hold>,
        ttl: Option<Duration>,
        reply: oneshot::Sender<Result<(), RenewError>>,
    },
    Proclaim {
        hold: Arc<Hold>,
        metadata: Vec<u8>,
        reply: oneshot::Sender<Result<(), ProclaimError>>,
    },
    Transfer {
        hold: Arc<Hold>,
        to: String,
        reply: oneshot::Sender<Result<u64, TransferError>>,
    },
    Status {
        name: String,
        reply: StatusReply,
    },
    Close {
        reply: oneshot::Sender<()>,
    },
}

impl Command {
    /// The hold that it is about.
    fn hold(&self) -> Option<&Hold> {
        match self {
            Command::Convert(call) => Some(&call.hold),
            Command::Release { hold, .. }
            | Command::Renew { hold, .. }
            | Command::Proclaim { hold, .. }
            | Command::Transfer { hold, .. } => Some(hold),
            Command::Acquire(_)
            | Command::Abandon(_)
            | Command::Status { .. }
            | Command::Close { .. } => None,
        }
    }

    /// Until when its caller is waiting, if it does not look at the clock itself.
    fn awaited_until(&self) -> Option<Instant> {
        match self {
            Command::Acquire(call) => call.reply.awaited_until(),
            Command::Release { reply, .. } => reply.as_ref()?.awaited_until(),
            _ => None,
        }
    }

    /// As [`Request::let_go_if_over`](request::Request::let_go_if_over).
    fn let_go_if_over(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Command::Acquire(call) => call.reply.let_go_if_over(now),
            Command::Release { reply, .. } => reply.as_mut()?.let_go_if_over(now),
            _ => None,
        }
    }
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
    trouble: Trouble,
    nodes: KnownNodes,
    circuit: Circuit,
    places: Places,
}

/// Calls of a kind that are under way at a time; more wait for their turn. No session may stand in more queues.
const CALLS_MAX: usize = 100_000;

/// Looks that are under way at a time. A node takes no more from one stream.
const LOOKS_MAX: usize = 64;

/// Longer than anybody waits, and still a time that a clock can show.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Those who wait for locks do not keep those who hold them from what has to be done with them.
#[derive(Debug)]
struct Places {
    for_waits: Semaphore,
    for_holders: Semaphore,
    for_looks: Semaphore,
}

impl Places {
    fn new() -> Places {
        Places {
            for_waits: Semaphore::new(CALLS_MAX),
            for_holders: Semaphore::new(CALLS_MAX),
            for_looks: Semaphore::new(LOOKS_MAX),
        }
    }
}

/// Why there is no answer, for the words of a timeout.
#[derive(Debug, Clone, Default)]
struct Trouble(Arc<Mutex<Troubles>>);

impl Handle {
    fn new(shared: Shared) -> Handle {
        Handle { shared: Arc::new(shared) }
    }

    /// Starts the task, which opens a session at once. Returns when that is done.
    pub(crate) async fn open(
        endpoints: Endpoints,
        settings: Settings,
    ) -> Result<Handle, ConnectError> {
        let request_timeout = settings.request_timeout;
        let (opened, when_opened) = oneshot::channel();
        let handle = Handle::start(endpoints, settings, Some(opened))?;
        match tokio::time::timeout(request_timeout, when_opened).await {
            Ok(Ok(Ok(()))) => Ok(handle),
            Ok(Ok(Err(NotOpened::Refused(rejection)))) => Err(ConnectError::Rejected(rejection)),
            Ok(Ok(Err(NotOpened::NobodyThere))) => {
                Err(ConnectError::Unavailable(handle.unavailable(false)))
            }
            Ok(Err(_)) | Err(_) => Err(ConnectError::Unavailable(handle.unavailable(true))),
        }
    }

    /// Starts the task, which opens a session when something is asked of the cluster, and connects to nothing before.
    pub(crate) fn open_when_needed(
        endpoints: Endpoints,
        settings: Settings,
    ) -> Result<Handle, ConnectError> {
        Handle::start(endpoints, settings, None)
    }

    fn start(
        endpoints: Endpoints,
        settings: Settings,
        opened: Option<oneshot::Sender<Result<(), NotOpened>>>,
    ) -> Result<Handle, ConnectError> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let request_timeout = settings.request_timeout;
        let (trouble, nodes) = (Trouble::default(), KnownNodes::new(endpoints.clone()));
        let task = Task::new(inbox, endpoints, settings, trouble.clone(), nodes.clone(), opened)?;
        let handle = Handle::new(Shared {
            commands,
            request_timeout,
            trouble,
            nodes,
            circuit: task.circuit(),
            places: Places::new(),
        });
        tokio::spawn(task.run());
        Ok(handle)
    }

    /// A place among the calls that may stand in a queue. Fails at once while the circuit is open.
    pub(crate) async fn admit_wait(
        &self,
        patience_until: Instant,
    ) -> Result<SemaphorePermit<'_>, Unavailable> {
        let places = &self.shared.places.for_waits;
        self.check_circuit()?;
        if let Ok(place) = places.try_acquire() {
            return Ok(place);
        }
        let admitted = tokio::time::timeout_at(patience_until.into(), self.admit(places)).await;
        admitted.unwrap_or_else(|_| Err(self.unavailable(false)))
    }

    /// A place among the other calls.
    pub(crate) async fn admit_holder(&self) -> Result<SemaphorePermit<'_>, Unavailable> {
        self.admit(&self.shared.places.for_holders).await
    }

    /// A place among those who look at locks.
    pub(crate) async fn admit_look(&self) -> Result<SemaphorePermit<'_>, Unavailable> {
        self.admit(&self.shared.places.for_looks).await
    }

    async fn admit<'a>(&self, places: &'a Semaphore) -> Result<SemaphorePermit<'a>, Unavailable> {
        self.check_circuit()?;
        // Nobody closes the semaphore.
        places.acquire().await.map_err(|_| self.unavailable(false))
    }

    pub(crate) fn check_circuit(&self) -> Result<(), Unavailable> {
        match self.shared.circuit.state() {
            CircuitState::Closed => Ok(()),
            CircuitState::Open | CircuitState::HalfOpen => Err(self.unavailable(false)),
        }
    }

    pub(crate) fn circuit(&self) -> Circuit {
        self.shared.circuit.clone()
    }

    /// False if the task has ended. Callers who wait for an answer also see it on their reply channel.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.shared.commands.send(command).is_ok()
    }

    /// For calls beside the session.
    pub(crate) fn calls(&self) -> Unary {
        Unary::to(self.shared.nodes.clone()).timeout(self.shared.request_timeout)
    }

    /// Of a caller who asks now, and is ready to wait so long for what it asks for.
    pub(crate) fn patience_until(&self, wait: Duration) -> Instant {
        let now = Instant::now();
        let patience = wait.saturating_add(self.shared.request_timeout);
        now.checked_add(patience).unwrap_or_else(|| now + FOR_EVER)
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.shared.request_timeout
    }

    pub(crate) fn unavailable(&self, may_have_happened: bool) -> Unavailable {
        self.shared.trouble.lock().to_unavailable(may_have_happened)
    }
}

impl Trouble {
    fn lock(&self) -> MutexGuard<'_, Troubles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
