//! What the clients of a port may take of this node: descriptors, memory and time. All of it is counted here, for each
//! connection, for each address and for the whole port.
//!
//! - A connection is *idle* until a request of it has arrived whole, or its session is open, and again when the last
//!   answer has ended. Idle connections are limited, are timed out, and give way to new ones. So an address that opens
//!   many and says nothing keeps no client out. No limit closes a connection that is in use; only the end or the
//!   refusal of its certificate does.
//! - A request is *unfinished* until it has arrived whole. Unfinished requests are limited in number, and each has a
//!   deadline ([`RequestBody`]).
//! - Bytes count from their arrival to the end of the answer. The length that a message announces costs nothing.
//! - Frames that this node relays between a client and the leader count as long as they wait here: those of the client as
//!   bytes of requests, those of the leader as answers that are not read.
//! - Answers that the transport has not written out yet count for their connection, which gets no more of them until
//!   some are written ([`ResponseBody`]).
//!
//! Framed connections are read and written by the shard. Here they count as connections, with the bytes of large frames
//! that have not come whole, and with what their clients leave unread.

mod body;
mod call;
mod counts;
mod descriptors;
mod gate;
mod limits;
mod socket;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use holdfast_core::{Identity, Principal};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::{Caller, Credential, Protocol};
use holdfast_tls::RemoteCertificate;
use time::OffsetDateTime;
use tokio::time::{interval, sleep};

use self::call::Stage;
use self::counts::{NoRoom, State};

pub(crate) use self::body::{RequestBody, ResponseBody, Shape, late, overloaded};
pub(crate) use self::call::{Call, HeldBytes};
pub(crate) use self::counts::PortUse;
pub use self::descriptors::TooFewDescriptors;
pub(crate) use self::descriptors::{Descriptors, NodeDescriptors};
pub(crate) use self::gate::{GrpcGateLayer, Paths};
pub(crate) use self::limits::{PortLimits, TooMuch};
pub(crate) use self::socket::ClientSocket;

/// How often it is looked which idle connections have had their time.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Connections that are closed give their descriptors back in a moment. At most so many may still have theirs, which
/// come out of the reserve.
const CLOSING_MAX: usize = 32;
const CLOSING_PAUSE: Duration = Duration::from_millis(5);

/// An idle connection whose requests were refused so often is closed.
const REFUSED_MAX: usize = 256;

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: PortLimits,
    descriptors: NodeDescriptors,
    state: Mutex<State>,
    accepts: Accepts,
}

/// Whether a certificate is accepted, by the files that were loaded last.
struct Accepts(Box<dyn Fn(&RemoteCertificate) -> bool + Send + Sync>);

impl std::fmt::Debug for Accepts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Accepts")
    }
}

/// One connection, for all who count for it.
#[derive(Debug)]
pub(crate) struct Connection {
    port: Arc<Connections>,
    number: u64,
    /// By which it is counted.
    address: IpAddr,
    remote: IpAddr,
    /// What is known of the other end from the connection itself.
    security: OnceLock<Security>,
    is_closing: AtomicBool,
    /// It is closed because of what its other end has shown.
    is_denied: AtomicBool,
    /// Of the task that reads it.
    waker: Mutex<Option<Waker>>,
}

#[derive(Debug)]
enum Security {
    /// It speaks plaintext, and the port TLS.
    RefusedPlaintext,
    Certificate(RemoteCertificate),
}

/// Bytes that the leader sent for this client, and that this node has not passed on yet.
#[derive(Debug)]
pub(crate) struct RelayedBytes {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Drop for RelayedBytes {
    fn drop(&mut self) {
        let Connection { port, number, .. } = &*self.connection;
        port.lock().change_relayed(*number, |relayed| relayed - self.bytes);
    }
}

/// Held by the owner of the socket. The connection counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    connection: Arc<Connection>,
}

impl Connections {
    #[cfg(test)]
    pub(crate) fn new(limits: PortLimits, descriptors: NodeDescriptors) -> Arc<Connections> {
        Connections::checking(limits, descriptors, |_| true)
    }

