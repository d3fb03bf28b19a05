//! What the shard and a framed connection of a client say to each other. The shard serves connections by this trait only
//! (`shard/framed.rs`). The code that understands the frames is in `rpc/stream/framed.rs`, which implements it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

use holdfast_core::{Command, LockName, RequestId};
use holdfast_engine::{CutOff, Delivery, Query, ReadAnswer, StreamKey, Unavailable};
use holdfast_proto::plain::FrameWriter;
use holdfast_service::Admitted;
use mio::{Registry, Token};
use tokio::sync::oneshot;

use super::poller::{self, SocketEvents};

/// A read of a lock's status costs the shard about as much time as this many commands.
pub(crate) const OPERATIONS_PER_READ: usize = 4;
/// The shard visits no further connection in a turn once it has read this many operations. The last frame may exceed
/// the limit. The limit of the inbox (`queue.rs`) is twice as high.
pub(crate) const OPERATIONS_PER_TURN_MAX: usize = 2_048;

/// What a connection asks of the engine, in this order.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// A stream begins to serve a session. The command that opens the session is its first operation.
    pub(crate) opened: Option<Deferrable>,
    /// The connection's stream, if it has one.
    pub(crate) stream: Option<StreamKey>,
    pub(crate) operations: Vec<(RequestId, Admitted<Command>)>,
    /// The operations are one heartbeat and nothing else. The engine may delay it.
    pub(crate) is_deferrable: bool,
    pub(crate) statuses: Vec<(RequestId, Admitted<LockName>)>,
    /// What was done without the engine: refusals, and operations of the efficiency tier.
    pub(crate) done_here: usize,
    /// A read that operations of the efficiency tier wait for. `rpc/door.rs` makes the query, after the service has
    /// admitted the operations.
    pub(crate) read: Option<(Query, ReadReply)>,
    /// Set if the stream ended. True if the client went away.
    pub(crate) closed: Option<bool>,
    pub(crate) pings: usize,
    /// How many bytes the connection read in this visit.
    pub(crate) bytes: usize,
}

pub(crate) type ReadReply = oneshot::Sender<Result<ReadAnswer, Unavailable>>;

impl Asked {
    /// How much there is to do, counted in operations. To acquire many names at once counts for each of them.
    pub(crate) fn weight(&self) -> usize {
        let operations: usize = self.operations.iter().map(|(_, it)| it.get().cost()).sum();
        operations + self.statuses.len() * OPERATIONS_PER_READ + self.pings + self.done_here
    }

    /// Whether the connection has asked for its share of a turn, a quarter of the limit. It then begins no further
    /// frame in this turn. A frame that it has begun may exceed the share.
    pub(crate) fn is_much(&self) -> bool {
        self.weight() >= OPERATIONS_PER_TURN_MAX / 4
    }
}

/// What a visit works with.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    /// To read into.
    pub(crate) scratch: &'a mut [u8],
    /// Empty before and after.
    pub(crate) frame: &'a mut FrameWriter,
    pub(crate) asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterVisit {
    /// Until there is news.
    Rest,
    /// There is more to read, or to make of what was read.
    More,
    /// It can be dropped.
    Closed,
}

/// Why the shard ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Another connection opened the same stream.
    OtherConnection,
    Shutdown,
}

/// One framed connection, with its socket. It waits for nothing. Dropping it closes the socket.
pub(crate) trait Connection: fmt::Debug + Send {
    /// From now on the poller tells what happens on the socket. The waker asks for a visit.
    fn register(&mut self, registry: &Registry, token: Token, waker: Waker) -> io::Result<()>;

    /// What the poller says.
    fn handle_news(&mut self, news: SocketEvents);

    /// Reads once at most, and writes what there is to write.
    fn visit(&mut self, visit: &mut Visit<'_>) -> AfterVisit;

    /// What the engine tells its stream. The frame is empty before and after.
    fn deliver(&mut self, told: Vec<Delivery>, frame: &mut FrameWriter) -> Result<(), CutOff>;

    /// When it wants a visit though nothing happens.
    fn deadline(&self) -> Option<Instant>;

    fn end(&mut self, by: EndedBy);
}

/// Connections for which a task has something.
#[derive(Debug)]
pub(crate) struct WokenConnections {
    /// Bounded: until the shard visits a connection, a task wakes each of the connection's channels at most once.
    tokens: Mutex<Vec<usize>>,
    shard: Arc<poller::Waker>,
}

impl WokenConnections {
    pub(crate) fn new(shard: Arc<poller::Waker>) -> WokenConnections {
        WokenConnections { tokens: Mutex::default(), shard }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.tokens.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn push(&self, token: usize) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        self.shard.wake();
    }
}

/// Whether the heartbeats of a stream may wait. The engine says so once it knows the session's TTL; the reader of the
/// stream's frames asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deferrable(Arc<AtomicBool>);

impl Deferrable {
    pub(crate) fn set(&self, is_deferrable: bool) {
        self.0.store(is_deferrable, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
