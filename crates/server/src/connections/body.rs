//! The bytes of a request as they come, and those of an answer until they are written.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use holdfast_proto::v1::{Failure, Reason};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::limits::TooMuch;
use super::{Call, Connection};

/// Of a message of gRPC: a flag, and the length.
const PREFIX_BYTES: usize = 5;

/// Smaller pieces of an answer are not worth the counting.
const COUNTED_BYTES_MIN: usize = 256;

/// What a request consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One message of gRPC, and the end.
    Message { bytes_max: usize },
    /// Messages of gRPC, until the caller ends it. It is whole with the first.
    Messages { bytes_max: usize },
    /// Messages of gRPC. The method that serves it says when it is whole.
    Session { bytes_max: usize },
    /// Any bytes, to the end.
    Bytes,
}

impl Shape {
    fn bytes_max(self) -> Option<usize> {
        match self {
            Shape::Message { bytes_max }
            | Shape::Messages { bytes_max }
            | Shape::Session { bytes_max } => Some(bytes_max),
            Shape::Bytes => None,
        }
    }
}

/// Counts the bytes as they come, and gives messages of gRPC away only whole: decoding them takes the memory
/// that they claim at their first bytes. One that does not come whole in time ends the request.
#[derive(Debug)]
pub(crate) struct RequestBody<B> {
    inner: B,
    call: Arc<Call>,
    shape: Shape,
    /// The beginning of a message.
    begun: BytesMut,
    /// Given away, and counted until the next is asked for.
    given: usize,
    /// While something is awaited.
    deadline: Option<Pin<Box<Sleep>>>,
    /// What comes after the last message.
    last: Option<Frame<Bytes>>,
    has_ended: bool,
}

