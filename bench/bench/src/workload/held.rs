//! W4: many locks that are held all at once.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::held_name::held_name;
use crate::{Locks, Outcome};

/// Takes so many locks, divided among the clients.
pub async fn hold<L: Locks>(clients: &[Arc<L>], locks: usize) -> Outcome<Vec<L::Held>>
where
    L::Held: 'static,
{
    let mut tasks = JoinSet::new();
    let count = clients.len();
    for (first, client) in clients.iter().cloned().enumerate() {
        tasks.spawn(async move {
            let mut held = Vec::new();
            for lock in (first..locks).step_by(count) {
                held.push(client.acquire(&held_name(lock)).await?);
            }
            Outcome::Ok(held)
        });
    }
    let mut held = Vec::with_capacity(locks);
    while let Some(task) = tasks.join_next().await {
        held.extend(task??);
    }
    Ok(held)
}
