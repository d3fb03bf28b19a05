//! The framed front end: a session's stream on a connection of its own, without HTTP/2. See [`holdfast_proto::plain`] for
//! what is around the messages. What is said on it, and what its end means, is as in the call `Session`.
//!
//! The shard owns the connection, and calls it on its own thread. So nothing here waits. What has to be waited for (a
//! leader, the quorum's consent to a session in the efficiency tier, the leader's answers) comes through a channel, and the
//! channel's waker asks the shard for a visit. Until it has come the client is not read.
//!
//! ```text
//! Greeting -> Opening (a credential may come here) -> [Routing] -> Served, if this node leads -> Ending
//!                                  -> Relayed, if another leads  -> Ending
//! ```

mod credential_end;
mod read_buffer;
mod relayed;
mod served;
mod write_buffer;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_core::RequestId;
use holdfast_engine::{CutOff, Delivery, StreamKey};
use holdfast_proto::Guarantee;
use holdfast_proto::decode::operation::Opening;
use holdfast_proto::failure::{not_now, refused};
use holdfast_proto::plain::{self, BorrowedOperation, FrameWriter, GREETING};
use holdfast_proto::v1::{ClientFrame, Failure, Reason, ServerFrame};
use holdfast_service::{Caller, Method, Permit};
use mio::{Interest, Registry, Token};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tonic::Status;

use self::credential_end::CredentialEnd;
use self::read_buffer::ReadBuffer;
use self::relayed::Relayed;
use self::served::Served;
use self::write_buffer::WriteBuffer;
use super::super::Rpc;
use super::super::credentials::bind_opening;
use super::super::failure::{slow_reader, stopping};
use super::super::message_sizes::RESPONSE_BYTES_MAX;
use super::super::route::Destination;
use super::answers::{Termination, refusals};
use super::body_end::Ending;
use super::incoming::{FATE_TIMEOUT, FIRST_FRAME_TIMEOUT, Received, no_first_frame};
use super::method_of;
use crate::connections::{Call, OpenConnection, late};
use crate::inbox::{AfterVisit, Connection, EndedBy, SocketEvents, Visit};
use crate::transport::ByteStream;

/// More than a token has.
const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;

/// What waits to be written for a slow reader. If there is more than this, a client that asks on is cut off, and so is one
/// for which there are answers. Longer than the answers to all status reads that may be under way.
const UNWRITTEN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The same before there is a session, while the clients of the port leave too much unread, and for what a leader says:
/// more than this stays with the task that relays it, and the client is not read.
const UNWRITTEN_BYTES_LOW_MAX: usize = 256 * 1024;
/// How long the last word, with all that stands before it, may take to be written.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client has to end its half of the connection once this node has ended its own. To close a socket from which
/// not all was read would take back what was written last.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long what a client sent before it went is passed on: as long as the relay takes, and a second more.
const RELAY_AFTER_END_TIMEOUT: Duration = Duration::from_secs(3);

/// What all framed connections of a node share.
#[derive(Debug)]
pub(in crate::rpc) struct FramedFrontEnd {
    rpc: Rpc,
    /// For what has to be waited for.
    runtime: Handle,
}

impl FramedFrontEnd {
    pub(in crate::rpc) fn new(rpc: Rpc) -> Arc<FramedFrontEnd> {
        Arc::new(FramedFrontEnd { rpc, runtime: Handle::current() })
    }
}

/// One connection. When it is dropped the socket is closed, and its place is free again.
#[derive(Debug)]
pub(in crate::rpc) struct FramedConnection {
    front_end: Arc<FramedFrontEnd>,
    caller: Caller,
    stream: Box<dyn ByteStream>,
    read: ReadBuffer,
    written: WriteBuffer,
    /// Of what waits to be written, the port counts so much.
    unwritten_counted: usize,
    /// The clients of the port leave too much unread, this one among them.
    is_port_full: bool,
    state: State,
    /// Of a session that this node serves. A relayed one is ended by the task that relays it.
    credential_end: Option<CredentialEnd>,
    /// Asks the shard for a visit.
    waker: Waker,
    /// There may be something to read. The poller tells of news, not of what is left.
    is_readable: bool,
    /// Nothing comes after what there is to read.
    is_last_read: bool,
    /// All has been read.
    has_ended: bool,
    /// The client reads no more. What it sent before is carried out until then.
    unread_until: Option<Instant>,
    permit: Option<Permit>,
    call: Arc<Call>,
    open: OpenConnection,
}