impl<B> RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(crate) fn new(inner: B, call: Arc<Call>, shape: Shape) -> RequestBody<B> {
        let has_ended = inner.is_end_stream();
        if has_ended && !matches!(shape, Shape::Session { .. }) {
            call.is_whole();
        }
        RequestBody {
            inner,
            call,
            shape,
            begun: BytesMut::new(),
            given: 0,
            deadline: None,
            last: None,
            has_ended,
        }
    }

    fn awaits_more(&self) -> bool {
        match self.shape {
            Shape::Message { .. } | Shape::Bytes => true,
            // Between messages there is no hurry.
            Shape::Messages { .. } | Shape::Session { .. } => !self.begun.is_empty(),
        }
    }

    /// What can be given away now that these have come.
    fn take(&mut self, bytes: Bytes) -> Result<Bytes, Failure> {
        self.call.take_bytes(bytes.len()).map_err(|too_much| overloaded(&too_much))?;
        let Some(bytes_max) = self.shape.bytes_max() else {
            self.given += bytes.len();
            return Ok(bytes);
        };
        let whole = if self.begun.is_empty() && whole_messages(&bytes, bytes_max)? == bytes.len() {
            bytes
        } else {
            self.begun.extend_from_slice(&bytes);
            let length = whole_messages(&self.begun, bytes_max)?;
            let whole = self.begun.split_to(length).freeze();
            if self.begun.is_empty() {
                self.begun = BytesMut::new();
            }
            whole
        };
        if !whole.is_empty() {
            self.deadline = None;
            self.given += whole.len();
            if matches!(self.shape, Shape::Messages { .. }) {
                self.call.is_whole();
            }
        }
        Ok(whole)
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.deadline = None;
        if !matches!(self.shape, Shape::Session { .. }) {
            self.call.is_whole();
        }
    }

    fn refuse(&mut self, failure: Failure) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.has_ended = true;
        self.begun = BytesMut::new();
        Poll::Ready(Some(Err(failure.to_status())))
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        // A stream's message was decoded if the next is asked for. A single one counts until it is answered.
        if matches!(this.shape, Shape::Messages { .. } | Shape::Session { .. }) {
            this.call.give_back(std::mem::take(&mut this.given));
        }
        loop {
            if this.has_ended {
                return Poll::Ready(this.last.take().map(Ok));
            }
            let frame = match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    if !this.awaits_more() {
                        return Poll::Pending;
                    }
                    let timeout = this.call.connection().limits().request_timeout;
                    let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
                    ready!(deadline.as_mut().poll(cx));
                    this.call.is_refused();
                    return this.refuse(late(timeout));
                }
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => match this.take(data) {
                        Ok(whole) => {
                            if this.inner.is_end_stream() && this.begun.is_empty() {
                                this.end();
                            }
                            if !whole.is_empty() {
                                return Poll::Ready(Some(Ok(Frame::data(whole))));
                            }
                        }
                        Err(failure) => return this.refuse(failure),
                    },
                    Err(trailers) => {
                        this.end();
                        this.last = Some(trailers);
                    }
                },
                Some(Err(error)) => {
                    this.has_ended = true;
                    return Poll::Ready(Some(Err(Status::from_error(error.into()))));
                }
                None => {
                    this.end();
                    // The decoder says that the end is missing.
                    if !this.begun.is_empty() {
                        let rest = std::mem::take(&mut this.begun).freeze();
                        return Poll::Ready(Some(Ok(Frame::data(rest))));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended && self.last.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// How many bytes the messages have that are whole. Fails if one claims to be too large.
fn whole_messages(bytes: &[u8], bytes_max: usize) -> Result<usize, Failure> {
    let mut rest = bytes;
    while let Some((prefix, message)) = rest.split_first_chunk::<PREFIX_BYTES>() {
        let [_, a, b, c, d] = *prefix;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > bytes_max {
            return Err(too_large(length, bytes_max));
        }
        let Some((_, next)) = message.split_at_checked(length) else { break };
        rest = next;
    }
    Ok(bytes.len() - rest.len())
}

fn failure(reason: Reason, message: String, retryable: bool) -> Failure {
    Failure { reason: reason.into(), message, retryable, ..Failure::default() }
}

fn too_large(bytes: usize, bytes_max: usize) -> Failure {
    let words =
        format!("the request is too large: it has {bytes} bytes; send one of at most {bytes_max}");
    failure(Reason::MessageTooLarge, words, false)
}

pub(crate) fn late(timeout: Duration) -> Failure {
    let words = format!("the request did not arrive whole within {timeout:?}; send it again");
    failure(Reason::InvalidFrame, words, true)
}

pub(crate) fn overloaded(too_much: &TooMuch) -> Failure {
    let words = format!("{too_much}; try again in a moment, or with fewer requests at a time");
    failure(Reason::Overloaded, words, true)
}

/// The body of an answer. The call lasts until it is dropped, and what it gave away counts until it is written.
#[derive(Debug)]
pub(crate) struct ResponseBody<B: Body> {
    inner: B,
    /// The first of it, if it was made and not taken yet.
    first: Option<Frame<Bytes>>,
    call: Arc<Call>,
}

impl<B: Body<Data = Bytes> + Unpin> ResponseBody<B> {
    pub(crate) fn new(inner: B, call: Arc<Call>) -> ResponseBody<B> {
        ResponseBody { inner, first: None, call }
    }

    /// What is ready of the answer is made now, so that it counts also if its client reads nothing.
    pub(crate) fn made(inner: B, call: Arc<Call>) -> ResponseBody<B> {
        let mut body = ResponseBody::new(inner, call);
        let ready = Pin::new(&mut body.inner).poll_frame(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Some(Ok(frame))) = ready {
            body.first = Some(frame.map_data(|data| counted(data, body.call.connection())));
        }
        body
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        ready!(self.call.connection().poll_may_write(cx));
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let connection = self.call.connection();
        Poll::Ready(
            frame.map(|frame| frame.map(|frame| frame.map_data(|d| counted(d, connection)))),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.first.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

/// A piece of an answer that the transport has. It drops it when it is written.
struct Unwritten {
    bytes: Bytes,
    connection: Arc<Connection>,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.connection.is_written(self.bytes.len());
    }
}

fn counted(bytes: Bytes, connection: &Arc<Connection>) -> Bytes {
    if bytes.len() < COUNTED_BYTES_MIN {
        return bytes;
    }
    connection.add_unwritten(bytes.len());
    Bytes::from_owner(Unwritten { bytes, connection: Arc::clone(connection) })
}
