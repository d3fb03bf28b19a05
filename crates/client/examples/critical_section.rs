//! A read, a decision and a write that belong together, by several workers that know nothing of each other.
//!
//! The lock keeps them apart as long as nothing goes wrong. The token is for when something does: a worker
//! that slept through its lease and wakes up in the middle of its write is refused by the store, because
//! the store has seen a higher token. So the token travels with every write.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example critical_section
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_client::Client;

const WORKERS: u64 = 8;
const DEPOSIT: u64 = 100;

/// Stands for whatever the lock protects: it keeps the highest token that it has seen.
#[derive(Default)]
struct Store {
    highest_token: u64,
    balance: u64,
}

impl Store {
    fn write(&mut self, balance: u64, token: u64) -> Result<(), String> {
        if token < self.highest_token {
            return Err(format!("token {token} is older than {}", self.highest_token));
        }
        self.highest_token = token;
        self.balance = balance;
        Ok(())
    }
}

async fn deposit(
    client: Client,
    store: Arc<Mutex<Store>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let guard = client.lock("wallet:42").wait(Duration::from_secs(30)).acquire().await?;
    let balance = read(&store);
    // A second task that came in here now would read the same balance, and one deposit would be lost.
    tokio::time::sleep(Duration::from_millis(5)).await;
    // Asked for right before the write: if the lock may have ended there is no token, and no write.
    let token = guard.token()?;
    store.lock().map_err(|_| "the store is broken")?.write(balance + DEPOSIT, token)?;
    guard.release().await?;
    Ok(())
}

fn read(store: &Mutex<Store>) -> u64 {
    store.lock().map_or(0, |store| store.balance)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let store = Arc::new(Mutex::new(Store::default()));
    let client = Client::connect(&endpoints).await?;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(deposit(client.clone(), Arc::clone(&store)));
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    println!("{WORKERS} deposits of {DEPOSIT}: the balance is {}", read(&store));
    let late = store.lock().map_err(|_| "the store is broken")?.write(0, 1);
    println!("a write that comes late: {late:?}");
    client.close().await?;
    Ok(())
}
