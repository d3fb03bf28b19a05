//! A cluster is saved under load, destroyed, and restored: tokens never go back, and nothing is held by ghosts.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::{Intervention, ThawRequest};
use serde_json::Value;

use crate::membership::{bring_in, run};
use crate::support::{Cluster, Load, eventually, hold};

const TTL: Duration = Duration::from_secs(120);
/// For commands that need no cluster.
pub(crate) const NOWHERE: &str = "127.0.0.1:1";

pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What a snapshot file says about itself and about all its locks.
pub(crate) async fn inspect(file: &Path) -> Value {
    let file = file.to_str().unwrap();
    let args = ["snapshot", "inspect", file, "--locks", "", "--limit", "1000000"];
    json(&run(NOWHERE, &[&args[..], &["--output", "json"]].concat()).await)
}

/// The token under which a lock was held then.
pub(crate) fn token_in(snapshot: &Value, name: &str) -> Option<u64> {
    let locks = snapshot["listed_locks"].as_array().unwrap();
    let lock = locks.iter().find(|lock| lock["name"] == name)?;
    lock["token"].as_str().unwrap().parse().ok().filter(|token| *token > 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_saved_and_destroyed_goes_on_as_another_one() {
    let mut cluster = Cluster::start(3).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locks.holdfast");
    let path = file.to_str().unwrap();
    let before = cluster.client().open(TTL).await;
    let held = hold(&before, "held before").await;
    let load = Load::start(&cluster.client()).await;
    // From a node that does not lead, too.
    let follower = cluster.client_address(cluster.follower().await);
    let saved = json(&run(&follower, &["snapshot", "save", path, "--output", "json"]).await);
    assert_eq!(saved["bytes"], file.metadata().unwrap().len());
    let after = cluster.client().open(TTL).await;
    let later = hold(&after, "held after").await;
    let load = load.stop().await;
    let again = run(&follower, &["snapshot", "save", path]).await;
    assert_eq!(again.status.code(), Some(64), "it exists: {again:?}");

    let snapshot = inspect(&file).await;
    assert_eq!(
        token_in(&snapshot, "held before"),
        Some(held.token),
        "acknowledged before the call"
    );
    assert_eq!(token_in(&snapshot, "held after"), None);
    assert_eq!(snapshot["members"].as_array().unwrap().len(), 3);
    let old_id = snapshot["cluster_id"].as_str().unwrap().to_owned();

    for id in [1, 2, 3] {
        cluster.kill(id);
        cluster.wipe(id);
    }
    let config = cluster.config_path(1);
    let restore = ["snapshot", "restore", path, "--config", &config, "--closed-for", "0s"];
    let restored = json(&run(NOWHERE, &[&restore[..], &["--output", "json"]].concat()).await);
    assert_ne!(restored["cluster_id"], old_id.as_str());
    assert_eq!(restored["old_cluster_id"], old_id.as_str());
    let twice = run(NOWHERE, &restore).await;
    assert_eq!(twice.status.code(), Some(64), "the directory is not empty: {twice:?}");
    cluster.forget(2);
    cluster.forget(3);
    cluster.launch(1);
    assert_eq!(cluster.leader().await, 1);

    let endpoints = cluster.endpoints();
    bring_in(&mut cluster, &endpoints, 4, &["cluster", "add"]).await;
    bring_in(&mut cluster, &endpoints, 5, &["cluster", "add"]).await;
    let client = cluster.client();
    assert!(client.status("held before").await.holders.is_empty(), "no client is left to hold it");
    assert!(client.sessions().await.is_empty());
    for session in [&before, &after] {
        let reported = session.keep_alive().await.unwrap_err();
        assert_eq!(reported.code(), tonic::Code::NotFound, "{reported:?}");
    }
    let session = client.open(TTL).await;
    let highest =
        load.kept.iter().map(|(_, token)| *token).chain(load.shared_tokens).max().unwrap();
    let highest = highest.max(held.token).max(later.token);
    for name in ["held before", "held after", "load:shared"] {
        let grant = hold(&session, name).await;
        assert!(grant.token > highest, "{name}: {} is not above {highest}", grant.token);
        assert!(grant.token < 1 << 63);
    }
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn until_the_old_leases_have_run_out_a_restored_cluster_grants_nothing() {
    let mut cluster = Cluster::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locks.holdfast");
    let path = file.to_str().unwrap();
    let session = cluster.client().open(TTL).await;
    hold(&session, "wallet").await;
    let endpoints = cluster.endpoints();
    for set in [
        &["set-permits", "gpu", "8", "--reason", "a test"][..],
        &["freeze", "billing/", "--for", "10m", "--reason", "migration"],
    ] {
        assert!(run(&endpoints, set).await.status.success(), "{set:?}");
    }
    json(&run(&endpoints, &["snapshot", "save", path, "--output", "json"]).await);
    let snapshot = inspect(&file).await;
    assert_eq!(snapshot["permits"][0]["name"], "gpu", "{snapshot}");
    assert_eq!(snapshot["permits"][0]["permits"], 8, "{snapshot}");
    assert_eq!(snapshot["freezes"][0]["prefix"], "billing/", "{snapshot}");
    assert_eq!(snapshot["freezes"][0]["reason"], "migration", "{snapshot}");
    let shown = run(NOWHERE, &["snapshot", "inspect", path]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    let date = snapshot["created"].as_str().unwrap();
    assert!(shown.contains(date) && shown.contains("FROZEN PREFIX"), "{shown}");
    cluster.kill(1);
    cluster.wipe(1);
    let config = cluster.config_path(1);
    let floor = (1u64 << 62).to_string();
    let restore = ["snapshot", "restore", path, "--config", &config, "--token-floor", &floor];
    let restored = json(&run(NOWHERE, &[&restore[..], &["--output", "json"]].concat()).await);
    assert_eq!(restored["closed_for_ms"], TTL.as_millis() as u64, "the longest TTL");
    cluster.launch(1);
    cluster.leader().await;

    let session = cluster.client().open(TTL).await;
    let refused = session.acquire("wallet", Duration::ZERO).await.unwrap_err();
    assert!(refused.message().contains("frozen"), "{refused:?}");
    let frozen = cluster.client().status("wallet").await.frozen.unwrap();
    assert!(frozen.reason.contains("restored from a backup"), "{frozen:?}");
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{}", cluster.endpoints()));
    let mut operator = OperatorServiceClient::connect(channel.unwrap()).await.unwrap();
    let intervention = Intervention { by: "test".into(), reason: "all have noticed".into() };
    let thaw = ThawRequest { intervention: Some(intervention), prefix: String::new() };
    operator.thaw(thaw).await.unwrap();
    let grant = hold(&session, "wallet").await;
    assert_eq!(grant.token, (1 << 62) + 1, "the floor that was asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_what_it_should_be_is_refused_in_words() {
    let cluster = Cluster::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locks.holdfast");
    let path = file.to_str().unwrap();
    json(&run(&cluster.endpoints(), &["snapshot", "save", path, "--output", "json"]).await);
    let good = std::fs::read(&file).unwrap();
    let mut newer = good.clone();
    newer[8] = 9;
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for (bytes, words) in [
        (&good[..good.len() - 1], "ends too early"),
        (&newer, "format 9"),
        (&damaged, "checksum of its body"),
        (b"#!/bin/sh", "not a snapshot file"),
    ] {
        let bad = dir.path().join("bad");
        std::fs::write(&bad, bytes).unwrap();
        let bad = bad.to_str().unwrap();
        let config = cluster.config_path(1);
        for args in
            [&["snapshot", "inspect", bad][..], &["snapshot", "restore", bad, "--config", &config]]
        {
            let refused = run(NOWHERE, args).await;
            assert_eq!(refused.status.code(), Some(64), "{refused:?}");
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(said.contains(words), "{said}");
        }
    }
    let missing = run(NOWHERE, &["snapshot", "inspect", "/no/such/file"]).await;
    assert_eq!(missing.status.code(), Some(69), "{missing:?}");
    let target = dir.path().join("x");
    let refused = run(NOWHERE, &["snapshot", "save", target.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "nothing half done is left: {left:?}");
    // The cluster goes on as if nothing had been.
    eventually("a grant", Duration::from_secs(5), || async {
        let session = cluster.client().open(TTL).await;
        let answer = session.acquire("after all", Duration::ZERO).await.unwrap();
        matches!(answer.outcome, Some(Outcome::Granted(_))).then_some(())
    })
    .await;
}
