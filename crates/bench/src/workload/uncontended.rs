//! W1: each client takes and gives back a lock of its own, again and again. Nobody waits for anybody.

use std::sync::Arc;

use super::{Running, Timed, own_name};
use crate::{Length, Locks, Outcome, Servers, Turn};

/// Counts operations.
pub async fn uncontended<L: Locks>(
    clients: &[Arc<L>],
    length: Length,
    servers: &Servers,
) -> Outcome<Turn> {
    let timed = Timed::beginning_now(length)?;
    let mut running = Running::new(timed.window);
    for (number, client) in clients.iter().cloned().enumerate() {
        let timed = timed.clone();
        running.client(async move {
            let name = own_name(number);
            while timed.window.is_open() {
                timed.lock_once(&*client, number, &name).await?;
            }
            Ok(())
        });
    }
    let (_, cores) = running.end(servers).await?;
    timed.turn(cores)
}
