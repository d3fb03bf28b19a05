//! A job that has to run once in every interval, on one of several machines, whichever is up.
//!
//! Every machine campaigns; who is elected runs the job for as long as it leads. When it dies, its session
//! ends and the next candidate goes on. `run_while_held` drops the job in the middle if leadership is lost,
//! and the epoch that is kept with each run shows who did it.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example cron_leader
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_client::Client;

type Failure = Box<dyn Error + Send + Sync>;

const INTERVAL: Duration = Duration::from_millis(50);
const RUNS_BEFORE_IT_DIES: usize = 3;

/// What was done: the number of the run, the epoch, the machine.
type Journal = Arc<Mutex<Vec<(usize, u64, usize)>>>;

async fn machine(number: usize, endpoints: String, journal: Journal) -> Result<(), Failure> {
    let client = Client::connect(&endpoints).await?;
    let leadership = client.election("cron/report").campaign(format!("machine {number}")).await?;
    let epoch = leadership.epoch()?;
    let jobs = async {
        for _ in 0..RUNS_BEFORE_IT_DIES {
            tokio::time::sleep(INTERVAL).await;
            if let Ok(mut journal) = journal.lock() {
                let run = journal.len() + 1;
                journal.push((run, epoch, number));
            }
        }
    };
    leadership.run_while_held(jobs).await?;
    // Here the machine dies. It resigns from nothing; that its session ends is enough.
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let journal = Journal::default();
    let mut machines = tokio::task::JoinSet::new();
    for number in 1..=3 {
        machines.spawn(machine(number, endpoints.clone(), Arc::clone(&journal)));
    }
    while let Some(machine) = machines.join_next().await {
        machine??;
    }
    let journal = journal.lock().map_err(|_| "the journal is broken")?;
    for (run, epoch, number) in journal.iter() {
        println!("run {run} in epoch {epoch} by machine {number}");
    }
    let in_order = journal.windows(2).all(|pair| pair[0].1 <= pair[1].1);
    println!("{} runs, one leader after the other: {in_order}", journal.len());
    Ok(())
}
