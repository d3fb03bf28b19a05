//! The last pieces of something that many want to buy, while others count the stock.
//!
//! Who counts shares the lock with all others who count; who sells is alone. A shop first looks, sharing the lock,
//! and only if there is something left does it ask to be alone: the guard is converted, without giving
//! the lock up in between. Of two shops that both look and both want to buy, one is told that it would
//! wait for the other for ever; it releases its locks and begins again.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example inventory
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdfast_client::{Client, ConvertError};

type Failure = Box<dyn Error + Send + Sync>;

const STOCK: u32 = 5;
const BUYERS: usize = 12;
const WAIT: Duration = Duration::from_secs(30);

/// Whether there was one left to buy.
async fn buy(client: Client, stock: Arc<AtomicU32>) -> Result<bool, Failure> {
    loop {
        let mut guard = client.lock("stock/lamp").shared().wait(WAIT).acquire().await?;
        if stock.load(Ordering::SeqCst) == 0 {
            guard.release().await?;
            return Ok(false);
        }
        match guard.convert_to_exclusive(WAIT).await {
            Ok(()) => {}
            // Another reader waits for us to go, as we would for it.
            Err(ConvertError::Deadlock(_)) => {
                guard.release().await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        // Held all the time: what was seen is still so, unless another was converted before.
        let left = stock.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        // A real store would be given the token with the write.
        guard.token()?;
        if left > 0 {
            stock.store(left - 1, Ordering::SeqCst);
        }
        guard.release().await?;
        return Ok(left > 0);
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let stock = Arc::new(AtomicU32::new(STOCK));
    let mut shops = tokio::task::JoinSet::new();
    let client = Client::connect(&endpoints).await?;
    for _ in 0..BUYERS {
        shops.spawn(buy(client.clone(), Arc::clone(&stock)));
    }
    let mut sold = 0;
    while let Some(shop) = shops.join_next().await {
        sold += u32::from(shop??);
    }
    println!("{sold} of {STOCK} sold to {BUYERS} buyers, {} left", stock.load(Ordering::SeqCst));
    client.close().await?;
    Ok(())
}