    /// Closes connections whose certificate is not accepted: when they show it, and by [`Connections::close_denied`].
    pub(crate) fn checking(
        limits: PortLimits,
        descriptors: NodeDescriptors,
        accepts: impl Fn(&RemoteCertificate) -> bool + Send + Sync + 'static,
    ) -> Arc<Connections> {
        let accepts = Accepts(Box::new(accepts));
        Arc::new(Connections { limits, descriptors, state: Mutex::default(), accepts })
    }

    pub(crate) fn used(&self) -> PortUse {
        self.lock().used
    }

    /// Takes in a connection that was accepted. None: there is no room, and it is to be closed.
    ///
    /// If there are too many, an idle one of the address that has the most of them is closed instead. Each has
    /// a short time for its first request, and until then this waits.
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
                state.close_idle_of(address, now, limits.grace)
            } else if state.used.connections >= limits.connections_max
                || state.used.idle >= limits.idle_max
                || !self.descriptors.has_room(state.closing, limits.descriptors_left)
            {
                state.close_idle(now, limits.grace)
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
        let number = state.next_number();
        let connection = Arc::new(Connection {
            port: Arc::clone(self),
            number,
            address,
            remote,
            security: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            is_denied: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        state.add(Arc::clone(&connection));
        drop(state);
        self.descriptors.take(1);
        Ok(OpenConnection { connection })
    }

    /// Closes idle connections that have had their time, and those whose certificate is over, for as long as it is polled.
    pub(crate) async fn keep_closing(self: Arc<Self>) {
        let mut pause = interval(LOOK_EVERY);
        loop {
            pause.tick().await;
            self.close_timed_out(Instant::now());
            let now = OffsetDateTime::now_utc();
            self.close_if(|certificate| certificate.is_over(now));
        }
    }

    /// Closes those whose certificate is accepted no more, whatever they are in use for. It checks signatures, so it is
    /// not for a thread that serves connections. Many connections show the same certificate: each is checked once.
    pub(crate) fn close_denied(&self) {
        let known = RefCell::new(BTreeMap::new());
        self.close_if(|certificate| {
            let accepts = || (self.accepts.0)(certificate);
            !*known.borrow_mut().entry(certificate.bytes()).or_insert_with(accepts)
        });
    }

    fn close_if(&self, is_denied: impl Fn(&RemoteCertificate) -> bool) {
        let shown = |(number, entry): (&u64, &counts::Entry)| match entry.connection.security.get()
        {
            Some(Security::Certificate(certificate)) => Some((*number, certificate.clone())),
            Some(Security::RefusedPlaintext) | None => None,
        };
        // A check takes a while: not while all connections wait.
        let shown: Vec<_> = self.lock().connections.iter().filter_map(shown).collect();
        for (number, certificate) in shown {
            if is_denied(&certificate) {
                self.deny(number, &certificate);
            }
        }
    }

    fn deny(&self, number: u64, certificate: &RemoteCertificate) {
        tracing::info!(name = %certificate.name(), "closed a connection: its certificate is over or revoked");
        self.lock().close_denied(number);
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

/// The address by which a client is counted. Of IPv6 it is the network of 64 bits, in which a client can use any
/// address.
pub(crate) fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
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
            None => return Ok(Call::new(self, Stage::Unfinished)),
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
            entry.check_unread_at_begin(limits).err()
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
        Ok(Call::new(self, Stage::Unfinished))
    }

    /// A session that has the connection for itself.
    pub(crate) fn begin_session(self: &Arc<Self>) -> Arc<Call> {
        Call::new(self, Stage::NotOpen)
    }

    pub(crate) fn limits(&self) -> &PortLimits {
        &self.port.limits
    }

    /// Its other end has shown this certificate, which was verified.
    pub(crate) fn set_certificate(&self, certificate: Option<RemoteCertificate>) {
        if let Some(certificate) = certificate {
            // It is set once, by the task that made the handshake.
            let _ = self.security.set(Security::Certificate(certificate.clone()));
            // It may have been revoked during the handshake. If it is from now on, `close_denied` finds it.
            if !(self.port.accepts.0)(&certificate) {
                self.port.deny(self.number, &certificate);
            }
        }
    }

    /// It speaks plaintext, and the port TLS: every request is refused.
    pub(crate) fn refuse_plaintext(&self) {
        let _ = self.security.set(Security::RefusedPlaintext);
    }

    /// On whose behalf its requests are.
    pub(crate) fn caller(&self, protocol: Protocol) -> Result<Caller, Failure> {
        let caller = Caller::client(protocol, Some(self.remote));
        match self.security.get() {
            None => Ok(caller),
            Some(Security::RefusedPlaintext) => Err(plaintext_refused()),
            Some(Security::Certificate(certificate)) => {
                let name = certificate.client().unwrap_or_default();
                let principal = Principal::parse(&format!("cert:{name}"));
                let words = "the certificate names no client";
                let principal = principal.map_err(|_| refused(Reason::Unauthenticated, words))?;
                let credential = Credential::Certificate(Arc::clone(certificate.serial()));
                Ok(caller.authenticated(Identity::of(principal), credential))
            }
        }
    }

    /// It is closed because of what its other end has shown.
    pub(crate) fn is_denied(&self) -> bool {
        self.is_denied.load(Ordering::Acquire)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
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
        let mut state = self.port.lock();
        if state.check_unread(self.number, &self.port.limits).is_ok() {
            return Poll::Ready(());
        }
        let Some(entry) = state.connections.get_mut(&self.number) else { return Poll::Ready(()) };
        if !entry.writers.iter().any(|waker| waker.will_wake(cx.waker())) {
            entry.writers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Fails if its client leaves too much unread.
    fn check_unread(&self) -> Result<(), TooMuch> {
        self.port.lock().check_unread(self.number, &self.port.limits)
    }

    fn add_unwritten(&self, bytes: usize) {
        self.port.lock().change_unwritten(self.number, |unwritten| unwritten + bytes);
    }

    /// How much the client of a framed connection leaves unread. Tells whether its address, or all clients, leave too
    /// much.
    pub(crate) fn set_unwritten(&self, bytes: usize) -> bool {
        let mut state = self.port.lock();
        state.change_unwritten(self.number, |_| bytes);
        let limits = &self.port.limits;
        let of_address = state.addresses.get(&self.address).map_or(0, |of| of.unwritten);
        of_address >= limits.unwritten_per_address_max
            || state.used.unwritten >= limits.unwritten_max
    }

    /// What another node has said to the client counts among what the address and all clients leave unread, until the
    /// guard is dropped. The connection's own limit is for what is made of it.
    pub(crate) fn hold_relayed(self: &Arc<Self>, bytes: usize) -> RelayedBytes {
        self.port.lock().change_relayed(self.number, |relayed| relayed + bytes);
        RelayedBytes { connection: Arc::clone(self), bytes }
    }

    fn is_written(&self, bytes: usize) {
        let mut state = self.port.lock();
        state.change_unwritten(self.number, |unwritten| unwritten - bytes);
        let Some(entry) = state.connections.get_mut(&self.number) else { return };
        let writers = std::mem::take(&mut entry.writers);
        drop(state);
        writers.into_iter().for_each(Waker::wake);
    }
}

/// What a client is told that speaks plaintext to a port with TLS.
pub(crate) fn plaintext_refused() -> Failure {
    let words = "this port speaks TLS, and the client plaintext: give the client the authority of the cluster (ca), \
                 and its certificate and key if it has one (cert and key)";
    refused(Reason::Unauthenticated, words)
}

impl OpenConnection {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Returns when it is to be closed.
    pub(crate) async fn closing(&self) {
        std::future::poll_fn(|cx| self.connection.poll_closing(cx)).await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let port = &self.connection.port;
        port.descriptors.give_back(1);
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

#[cfg(test)]
mod tests;
