//! W1: each client takes and gives back a lock of its own, again and again. No client waits for another.

use std::sync::Arc;

use super::{Running, Timed, lock_own};
use crate::{Length, Locks, Outcome, Servers, Turn};

/// Counts operations.
pub async fn uncontended<L: Locks>(
    clients: &[Arc<L>],
    length: Length,
    servers: &Servers,
) -> Outcome<Turn> {
    let timed = Timed::beginning_now(length)?;
    let mut running = Running::new(timed.window);
    running.all_do(clients, &timed, lock_own);
    let (_, cores) = running.end(servers).await?;
    timed.turn(cores)
}
