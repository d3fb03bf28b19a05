//! The client's frames, and how they ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::failure::refused;
use holdfast_proto::peer_v1::{ForwardedFrame, StreamEnd};
use holdfast_proto::plain::BorrowedFrame;
use holdfast_proto::v1::{ClientFrame, Failure, Reason};
use prost::{DecodeError, Message};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Request, Status, Streaming};

use super::super::message_sizes::REQUEST_BYTES_MAX;
use super::body_end::{BodyEnd, Ending};
use super::byte_room::FrameRoom;
use crate::connections::{Call, HeldBytes};

const OPERATIONS_PER_FRAME_MAX: usize = 4_096;
/// Of an operation with nothing in it.
const OPERATION_BYTES_MIN: usize = 2;
pub(super) const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(5);

/// Once the answers have nowhere to go, the end of the frames follows at once.
pub(super) const FATE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Incoming {
    Call {
        frames: Streaming<ClientFrame>,
        body_end: BodyEnd,
        /// What its bytes count for.
        call: Option<Arc<Call>>,
    },
    /// Another node relays it.
    Forwarded {
        /// It has been read, because it names the caller.
        first: Option<ForwardedFrame>,
        frames: Streaming<ForwardedFrame>,
    },
    /// Of a framed connection, which the shard reads.
    Framed(FramedFrames),
}

/// The frames of a framed connection whose session another node serves.
#[derive(Debug)]
pub(super) struct FramedFrames {
    pub(super) frames: mpsc::Receiver<QueuedNext>,
    pub(super) call: Arc<Call>,
    /// The shard waits until one is taken.
    pub(super) is_full: Arc<AtomicBool>,
    pub(super) shard: Waker,
}

/// What the shard has read, and what it takes while it waits for the task.
#[derive(Debug)]
pub(super) struct QueuedNext {
    pub(super) next: Next,
    pub(super) _room: Option<(FrameRoom, HeldBytes)>,
}

impl FramedFrames {
    async fn next(&mut self) -> Next {
        let next = self.frames.recv().await.map(|QueuedNext { next, .. }| next);
        fence(Ordering::SeqCst);
        if self.is_full.swap(false, Ordering::SeqCst) {
            self.shard.wake_by_ref();
        }
        // If the shard ended the connection without a word, the client lives.
        next.unwrap_or(Next::End(Ending::CutOff))
    }
}

/// What came next.
#[derive(Debug)]
pub(super) enum Next {
    Frame(Received),
    End(Ending),
}

/// A frame as its connection gives it.
#[derive(Debug)]
pub(super) enum Received {
    Message(ClientFrame),
    Bytes(Bytes),
}

impl Received {
    /// For a follower, which passes it on.
    pub(super) fn into_message(self) -> Result<ClientFrame, Failure> {
        let frame = match self {
            Received::Message(frame) => frame,
            Received::Bytes(bytes) => {
                check_bytes(&bytes)?;
                ClientFrame::decode(&bytes[..]).map_err(undecodable)?
            }
        };
        check_count(frame.operations.len())?;
        Ok(frame)
    }

    /// For the node that carries it out. What came as a message is taken out of it.
    pub(super) fn open(&mut self) -> Result<BorrowedFrame<'_>, Failure> {
        let frame = match self {
            Received::Message(frame) => std::mem::take(frame).into(),
            Received::Bytes(bytes) => {
                check_bytes(bytes)?;
                BorrowedFrame::decode(bytes).map_err(undecodable)?
            }
        };
        check_count(frame.operations.len())?;
        Ok(frame)
    }
}

impl Incoming {
    pub(super) fn new(request: Request<Streaming<ClientFrame>>) -> Incoming {
        let body_end = request.extensions().get::<BodyEnd>().cloned().unwrap_or_default();
        let call = request.extensions().get::<Arc<Call>>().cloned();
        Incoming::Call { frames: request.into_inner(), body_end, call }
    }

    /// What its bytes count for. None: its client is at another node, and counts there.
    pub(super) fn call(&self) -> Option<&Arc<Call>> {
        match self {
            Incoming::Call { call, .. } => call.as_ref(),
            Incoming::Forwarded { .. } => None,
            Incoming::Framed(frames) => Some(&frames.call),
        }
    }

    /// None if the client went away before it said anything.
    pub(super) async fn first(&mut self) -> Result<Option<ClientFrame>, Failure> {
        match timeout(FIRST_FRAME_TIMEOUT, self.next()).await {
            Ok(Ok(Next::Frame(frame))) => frame.into_message().map(Some),
            Ok(Ok(Next::End(_))) => Ok(None),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(no_first_frame()),
        }
    }

    /// Fails if the client sent what no client should.
    pub(super) async fn next(&mut self) -> Result<Next, Failure> {
        match self {
            Incoming::Framed(frames) => Ok(frames.next().await),
            Incoming::Forwarded { first, frames } => {
                let next = match first.take() {
                    Some(first) => Some(first),
                    // If it broke, the node is gone, and its client may live.
                    None => frames.message().await.unwrap_or_default(),
                };
                let Some(ForwardedFrame { frame, end, .. }) = next else {
                    return Ok(Next::End(Ending::CutOff));
                };
                Ok(match StreamEnd::try_from(end) {
                    Ok(StreamEnd::Unspecified) => Next::Frame(Received::Bytes(frame.into())),
                    Ok(StreamEnd::ClientGone) => Next::End(Ending::Finished),
                    Ok(StreamEnd::ClientLives) | Err(_) => Next::End(Ending::CutOff),
                })
            }
            Incoming::Call { frames, body_end, .. } => match frames.message().await {
                Ok(Some(frame)) => Ok(Next::Frame(Received::Message(frame))),
                Ok(None) => Ok(Next::End(body_end.broken().unwrap_or(Ending::Finished))),
                Err(status) => match body_end.broken() {
                    Some(ending) => Ok(Next::End(ending)),
                    None => Err(not_a_frame(&status)),
                },
            },
        }
    }

