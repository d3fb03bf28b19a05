//! What the library does can be handed to a task of its own.

use std::time::Duration;

use holdfast_client::unary::Unary;
use holdfast_client::{Client, ConnectError};

/// It is enough that this compiles.
fn can_be_spawned<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn calls_and_watches_can_be_spawned() {
    let calls = Unary::new("127.0.0.1:1").unwrap().timeout(Duration::from_millis(1));
    let mut watch = calls.watch("");
    assert!(can_be_spawned(calls.status("a")).await.is_err());
    assert!(can_be_spawned(calls.list("")).await.is_err());
    assert!(can_be_spawned(calls.cluster_status()).await.is_err());
    assert!(can_be_spawned(calls.freezes()).await.is_err());
    assert!(can_be_spawned(calls.promote_node(1)).await.is_err());
    assert!(can_be_spawned(watch.next()).await.is_err());
    let connected = can_be_spawned(Client::connect("127.0.0.1:1")).await;
    assert!(matches!(connected, Err(ConnectError::Unavailable(_))));
}
