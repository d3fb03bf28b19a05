//! The frames of one watch, which are made when its reader asks for them.
//!
//! The ring has the events, and a watch keeps none of them. The transport asks for a frame when the connection may take
//! more. So a reader that does not read costs neither memory nor time, and takes nothing from those that do. It is cut
//! off when the ring forgets what it needs next.
//!
//! Frames of the snapshot are made by the watch's task, one at a time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use holdfast_proto::v1::WatchFrame;
use tokio::sync::Notify;
use tokio_stream::Stream;
use tonic::Status;

use super::pending_events::PendingEvents;
use crate::events::Compacted;

/// The reader is gone.
#[derive(Debug)]
pub(super) struct ReaderGone;

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// The reader took something, or went.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Of the snapshot, or a position.
    next: Option<WatchFrame>,
    /// Once the snapshot is extent.
    news: Option<PendingEvents>,
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

pub(super) fn queue() -> (FrameSender, Frames) {
    let queue = Arc::new(Queue::default());
    (FrameSender(Arc::clone(&queue)), Frames(queue))
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader is woken if the change gives it something.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> (R, bool)) -> R {
        let mut state = self.lock();
        let (result, wakes) = change(&mut state);
        let reader = state.reader.take_if(|_| wakes);
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        result
    }
}

impl FrameSender {
    /// Puts a frame where the last one was. Await [`FrameSender::room`] before.
    pub(super) fn send(&self, frame: WatchFrame) -> Result<(), ReaderGone> {
        self.0.change(|state| {
            if state.reader_is_gone {
                return (Err(ReaderGone), false);
            }
            state.next = Some(frame);
            (Ok(()), true)
        })
    }

    /// Returns when the reader has taken the last frame, or is gone.
    pub(super) async fn room(&self) {
        self.when(|state| state.next.is_none() || state.reader_is_gone).await;
    }

    /// Returns when the reader is gone.
    pub(super) async fn closed(&self) {
        self.when(|state| state.reader_is_gone).await;
    }

