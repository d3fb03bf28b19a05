//! A stream at a node that does not lead. Each operation passes the service here, and then goes to the leader with its
//! caller, on the peer port. The leader's answers and notices come back on the same call.
//!
//! * An operation that is wrong is answered here. The others of its frame go on, in their order.
//! * An operation is sent once. If the leader moves, the stream ends, and the client resumes: it repeats what has no answer
//!   under the same request ids, which the lock table recognises.
//! * The client is not read while the leader does not take what came before, and the other way round.
//! * The leader has to learn how the stream ended, because only it can start the session's linger time. So the last frame
//!   says it. Without one, this node has ended, and the session keeps its TTL.

use std::pin::pin;
use std::time::Duration;

use holdfast_core::{RequestId, SessionId};
use holdfast_proto::decode::Scope;
use holdfast_proto::peer_v1::{ForwardedFrame, StreamEnd};
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::{ClientFrame, Failure, ServerFrame};
use holdfast_replica::NodeId;
use holdfast_service::Caller;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::super::Rpc;
use super::super::failure::{bug, leader_did_not_answer, slow_reader, stopping};
use super::super::forward::SessionAnswers;
use super::admit::admit;
use super::body_end::Ending;
use super::byte_room::{ByteRoom, FrameRoom};
use super::incoming::{Incoming, Next};
use super::outgoing::OutgoingSender;
use crate::connections::{HeldBytes, overloaded};

/// Frames on their way to the leader. What they take is bounded by [`ByteRoom`].
const FRAMES_MAX: usize = 16;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the leader has to take what a client that has gone had sent.
const RELAY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a client may read nothing while the leader has more for it. What it leaves unread takes memory of both nodes.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the leader has to take note that the stream ended.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Relay<'a> {
    pub(super) rpc: &'a Rpc,
    pub(super) caller: &'a Caller,
    pub(super) leader: NodeId,
    pub(super) session: SessionId,
}

