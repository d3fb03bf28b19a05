//! No more than three at a time: a licence, a pool of machines, an interface that bears only so much.
//!
//! All clients state the same number of permits. A permit is no fence: several holders are allowed, so there
//! is no order between them that a store could check.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example semaphore
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_client::Client;

type Failure = Box<dyn Error + Send + Sync>;

const PERMITS: u32 = 3;
const JOBS: usize = 12;

#[derive(Default)]
struct Gpus {
    busy: AtomicUsize,
    busiest: AtomicUsize,
}

async fn job(client: Client, gpus: Arc<Gpus>) -> Result<(), Failure> {
    let permit =
        client.lock("gpu").permits(PERMITS).wait(Duration::from_secs(30)).acquire().await?;
    let busy = gpus.busy.fetch_add(1, Ordering::SeqCst) + 1;
    gpus.busiest.fetch_max(busy, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(10)).await;
    gpus.busy.fetch_sub(1, Ordering::SeqCst);
    permit.release().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let client = Client::connect(&endpoints).await?;
    let gpus = Arc::new(Gpus::default());
    let mut jobs = tokio::task::JoinSet::new();
    for _ in 0..JOBS {
        jobs.spawn(job(client.clone(), Arc::clone(&gpus)));
    }
    while let Some(job) = jobs.join_next().await {
        job??;
    }
    println!("{JOBS} jobs, at most {} at a time", gpus.busiest.load(Ordering::SeqCst));
    client.close().await?;
    Ok(())
}
