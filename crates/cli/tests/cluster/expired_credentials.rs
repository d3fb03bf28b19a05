//! A credential whose time is over ends the streams that were opened with it, and not the session.

use std::time::Duration;

use holdfast_client::{Client, Tls};

use crate::secured_audit::{AUDIT, appears};
use crate::support::{PATIENCE, eventually, json};
use crate::tls_cluster::TlsCluster;

/// So long that no heartbeat comes due while the test runs: the node ends the stream of its own accord.
const TTL: Duration = Duration::from_secs(300);

async fn short_token(secured: &TlsCluster) {
    let file = secured.path("worker");
    std::fs::remove_file(&file).unwrap();
    let file = file.to_str().unwrap();
    let create = ["access", "token", "create", "token:worker", "--expires", "4s", "--to", file];
    secured.done("admin", &create).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_token_ends_the_stream_and_a_client_with_a_new_one_keeps_its_lock() {
    let secured = TlsCluster::start(3, AUDIT).await;
    secured.user("worker", &["read,exclusive:*", "connect"]).await;
    short_token(&secured).await;
    let tls = Tls::new(secured.path("certs/ca.pem"));
    let builder = Client::builder().tls(tls).auth_file(secured.path("worker")).ttl(TTL);
    let client = builder.connect(&secured.cluster.endpoints()).await.unwrap();
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token().unwrap();

    let next = secured.path("worker.next");
    let next = next.to_str().unwrap();
    secured.done("admin", &["access", "token", "create", "token:worker", "--to", next]).await;

    // The client comes again with the same token, because its stream has ended.
    appears(&secured, &[("event", "denied"), ("reason", "credential_expired")]).await;
    let status = json(&secured.run("admin", &["status", "a", "--output", "json"]).await);
    assert_eq!(status["holder_count"], 1, "{status}");

    // All nodes deny the client by now, and it waits for a third of the TTL, or for 5 s.
    std::fs::rename(next, secured.path("worker")).unwrap();
    let shown = std::fs::read_to_string(secured.path("worker")).unwrap();
    let shown = format!("token:{}", shown.split('_').nth(1).unwrap());
    let resumed = [("event", "login"), ("credential", &*shown), ("method", "ResumeSession")];
    appears(&secured, &resumed).await;
    eventually("the guard counts", PATIENCE, || {
        std::future::ready((guard.token().ok() == Some(token)).then_some(()))
    })
    .await;
    guard.release().await.unwrap();
}