impl Relay<'_> {
    pub(super) async fn serve(
        &self,
        mut first: ClientFrame,
        incoming: &mut Incoming,
        outgoing: &OutgoingSender,
    ) -> Result<(), Failure> {
        let (to_leader, frames) = mpsc::channel(FRAMES_MAX);
        // The opening has been admitted.
        let rest = first.operations.split_off(first.operations.len().min(1));
        let mut refused = Vec::new();
        first.operations.extend(self.admitted(rest, first.acked_through, &mut refused));
        let caller = Some(self.caller.to_wire());
        let frame = ForwardedFrame { caller, ..forwarded(&first) };
        // The channel is new and has room.
        let _ = to_leader.try_send(frame.into());
        let forwarding = &self.rpc.forwarding;
        let frames = ReceiverStream::new(frames).map(|QueuedFrame { frame, .. }| frame);
        let session = forwarding.session(self.leader, frames);
        let mut from_leader = match timeout(CONNECT_TIMEOUT, session).await {
            Ok(answers) => answers?,
            Err(_) => {
                // If it gets through after all: the client lives.
                let _ = to_leader.try_send(end(StreamEnd::ClientLives).into());
                let address = forwarding.address(self.leader);
                return Err(leader_did_not_answer(address, false, "it took too long"));
            }
        };
        let _ = outgoing.refuse(refused).await;

        let stopping_begins = self.rpc.stopping.begun();
        let (ending, termination) = {
            let mut up = pin!(self.pump_up(incoming, outgoing, &to_leader));
            let mut down = pin!(self.pump_down(&mut from_leader, outgoing));
            tokio::select! {
                biased;
                ending = &mut up => match ending {
                    Ok(ending) => (Some(ending), Ok(())),
                    Err(failure) => (Some(Ending::CutOff), Err(failure)),
                },
                end = &mut down => return end,
                // What has come is relayed also if no answer can be given any more, and its end tells how the client went.
                () = outgoing.unheard() => tokio::select! {
                    ending = timeout(RELAY_TIMEOUT, up) => match ending {
                        Ok(ending) => (Some(ending.unwrap_or(Ending::CutOff)), Ok(())),
                        Err(_) => (None, Ok(())),
                    },
                    end = down => return end,
                    () = self.rpc.stopping.begun() => (Some(Ending::CutOff), Ok(())),
                },
                () = stopping_begins => (Some(Ending::CutOff), Err(stopping())),
                failure = self.rpc.credential_end(self.caller) => (Some(Ending::CutOff), Err(failure)),
            }
        };
        // More has come than the leader takes in time: how the client went is told all the same.
        let ending = match ending {
            Some(ending) => ending,
            None => incoming.fate().await,
        };
        let client_gone = ending.means_client_gone() && !self.rpc.stopping.has_begun();
        // The leader gone as well is the only way in which this can fail.
        let _ = timeout(FAREWELL_TIMEOUT, take_leave(client_gone, to_leader, from_leader)).await;
        termination
    }

    /// Ends when the client's frames do, or with what the client did wrong.
    async fn pump_up(
        &self,
        incoming: &mut Incoming,
        outgoing: &OutgoingSender,
        to_leader: &mpsc::Sender<QueuedFrame>,
    ) -> Result<Ending, Failure> {
        let room = ByteRoom::to_leader();
        loop {
            match incoming.next().await? {
                Next::Frame(frame) => {
                    let ClientFrame { acked_through, operations } = frame.into_message()?;
                    // The client's farewell: it lives, and so this node tells the leader.
                    if operations.is_empty() {
                        return Ok(Ending::CutOff);
                    }
                    let mut refused = Vec::new();
                    let operations = self.admitted(operations, acked_through, &mut refused);
                    // Before the rest is sent: the answer to a `Close` ends the stream. If the client is gone, the end of
                    // its frames tells how.
                    let _ = outgoing.refuse(refused).await;
                    if !operations.is_empty() {
                        let frame = forwarded(&ClientFrame { acked_through, operations });
                        let bytes = frame.frame.len();
                        let held = incoming.call().map(|call| call.hold_bytes(bytes)).transpose();
                        let held = held.map_err(|too_much| overloaded(&too_much))?;
                        let room = Some(room.take(bytes).await);
                        let frame = QueuedFrame { frame, _held: held, _room: room };
                        if to_leader.send(frame).await.is_err() {
                            // The leader's answers end too, and say why.
                            std::future::pending::<()>().await;
                        }
                    }
                }
                Next::End(ending) => return Ok(ending),
            }
        }
    }

    /// Those that their caller may do, in their order.
    fn admitted(
        &self,
        mut operations: Vec<holdfast_proto::v1::Operation>,
        acked_through: u64,
        refused: &mut Vec<(RequestId, Failure)>,
    ) -> Vec<holdfast_proto::v1::Operation> {
        let acked_through = RequestId(acked_through);
        let scope = Scope::Stream { session: self.session, acked_through };
        operations.retain(|operation| {
            let operation = BorrowedOperation::Message(operation.clone());
            match admit(self.rpc.door.service(), self.caller, operation, scope) {
                (_, Ok(_)) => true,
                (request, Err(failure)) => {
                    refused.push((request, failure));
                    false
                }
            }
        });
        operations
    }

    /// Ends when the leader's frames do.
    async fn pump_down(
        &self,
        from_leader: &mut SessionAnswers,
        outgoing: &OutgoingSender,
    ) -> Result<(), Failure> {
        loop {
            match from_leader.message().await {
                Ok(Some(answer)) => {
                    let frame = ServerFrame::decode(&answer.response[..])
                        .map_err(|error| bug(&format!("the leader's frame: {error}")))?;
                    // If the client is gone, the end of its frames tells how. Until then the leader is not held up.
                    let told = timeout(UNREAD_TIMEOUT, outgoing.frame(frame)).await;
                    let _ = told.map_err(|_| slow_reader())?;
                }
                Ok(None) => return Ok(()),
                Err(status) => return Err(self.rpc.forwarding.failure(self.leader, &status)),
            }
        }
    }
}

/// A frame on its way to the leader, and what it takes until the transport has it.
struct QueuedFrame {
    frame: ForwardedFrame,
    _held: Option<HeldBytes>,
    _room: Option<FrameRoom>,
}

/// The first frame, and how the stream ended, find room in any case.
impl From<ForwardedFrame> for QueuedFrame {
    fn from(frame: ForwardedFrame) -> QueuedFrame {
        QueuedFrame { frame, _held: None, _room: None }
    }
}

fn forwarded(frame: &ClientFrame) -> ForwardedFrame {
    ForwardedFrame { frame: frame.encode_to_vec(), ..ForwardedFrame::default() }
}

fn end(end: StreamEnd) -> ForwardedFrame {
    ForwardedFrame { end: end.into(), ..ForwardedFrame::default() }
}

/// Returns when the leader has ended its side. To hang up earlier could overtake the farewell.
async fn take_leave(
    client_gone: bool,
    to_leader: mpsc::Sender<QueuedFrame>,
    mut from_leader: SessionAnswers,
) {
    let how = if client_gone { StreamEnd::ClientGone } else { StreamEnd::ClientLives };
    let _ = to_leader.send(end(how).into()).await;
    drop(to_leader);
    while let Ok(Some(_)) = from_leader.message().await {}
}
