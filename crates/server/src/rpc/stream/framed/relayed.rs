//! A framed connection at a node that does not lead. The shard reads and writes it; a task relays its frames to the
//! leader and gives back what the leader says. Both ways are bounded, and each side waits for the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context, Poll, Waker};

use holdfast_proto::decode::operation::Opening;
use holdfast_proto::v1::{ClientFrame, Failure, ServerFrame};
use holdfast_replica::NodeId;
use holdfast_service::Caller;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

use super::super::super::Rpc;
use super::super::incoming::{FramedFrames, Incoming, Next};
use super::super::{outgoing, relay};
use super::FramedFrontEnd;

/// Frames of the client that the task has yet to take, and frames of the leader that the shard has yet to take.
const FRAMES_MAX: usize = 16;

/// The shard's end.
#[derive(Debug)]
pub(super) struct Relayed {
    frames: mpsc::Sender<Next>,
    /// The shard waits until the task takes a frame.
    is_full: Arc<AtomicBool>,
    answers: mpsc::Receiver<Result<ServerFrame, Failure>>,
}

impl Relayed {
    /// The waker is called when the task takes a frame from a full queue.
    pub(super) fn start(
        front_end: &Arc<FramedFrontEnd>,
        caller: &Caller,
        leader: NodeId,
        (opening, first): (Opening, ClientFrame),
        waker: &Waker,
    ) -> Relayed {
        let (frames, to_relay) = mpsc::channel(FRAMES_MAX);
        let (from_relay, answers) = mpsc::channel(FRAMES_MAX);
        let is_full = Arc::new(AtomicBool::new(false));
        let incoming = Incoming::Framed(FramedFrames {
            frames: to_relay,
            is_full: Arc::clone(&is_full),
            shard: waker.clone(),
        });
        let (rpc, caller) = (front_end.rpc.clone(), caller.clone());
        front_end.runtime.spawn(run(rpc, caller, leader, opening, first, incoming, from_relay));
        Relayed { frames, is_full, answers }
    }

    /// If there is none, the shard is woken when there is.
    pub(super) fn has_room(&self) -> bool {
        if self.frames.capacity() > 0 {
            return true;
        }
        // Either this sees the room, or the task sees that the shard waits for it.
        self.is_full.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.frames.capacity() > 0
    }

    /// There must be room. A task that has ended says so with its answers.
    pub(super) fn send(&self, next: Next) {
        let _ = self.frames.try_send(next);
    }

    /// None: the stream has ended.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<ServerFrame, Failure>>> {
        self.answers.poll_recv(cx)
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
    opening: Opening,
    first: ClientFrame,
    mut incoming: Incoming,
    to_shard: mpsc::Sender<Result<ServerFrame, Failure>>,
) {
    let (words, mut outgoing) = outgoing::pair(&rpc);
    let relaying = async move {
        let relayed = relay(&rpc, &caller, leader, &opening, first, &mut incoming, &words).await;
        if let Err(failure) = relayed {
            words.end(failure).await;
        }
    };
    let answering = async move {
        while let Some(next) = outgoing.next().await {
            let next = next.map_err(|status| Failure::from_status(&status));
            if to_shard.send(next).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(relaying, answering);
}
