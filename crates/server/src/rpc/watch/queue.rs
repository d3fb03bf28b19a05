//! The frames of one watch that its reader has not taken yet.
//!
//! All watches of a node share one budget of bytes. A reader that keeps up always has room for one frame. One that does
//! not read takes from the budget, and is cut off when there is nothing left of it. What a watch has in its queue is
//! freed when the watch is cut off, not when its client goes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use holdfast_proto::v1::WatchFrame;
use prost::Message;
use tokio::sync::Notify;
use tokio_stream::Stream;
use tonic::Status;

use crate::metrics::Metrics;

const FRAMES_AHEAD: usize = 16;

/// What the watches of a node may have unread, together.
#[derive(Debug)]
pub(in crate::rpc) struct WatchBudget {
    bytes_max: usize,
    used: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl WatchBudget {
    pub(in crate::rpc) fn new(bytes_max: u64, metrics: Arc<Metrics>) -> WatchBudget {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        WatchBudget { bytes_max, used: AtomicUsize::new(0), metrics }
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.bytes_max
    }

    fn take(&self, bytes: usize) {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.watch_bytes.set((before + bytes) as u64);
    }

    fn give_back(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.metrics.watch_bytes.set((before - bytes) as u64);
    }
}

/// Why a frame was not taken. It comes back.
#[derive(Debug)]
pub(super) enum NoRoom {
    /// The reader has as many as it may have ahead.
    ReaderIsBehind(WatchFrame),
    /// The reader has some ahead, and the watches of this node have all that they may have.
    BudgetIsUsedUp(WatchFrame),
    /// The reader is gone.
    Unheard,
}

#[derive(Debug)]
struct Queue {
    budget: Arc<WatchBudget>,
    state: Mutex<State>,
    /// The reader took something, or went.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<(WatchFrame, usize)>,
    /// Of the frame that the transport has.
    at_transport: usize,
    reader: Option<Waker>,
    reader_is_gone: bool,
    /// With what, if anything, is said at the end.
    end: Option<Option<Status>>,
}

/// The end of the watch's task.
#[derive(Debug)]
pub(super) struct FrameSender(Arc<Queue>);

/// The frames, and last of all why there are no more.
#[derive(Debug)]
pub(in crate::rpc) struct Frames(Arc<Queue>);

pub(super) fn queue(budget: Arc<WatchBudget>) -> (FrameSender, Frames) {
    let queue = Arc::new(Queue { budget, state: Mutex::default(), room: Notify::new() });
    (FrameSender(Arc::clone(&queue)), Frames(queue))
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees what is unread.
    fn clear(&self, state: &mut State) {
        let bytes: usize = state.frames.iter().map(|(_, bytes)| bytes).sum();
        state.frames = VecDeque::new();
        self.budget.give_back(bytes + std::mem::take(&mut state.at_transport));
    }
}

impl FrameSender {
    pub(super) fn try_send(&self, frame: WatchFrame) -> Result<(), NoRoom> {
        let bytes = frame.encoded_len();
        let mut state = self.0.lock();
        if state.reader_is_gone {
            return Err(NoRoom::Unheard);
        }
        if state.frames.len() >= FRAMES_AHEAD {
            return Err(NoRoom::ReaderIsBehind(frame));
        }
        if !state.frames.is_empty() && !self.0.budget.has_room_for(bytes) {
            return Err(NoRoom::BudgetIsUsedUp(frame));
        }
        self.0.budget.take(bytes);
        state.frames.push_back((frame, bytes));
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Returns when the reader took something since the last time, or went.
    pub(super) async fn room(&self) {
        self.0.room.notified().await;
    }

    /// Returns when the reader is gone.
    pub(super) async fn closed(&self) {
        loop {
            let news = self.0.room.notified();
            if self.0.lock().reader_is_gone {
                return;
            }
            news.await;
        }
    }

    /// Nothing more is said but this. `cut_off`: what is unread is freed, and not said either.
    pub(super) fn end(&self, last_word: Option<Status>, cut_off: bool) {
        let mut state = self.0.lock();
        if cut_off {
            self.0.clear(&mut state);
        }
        state.end = Some(last_word);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.end.get_or_insert(None);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Stream for Frames {
    type Item = Result<WatchFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.lock();
        // The transport wants more, so it has encoded the last one, which counts elsewhere from then on.
        self.0.budget.give_back(std::mem::take(&mut state.at_transport));
        if let Some((frame, bytes)) = state.frames.pop_front() {
            state.at_transport = bytes;
            drop(state);
            self.0.room.notify_one();
            return Poll::Ready(Some(Ok(frame)));
        }
        match &mut state.end {
            Some(last_word) => Poll::Ready(last_word.take().map(Err)),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.reader_is_gone = true;
        self.0.clear(&mut state);
        drop(state);
        self.0.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    fn budget(bytes_max: u64) -> Arc<WatchBudget> {
        Arc::new(WatchBudget::new(bytes_max, Arc::new(Metrics::new())))
    }

    fn used(budget: &WatchBudget) -> usize {
        assert_eq!(budget.metrics.watch_bytes.get() as usize, budget.used.load(Ordering::Relaxed));
        budget.used.load(Ordering::Relaxed)
    }

    fn frame() -> WatchFrame {
        let lock =
            holdfast_proto::v1::LockSummary { metadata: vec![7; 1_000], ..Default::default() };
        WatchFrame { locks: vec![lock], ..Default::default() }
    }

    #[tokio::test]
    async fn what_is_unread_counts_until_it_is_read_and_is_freed_when_the_watch_is_cut_off() {
        let budget = budget(1 << 20);
        let (sender, mut frames) = queue(Arc::clone(&budget));
        for _ in 0..3 {
            sender.try_send(frame()).unwrap();
        }
        assert!(used(&budget) >= 3_000, "{}", used(&budget));
        assert!(frames.next().await.unwrap().is_ok());
        let before = used(&budget);
        sender.end(Some(Status::aborted("cut off")), true);
        assert_eq!(used(&budget), 0, "of {before}, though the reader is still there");
        assert!(frames.next().await.unwrap().is_err(), "the reader is told why");
        assert!(frames.next().await.is_none());
    }

    #[tokio::test]
    async fn a_reader_that_keeps_up_has_room_for_a_frame_though_others_used_up_the_budget() {
        let budget = budget(3_000);
        let (slow, _unread) = queue(Arc::clone(&budget));
        slow.try_send(frame()).unwrap();
        slow.try_send(frame()).unwrap();
        assert!(matches!(slow.try_send(frame()), Err(NoRoom::BudgetIsUsedUp(_))));
        let (sender, mut frames) = queue(Arc::clone(&budget));
        for _ in 0..5 {
            sender.try_send(frame()).unwrap();
            assert!(matches!(sender.try_send(frame()), Err(NoRoom::BudgetIsUsedUp(_))));
            assert!(frames.next().await.unwrap().is_ok());
        }
        drop((frames, sender));
        drop(_unread);
        assert!(matches!(slow.try_send(frame()), Err(NoRoom::Unheard)));
        assert_eq!(used(&budget), 0);
    }
}
