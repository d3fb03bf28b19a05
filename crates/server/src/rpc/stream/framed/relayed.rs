//! A framed connection at a node that does not lead. The shard reads and writes it; a task relays its frames to the
//! leader and gives back what the leader says. Both ways are bounded, and each side waits for the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use holdfast_proto::decode::operation::Opening;
use holdfast_proto::v1::{ClientFrame, Failure, ServerFrame};
use holdfast_replica::NodeId;
use holdfast_service::Caller;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

use super::super::super::Rpc;
use super::super::body_end::Ending;
use super::super::byte_room::{ByteRoom, FrameRoom};
use super::super::incoming::{FramedFrames, Incoming, Next, QueuedNext, Received};
use super::super::{outgoing, relay};
use super::FramedFrontEnd;
use crate::connections::{Call, overloaded};

/// Frames of the client that the task has yet to take, and frames of the leader that the shard has yet to take. What they
/// take is bounded by [`ByteRoom`].
const FRAMES_MAX: usize = 16;

/// The shard's end.
#[derive(Debug)]
pub(super) struct Relayed {
    frames: mpsc::Sender<QueuedNext>,
    room: ByteRoom,
    call: Arc<Call>,
    /// The shard waits until the task takes a frame.
    is_full: Arc<AtomicBool>,
    answers: mpsc::Receiver<QueuedAnswer>,
}

/// What the leader has said, and what it takes while it waits for the shard.
#[derive(Debug)]
struct QueuedAnswer {
    answer: Result<ServerFrame, Failure>,
    _room: Option<FrameRoom>,
}

impl Relayed {
    /// The waker is called when the task takes a frame from a full queue.
    pub(super) fn start(
        front_end: &Arc<FramedFrontEnd>,
        caller: &Caller,
        leader: NodeId,
        opened: (Opening, ClientFrame),
        call: &Arc<Call>,
        waker: &Waker,
    ) -> Relayed {
        let (relayed, incoming, to_shard) = Relayed::pair(call, waker);
        let (rpc, caller) = (front_end.rpc.clone(), caller.clone());
        front_end.runtime.spawn(run(rpc, caller, leader, opened, incoming, to_shard));
        relayed
    }

    /// The shard's end, and both ends of the task.
    fn pair(
        call: &Arc<Call>,
        waker: &Waker,
    ) -> (Relayed, FramedFrames, mpsc::Sender<QueuedAnswer>) {
        let (frames, to_relay) = mpsc::channel(FRAMES_MAX);
        let (from_relay, answers) = mpsc::channel(FRAMES_MAX);
        let is_full = Arc::new(AtomicBool::new(false));
        let incoming = FramedFrames {
            frames: to_relay,
            call: Arc::clone(call),
            is_full: Arc::clone(&is_full),
            shard: waker.clone(),
        };
        let (room, call) = (ByteRoom::to_leader(), Arc::clone(call));
        (Relayed { frames, room, call, is_full, answers }, incoming, from_relay)
    }

    /// If there is none, the shard is woken when there is.
    pub(super) fn has_room(&self) -> bool {
        let has_room = || self.frames.capacity() > 0 && self.room.has_some();
        if has_room() {
            return true;
        }
        // Either this sees the room, or the task sees that the shard waits for it.
        self.is_full.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        has_room()
    }

    /// There must be room. A task that has ended says so with its answers. Fails if the client's address, or all clients,
    /// have too much here.
    pub(super) fn send(&self, frame: Bytes) -> Result<(), Failure> {
        let held = self.call.hold_bytes(frame.len()).map_err(|too_much| overloaded(&too_much))?;
        let room = Some((self.room.take_some(frame.len()), held));
        let next = Next::Frame(Received::Bytes(frame));
        let _ = self.frames.try_send(QueuedNext { next, _room: room });
        Ok(())
    }

    /// The client has sent all that it will. There must be room.
    pub(super) fn send_end(&self, ending: Ending) {
        let _ = self.frames.try_send(QueuedNext { next: Next::End(ending), _room: None });
    }

    /// None: the stream has ended.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<ServerFrame, Failure>>> {
        self.answers.poll_recv(cx).map(|queued| queued.map(|QueuedAnswer { answer, .. }| answer))
    }

    /// The client reads no more.
    pub(super) fn close_answers(&mut self) {
        self.answers.close();
    }
}

async fn run(
    rpc: Rpc,
    caller: Caller,
    leader: NodeId,
    (opening, first): (Opening, ClientFrame),
    incoming: FramedFrames,
    to_shard: mpsc::Sender<QueuedAnswer>,
) {
    let connection = Some(Arc::clone(incoming.call.connection()));
    let room = ByteRoom::to_client(connection.clone());
    let (words, mut outgoing) = outgoing::pair(&rpc, connection);
    let relaying = async move {
        let mut incoming = Incoming::Framed(incoming);
        let relayed = relay(&rpc, &caller, leader, &opening, first, &mut incoming, &words).await;
        if let Err(failure) = relayed {
            words.end(failure).await;
        }
    };
    let answering = async move {
        while let Some(next) = outgoing.next().await {
            let answer = next.map_err(|status| Failure::from_status(&status));
            let room = match &answer {
                Ok(frame) => tokio::select! {
                    room = room.take(frame.encoded_len()) => Some(room),
                    () = to_shard.closed() => return,
                },
                Err(_) => None,
            };
            if to_shard.send(QueuedAnswer { answer, _room: room }).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(relaying, answering);
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use holdfast_proto::v1::Reason;

    use super::*;
    use crate::connections::{Connections, Descriptors, PortLimits};

    #[tokio::test]
    async fn frames_that_the_leader_does_not_take_are_bounded_and_counted_in_bytes() {
        const FRAME_BYTES: usize = 100 * 1024;
        let port = Connections::new(PortLimits::of_http(), Descriptors::without_limit());
        let open = port.admit(IpAddr::V4(Ipv4Addr::LOCALHOST)).await.unwrap();
        let call = open.connection().begin_session();
        let (relayed, incoming, _to_shard) = Relayed::pair(&call, Waker::noop());
        let mut sent = 0;
        while relayed.has_room() {
            relayed.send(Bytes::from(vec![0; FRAME_BYTES])).unwrap();
            sent += 1;
        }
        assert_eq!(sent, 3, "not sixteen");
        assert_eq!(port.used().bytes, 3 * FRAME_BYTES);
        let mut incoming = Incoming::Framed(incoming);
        assert!(matches!(incoming.next().await, Ok(Next::Frame(_))));
        assert!(relayed.has_room());
        assert_eq!(port.used().bytes, 2 * FRAME_BYTES);
        // A frame for which the account has no room is refused.
        let too_much = Bytes::from(vec![0; open.connection().limits().bytes_max]);
        assert_eq!(relayed.send(too_much).unwrap_err().reason(), Reason::Overloaded);
        drop((relayed, incoming));
        assert_eq!(port.used().bytes, 0);
    }
}
