//! W6: who holds a lock? Every answer is as of a moment after the question.

use std::sync::Arc;
use std::time::Instant;

use super::{Running, Timed, lock_own, own_name};
use crate::{Length, Locks, Notes, Outcome, Servers, Turn};

/// Counts reads, of locks that are held. None: the service has no such answer.
pub async fn reads<L: Locks>(
    readers: &[Arc<L>],
    length: Length,
    servers: &Servers,
) -> Outcome<Option<Turn>> {
    reads_beside::<L>(readers, &[], length, servers).await
}

/// The same, while others take and give back locks of their own. Only reads are counted and timed.
pub async fn reads_beside<L: Locks>(
    readers: &[Arc<L>],
    writers: &[Arc<L>],
    length: Length,
    servers: &Servers,
) -> Outcome<Option<Turn>> {
    let Some(first) = readers.first() else { return Ok(None) };
    let name = own_name(writers.len());
    let held = first.acquire(&name).await?;
    if first.read(&name).await?.is_none() {
        first.release(held).await?;
        return Ok(None);
    }
    let timed = Timed::beginning_now(length)?;
    let read = Arc::new(Notes::new(timed.window)?);
    let mut running = Running::new(timed.window);
    running.all_do(readers, &timed, |client, number, timed| {
        let (name, notes) = (name.clone(), Arc::clone(&read));
        async move {
            while timed.window.is_open() {
                let asked = Instant::now();
                client.read(&name).await?;
                notes.note(number, asked, Instant::now());
            }
            Ok(())
        }
    });
    running.all_do(writers, &timed, lock_own);
    let (_, cores) = running.end(servers).await?;
    first.release(held).await?;
    let per_second = read.count() as f64 / timed.window.seconds();
    let latency = read.latency()?;
    Ok(Some(Turn { per_second, latency, release: None, waits: None, cores }))
}
