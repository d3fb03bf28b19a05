//! How many clusters run at the same time. Most tests wait for most of their time, so two of them finish sooner
//! side by side; more would measure each other.

use tokio::sync::{Semaphore, SemaphorePermit};

const PLACES: u32 = 2;

static STAGE: Semaphore = Semaphore::const_new(PLACES as usize);

/// Others have to wait for it while it is kept.
pub(crate) type Place = SemaphorePermit<'static>;

/// Waits for a place. They are given in the order in which they are asked for.
pub(crate) async fn stage() -> Place {
    STAGE.acquire().await.unwrap()
}

/// Waits until nobody else is there, and keeps others away.
pub(crate) async fn whole_stage() -> Place {
    STAGE.acquire_many(PLACES).await.unwrap()
}
