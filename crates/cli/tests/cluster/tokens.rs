//! Fencing tokens as programs read them, and in the forms in which commands take them.

use serde_json::{Value, json};

use crate::support::{Cluster, ClusterOptions, PATIENCE, data, eventually, json_lines, run, words};

/// What reads JSON numbers as doubles rounds above this.
const LARGEST_EXACT_DOUBLE: u64 = 1 << 53;
const REASON: [&str; 2] = ["--reason", "test"];

/// The keys and values of all tokens in a document.
fn tokens_in(document: &Value) -> Vec<(String, &Value)> {
    match document {
        Value::Array(all) => all.iter().flat_map(tokens_in).collect(),
        Value::Object(fields) => {
            let mut tokens = Vec::new();
            for (key, value) in fields {
                match value {
                    _ if !(key.contains("token") || key == "epoch") => {
                        tokens.extend(tokens_in(value))
                    }
                    Value::Array(all) => tokens.extend(all.iter().map(|one| (key.clone(), one))),
                    value => tokens.push((key.clone(), value)),
                }
            }
            tokens
        }
        _ => Vec::new(),
    }
}

pub(crate) fn assert_tokens_are_texts(document: &Value) {
    for (key, value) in tokens_in(document) {
        assert!(value.is_string() || value.is_null(), "{key} is {value} in {document}");
    }
}

/// A cluster whose tokens no double can be, because it was restored from a backup.
async fn restored_cluster(settings: String) -> Cluster {
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 1, settings }).await;
    let file = cluster.data_dir(1).with_extension("backup");
    let file = file.to_str().unwrap();
    data(&cluster, 0, &["snapshot", "save", file]).await;
    cluster.kill(1);
    cluster.wipe(1);
    let config = cluster.config_path(1);
    let restore = ["snapshot", "restore", file, "--config", &config, "--closed-for", "0s"];
    let restored = data(&cluster, 0, &restore).await;
    assert_tokens_are_texts(&restored);
    cluster.launch(1);
    cluster.leader().await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_a_double_would_round_is_a_text_in_every_json_that_programs_read() {
    let dir = tempfile::tempdir().unwrap();
    let audit = dir.path().join("audit.jsonl");
    let settings = format!("[audit]\nfile = {audit:?}\n");
    let cluster = restored_cluster(settings).await;
    let held = data(&cluster, 0, &["acquire", "a", "--ttl", "60s"]).await;
    let token = held["token"].as_str().unwrap();
    assert!(token.parse::<u64>().unwrap() > LARGEST_EXACT_DOUBLE, "{token}");
    assert!(held["fence"].as_str().unwrap().ends_with(&format!(".{token}")), "{held}");
    let mut documents = Vec::new();
    for args in [
        &["status", "a"][..],
        &["ls"],
        &["history", "a"],
        &["who", "a", "--token", token],
        &["cluster", "status"],
        &["check-token", "a", token],
    ] {
        documents.push(data(&cluster, 0, args).await);
    }
    let campaign = cluster.library().await.election("e").campaign("me").await.unwrap();
    let observed = run(&cluster, &["observe", "e", "--once"]).await;
    documents.extend(json_lines(&observed.stdout));
    drop(campaign);
    let (status, lock) = super::dashboard::get(&cluster.http_address(1), "/api/lock?name=a");
    assert_eq!(status, 200, "{lock}");
    documents.push(lock);
    documents.push(
        eventually("the grant is in the audit file", PATIENCE, || async {
            let lines = json_lines(&std::fs::read(&audit).unwrap_or_default());
            lines
                .into_iter()
                .find(|line| line["event"] == "granted" && line["names"] == json!(["a"]))
        })
        .await,
    );
    for document in &documents {
        assert_tokens_are_texts(document);
        let tokens = tokens_in(document);
        let is_there = tokens.iter().any(|(_, one)| one.as_str().is_some_and(|one| one.len() > 15));
        assert!(is_there || document["state"] == "current", "{document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_take_a_token_in_full_form_if_it_is_that_of_the_lock() {
    let cluster = Cluster::start(1).await;
    let held = data(&cluster, 0, &["acquire", "a", "--ttl", "60s"]).await;
    let (session, fence) = (held["session"].as_str().unwrap(), held["fence"].as_str().unwrap());
    let other = data(&cluster, 0, &["acquire", "b", "--ttl", "60s"]).await;
    let other_fence = other["fence"].as_str().unwrap();

    let renew = |fence| ["renew", "a", "--session", session, "--token", fence];
    let release = |fence| ["release", "a", "--session", session, "--token", fence];
    let who = |fence| ["who", "a", "--token", fence];
    let break_lock = |fence| ["break", "a", REASON[0], REASON[1], "--token", fence];
    for args in [
        &renew(other_fence)[..],
        &release(other_fence),
        &who(other_fence),
        &break_lock(other_fence),
        &["transfer", "a", "--to", "0123456789abcdef", "--reason", "x", "--token", other_fence],
    ] {
        let said = words(&cluster, 64, args).await;
        assert!(said.contains("belongs to another lock than a"), "{args:?}: {said}");
    }
    let best_effort = fence.replace(".L.", ".B.");
    let said = words(&cluster, 64, &release(&best_effort)).await;
    assert!(said.contains("is of the efficiency tier"), "{said}");

    assert_eq!(data(&cluster, 0, &renew(fence)).await["token"], held["token"]);
    let reported = data(&cluster, 0, &who(fence)).await;
    assert_eq!(reported["holds"].as_array().unwrap().len(), 1, "{reported}");
    assert_eq!(data(&cluster, 0, &release(fence)).await["outcome"], "released");
    let again = data(&cluster, 0, &["acquire", "a", "--ttl", "60s"]).await;
    let broken = data(&cluster, 0, &break_lock(again["fence"].as_str().unwrap())).await;
    assert_eq!(broken["holds"], 1, "{broken}");
}
