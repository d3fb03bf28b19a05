//! Takes a lock and gives it back. Start a cluster first: `cargo run --release -- dev`
//!
//! ```sh
//! cargo run -p holdfast-client --example first_lock
//! ```

#![allow(clippy::print_stdout)]

use std::time::Duration;

use holdfast_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect("127.0.0.1:7420").await?;
    let guard = client.lock("wallet:42").wait(Duration::from_secs(10)).acquire().await?;
    println!("held under token {}, full form {}", guard.token()?, guard.fence()?);
    println!("released: {:?}", guard.release().await?);
    client.close().await?;
    Ok(())
}
