//! `holdfast history` and `holdfast who`: what happened to a lock, and who held it under a token.

use holdfast_client::Client;
use serde_json::Value;

use crate::support::{
    Cluster, ClusterOptions, PATIENCE, data, eventually, holdfast, run, text, words,
};

async fn known_as(note: &str, cluster: &Cluster) -> Client {
    Client::builder().note(note).connect(&cluster.endpoints()).await.unwrap()
}

fn reported(history: &Value) -> Vec<(String, u64)> {
    let events = history["events"].as_array().unwrap().iter();
    let line = |event: &Value| {
        (
            event["event"].as_str().unwrap().to_owned(),
            event["token"].as_str().map_or(0, |token| token.parse().unwrap()),
        )
    };
    events.map(line).collect()
}

fn owned(parts: &[(&str, u64)]) -> Vec<(String, u64)> {
    parts.iter().map(|(event, token)| ((*event).to_owned(), *token)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_tells_who_held_a_lock_and_how_that_ended_also_after_the_leader_was_killed() {
    let mut cluster = Cluster::start(3).await;
    let (alice, bob) = (known_as("alice", &cluster).await, known_as("bob", &cluster).await);
    let guard = alice.lock("deploy").acquire().await.unwrap();
    let first = guard.token().unwrap();
    guard.release().await.unwrap();
    let guard = bob.lock("deploy").acquire().await.unwrap();
    let second = guard.token().unwrap();
    data(&cluster, 0, &["break", "deploy", "--reason", "hung"]).await;
    let held = alice.lock("deploy").acquire().await.unwrap();
    let third = held.token().unwrap();
    let _elsewhere = bob.lock("elsewhere").acquire().await.unwrap();

    let expected = owned(&[
        ("granted", first),
        ("released", first),
        ("granted", second),
        ("intervened", 0),
        ("broken", second),
        ("granted", third),
    ]);
    for node in cluster.ids() {
        let endpoints = cluster.client_address(node);
        let history = data(&cluster, 0, &["history", "deploy", "--endpoints", &endpoints]).await;
        assert_eq!(reported(&history), expected, "{history}");
        assert_eq!(history["kept"]["from_the_beginning"], true, "{history}");
        assert_eq!(history["events"][0]["owner"]["note"], "alice", "{history}");
        assert!(history["events"][3]["detail"].as_str().unwrap().contains("hung"), "{history}");
        let who = data(
            &cluster,
            0,
            &["who", "deploy", "--token", &second.to_string(), "--endpoints", &endpoints],
        )
        .await;
        assert_eq!(who["holds"].as_array().unwrap().len(), 1, "{who}");
        assert_eq!(who["holds"][0]["owner"]["note"], "bob", "{who}");
        assert_eq!(who["holds"][0]["ended"], "broken", "{who}");
        assert_eq!(who["holds"][0]["mode"], "exclusive", "{who}");
    }
    let latest = data(&cluster, 0, &["history", "deploy", "--limit", "2"]).await;
    assert_eq!(reported(&latest), expected[4..], "{latest}");
    assert_eq!(latest["is_cut"], true);
    let recent = data(&cluster, 0, &["history", "deploy", "--since", "1h"]).await;
    assert_eq!(reported(&recent), expected, "{recent}");

    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.leader().await;
    let history = data(&cluster, 0, &["history", "deploy"]).await;
    assert_eq!(reported(&history), expected, "{history}");
    let third = third.to_string();
    let who = data(&cluster, 0, &["who", "deploy", "--token", &third]).await;
    assert_eq!(who["holds"][0]["owner"]["note"], "alice", "{who}");
    let table = text(&run(&cluster, &["who", "deploy", "--token", &third]).await.stdout);
    assert!(table.contains("still held"), "{table}");

    let never = ["who", "deploy", "--token", "1000000"];
    let said = words(&cluster, 1, &never).await;
    assert!(said.contains("has not granted token"), "{said}");
    assert!(data(&cluster, 1, &never).await["not_found"].is_string());
    let other = words(&cluster, 1, &["who", "nowhere", "--token", &first.to_string()]).await;
    assert!(other.contains(&format!("no hold of 'nowhere' had token {first}")), "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_not_told_as_one_that_released_its_lock() {
    let cluster = Cluster::start(1).await;
    let mut holder = holdfast();
    holder.env("HOLDFAST_ENDPOINTS", cluster.endpoints());
    let mut holder = holder.args(["lock", "job", "--", "sleep", "600"]).spawn().unwrap();
    eventually("it is held", PATIENCE, async || {
        (data(&cluster, 0, &["status", "job"]).await["held"] == true).then_some(())
    })
    .await;
    holder.kill().unwrap();
    holder.wait().unwrap();
    let last = eventually("it is free", PATIENCE, async || {
        let history = data(&cluster, 0, &["history", "job"]).await;
        let last = history["events"].as_array().unwrap().last().unwrap().clone();
        (last["event"] == "released").then_some(last)
    })
    .await;
    assert_eq!(last["reason"], "closed", "{last}");
    let table = text(&run(&cluster, &["history", "job"]).await.stdout);
    assert!(table.contains("the program ended, or was killed"), "{table}");

    run(&cluster, &["lock", "job", "--", "true"]).await;
    let history = data(&cluster, 0, &["history", "job"]).await;
    let last = history["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["event"], &last["reason"]), (&"released".into(), &Value::Null), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_kept_is_said_with_from_when_on_it_is() {
    let settings = "events_kept = 1000".to_owned();
    let cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let client: Client = cluster.library().await;
    let early = client.lock("early").acquire().await.unwrap();
    let early_token = early.token().unwrap().to_string();
    let gone = client.lock("gone").acquire().await.unwrap();
    let gone_token = gone.token().unwrap().to_string();
    gone.release().await.unwrap();
    for _ in 0..510 {
        client.lock("busy").acquire().await.unwrap().release().await.unwrap();
    }
    let said = words(&cluster, 1, &["who", "gone", "--token", &gone_token]).await;
    assert!(said.contains("no known hold of") && said.contains("log entry"), "{said}");
    let output = run(&cluster, &["history", "gone"]).await;
    assert!(text(&output.stderr).contains("the cluster keeps events from 20"), "{output:?}");
    let who = data(&cluster, 1, &["who", "gone", "--token", &gone_token]).await;
    assert!(who["kept"]["from_index"].as_u64().unwrap() > 2, "{who}");
    assert!(who["kept"]["since_unix_ms"].as_u64().unwrap() > 0, "{who}");

    // Who holds it still is known all the same, and who ends now is known by its end.
    let who = data(&cluster, 0, &["who", "early", "--token", &early_token]).await;
    assert!(who["holds"][0]["until"].is_null() && who["holds"][0]["from"].is_string(), "{who}");
    early.release().await.unwrap();
    let who = data(&cluster, 0, &["who", "early", "--token", &early_token]).await;
    assert_eq!(who["holds"][0]["ended"], "released", "{who}");
    assert!(who["holds"][0]["owner"]["host"].is_string(), "{who}");
}
