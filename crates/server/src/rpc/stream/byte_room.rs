//! Room in a queue of frames, in bytes. The number of frames alone bounds no memory: one can have 4 MiB, an answer more.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connections::{Connection, RelayedBytes};

/// What may wait in one queue. A frame that is larger waits there alone.
const QUEUED_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, Debug)]
pub(super) struct ByteRoom {
    left: Arc<Semaphore>,
    /// The client's, if what waits is meant for a client.
    connection: Option<Arc<Connection>>,
}

/// What a frame takes in its queue, until it is taken out and this is dropped.
#[derive(Debug)]
pub(super) struct FrameRoom {
    _room: Option<OwnedSemaphorePermit>,
    _counted: Option<RelayedBytes>,
}

impl ByteRoom {
    pub(super) fn to_leader() -> ByteRoom {
        ByteRoom::to_client(None)
    }

    /// What waits counts for the connection.
    pub(super) fn to_client(connection: Option<Arc<Connection>>) -> ByteRoom {
        ByteRoom { left: Arc::new(Semaphore::new(QUEUED_BYTES_MAX)), connection }
    }

    /// Waits until a frame of so many bytes may enter the queue.
    pub(super) async fn take(&self, bytes: usize) -> FrameRoom {
        let counted = self.connection.as_ref().map(|connection| connection.hold_relayed(bytes));
        let wanted = u32::try_from(bytes.min(QUEUED_BYTES_MAX)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let room = Arc::clone(&self.left).acquire_many_owned(wanted).await.ok();
        FrameRoom { _room: room, _counted: counted }
    }

    /// Whether another frame may enter the queue at once, however large it is.
    pub(super) fn has_some(&self) -> bool {
        self.left.available_permits() > 0
    }

    /// For a frame that enters at once. If it is larger than what is left, it takes all of that.
    pub(super) fn take_some(&self, bytes: usize) -> FrameRoom {
        let wanted = u32::try_from(bytes.min(self.left.available_permits())).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.left).try_acquire_many_owned(wanted).ok();
        FrameRoom { _room: room, _counted: None }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::pin;

    use super::*;
    use crate::connections::{Connections, Descriptors, PortLimits};

    async fn waits(taking: impl Future<Output = FrameRoom>) -> bool {
        let mut taking = pin!(taking);
        std::future::poll_fn(|cx| std::task::Poll::Ready(taking.as_mut().poll(cx).is_pending()))
            .await
    }

    #[tokio::test]
    async fn frames_wait_for_room_in_bytes_and_a_larger_one_waits_to_be_alone() {
        let room = ByteRoom::to_leader();
        let small = room.take(QUEUED_BYTES_MAX / 2).await;
        let other = room.take(QUEUED_BYTES_MAX / 2).await;
        assert!(!room.has_some() && waits(room.take(1)).await);
        drop(other);
        assert!(waits(room.take(4 * QUEUED_BYTES_MAX)).await, "it is not alone");
        drop(small);
        let large = room.take(4 * QUEUED_BYTES_MAX).await;
        assert!(waits(room.take(1)).await);
        drop(large);
        assert!(!waits(room.take(1)).await);
    }

    #[tokio::test]
    async fn a_frame_that_may_not_wait_takes_what_is_left() {
        let room = ByteRoom::to_leader();
        let first = room.take_some(QUEUED_BYTES_MAX - 1);
        assert!(room.has_some());
        let second = room.take_some(4 * QUEUED_BYTES_MAX);
        assert!(!room.has_some());
        drop((first, second));
        assert_eq!(room.left.available_permits(), QUEUED_BYTES_MAX);
    }

    #[tokio::test]
    async fn what_waits_for_a_client_counts_among_what_is_not_read() {
        let port = Connections::new(PortLimits::of_http(), Descriptors::without_limit());
        let open = port.admit(IpAddr::V4(Ipv4Addr::LOCALHOST)).await.unwrap();
        let room = ByteRoom::to_client(Some(Arc::clone(open.connection())));
        let frame = room.take(1_000).await;
        assert_eq!(port.used().unwritten, 1_000);
        drop(frame);
        assert_eq!(port.used().unwritten, 0);
        let _late = room.take(1_000).await;
        drop(open);
        assert_eq!(port.used().unwritten, 0, "it went with its connection");
    }
}
