//! W3: clients take and give back locks while a node is killed. How long does no client succeed?
//!
//! What fails is tried again. Every attempt is for another name: one that was given up may have been granted after all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{Locks, Outcome, PREFIX};

/// A client that is not answered asks again; some services would keep it waiting for many seconds.
const ATTEMPT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

/// Clients that go on whatever happens, until this is stopped.
#[derive(Debug)]
pub struct Steady {
    successes: Arc<Successes>,
    stopped: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

/// When any client succeeded last, and the longest time between two successes. In microseconds since the beginning.
#[derive(Debug)]
struct Successes {
    began: Instant,
    count: AtomicU64,
    last_us: AtomicU64,
    longest_us: AtomicU64,
}

impl Successes {
    fn note(&self) {
        let now_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let last_us = self.last_us.fetch_max(now_us, Ordering::Relaxed);
        self.longest_us.fetch_max(now_us.saturating_sub(last_us), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Steady {
    pub fn start<L: Locks>(clients: &[Arc<L>]) -> Steady {
        let successes = Arc::new(Successes {
            began: Instant::now(),
            count: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
            longest_us: AtomicU64::new(0),
        });
        let stopped = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (number, client) in clients.iter().cloned().enumerate() {
            let (successes, stopped) = (Arc::clone(&successes), Arc::clone(&stopped));
            tasks.spawn(async move {
                for attempt in 0_u64.. {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("{PREFIX}steady/{number}/{}", attempt % 1_000);
                    match timeout(ATTEMPT, once(&*client, &name)).await {
                        Ok(Ok(())) => successes.note(),
                        Ok(Err(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
                    }
                }
            });
        }
        Steady { successes, stopped, tasks }
    }

    /// Waits for so many more successes. False: they did not come in time.
    pub async fn succeed(&self, count: u64, patience: Duration) -> bool {
        let goal = self.successes.count.load(Ordering::Relaxed) + count;
        let deadline = Instant::now() + patience;
        while self.successes.count.load(Ordering::Relaxed) < goal {
            if Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(PAUSE).await;
        }
        true
    }

    /// Only what comes after this counts.
    pub fn forget_silences(&self) {
        self.successes.longest_us.store(0, Ordering::Relaxed);
    }

    /// The longest time between two successes of any client.
    pub fn longest_silence(&self) -> Duration {
        Duration::from_micros(self.successes.longest_us.load(Ordering::Relaxed))
    }

    /// Returns when the clients are free.
    pub async fn stop(mut self) -> Outcome {
        self.stopped.store(true, Ordering::Relaxed);
        while let Some(task) = self.tasks.join_next().await {
            task?;
        }
        Ok(())
    }
}

async fn once<L: Locks>(client: &L, name: &str) -> Outcome {
    let held = client.acquire(name).await?;
    client.release(held).await
}