    /// How the frames ended, once the client reads no more answers.
    pub(super) async fn fate(&mut self) -> Ending {
        let end = async {
            loop {
                match self.next().await {
                    Ok(Next::Frame(frame)) => match frame.into_message() {
                        Ok(frame) if !frame.operations.is_empty() => {}
                        // A farewell that the reset has not overtaken: the client lives.
                        Ok(_) | Err(_) => return Ending::CutOff,
                    },
                    Ok(Next::End(ending)) => return ending,
                    Err(_) => return Ending::CutOff,
                }
            }
        };
        timeout(FATE_TIMEOUT, end).await.unwrap_or(Ending::CutOff)
    }
}

/// A client that stood still meanwhile may try again.
pub(super) fn no_first_frame() -> Failure {
    let words = "no frame came within 5 s; send one that opens or resumes a session";
    Failure { retryable: true, ..refused(Reason::InvalidFrame, words) }
}

/// Before anything is made of them: of two bytes some hundred would be made.
fn check_bytes(bytes: &[u8]) -> Result<(), Failure> {
    if bytes.len() / OPERATION_BYTES_MIN > OPERATIONS_PER_FRAME_MAX {
        check_count(BorrowedFrame::count_operations(bytes))?;
    }
    Ok(())
}

fn check_count(operations: usize) -> Result<(), Failure> {
    if operations > OPERATIONS_PER_FRAME_MAX {
        let words = format!(
            "the frame has {operations} operations; one frame takes {OPERATIONS_PER_FRAME_MAX}"
        );
        return Err(refused(Reason::InvalidFrame, words));
    }
    Ok(())
}

fn undecodable(error: DecodeError) -> Failure {
    refused(Reason::InvalidFrame, format!("not a frame: {error}"))
}

fn not_a_frame(status: &Status) -> Failure {
    if status.metadata().contains_key(REASON_KEY) {
        return Failure::from_status(status);
    }
    let words = match status.code() {
        Code::OutOfRange => {
            format!("the frame is too large; one has at most {REQUEST_BYTES_MAX} bytes")
        }
        _ => status.message().to_owned(),
    };
    refused(Reason::InvalidFrame, words)
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use holdfast_proto::v1::Operation;
    use http_body_util::Full;
    use tonic::codec::{DecodeBuf, Decoder};

    use super::*;

    struct FrameDecoder;

    impl Decoder for FrameDecoder {
        type Item = ClientFrame;
        type Error = Status;

        fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<ClientFrame>, Status> {
            Ok(ClientFrame::decode(bytes).ok())
        }
    }

    #[test]
    fn too_many_operations_are_refused_before_they_are_made() {
        let many = |operations: usize, after: &[u8]| {
            let operations = vec![Operation::default(); operations];
            let mut bytes = ClientFrame { operations, acked_through: 0 }.encode_to_vec();
            bytes.extend_from_slice(after);
            Received::Bytes(bytes.into())
        };
        let refusal = |words: &str| words.contains("4097 operations");
        for after in [&b""[..], b"\xff\xff"] {
            let mut frame = many(OPERATIONS_PER_FRAME_MAX + 1, after);
            assert!(refusal(&frame.open().unwrap_err().message), "not: 'not a frame'");
            assert!(refusal(&frame.into_message().unwrap_err().message));
        }
        let mut frame = many(OPERATIONS_PER_FRAME_MAX, b"");
        assert_eq!(frame.open().unwrap().operations.len(), OPERATIONS_PER_FRAME_MAX);
    }

    /// What is left in a stream that has ended: these frames, each with so many operations.
    fn left_behind(frames: &[usize]) -> Incoming {
        let mut body = BytesMut::new();
        for operations in frames {
            let operations = vec![Operation::default(); *operations];
            let frame = ClientFrame { operations, ..ClientFrame::default() }.encode_to_vec();
            body.put_u8(0);
            body.put_u32(frame.len() as u32);
            body.put_slice(&frame);
        }
        let body = Full::<Bytes>::new(body.freeze());
        let frames = Streaming::new_request(FrameDecoder, body, None, None);
        Incoming::Call { frames, body_end: BodyEnd::default(), call: None }
    }

    #[tokio::test]
    async fn a_farewell_received_after_the_last_answer_counts() {
        for frames in [&[0][..], &[1, 0], &[3, 1, 0], &[1, 0, 1]] {
            let fate = left_behind(frames).fate().await;
            assert!(!fate.means_client_gone(), "{frames:?}: the client lives");
        }
    }

    #[tokio::test]
    async fn a_client_that_ends_without_a_farewell_counts_as_disconnected() {
        for frames in [&[][..], &[1], &[2, 1]] {
            let fate = left_behind(frames).fate().await;
            assert!(fate.means_client_gone(), "{frames:?}: it is gone");
        }
    }
}
