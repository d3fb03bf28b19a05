//! What the clients of a port may take of this node: descriptors, memory and time. All of it is counted here, for each
//! connection, for each address and for the whole port.
//!
//! - A connection is *idle* until a request of it has arrived whole, or its session is open, and again when the last
//!   answer has ended. Idle connections are limited, are timed out, and give way to new ones. So an address that
//!   opens many and says nothing keeps no client out. Connections that are in use are closed by nobody here.
//! - A request is *unfinished* until it has arrived whole. Unfinished requests are limited in number, and each has a
//!   deadline ([`RequestBody`]).
//! - Bytes count from their arrival to the end of the answer. What a message claims to have costs nothing.
//! - Answers that the transport has not written out yet count for their connection, which gets no more of them until
//!   some are written ([`ResponseBody`]).
//!
//! Sessions on plain connections are read and written elsewhere. Here they count as connections, and with the bytes of
//! large frames that have not come whole.

mod body;
mod descriptors;
mod gate;
mod socket;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::{interval, sleep};

use crate::config::ConnectionsConfig;

pub(crate) use self::body::{RequestBody, ResponseBody, Shape, late, overloaded};
pub use self::descriptors::TooFewDescriptors;
pub(crate) use self::descriptors::{Descriptors, NodeDescriptors};
pub(crate) use self::gate::GrpcGateLayer;
pub(crate) use self::socket::ClientSocket;

/// How often it is looked which idle connections have had their time.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// So long a new connection has for its first request before it may give way to others. While connections come faster
/// than that, they wait to be taken in.
const GRACE: Duration = Duration::from_millis(250);

/// Connections that are closed give their descriptors back in a moment. The reserve covers so many.
const CLOSING_MAX: usize = 32;
const CLOSING_PAUSE: Duration = Duration::from_millis(5);

/// An idle connection whose requests were refused so often is closed.
const REFUSED_MAX: usize = 256;

/// What one port allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortLimits {
    /// Connections of all kinds.
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    pub(crate) idle_max: usize,
    pub(crate) idle_per_address_max: usize,
    /// Requests that are answered at a time, for one address.
    pub(crate) calls_per_address_max: usize,
    pub(crate) unfinished_max: usize,
    pub(crate) unfinished_per_address_max: usize,
    pub(crate) unfinished_per_connection_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) bytes_per_address_max: usize,
    pub(crate) bytes_per_connection_max: usize,
    /// Of answers that are made and not written out.
    pub(crate) unwritten_max: usize,
    pub(crate) unwritten_per_connection_max: usize,
    /// From the accept to the first request.
    pub(crate) first_request_timeout: Duration,
    /// From the last answer to the next request.
    pub(crate) idle_timeout: Duration,
    /// From the first byte of a request to its last.
    pub(crate) request_timeout: Duration,
}

impl PortLimits {
    /// Of the client port.
    pub(crate) fn of_clients(config: &ConnectionsConfig, descriptors: &Descriptors) -> PortLimits {
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let time = Duration::from_millis;
        let connections_max = match number(config.max) {
            0 => descriptors.for_clients(),
            max => max,
        };
        // One address that says nothing leaves room for the others.
        let idle_max = number(config.idle_max).min(connections_max / 4 * 3);
        PortLimits {
            connections_max,
            connections_per_address_max: connections_max,
            idle_max,
            idle_per_address_max: number(config.idle_per_address_max).min(idle_max),
            calls_per_address_max: usize::MAX,
            unfinished_max: number(config.unfinished_max),
            unfinished_per_address_max: number(config.unfinished_per_address_max),
            unfinished_per_connection_max: number(config.unfinished_per_connection_max),
            bytes_max: number(config.bytes_max),
            bytes_per_address_max: number(config.bytes_per_address_max),
            bytes_per_connection_max: number(config.bytes_per_connection_max),
            unwritten_max: number(config.unwritten_bytes_max),
            unwritten_per_connection_max: number(config.unwritten_bytes_per_connection_max),
            first_request_timeout: time(config.first_request_ms),
            idle_timeout: time(config.idle_ms),
            request_timeout: time(config.request_ms),
        }
    }