    async fn when(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let changed = self.0.room.notified();
            if is_so(&self.0.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// From here on the reader gets events.
    pub(super) fn follow(&self, news: PendingEvents) {
        self.0.change(|state| (state.news = Some(news), true));
    }

    /// Something was recorded. Fails if the reader has not taken in time what came before.
    pub(super) fn check_for_events(&self) -> Result<(), Compacted> {
        self.0.change(|state| match state.news.as_mut().map(PendingEvents::look) {
            Some(Ok(has_news)) => (Ok(()), has_news),
            Some(Err(compacted)) => (Err(compacted), false),
            None => (Ok(()), false),
        })
    }

    /// Tells the reader up to where there are no events, unless it was told of some since the last time, or has not taken
    /// the last frame. That frame may be the end of the snapshot.
    pub(super) fn send_position(&self) {
        self.0.change(|state| {
            if state.next.is_some() {
                return ((), false);
            }
            state.next = state.news.as_mut().and_then(PendingEvents::position_after_silence);
            ((), state.next.is_some())
        });
    }

    /// Nothing more is said but this. `cut_off`: what is unread is freed, and not said either.
    pub(super) fn end(&self, termination: Option<Status>, cut_off: bool) {
        self.0.change(|state| {
            state.next = state.next.take().filter(|_| !cut_off);
            state.news = None;
            state.end.get_or_insert(termination);
            ((), true)
        });
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        self.end(None, false);
    }
}

impl Stream for Frames {
    type Item = Result<WatchFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.lock();
        if let Some(frame) = state.next.take() {
            drop(state);
            self.0.room.notify_one();
            return Poll::Ready(Some(Ok(frame)));
        }
        // If the ring has forgotten what comes next, the task finds that too, and ends the watch.
        if let Some(Ok(Some(frame))) = state.news.as_mut().map(PendingEvents::next_frame) {
            return Poll::Ready(Some(Ok(frame)));
        }
        match &mut state.end {
            Some(termination) => Poll::Ready(termination.take().map(Err)),
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
        (state.next, state.news) = (None, None);
        drop(state);
        self.0.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use holdfast_replica::GroupId;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use holdfast_core::{Event, LockName, LogIndex, LogicalTime};
    use tokio_stream::StreamExt;

    use super::super::Scope;
    use super::super::snapshot::SnapshotExtent;
    use holdfast_service::{Caller, Service};

    use super::*;
    use crate::events::{EventRing, Position};

    const EVENTS_KEPT: u64 = 100;

    struct Scene {
        ring: Arc<EventRing>,
        index: u64,
        sender: FrameSender,
        frames: Frames,
    }

    impl Scene {
        fn watching(names: Scope) -> Scene {
            let ring = Arc::new(EventRing::of_root(EVENTS_KEPT));
            ring.restart_after(0);
            let (sender, frames) = queue();
            let (extent, position) =
                (SnapshotExtent::of(GroupId::FIRST), Position::end_of(GroupId::FIRST, 0));
            let reader = (Service::default(), Caller::node(1));
            sender.follow(PendingEvents::new(Arc::clone(&ring), names, reader, extent, position));
            Scene { ring, index: 0, sender, frames }
        }

        /// Each an entry and a look of its own.
        fn record(&mut self, name: &str, events: usize) -> Result<(), Compacted> {
            for _ in 0..events {
                self.index += 1;
                let event = Event::Reopened { name: LockName::new(name).unwrap() };
                let event = (LogIndex(self.index), LogicalTime::ZERO, event);
                self.ring.record(&mut vec![event], 0, None);
                self.sender.check_for_events()?;
            }
            Ok(())
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_watch_frame_contains_all_events_up_to_the_readers_request() {
        let mut scene = Scene::watching(Scope::Under(String::new()));
        scene.record("a", 50).unwrap();
        assert_eq!(scene.frames.next().await.unwrap().unwrap().events.len(), 50);
        scene.record("a", 2).unwrap();
        assert_eq!(scene.frames.next().await.unwrap().unwrap().events.len(), 2);
    }

    #[tokio::test]
    async fn a_position_does_not_replace_the_end_of_the_snapshot() {
        let mut scene = Scene::watching(Scope::Only("a".to_owned()));
        scene.sender.send(WatchFrame { snapshot_complete: true, ..Default::default() }).unwrap();
        // The reader is slow.
        scene.sender.send_position();
        assert!(scene.frames.next().await.unwrap().unwrap().snapshot_complete);
        scene.sender.send_position();
        let position = scene.frames.next().await.unwrap().unwrap();
        assert!(!position.snapshot_complete && position.position.is_some(), "{position:?}");
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_is_left_behind_when_the_ring_forgets() {
        let mut scene = Scene::watching(Scope::Under(String::new()));
        let kept = usize::try_from(EVENTS_KEPT).unwrap();
        scene.record("a", kept).unwrap();
        assert!(scene.record("a", 2 * kept).is_err());
        scene.sender.end(Some(Status::aborted("cut off")), true);
        assert!(scene.frames.next().await.unwrap().is_err(), "the reader is told why");
        assert!(scene.frames.next().await.is_none());
    }

    #[test]
    fn events_that_are_not_of_interest_wake_no_reader_and_leave_none_behind() {
        let mut scene = Scene::watching(Scope::Only("a".to_owned()));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut scene.frames).poll_next(&mut cx).is_pending());
        let kept = usize::try_from(EVENTS_KEPT).unwrap();
        scene.record("b", 3 * kept).unwrap();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        scene.record("a", 1).unwrap();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let next = Pin::new(&mut scene.frames).poll_next(&mut cx);
        assert!(matches!(next, Poll::Ready(Some(Ok(frame))) if frame.events.len() == 1));
    }
}