#[derive(Debug)]
enum State {
    /// The client has to greet first.
    Greeting,
    /// It has to open or resume a session.
    Opening {
        until: Instant,
        /// It has shown one.
        has_credential: bool,
    },
    /// It waits for a leader.
    Routing {
        /// Taken once there is a destination.
        opened: Option<(Opening, ClientFrame)>,
        destination: oneshot::Receiver<Result<Destination, Failure>>,
    },
    Served(Box<Served>),
    Relayed(Relayed),
    /// This node has said its last word, and nothing counts that comes.
    Ending {
        /// The stream that the shard has yet to close, and whether the client went away.
        stream: Option<(StreamKey, bool)>,
        /// Everything must be written then.
        written_by: Instant,
        /// Everything is written. The connection is closed then at the latest.
        until: Option<Instant>,
    },
    Closed,
}

/// How far the frames that were read have been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameProgress {
    All,
    /// As much as one visit may take.
    Enough,
    /// The rest has to wait until there is news.
    Blocked,
}

impl FramedConnection {
    /// Nothing has been read from the stream.
    pub(in crate::rpc) fn new(
        front_end: Arc<FramedFrontEnd>,
        caller: Caller,
        stream: Box<dyn ByteStream>,
        open: OpenConnection,
    ) -> FramedConnection {
        let call = open.connection().begin_session();
        FramedConnection {
            front_end,
            caller,
            stream,
            read: ReadBuffer::new(Arc::clone(&call)),
            written: WriteBuffer::default(),
            unwritten_counted: 0,
            is_port_full: false,
            state: State::Greeting,
            credential_end: None,
            waker: Waker::noop().clone(),
            is_readable: true,
            is_last_read: false,
            has_ended: false,
            unread_until: None,
            permit: None,
            call,
            open,
        }
    }

    /// The shard owns it from now on.
    pub(in crate::rpc) async fn hand_over_to_shard(self) {
        let front_end = Arc::clone(&self.front_end);
        front_end.rpc.door.hand_over_connection(Box::new(self)).await;
    }

    // ---- what comes ----

