//! The shortest program that takes a lock: the one in the README.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example quick_start
//! ```

#![allow(clippy::print_stdout)]

use holdfast_client::Client;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let client = Client::connect(&endpoints).await?;
    let guard = client.lock("wallet:42").wait(Duration::from_secs(10)).acquire().await?;
    println!("send this fence with each write: {}", guard.fence()?);
    guard.release().await?;
    Ok(())
}
