//! Work that is only wasted when it is done twice: a cache entry has run out, and many notice it at the same
//! moment. One computes it, the others wait and find it done.
//!
//! That is what the efficiency tier is for. If it is down, the work is done without a lock: twice is better than
//! not at all, and the guard says so. Where twice is damage, leave `.tier(..)` out.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example cache_refresh
//! HOLDFAST_EFFICIENCY=redis://127.0.0.1:6379 cargo run -p holdfast-client --example cache_refresh
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_client::{Client, Efficiency, Guarantee, Tier, WhenDown};

const WORKERS: u64 = 8;

#[derive(Default)]
struct Cache {
    page: Option<String>,
    refreshes: u64,
}

async fn page(
    client: Client,
    cache: Arc<Mutex<Cache>>,
) -> Result<String, Box<dyn Error + Send + Sync>> {
    let guard = client
        .lock("cache/front-page")
        .tier(Tier::Efficiency)
        .wait(Duration::from_secs(30))
        .acquire()
        .await?;
    // The previous holder may have done it.
    if let Some(page) = read(&cache) {
        return Ok(page);
    }
    if guard.guarantee().is_none() {
        println!("the efficiency tier is down: working without a lock");
    }
    let page = guard.run_while_held(compute()).await?;
    let mut cache = cache.lock().map_err(|_| "the cache is broken")?;
    cache.page = Some(page.clone());
    cache.refreshes += 1;
    println!("refreshed under a lock served by: {}", guard.served_by());
    Ok(page)
}

async fn compute() -> String {
    tokio::time::sleep(Duration::from_millis(50)).await;
    "a page that is expensive to make".to_owned()
}

fn read(cache: &Mutex<Cache>) -> Option<String> {
    cache.lock().ok()?.page.clone()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let backend = match std::env::var("HOLDFAST_EFFICIENCY") {
        Ok(urls) => Efficiency::redis(&urls),
        Err(_) => Efficiency::Embedded,
    };
    let client = Client::builder()
        .efficiency(backend)
        .when_down(WhenDown::GoWithout)
        // These are damaged by being done twice, whatever tier a caller asks for.
        .require_under("wallet/", Guarantee::Linearizable)
        .connect(&endpoints)
        .await?;
    let cache = Arc::new(Mutex::new(Cache::default()));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(page(client.clone(), Arc::clone(&cache)));
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let refreshes = cache.lock().map_err(|_| "the cache is broken")?.refreshes;
    println!("{WORKERS} workers, refreshes: {refreshes}");
    let refused = client.lock("wallet/42").tier(Tier::Efficiency).acquire().await.err();
    println!(
        "a wallet in a hurry: {}",
        refused.map_or("held".to_owned(), |error| error.to_string())
    );
    client.close().await?;
    Ok(())
}