    /// Tells whether there is more.
    fn read(&mut self, visit: &mut Visit<'_>) -> bool {
        let waits_for_client = matches!(self.state, State::Opening { .. } | State::Served(_));
        if self.is_full() && self.is_readable && waits_for_client {
            tracing::warn!("a stream is cut off: its client asks for more and does not read");
            self.end_with(Err(slow_reader()), false);
        }
        match self.take_frames(visit) {
            FrameProgress::All => {}
            FrameProgress::Enough => return true,
            FrameProgress::Blocked => return false,
        }
        if !self.is_readable || self.has_ended || self.is_writing_the_last() {
            return false;
        }
        match self.stream.read(visit.scratch) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                false
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Ok(bytes) if bytes > 0 => {
                visit.asked.bytes += bytes;
                self.is_readable = bytes == visit.scratch.len() || self.is_last_read;
                self.read.push(visit.scratch.get(..bytes).unwrap_or_default());
                match self.take_frames(visit) {
                    FrameProgress::All => self.is_readable,
                    FrameProgress::Enough => true,
                    FrameProgress::Blocked => false,
                }
            }
            ended => {
                self.has_ended = true;
                let ending = self.read.ending(ended, self.written.failed());
                self.input_ended(ending);
                false
            }
        }
    }

    /// The client takes too little of what is written.
    fn is_full(&self) -> bool {
        let may_have_much = matches!(self.state, State::Served(_)) && !self.is_port_full;
        let bytes_max = if may_have_much { UNWRITTEN_BYTES_MAX } else { UNWRITTEN_BYTES_LOW_MAX };
        self.written.len() > bytes_max
    }

    /// The port counts what the client leaves unread.
    fn count_unwritten(&mut self) {
        let unwritten = self.written.len();
        if unwritten != self.unwritten_counted {
            self.unwritten_counted = unwritten;
            self.is_port_full = self.open.connection().set_unwritten(unwritten);
        }
    }

    /// The last word is not written yet.
    fn is_writing_the_last(&self) -> bool {
        matches!(self.state, State::Ending { until: None, .. })
    }

    /// Of what was read.
    fn take_frames(&mut self, visit: &mut Visit<'_>) -> FrameProgress {
        while !visit.asked.is_much() {
            match &self.state {
                State::Greeting => match self.read.take_greeting() {
                    None => return FrameProgress::All,
                    Some(true) => self.greet(),
                    Some(false) => {
                        tracing::debug!("a connection greets in another way");
                        self.state = State::Closed;
                    }
                },
                State::Routing { .. } => return FrameProgress::Blocked,
                State::Served(served) if served.is_awaiting_admission() => {
                    return FrameProgress::Blocked;
                }
                State::Relayed(_) if self.is_full() => return FrameProgress::Blocked,
                State::Relayed(relayed) if !relayed.has_room() => return FrameProgress::Blocked,
                State::Ending { .. } | State::Closed => {
                    self.read.clear();
                    return FrameProgress::All;
                }
                _ => match self.next_frame(visit) {
                    Ok(Some(frame)) => {
                        if let Err(failure) = self.take_frame(frame, visit) {
                            self.end_with(Err(failure), false);
                        }
                    }
                    Ok(None) => return FrameProgress::All,
                    Err(failure) => self.end_with(Err(failure), false),
                },
            }
        }
        FrameProgress::Enough
    }

    /// Answers pings on the way.
    fn next_frame(&mut self, visit: &mut Visit<'_>) -> Result<Option<Bytes>, Failure> {
        while let Some(piece) = self.read.next_piece()? {
            match piece.kind {
                plain::FRAME => return Ok(Some(piece.message)),
                plain::PING => {
                    visit.asked.pings += 1;
                    self.written.put(plain::FRAME, &ServerFrame::default());
                }
                plain::AUTH => self.take_credential(&piece.message)?,
                kind => {
                    let words = format!("a piece of kind {kind}, which no client sends");
                    return Err(refused(Reason::InvalidFrame, words));
                }
            }
        }
        Ok(None)
    }

    /// One for a connection, so that a client cannot keep this thread busy with them.
    fn take_credential(&mut self, credential: &[u8]) -> Result<(), Failure> {
        let is_first = match &mut self.state {
            State::Opening { has_credential, .. } => !std::mem::replace(has_credential, true),
            _ => false,
        };
        if !is_first || credential.len() > CREDENTIAL_BYTES_MAX {
            let words = format!(
                "one credential of at most {CREDENTIAL_BYTES_MAX} bytes is sent before the first frame; connect again"
            );
            return Err(refused(Reason::InvalidFrame, words));
        }
        let credential = String::from_utf8_lossy(credential);
        self.caller =
            self.front_end.rpc.authenticate(self.caller.clone(), Method::Session, &credential)?;
        Ok(())
    }

    fn greet(&mut self) {
        self.written.put_bytes(&GREETING);
        match self.front_end.rpc.door.begin(Method::Session) {
            Ok(permit) => {
                self.permit = Some(permit);
                let until = Instant::now() + FIRST_FRAME_TIMEOUT;
                self.state = State::Opening { until, has_credential: false };
            }
            Err(failure) => self.end_with(Err(failure), false),
        }
    }

    /// Fails if the client sent what no client should.
    fn take_frame(&mut self, frame: Bytes, visit: &mut Visit<'_>) -> Result<(), Failure> {
        match &self.state {
            State::Opening { .. } => self.open_session(frame, visit),
            State::Served(_) => {
                let mut received = Received::Bytes(frame);
                let frame = received.open()?;
                if frame.operations.is_empty() {
                    // A farewell: the client leaves this stream, and lives.
                    self.end_with(Ok(()), false);
                } else {
                    self.carry_out(frame.operations, RequestId(frame.acked_through), visit);
                }
                Ok(())
            }
            State::Relayed(relayed) => relayed.send(frame),
            _ => Ok(()),
        }
    }

    fn open_session(&mut self, frame: Bytes, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let first = Received::Bytes(frame).into_message()?;
        // Until here the connection counted as idle.
        self.call.is_whole();
        let rpc = &self.front_end.rpc;
        rpc.admit_session(&self.caller, Method::Session, ())?;
        let opening = Opening::decode(&first)?;
        let group = rpc.membership.groups.with_number(opening.group)?;
        if let Some(destination) = rpc.destination_now(&self.caller, Method::Session, group) {
            return self.serve_at(destination, opening, first, visit);
        }
        let (found, destination) = oneshot::channel();
        let (front_end, caller) = (Arc::clone(&self.front_end), self.caller.clone());
        self.front_end.runtime.spawn(async move {
            // If the connection has ended, the result does not matter.
            let _ = found.send(front_end.rpc.destination(&caller, Method::Session, group).await);
        });
        self.state = State::Routing { opened: Some((opening, first)), destination };
        Ok(())
    }

    fn serve_at(
        &mut self,
        destination: Destination,
        opening: Opening,
        first: ClientFrame,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let rpc = &self.front_end.rpc;
        match destination {
            Destination::At(leader) => {
                let opened = (opening, first);
                let (front_end, call, waker) = (&self.front_end, &self.call, &self.waker);
                let relayed = Relayed::start(front_end, &self.caller, leader, opened, call, waker);
                self.state = State::Relayed(relayed);
            }
            Destination::Here => {
                let (named, mut opening) = (opening.session, opening);
                bind_opening(rpc.door.service(), &self.caller, &mut opening);
                let opening = rpc.admit_session(&self.caller, method_of(&opening), opening)?;
                rpc.note_login(&self.caller, opening.get());
                let served = Served::open(rpc, &self.caller, named, opening.get());
                visit.asked.opened = Some(served.deferrable.clone());
                let request = opening.get().request;
                visit.asked.operations.push((request, opening.map(|opening| opening.command)));
                self.state = State::Served(Box::new(served));
                self.credential_end = CredentialEnd::of(&self.front_end, &self.caller);
                let rest = first.operations.into_iter().skip(1).map(BorrowedOperation::Message);
                self.carry_out(rest.collect(), RequestId(first.acked_through), visit);
            }
        }
        Ok(())
    }

    /// Asks the engine, or the efficiency tier, for what is right, and answers what is wrong.
    fn carry_out(
        &mut self,
        operations: Vec<BorrowedOperation<'_>>,
        acked_through: RequestId,
        visit: &mut Visit<'_>,
    ) {
        let State::Served(served) = &mut self.state else { return };
        let rpc = &self.front_end.rpc;
        let asked = &mut visit.asked;
        let failures = served.carry_out(rpc, &self.caller, operations, acked_through, asked);
        self.refuse(failures);
    }

    fn refuse(&mut self, failures: Vec<(RequestId, Failure)>) {
        if !failures.is_empty() {
            self.written.put(plain::FRAME, &refusals(failures));
        }
    }

    /// The client has sent all that it will.
    fn input_ended(&mut self, ending: Ending) {
        match &self.state {
            State::Relayed(relayed) => relayed.send_end(ending),
            State::Ending { .. } | State::Closed => {}
            _ => self.end_with(Ok(()), ending.means_client_gone()),
        }
    }

    // ---- what tasks say ----

    /// Tells whether the client can be read on because of it.
    fn poll_tasks(&mut self, visit: &mut Visit<'_>, waker: &Waker) -> bool {
        let cx = &mut Context::from_waker(waker);
        let mut is_unblocked = false;
        loop {
            let is_full = self.is_full();
            match &mut self.state {
                State::Routing { destination, .. } => {
                    let Poll::Ready(destination) = Pin::new(destination).poll(cx) else { break };
                    self.destination_found(destination.unwrap_or_else(|_| Err(stopping())), visit);
                    is_unblocked = true;
                }
                State::Served(served) => {
                    if let Some(failures) = served.poll_admission(cx, &self.front_end.rpc) {
                        self.refuse(failures);
                        is_unblocked = true;
                        continue;
                    }
                    match served.from_memory.poll_recv(cx) {
                        Poll::Ready(Some(mut told)) => {
                            served.gather_from_memory(&mut told);
                            self.write_answers(Guarantee::BestEffort, told, visit.frame);
                        }
                        Poll::Ready(None) => self.end_with(Err(slow_reader()), false),
                        Poll::Pending => break,
                    }
                }
                // What is left of it is heard when the client has taken something.
                State::Relayed(relayed) if !is_full && self.unread_until.is_none() => {
                    match relayed.poll_answer(cx) {
                        Poll::Ready(Some(Ok(frame))) => self.written.put(plain::FRAME, &frame),
                        Poll::Ready(Some(Err(failure))) => self.end_with(Err(failure), false),
                        Poll::Ready(None) => self.end_with(Ok(()), false),
                        Poll::Pending => break,
                    }
                }
                _ => break,
            }
        }
        is_unblocked
    }

    fn destination_found(
        &mut self,
        destination: Result<Destination, Failure>,
        visit: &mut Visit<'_>,
    ) {
        let State::Routing { opened, .. } = &mut self.state else { return };
        let Some((opening, first)) = opened.take() else { return };
        let served =
            destination.and_then(|destination| self.serve_at(destination, opening, first, visit));
        if let Err(failure) = served {
            self.end_with(Err(failure), false);
        }
    }

    // ---- what is written ----

    fn write_answers(
        &mut self,
        guarantee: Guarantee,
        told: Vec<Delivery>,
        frame: &mut FrameWriter,
    ) {
        let State::Served(served) = &mut self.state else { return };
        served.answers.add(guarantee, told, frame);
        served.answers.finish_frame();
        let termination = served.answers.termination();
        let is_written = match frame.finish(RESPONSE_BYTES_MAX) {
            Some(piece) => {
                self.written.write(&mut *self.stream, piece);
                true
            }
            None => false,
        };
        frame.clear();
        match termination {
            _ if !is_written => self.end_with(Err(too_large()), false),
            Some(termination) => self.end_with(termination, false),
            None => {}
        }
    }

    /// Nothing counts that comes from now on. The shard closes the stream with the next visit.
    fn end_with(&mut self, termination: Termination, client_gone: bool) {
        let stream = match &self.state {
            State::Served(served) => Some((served.stream, client_gone)),
            State::Ending { .. } | State::Closed => return,
            _ => None,
        };
        if let Err(failure) = termination {
            self.written.put(plain::END, &failure);
        }
        let written_by = Instant::now() + TERMINATION_TIMEOUT;
        self.state = State::Ending { stream, written_by, until: None };
    }

    fn is_closed(&mut self) -> bool {
        match &mut self.state {
            State::Closed => true,
            _ if self.written.failed().is_some() => match &mut self.state {
                State::Served(_) | State::Relayed(_) => {
                    self.note_unread();
                    self.has_ended
                }
                _ => true,
            },
            State::Ending { until, .. } if self.written.is_empty() => {
                if until.is_none() {
                    // The client may have gone already.
                    let _ = self.stream.end_writing();
                    *until = Some(Instant::now() + CLOSE_TIMEOUT);
                }
                self.has_ended
            }
            _ => false,
        }
    }

    /// A client that cannot be written to has mostly gone, and the end of what it sent, which tells how, follows at once.
    fn note_unread(&mut self) {
        if self.unread_until.is_some() {
            return;
        }
        let timeout = match &mut self.state {
            State::Relayed(relayed) => {
                relayed.close_answers();
                RELAY_AFTER_END_TIMEOUT
            }
            _ => FATE_TIMEOUT,
        };
        self.unread_until = Some(Instant::now() + timeout);
    }

    /// Tells whether the client can be read on because of one.
    fn check_deadlines(&mut self) -> bool {
        let now = Instant::now();
        if Connection::deadline(self).is_none_or(|deadline| deadline > now) {
            return false;
        }
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if is_over(self.written.deadline()) {
            self.written.give_up();
        }
        if is_over(self.read.deadline()) {
            self.end_with(Err(late(self.read.patience())), false);
        }
        // What has come is carried out first, however long that takes.
        let has_more = self.is_readable && matches!(self.state, State::Served(_));
        if is_over(self.unread_until) && !has_more {
            self.end_with(Ok(()), false);
        }
        match &mut self.state {
            State::Opening { until, .. } if *until <= now => {
                self.end_with(Err(no_first_frame()), false);
            }
            State::Served(served) if is_over(served.deadline()) => {
                let failures = served.admission_timed_out();
                self.refuse(failures);
                return true;
            }
            State::Ending { until, written_by, .. } if is_over(until.or(Some(*written_by))) => {
                self.state = State::Closed;
            }
            _ => {}
        }
        false
    }

    /// A credential whose time is over ends the connection. The session lives on, and waits for the client to come with
    /// another one.
    fn check_credential(&mut self) {
        let Some(end) = &mut self.credential_end else { return };
        if let Some(failure) = end.poll(&self.front_end.runtime, &self.waker) {
            self.credential_end = None;
            self.end_with(Err(failure), false);
        }
    }

    /// The node closes the connection. The session lives on.
    fn end_at_once(&mut self) {
        if self.open.connection().is_denied() {
            self.end_with(Err(denied()), false);
            self.written.flush(&mut *self.stream);
            // The client may have gone already.
            let _ = self.stream.end_writing();
        } else {
            tracing::debug!("a connection opened no session in time");
            self.end_with(Ok(()), false);
        }
    }

    /// What the shard has to know of the stream.
    fn tell_shard(&mut self, visit: &mut Visit<'_>) {
        match &mut self.state {
            State::Served(served) => {
                visit.asked.stream = Some(served.stream);
                visit.asked.is_deferrable = served.deferrable.get();
            }
            State::Ending { stream, .. } => {
                if let Some((stream, client_gone)) = stream.take() {
                    visit.asked.stream = Some(stream);
                    visit.asked.closed = Some(client_gone);
                }
            }
            _ => {}
        }
    }
}

