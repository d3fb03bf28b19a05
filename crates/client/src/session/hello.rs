//! One try to get a session's stream from one node: connect, say hello, hear the first answer.

use std::time::Duration;

use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::{Failure, OpenSessionResponse, Operation, Reason, ServerFrame};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::dial::{Connection, dial};
use super::frame::Frame;
use super::plain::{self, PlainInbound};
use super::state::Hello;
use crate::connection::is_refusal;

/// Within this time a node has to say hello back, or the next one is asked.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

/// Frames that wait for the connection. The rest waits with the session, to be sent there or elsewhere.
const FRAMES_AHEAD_MAX: usize = 16;

/// How long a stream that was left is kept, so that the node hears the farewell before the end.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// An open stream whose session is open on the other side too.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) outbound: mpsc::Sender<Frame>,
    pub(crate) inbound: Inbound,
    pub(crate) welcome: OpenSessionResponse,
    /// The frame that brought the welcome; it may hold notices too.
    pub(crate) first_frame: ServerFrame,
}

/// What the node sends.
#[derive(Debug)]
pub(crate) enum Inbound {
    Plain(PlainInbound),
    Grpc(Streaming<ServerFrame>),
}

impl Inbound {
    pub(crate) async fn message(&mut self) -> Result<Option<ServerFrame>, Status> {
        match self {
            Inbound::Plain(frames) => frames.message().await,
            Inbound::Grpc(frames) => frames.message().await,
        }
    }

    /// Of HTTP/2 the connection notices that by itself.
    pub(crate) fn has_fallen_silent(&mut self) -> bool {
        match self {
            Inbound::Plain(frames) => frames.has_fallen_silent(),
            Inbound::Grpc(_) => false,
        }
    }
}

impl Stream {
    /// The session goes on elsewhere. A stream that is simply dropped means to the servers that the
    /// client is gone, and its session would end after its linger time.
    pub(crate) fn leave(self) {
        take_leave(self.outbound, read_to_end(self.inbound));
    }
}

/// Why there is no stream.
#[derive(Debug)]
pub(crate) enum NoStream {
    /// There is no connection to the node. `refused`: nothing listens there.
    Unreachable { failure: Failure, refused: bool },
    /// The node said so, or said nothing.
    Failed(Failure),
}

/// Sends `hello` (open or resume) as the first operation of a new stream, on a connection that is there already
/// if there is one.
pub(super) async fn say_hello(
    address: String,
    connection: Option<Connection>,
    hello: Hello,
) -> Result<Stream, NoStream> {
    let connection = match connection {
        Some(connection) => connection,
        None => connect(&address).await?,
    };
    open_stream(connection, address, hello).await.map_err(NoStream::Failed)
}

async fn connect(address: &str) -> Result<Connection, NoStream> {
    let unreachable = |words: &str, refused| NoStream::Unreachable {
        failure: no_answer(address, words),
        refused,
    };
    dial(address).await.map_err(|error| unreachable(&words_of(&*error), is_refusal(&*error)))
}

async fn open_stream(
    connection: Connection,
    address: String,
    hello: Hello,
) -> Result<Stream, Failure> {
    let Hello { request_id, kind, acked_through, .. } = hello;
    let (outbound, frames) = mpsc::channel(FRAMES_AHEAD_MAX);
    let mut first = Frame::new(acked_through);
    first.push(&Operation { kind: Some(kind) });
    // There is room, and the receiver is still here, so this cannot fail.
    let _ = outbound.try_send(first);
    let mut first_answer = Box::pin(first_answer(connection, frames));
    let Ok(answered) = timeout(HELLO_TIMEOUT, &mut first_answer).await else {
        // It may be carried out yet.
        take_leave(outbound, async {
            if let Ok((inbound, _)) = first_answer.await {
                read_to_end(inbound).await;
            }
        });
        return Err(no_answer(&address, "no answer to the hello within a second"));
    };
    let (inbound, first_frame) = answered.map_err(|status| Failure::from_status(&status))?;
    let Some(first_frame) = first_frame else {
        return Err(no_answer(&address, "the stream ended before its first answer"));
    };

    match welcome_in(&first_frame, request_id) {
        Some(AnswerResult::Open(welcome) | AnswerResult::Resume(welcome)) => {
            Ok(Stream { outbound, inbound, welcome: welcome.clone(), first_frame })
        }
        Some(AnswerResult::Failure(failure)) => Err(failure.clone()),
        _ => {
            take_leave(outbound, read_to_end(inbound));
            Err(no_answer(&address, "the first frame does not answer the hello"))
        }
    }
}

async fn first_answer(
    connection: Connection,
    frames: mpsc::Receiver<Frame>,
) -> Result<(Inbound, Option<ServerFrame>), Status> {
    let mut inbound = match connection {
        Connection::Plain(socket) => Inbound::Plain(plain::open(socket, frames)),
        Connection::Grpc(mut client) => {
            // What was written here can be read here.
            let frames = ReceiverStream::new(frames).filter_map(|frame| frame.decode().ok());
            Inbound::Grpc(client.session(frames).await?.into_inner())
        }
    };
    let first_frame = inbound.message().await?;
    Ok((inbound, first_frame))
}

/// Says farewell and ends this side. `rest` returns when the node has ended its own: to hang up
/// earlier could overtake the farewell.
fn take_leave(outbound: mpsc::Sender<Frame>, rest: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(timeout(FAREWELL_TIMEOUT, async move {
        // Fails if the stream has ended already.
        let _ = outbound.send(Frame::default()).await;
        drop(outbound);
        rest.await;
    }));
}

async fn read_to_end(mut inbound: Inbound) {
    while let Ok(Some(_)) = inbound.message().await {}
}

fn welcome_in(frame: &ServerFrame, request_id: u64) -> Option<&AnswerResult> {
    frame.answers.iter().find(|answer| answer.request_id == request_id)?.result.as_ref()
}

fn no_answer(address: &str, words: &str) -> Failure {
    Failure {
        reason: Reason::Unspecified.into(),
        message: format!("{address}: {words}"),
        retryable: true,
        may_have_happened: true,
        leader: String::new(),
    }
}

/// The innermost cause: the outer ones only say "transport error".
pub(crate) fn words_of(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
