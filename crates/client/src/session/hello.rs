//! One try to get a session's stream from one node: connect, say hello, hear the first answer.

use std::time::Duration;

use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::{Failure, Operation, Reason, ServerFrame};
use tokio::time::timeout;
use tonic::Status;

use super::dial::{Connection, dial};
use super::frame::Frame;
use super::state::Hello;
use super::stream::{self, Stream};
use crate::connection::is_refusal;

/// Within this time a node has to say hello back, or the next one is asked.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

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
    let mut first = Frame::new(acked_through);
    first.push(&Operation { kind: Some(kind) });
    let (mut outbound, opening) = stream::open(connection, first);
    let mut first_answer = Box::pin(async {
        let mut inbound = opening.inbound().await?;
        let first_frame = inbound.message().await?;
        Ok::<_, Status>((inbound, first_frame))
    });
    let said_and_heard = async {
        outbound.room().await;
        (&mut first_answer).await
    };
    let Ok(answered) = timeout(HELLO_TIMEOUT, said_and_heard).await else {
        // It may be carried out yet.
        stream::take_leave(outbound, async {
            if let Ok((inbound, _)) = first_answer.await {
                inbound.read_to_end().await;
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
            stream::take_leave(outbound, inbound.read_to_end());
            Err(no_answer(&address, "the first frame does not answer the hello"))
        }
    }
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
