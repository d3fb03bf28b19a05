//! W2: all clients want the same lock, all the time, and give it back at once.

use std::sync::Arc;

use super::{Running, Timed};
use crate::{Length, Locks, Outcome, PREFIX, Servers, Turn, Waits};

/// Counts hand-overs, which are acquires; and tells how evenly the clients were served.
pub async fn hot<L: Locks>(clients: &[Arc<L>], length: Length, servers: &Servers) -> Outcome<Turn> {
    let timed = Timed::beginning_now(length)?;
    let mut running = Running::new(timed.window);
    running.all_do(clients, &timed, lock_hot);
    let (means_us, cores) = running.end(servers).await?;
    let mut turn = timed.turn(cores)?;
    turn.per_second = timed.acquires.count() as f64 / timed.window.seconds();
    turn.waits = Some(Waits::of(&means_us));
    Ok(turn)
}

/// Returns the mean of what it has waited; none if it was never served.
async fn lock_hot<L: Locks>(client: Arc<L>, number: usize, timed: Timed) -> Outcome<Option<f64>> {
    let name = format!("{PREFIX}hot");
    let mut waits_us = Vec::new();
    while timed.window.is_open() {
        let waited = timed.lock_once(&*client, number, &name).await?;
        waits_us.extend(waited.map(|waited| waited.as_secs_f64() * 1e6));
    }
    let served = waits_us.len() as f64;
    Ok((served > 0.0).then(|| waits_us.iter().sum::<f64>() / served))
}
