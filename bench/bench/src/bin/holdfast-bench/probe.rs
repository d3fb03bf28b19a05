//! Another client: a client that takes and gives back a lock of its own all the time, and notes how long it
//! waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_bench::Outcome;
use holdfast_client::Client;
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(crate) struct Probe {
    seen: Arc<Mutex<Vec<Duration>>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<u64>,
}

impl Probe {
    pub(crate) async fn start(endpoints: &str) -> Outcome<Probe> {
        let client = Client::connect(endpoints).await?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (notes, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let mut failures = 0;
            while !stopped.load(Ordering::Relaxed) {
                let asked = Instant::now();
                match client.lock("probe").acquire().await {
                    Ok(guard) => {
                        let waited = asked.elapsed();
                        notes.lock().unwrap_or_else(PoisonError::into_inner).push(waited);
                        failures += u64::from(guard.release().await.is_err());
                    }
                    Err(_) => failures += 1,
                }
            }
            failures
        });
        Ok(Probe { seen, stop, task })
    }

    /// What was seen since the last time, in words.
    pub(crate) fn take(&self) -> String {
        let mut seen =
            std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        seen.sort();
        let Some(longest) = seen.last() else { return "nothing was answered".to_owned() };
        let at = |per_mille: usize| seen[(seen.len() - 1) * per_mille / 1_000];
        format!(
            "{} acquires of another client: p50 {:?}, p99 {:?}, p99.9 {:?}, longest {longest:?}",
            seen.len(),
            at(500),
            at(990),
            at(999)
        )
    }

    /// Returns how many of its operations failed.
    pub(crate) async fn stop(self) -> Outcome<u64> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}