impl Connection for FramedConnection {
    fn register(&mut self, registry: &Registry, token: Token, waker: Waker) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)?;
        // If it is to be closed already, the first visit finds out.
        let _ = self.open.connection().poll_closing(&Context::from_waker(&waker));
        self.waker = waker;
        Ok(())
    }

    fn handle_news(&mut self, news: SocketEvents) {
        self.is_readable |= news.is_readable;
        self.is_last_read |= news.has_ended;
    }

    fn visit(&mut self, visit: &mut Visit<'_>) -> AfterVisit {
        self.written.flush(&mut *self.stream);
        // What this visit asks of the efficiency tier is answered at once, and must not wake the shard for another visit.
        self.poll_tasks(visit, Waker::noop());
        let mut has_more = self.read(visit);
        let waker = self.waker.clone();
        has_more |= self.poll_tasks(visit, &waker);
        has_more |= self.check_deadlines();
        self.check_credential();
        let (was_full, was_writing) = (self.is_full(), self.is_writing_the_last());
        self.written.flush(&mut *self.stream);
        let is_closing = self.open.connection().is_closing();
        if is_closing {
            self.end_at_once();
        }
        self.count_unwritten();
        self.tell_shard(visit);
        let is_closed = self.is_closed() || is_closing;
        has_more |= was_full && !self.is_full();
        has_more |= was_writing && !self.is_writing_the_last();
        match is_closed {
            true => AfterVisit::Closed,
            false if has_more => AfterVisit::More,
            false => AfterVisit::Rest,
        }
    }

    fn deliver(&mut self, told: Vec<Delivery>, frame: &mut FrameWriter) -> Result<(), CutOff> {
        if !matches!(self.state, State::Served(_)) || self.written.failed().is_some() {
            return Err(CutOff::Gone);
        }
        let is_slow = self.is_full();
        if is_slow {
            self.end_with(Err(slow_reader()), false);
        } else {
            self.write_answers(Guarantee::Linearizable, told, frame);
        }
        self.count_unwritten();
        if !matches!(self.state, State::Served(_)) || self.written.failed().is_some() {
            self.waker.wake_by_ref();
        }
        if is_slow { Err(CutOff::SlowReader) } else { Ok(()) }
    }

    fn deadline(&self) -> Option<Instant> {
        let of_state = match &self.state {
            State::Opening { until, .. } => Some(*until),
            State::Served(served) => served.deadline(),
            State::Ending { until, written_by, .. } => until.or(Some(*written_by)),
            _ => None,
        };
        let all = [of_state, self.read.deadline(), self.written.deadline(), self.unread_until];
        all.into_iter().flatten().min()
    }

    fn end(&mut self, by: EndedBy) {
        match by {
            EndedBy::Shutdown => self.end_with(Err(stopping()), false),
            EndedBy::OtherConnection => {
                self.end_with(Err(opened_elsewhere()), false);
                // It is the other connection's now.
                if let State::Ending { stream, .. } = &mut self.state {
                    *stream = None;
                }
            }
        }
    }
}

/// It may come again with another certificate.
fn denied() -> Failure {
    let words = "the client's certificate is over or revoked: connect again with a new one";
    not_now(Reason::Unauthenticated, words)
}

fn opened_elsewhere() -> Failure {
    let words = "another connection opened this stream; resume the session under a new request id";
    refused(Reason::InvalidFrame, words)
}

fn too_large() -> Failure {
    let words = format!("the answers have more than {RESPONSE_BYTES_MAX} bytes");
    Failure::from_status(&Status::out_of_range(words))
}
