//! What one connection to a peer carries: the hello, then the driver's messages, as many in one frame
//! as are waiting.
//!
//! The connection pulls: a frame is made when the transport has room for it, from all that the driver
//! has queued by then. The queue is bounded in lists and in bytes; what does not fit is the caller's
//! to drop.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use holdfast_proto::peer_v1::{Batch, GroupMessage, Hello, PeerFrame, peer_frame};
use holdfast_replica::GroupId;
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Messages of one loop turn, in the order in which they were made.
pub(super) type Messages = Vec<(GroupId, Vec<u8>)>;

const QUEUED_LISTS_MAX: usize = 4_096;
const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a frame is cut. One message larger than this still travels, alone.
const FRAME_BYTES_TARGET: usize = 4 * 1024 * 1024;

/// The driver's end.
#[derive(Debug)]
pub(super) struct FrameQueue {
    lists: mpsc::Sender<Messages>,
    queued_bytes: Arc<AtomicUsize>,
}

/// The connection's end.
#[derive(Debug)]
pub(super) struct Frames {
    hello: Option<Hello>,
    lists: mpsc::Receiver<Messages>,
    queued_bytes: Arc<AtomicUsize>,
    taken: VecDeque<(GroupId, Vec<u8>)>,
}

/// The queue is full or its connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotQueued;

pub(super) fn frames(hello: Hello) -> (FrameQueue, Frames) {
    let (sender, receiver) = mpsc::channel(QUEUED_LISTS_MAX);
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let queue = FrameQueue { lists: sender, queued_bytes: Arc::clone(&queued_bytes) };
    let frames =
        Frames { hello: Some(hello), lists: receiver, queued_bytes, taken: VecDeque::new() };
    (queue, frames)
}

impl FrameQueue {
    /// Never waits.
    pub(super) fn push(&self, messages: Messages) -> Result<(), NotQueued> {
        let bytes = total_bytes(&messages);
        // Only the driver adds, so the check and the addition need not be one step.
        if self.queued_bytes.load(Ordering::Relaxed) > QUEUED_BYTES_MAX {
            return Err(NotQueued);
        }
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.lists.try_send(messages).map_err(|_| {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            NotQueued
        })
    }
}

impl Frames {
    fn take(&mut self, messages: Messages) -> usize {
        let bytes = total_bytes(&messages);
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.taken.extend(messages);
        bytes
    }

    fn cut_batch(&mut self) -> Batch {
        let mut bytes = 0;
        let mut messages = Vec::with_capacity(self.taken.len());
        while let Some((_, next)) = self.taken.front() {
            if !messages.is_empty() && bytes + next.len() > FRAME_BYTES_TARGET {
                break;
            }
            bytes += next.len();
            if let Some((group, message)) = self.taken.pop_front() {
                messages.push(GroupMessage { group: group.0, message });
            }
        }
        Batch { messages }
    }
}

impl Stream for Frames {
    type Item = PeerFrame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<PeerFrame>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(PeerFrame { kind: Some(peer_frame::Kind::Hello(hello)) }));
        }
        if self.taken.is_empty() {
            let Some(messages) = ready!(self.lists.poll_recv(cx)) else {
                return Poll::Ready(None);
            };
            let mut bytes = self.take(messages);
            while bytes < FRAME_BYTES_TARGET {
                let Ok(messages) = self.lists.try_recv() else { break };
                bytes += self.take(messages);
            }
        }
        let batch = self.cut_batch();
        Poll::Ready(Some(PeerFrame { kind: Some(peer_frame::Kind::Batch(batch)) }))
    }
}

fn total_bytes(messages: &Messages) -> usize {
    messages.iter().map(|(_, message)| message.len()).sum()
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    const GROUP: GroupId = GroupId(1);

    fn batch_sizes(frame: PeerFrame) -> Vec<usize> {
        match frame.kind {
            Some(peer_frame::Kind::Batch(batch)) => {
                batch.messages.iter().map(|message| message.message.len()).collect()
            }
            other => panic!("not a batch: {other:?}"),
        }
    }

    #[tokio::test]
    async fn the_hello_comes_first_and_what_waits_goes_into_one_frame() {
        let (queue, mut frames) = frames(Hello::default());
        for size in [1, 2, 3] {
            queue.push(vec![(GROUP, vec![0; size])]).unwrap();
        }
        let first = frames.next().await.unwrap();
        assert!(matches!(first.kind, Some(peer_frame::Kind::Hello(_))));
        assert_eq!(batch_sizes(frames.next().await.unwrap()), [1, 2, 3]);
        drop(queue);
        assert!(frames.next().await.is_none());
    }

    #[tokio::test]
    async fn a_frame_is_cut_where_it_grows_too_large_and_keeps_the_order() {
        const MIB: usize = 1024 * 1024;
        let (queue, mut frames) = frames(Hello::default());
        frames.next().await;
        let sizes = [3 * MIB, MIB, 1, 9 * MIB, 2];
        queue.push(sizes.iter().map(|size| (GROUP, vec![0; *size])).collect()).unwrap();
        drop(queue);
        let mut cut = Vec::new();
        while let Some(frame) = frames.next().await {
            cut.push(batch_sizes(frame));
        }
        assert_eq!(cut, [vec![3 * MIB, MIB], vec![1], vec![9 * MIB], vec![2]]);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_costs_a_bounded_amount_of_memory() {
        let (queue, mut frames) = frames(Hello::default());
        frames.next().await;
        let mut pushed = 0;
        while queue.push(vec![(GROUP, vec![0; 1024 * 1024])]).is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, 65);
        frames.next().await;
        queue.push(vec![(GROUP, vec![0; 1])]).unwrap();
        drop(frames);
        assert_eq!(queue.push(Vec::new()), Err(NotQueued));
    }
}
