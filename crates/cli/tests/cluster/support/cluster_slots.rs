//! How many clusters run at the same time. Most tests wait for most of their time, so three of them finish sooner side by
//! side; more would measure each other.

use tokio::sync::{Semaphore, SemaphorePermit};

const SLOT_COUNT: u32 = 3;

static SLOTS: Semaphore = Semaphore::const_new(SLOT_COUNT as usize);

/// Others have to wait for it while it is kept.
pub(crate) type ClusterSlot = SemaphorePermit<'static>;

/// Waits for a slot. They are given in the order in which they are asked for.
pub(crate) async fn cluster_slot() -> ClusterSlot {
    SLOTS.acquire().await.unwrap()
}

/// Waits until no other client is there, and keeps others away.
pub(crate) async fn all_cluster_slots() -> ClusterSlot {
    SLOTS.acquire_many(SLOT_COUNT).await.unwrap()
}
