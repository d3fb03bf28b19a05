//! How many descriptors framed connections take. Alone in its process, which it counts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod support;

use support::framed::FramedClient;
use support::{Cluster, eventually};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn a_node_takes_one_descriptor_for_a_framed_connection() {
    const CLIENTS: usize = 200;
    /// Of whatever else happens meanwhile.
    const SLACK: usize = 20;
    let cluster = Cluster::start(1).await;
    let before = descriptors();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = FramedClient::greet(&cluster.address(0)).await;
        client.open().await;
        clients.push(client);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.take(&format!("wallet {number}")).await;
    }
    // This process has both ends.
    let taken = descriptors() - before;
    assert!((2 * CLIENTS..2 * CLIENTS + SLACK).contains(&taken), "{taken}");
    drop(clients);
    eventually("they are given back", async || (descriptors() < before + SLACK).then_some(()))
        .await;
}