    /// Of the HTTP port: probes, scrapers and browsers.
    pub(crate) fn of_http() -> PortLimits {
        const CONNECTIONS_MAX: usize = 256;
        const MIB: usize = 1024 * 1024;
        PortLimits {
            connections_max: CONNECTIONS_MAX,
            connections_per_address_max: CONNECTIONS_MAX / 2,
            idle_max: CONNECTIONS_MAX / 8 * 7,
            idle_per_address_max: CONNECTIONS_MAX / 16 * 7,
            calls_per_address_max: CONNECTIONS_MAX / 8 * 3,
            unfinished_max: CONNECTIONS_MAX,
            unfinished_per_address_max: CONNECTIONS_MAX / 2,
            unfinished_per_connection_max: 8,
            bytes_max: 8 * MIB,
            bytes_per_address_max: 4 * MIB,
            bytes_per_connection_max: MIB,
            unwritten_max: 64 * MIB,
            unwritten_per_connection_max: 4 * MIB,
            first_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(10),
        }
    }
}

/// What was counted, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortUse {
    pub(crate) connections: usize,
    pub(crate) idle: usize,
    pub(crate) unfinished: usize,
    pub(crate) bytes: usize,
    pub(crate) unwritten: usize,
    /// Connections that were closed as soon as they came.
    pub(crate) rejected: u64,
    /// Idle ones that made room for others.
    pub(crate) gave_way: u64,
    /// Idle ones that had their time.
    pub(crate) timed_out: u64,
    /// Requests that were refused or broken off because of a limit.
    pub(crate) refused_requests: u64,
}

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: PortLimits,
    descriptors: NodeDescriptors,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: PortUse,
    last_number: u64,
    /// Closed, and not yet dropped by their tasks, which takes a moment.
    closing: usize,
    connections: HashMap<u64, Entry>,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Debug, Default)]
struct Address {
    connections: usize,
    calls: usize,
    unfinished: usize,
    bytes: usize,
    /// Those first that never had a request, and among them those that have been idle for longest.
    idle: BTreeMap<(bool, u64), u64>,
}

#[derive(Debug)]
struct Entry {
    connection: Arc<Connection>,
    calls: usize,
    unfinished: usize,
    bytes: usize,
    unwritten: usize,
    /// Requests that were refused because of a limit.
    refused: usize,
    /// Who waits until some of it is written.
    writers: Vec<Waker>,
    /// Its key among the idle ones of its address.
    idle: Option<(bool, u64)>,
    idle_since: Instant,
    had_request: bool,
}

/// One connection, for all who count for it.
#[derive(Debug)]
pub(crate) struct Connection {
    port: Arc<Connections>,
    number: u64,
    /// By which it is counted.
    address: IpAddr,
    remote: IpAddr,
    is_closing: AtomicBool,
    /// Of the task that reads it.
    waker: Mutex<Option<Waker>>,
}

/// Held by the owner of the socket. The connection counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    connection: Arc<Connection>,
    descriptors: usize,
}

/// A request, from its first byte to the end of its answer.
#[derive(Debug)]
pub(crate) struct Call {
    connection: Arc<Connection>,
    counted: Mutex<Counted>,
}

#[derive(Debug)]
struct Counted {
    bytes: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Counted among the unfinished ones.
    Unfinished,
    /// A session on a plain connection that is not open yet. The idle time of the connection ends it.
    NotOpen,
    /// Its connection is in use.
    Whole,
}

/// Why a connection is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRoom {
    /// There may be room after this time.
    Yet(Duration),
    AtAll,
}

/// A limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("{max} requests of this connection have not arrived whole, as many as may be")]
    UnfinishedOfConnection { max: usize },
    #[error("{max} requests from this address have not arrived whole, as many as may be")]
    UnfinishedOfAddress { max: usize },
    #[error("{max} requests to this node have not arrived whole, as many as may be")]
    UnfinishedOfPort { max: usize },
    #[error("the requests of this connection have more than {max} bytes together")]
    BytesOfConnection { max: usize },
    #[error("the requests from this address have more than {max} bytes together")]
    BytesOfAddress { max: usize },
    #[error("the requests to this node have more than {max} bytes together")]
    BytesOfPort { max: usize },
    #[error("{max} requests from this address are being answered, as many as may be")]
    CallsOfAddress { max: usize },
}

impl Connections {
    pub(crate) fn new(limits: PortLimits, descriptors: NodeDescriptors) -> Arc<Connections> {
        Arc::new(Connections { limits, descriptors, state: Mutex::default() })
    }

    pub(crate) fn used(&self) -> PortUse {
        self.lock().used
    }

    /// Takes in a connection that was accepted. None: there is no room, and it is to be closed.
    ///
    /// If there are too many, an idle one of the address that has the most of them is closed instead. Each has
    /// [`GRACE`] for its first request, and until then this waits.
    pub(crate) async fn admit(self: &Arc<Self>, address: IpAddr) -> Option<OpenConnection> {
        loop {
            match self.try_admit(address, Instant::now()) {
                Ok(open) => return Some(open),
                Err(NoRoom::Yet(time)) => sleep(time).await,
                Err(NoRoom::AtAll) => return None,
            }
        }
    }

