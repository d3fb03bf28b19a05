//! The workloads, one file each. Every one takes clients that are connected already,
//! and runs for one turn.

mod failover;
mod held;
mod hot;
mod mixed;
mod open;
mod reads;
mod sessions;
mod uncontended;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::cpu::{CpuTimes, Servers};
use crate::notes::Notes;
use crate::turn::{Cores, Turn};
use crate::window::{Length, Window};
use crate::{Locks, Outcome, PREFIX};

pub use failover::Steady;
pub use held::hold;
pub use hot::hot;
pub use mixed::mixed;
pub use open::{Offered, open_loop};
pub use reads::{reads, reads_beside};
pub use sessions::{Heartbeats, Sessions};
pub use uncontended::uncontended;

/// A turn that goes on: one task for each client.
struct Running<T> {
    window: Window,
    tasks: JoinSet<Outcome<T>>,
}

impl<T: Send + 'static> Running<T> {
    fn new(window: Window) -> Running<T> {
        Running { window, tasks: JoinSet::new() }
    }

    /// Each of them does this, in a task of its own. Told its number, and what it is timed with.
    fn all_do<L, W>(
        &mut self,
        clients: &[Arc<L>],
        timed: &Timed,
        work: impl Fn(Arc<L>, usize, Timed) -> W,
    ) where
        W: Future<Output = Outcome<T>> + Send + 'static,
    {
        for (number, client) in clients.iter().enumerate() {
            self.tasks.spawn(work(Arc::clone(client), number, timed.clone()));
        }
    }

    /// Waits for the end, and for what each client returns, in no particular order.
    async fn end(mut self, servers: &Servers) -> Outcome<(Vec<T>, Cores)> {
        let window = self.window;
        let cpu = async {
            tokio::time::sleep_until(window.from.into()).await;
            let (began, before) = (Instant::now(), CpuTimes::now(servers));
            tokio::time::sleep_until(window.end.into()).await;
            let after = CpuTimes::now(servers);
            Cores::between(before, after, began.elapsed().as_secs_f64())
        };
        let clients = async {
            let mut returned = Vec::with_capacity(self.tasks.len());
            while let Some(task) = self.tasks.join_next().await {
                returned.push(task??);
            }
            Outcome::Ok(returned)
        };
        let (cores, returned) = tokio::join!(cpu, clients);
        Ok((returned?, cores))
    }
}

/// What is timed in a turn.
#[derive(Debug, Clone)]
struct Timed {
    window: Window,
    acquires: Arc<Notes>,
    releases: Arc<Notes>,
}

impl Timed {
    fn beginning_now(length: Length) -> Outcome<Timed> {
        let window = Window::beginning_now(length);
        let notes = || Notes::new(window).map(Arc::new);
        Ok(Timed { window, acquires: notes()?, releases: notes()? })
    }

    /// Takes the lock and gives it back. Returns how long the lock was waited for, if that counts.
    async fn lock_once<L: Locks>(
        &self,
        client: &L,
        number: usize,
        name: &str,
    ) -> Outcome<Option<Duration>> {
        self.lock_since(Instant::now(), client, number, name).await
    }

    /// As if it had been asked for then.
    async fn lock_since<L: Locks>(
        &self,
        asked: Instant,
        client: &L,
        number: usize,
        name: &str,
    ) -> Outcome<Option<Duration>> {
        let held = client.acquire(name).await?;
        let granted = Instant::now();
        client.release(held).await?;
        self.acquires.note(number, asked, granted);
        self.releases.note(number, granted, Instant::now());
        Ok(self.window.counts(granted).then(|| granted - asked))
    }

    /// Acquires and releases are counted.
    fn turn(&self, cores: Cores) -> Outcome<Turn> {
        let operations = self.acquires.count() + self.releases.count();
        Ok(Turn {
            per_second: operations as f64 / self.window.seconds(),
            latency: self.acquires.latency()?,
            release: Some(self.releases.latency()?),
            waits: None,
            cores,
        })
    }
}

/// What a client of W1 does: it takes and gives back a lock of its own, until the turn ends.
async fn lock_own<L: Locks>(client: Arc<L>, number: usize, timed: Timed) -> Outcome {
    let name = own_name(number);
    while timed.window.is_open() {
        timed.lock_once(&*client, number, &name).await?;
    }
    Ok(())
}

/// A name that only this client uses.
fn own_name(number: usize) -> String {
    format!("{PREFIX}own/{number:06}")
}
