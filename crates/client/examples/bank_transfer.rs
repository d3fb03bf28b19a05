//! Money goes from one account to another, in all directions at once.
//!
//! Two locks taken one after the other need an order that all programs keep, or they deadlock. `lock_all` takes
//! both at one moment, or waits in both queues and holds neither: no order has to be agreed on.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example bank_transfer
//! ```

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_client::Client;

type Failure = Box<dyn Error + Send + Sync>;

const ACCOUNTS: [&str; 4] = ["ann", "ben", "cem", "dua"];
const WORKERS: usize = 6;
const TRANSFERS: usize = 10;

/// The balance of each account, and the highest token that it was written with.
type Bank = Arc<Mutex<BTreeMap<&'static str, (i64, u64)>>>;

async fn transfer(
    client: &Client,
    bank: &Bank,
    from: &'static str,
    to: &'static str,
    amount: i64,
) -> Result<(), Failure> {
    let names = [from, to].map(|account| format!("account/{account}"));
    let both = client.lock_all(&names).wait(Duration::from_secs(30)).acquire().await?;
    let before = balances(bank, [from, to])?;
    // Time for another transfer to come between the reading and the writing, if it could.
    tokio::time::sleep(Duration::from_millis(2)).await;
    // One token for each account, in the order in which they were asked for.
    let tokens = both.tokens()?;
    let after = [before[0] - amount, before[1] + amount];
    write(bank, [from, to].into_iter().zip(after).zip(tokens))?;
    both.release().await?;
    Ok(())
}

fn write(
    bank: &Bank,
    entries: impl Iterator<Item = ((&'static str, i64), u64)>,
) -> Result<(), Failure> {
    let mut bank = bank.lock().map_err(|_| "the bank is broken")?;
    for ((account, balance), token) in entries {
        let entry = bank.entry(account).or_default();
        if token < entry.1 {
            return Err(format!("{account} was written under a newer token").into());
        }
        *entry = (balance, token);
    }
    Ok(())
}

fn balances(bank: &Bank, accounts: [&'static str; 2]) -> Result<[i64; 2], Failure> {
    let bank = bank.lock().map_err(|_| "the bank is broken")?;
    Ok(accounts.map(|account| bank.get(account).map_or(0, |entry| entry.0)))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let client = Client::connect(&endpoints).await?;
    let bank: Bank = Arc::new(Mutex::new(ACCOUNTS.map(|account| (account, (100, 0))).into()));
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        let (client, bank) = (client.clone(), Arc::clone(&bank));
        workers.spawn(async move {
            for number in 0..TRANSFERS {
                let from = (worker + number) % ACCOUNTS.len();
                // Never to itself.
                let to = (from + 1 + number % (ACCOUNTS.len() - 1)) % ACCOUNTS.len();
                transfer(&client, &bank, ACCOUNTS[from], ACCOUNTS[to], 7).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let total: i64 =
        bank.lock().map_err(|_| "the bank is broken")?.values().map(|entry| entry.0).sum();
    println!("{} transfers, and there are still {total} in the bank", WORKERS * TRANSFERS);
    client.close().await?;
    Ok(())
}