    fn try_admit(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<OpenConnection, NoRoom> {
        let remote = address;
        let address = counted_as(address);
        let limits = &self.limits;
        let mut state = self.lock();
        if state.closing >= CLOSING_MAX {
            return Err(NoRoom::Yet(CLOSING_PAUSE));
        }
        loop {
            let of_address = state.addresses.get(&address);
            let (count, idle) = of_address.map_or((0, 0), |of| (of.connections, of.idle.len()));
            let made_room = if count >= limits.connections_per_address_max
                || idle >= limits.idle_per_address_max
            {
                state.close_idle_of(address, now)
            } else if state.used.connections >= limits.connections_max
                || state.used.idle >= limits.idle_max
                || !self.descriptors.has_room(state.closing)
            {
                state.close_idle(now)
            } else {
                break;
            };
            if let Err(no_room) = made_room {
                if let NoRoom::AtAll = no_room {
                    state.used.rejected += 1;
                    tracing::debug!(%address, "a connection was closed: there are too many");
                }
                return Err(no_room);
            }
        }
        state.last_number += 1;
        let number = state.last_number;
        let connection = Arc::new(Connection {
            port: Arc::clone(self),
            number,
            address,
            remote,
            is_closing: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        state.used.connections += 1;
        state.addresses.entry(address).or_default().connections += 1;
        let entry = Entry {
            connection: Arc::clone(&connection),
            calls: 0,
            unfinished: 0,
            bytes: 0,
            unwritten: 0,
            refused: 0,
            writers: Vec::new(),
            idle: None,
            idle_since: Instant::now(),
            had_request: false,
        };
        state.connections.insert(number, entry);
        state.set_idle(number);
        drop(state);
        self.descriptors.take(1);
        Ok(OpenConnection { connection, descriptors: 1 })
    }

    /// Closes idle connections that have had their time, for as long as it is polled.
    pub(crate) async fn keep_closing_idle(self: Arc<Self>) {
        let mut pause = interval(LOOK_EVERY);
        loop {
            pause.tick().await;
            self.close_timed_out(Instant::now());
        }
    }

    fn close_timed_out(&self, now: Instant) {
        let mut state = self.lock();
        let timed_out = state.connections.iter().filter(|(_, entry)| {
            let timeout = if entry.had_request {
                self.limits.idle_timeout
            } else {
                self.limits.first_request_timeout
            };
            entry.idle.is_some() && now.saturating_duration_since(entry.idle_since) >= timeout
        });
        let numbers: Vec<u64> = timed_out.map(|(number, _)| *number).collect();
        for number in numbers {
            state.used.timed_out += 1;
            state.close(number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who has a network of IPv6 has as many addresses as it likes.
pub(crate) fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

impl State {
    /// An idle one of the address with the most of them.
    fn close_idle(&mut self, now: Instant) -> Result<(), NoRoom> {
        let most = self.addresses.iter().max_by_key(|(_, of)| of.idle.len());
        match most.map(|(address, _)| *address) {
            Some(address) => self.close_idle_of(address, now),
            None => Err(NoRoom::AtAll),
        }
    }

    fn close_idle_of(&mut self, address: IpAddr, now: Instant) -> Result<(), NoRoom> {
        let first = self.addresses.get(&address).and_then(|of| of.idle.first_key_value());
        let number = first.map(|(_, number)| *number).ok_or(NoRoom::AtAll)?;
        let is_new = self.connections.get(&number).filter(|entry| !entry.had_request);
        if let Some(entry) = is_new {
            let age = now.saturating_duration_since(entry.idle_since);
            if let Some(left) = GRACE.checked_sub(age).filter(|left| !left.is_zero()) {
                return Err(NoRoom::Yet(left));
            }
        }
        self.used.gave_way += 1;
        self.close(number);
        Ok(())
    }

    /// It counts no more from here on. Its task ends it.
    fn close(&mut self, number: u64) {
        if let Some(entry) = self.remove(number) {
            self.closing += 1;
            entry.connection.close();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        self.set_used(number);
        let entry = self.connections.remove(&number)?;
        let address = entry.connection.address;
        self.used.connections -= 1;
        self.used.unfinished -= entry.unfinished;
        self.used.bytes -= entry.bytes;
        self.used.unwritten -= entry.unwritten;
        if let Some(of) = self.addresses.get_mut(&address) {
            of.connections -= 1;
            of.calls -= entry.calls;
            of.unfinished -= entry.unfinished;
            of.bytes -= entry.bytes;
            if of.connections == 0 {
                self.addresses.remove(&address);
            }
        }
        Some(entry)
    }

    fn set_idle(&mut self, number: u64) {
        self.last_number += 1;
        let stamp = self.last_number;
        let Some(entry) = self.connections.get_mut(&number) else { return };
        let key = (entry.had_request, stamp);
        if entry.idle.is_none() {
            entry.idle = Some(key);
            entry.idle_since = Instant::now();
            self.used.idle += 1;
            if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
                of.idle.insert(key, number);
            }
        }
    }

    fn set_used(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        if let Some(key) = entry.idle.take() {
            self.used.idle -= 1;
            if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
                of.idle.remove(&key);
            }
        }
    }

    fn begin_use(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        entry.calls += 1;
        entry.had_request = true;
        if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
            of.calls += 1;
        }
        self.set_used(number);
    }

    fn end_use(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        entry.calls -= 1;
        let is_idle = entry.calls == 0;
        if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
            of.calls -= 1;
        }
        if is_idle {
            self.set_idle(number);
        }
    }
}

impl Connection {
    /// The address of the other end.
    pub(crate) fn remote(&self) -> IpAddr {
        self.remote
    }

    /// A request begins. Fails if too many have not arrived whole, or too many of its address are being answered.
    pub(crate) fn begin_call(self: &Arc<Self>) -> Result<Arc<Call>, TooMuch> {
        self.begin(self.port.limits.calls_per_address_max)
    }

    /// The request of a probe, which is answered at once: how many others are being answered does not matter.
    pub(crate) fn begin_probe(self: &Arc<Self>) -> Result<Arc<Call>, TooMuch> {
        self.begin(usize::MAX)
    }

    fn begin(self: &Arc<Self>, calls_per_address_max: usize) -> Result<Arc<Call>, TooMuch> {
        let limits = &self.port.limits;
        let mut state = self.port.lock();
        let state = &mut *state;
        let (entry, of) = match state.connections.get_mut(&self.number) {
            Some(entry) => (entry, state.addresses.entry(self.address).or_default()),
            // It is being closed.
            None => return Ok(self.new_call(Stage::Unfinished)),
        };
        let too_much = if entry.unfinished >= limits.unfinished_per_connection_max {
            let max = limits.unfinished_per_connection_max;
            Some(TooMuch::UnfinishedOfConnection { max })
        } else if of.unfinished >= limits.unfinished_per_address_max {
            Some(TooMuch::UnfinishedOfAddress { max: limits.unfinished_per_address_max })
        } else if state.used.unfinished >= limits.unfinished_max {
            Some(TooMuch::UnfinishedOfPort { max: limits.unfinished_max })
        } else if of.calls >= calls_per_address_max {
            Some(TooMuch::CallsOfAddress { max: calls_per_address_max })
        } else {
            None
        };
        if let Some(too_much) = too_much {
            state.used.refused_requests += 1;
            entry.refused += 1;
            // To answer each of them would cost others their time.
            if entry.refused >= REFUSED_MAX && entry.idle.is_some() {
                state.used.gave_way += 1;
                state.close(self.number);
            }
            return Err(too_much);
        }
        entry.unfinished += 1;
        of.unfinished += 1;
        state.used.unfinished += 1;
        Ok(self.new_call(Stage::Unfinished))
    }

    /// A session that has the connection for itself.
    pub(crate) fn begin_session(self: &Arc<Self>) -> Arc<Call> {
        self.new_call(Stage::NotOpen)
    }

    fn new_call(self: &Arc<Self>, stage: Stage) -> Arc<Call> {
        let counted = Mutex::new(Counted { bytes: 0, stage });
        Arc::new(Call { connection: Arc::clone(self), counted })
    }

    pub(crate) fn limits(&self) -> &PortLimits {
        &self.port.limits
    }

    /// Ready when it is to be closed. One task at a time may wait for it.
    pub(crate) fn poll_closing(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_closing.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        drop(waker);
        // It may have been closed just before.
        if self.is_closing.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether more of an answer may be made. If not, the waker is called once some is written.
    fn poll_may_write(&self, cx: &Context<'_>) -> Poll<()> {
        let limits = &self.port.limits;
        let mut state = self.port.lock();
        let of_all = state.used.unwritten;
        let Some(entry) = state.connections.get_mut(&self.number) else { return Poll::Ready(()) };
        let is_too_much = entry.unwritten >= limits.unwritten_per_connection_max
            || (entry.unwritten > 0 && of_all >= limits.unwritten_max);
        if !is_too_much {
            return Poll::Ready(());
        }
        if !entry.writers.iter().any(|waker| waker.will_wake(cx.waker())) {
            entry.writers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn add_unwritten(&self, bytes: usize) {
        let mut state = self.port.lock();
        if let Some(entry) = state.connections.get_mut(&self.number) {
            entry.unwritten += bytes;
            state.used.unwritten += bytes;
        }
    }

    fn is_written(&self, bytes: usize) {
        let mut state = self.port.lock();
        let Some(entry) = state.connections.get_mut(&self.number) else { return };
        entry.unwritten -= bytes;
        let writers = std::mem::take(&mut entry.writers);
        state.used.unwritten -= bytes;
        drop(state);
        writers.into_iter().for_each(Waker::wake);
    }
}

impl OpenConnection {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Whoever serves it takes another descriptor for it.
    pub(crate) fn takes_another_descriptor(&mut self) {
        self.descriptors += 1;
        self.connection.port.descriptors.take(1);
    }

    /// Returns when it is to be closed.
    pub(crate) async fn closing(&self) {
        std::future::poll_fn(|cx| self.connection.poll_closing(cx)).await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let port = &self.connection.port;
        port.descriptors.give_back(self.descriptors);
        let mut state = port.lock();
        let entry = state.remove(self.connection.number);
        if entry.is_none() {
            state.closing -= 1;
        }
        drop(state);
        // Those who wait to write find that it is gone.
        entry.into_iter().flat_map(|entry| entry.writers).for_each(Waker::wake);
    }
}

impl Call {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// More of the request has come.
    pub(crate) fn take_bytes(&self, bytes: usize) -> Result<(), TooMuch> {
        let (port, limits) = (&self.connection.port, &self.connection.port.limits);
        let mut state = port.lock();
        let state = &mut *state;
        let Some(entry) = state.connections.get_mut(&self.connection.number) else { return Ok(()) };
        let of = state.addresses.entry(self.connection.address).or_default();
        let too_much = if entry.bytes + bytes > limits.bytes_per_connection_max {
            Some(TooMuch::BytesOfConnection { max: limits.bytes_per_connection_max })
        } else if of.bytes + bytes > limits.bytes_per_address_max {
            Some(TooMuch::BytesOfAddress { max: limits.bytes_per_address_max })
        } else if state.used.bytes + bytes > limits.bytes_max {
            Some(TooMuch::BytesOfPort { max: limits.bytes_max })
        } else {
            None
        };
        if let Some(too_much) = too_much {
            state.used.refused_requests += 1;
            return Err(too_much);
        }
        entry.bytes += bytes;
        of.bytes += bytes;
        state.used.bytes += bytes;
        self.counted().bytes += bytes;
        Ok(())
    }

    /// So many bytes are in use no more.
    pub(crate) fn give_back(&self, bytes: usize) {
        let mut state = self.connection.port.lock();
        self.give_back_to(&mut state, bytes);
    }

    fn give_back_to(&self, state: &mut State, bytes: usize) {
        let mut counted = self.counted();
        let bytes = bytes.min(counted.bytes);
        counted.bytes -= bytes;
        let Some(entry) = state.connections.get_mut(&self.connection.number) else { return };
        entry.bytes -= bytes;
        state.used.bytes -= bytes;
        if let Some(of) = state.addresses.get_mut(&self.connection.address) {
            of.bytes -= bytes;
        }
    }

    /// The request has arrived whole, or its session is open: its connection is in use.
    pub(crate) fn is_whole(&self) {
        let mut state = self.connection.port.lock();
        let before = std::mem::replace(&mut self.counted().stage, Stage::Whole);
        if before == Stage::Unfinished {
            self.end_unfinished(&mut state);
        }
        if before != Stage::Whole {
            state.begin_use(self.connection.number);
        }
    }

    /// It was broken off because of a limit.
    pub(crate) fn is_refused(&self) {
        self.connection.port.lock().used.refused_requests += 1;
    }

    fn end_unfinished(&self, state: &mut State) {
        let Some(entry) = state.connections.get_mut(&self.connection.number) else { return };
        entry.unfinished -= 1;
        state.used.unfinished -= 1;
        if let Some(of) = state.addresses.get_mut(&self.connection.address) {
            of.unfinished -= 1;
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let port = Arc::clone(&self.connection.port);
        let mut state = port.lock();
        self.give_back_to(&mut state, usize::MAX);
        let stage = self.counted().stage;
        match stage {
            Stage::Whole => state.end_use(self.connection.number),
            Stage::Unfinished => self.end_unfinished(&mut state),
            Stage::NotOpen => {}
        }
    }
}

#[cfg(test)]
mod tests;
