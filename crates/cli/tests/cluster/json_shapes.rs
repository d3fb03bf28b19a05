//! What docs/cli.md says about the JSON of each command is what that prints.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Cluster, PATIENCE, data};
use crate::tokens::assert_tokens_are_texts;

const PAGE: &str = include_str!("../../../../docs/cli.md");
const HEADING: &str = "## JSON";

/// By command, the keys of its document, as the page has them.
fn documented() -> BTreeMap<&'static str, Vec<&'static str>> {
    let section = PAGE.split_once(HEADING).expect("the page has no such section").1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim).filter(|cell| !cell.is_empty());
        let command = in_backticks(cells.next().unwrap()).remove(0);
        (command, in_backticks(cells.next().unwrap()))
    })
    .collect()
}

fn in_backticks(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn keys(document: &Value) -> Vec<String> {
    let mut keys: Vec<String> = document.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_prints_the_keys_that_are_documented() {
    let cluster = Cluster::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locks.holdfast");
    let file = file.to_str().unwrap();
    let acquired = data(&cluster, 0, &["acquire", "a"]).await;
    let (session, token) =
        (acquired["session"].as_str().unwrap(), acquired["token"].as_str().unwrap());
    let held = ["--session", session, "--token", token];
    let reason = ["--reason", "test"];
    let other = data(&cluster, 0, &["acquire", "other"]).await;
    let other = other["public_session"].as_str().unwrap();

    data(&cluster, 0, &["acquire", "closed", "--lock-delay", "1m"]).await;
    data(&cluster, 0, &["break", "closed", "--reason", "test"]).await;

    let (holder, next) = (cluster.library().await, cluster.library().await);
    let handed_over = holder.lock("t").acquire().await.unwrap();
    let (queued, when_queued) = tokio::sync::oneshot::channel();
    let request = next.lock("t").wait(PATIENCE).on_queued(|_| queued.send(()).unwrap());
    let waiting = tokio::spawn(request.acquire());
    when_queued.await.unwrap();
    let to = data(&cluster, 0, &["status", "t"]).await["waiters"][0]["session"].clone();
    let to = to.as_str().unwrap();

    let mut printed = BTreeMap::from([("acquire", keys(&acquired))]);
    let commands: [(&str, Vec<&str>); 23] = [
        ("status", vec!["status", "a"]),
        ("why", vec!["why", "a"]),
        ("ls", vec!["ls"]),
        ("sessions", vec!["sessions"]),
        ("check-token", vec!["check-token", "a", token]),
        ("renew", [&["renew", "a"][..], &held].concat()),
        ("history", vec!["history", "a"]),
        ("who", vec!["who", "a", "--token", token]),
        ("release", [&["release", "a"][..], &held].concat()),
        ("transfer", [&["transfer", "t", "--to", to][..], &reason].concat()),
        ("break", [&["break", "other"][..], &reason].concat()),
        ("kill-session", [&["kill-session", other][..], &reason].concat()),
        ("reopen", [&["reopen", "closed"][..], &reason].concat()),
        ("freeze", [&["freeze", "z", "--for", "1m"][..], &reason].concat()),
        ("freezes", vec!["freezes"]),
        ("thaw", [&["thaw", "z"][..], &reason].concat()),
        ("set-permits", [&["set-permits", "gpu", "3"][..], &reason].concat()),
        ("top", vec!["top", "--interval", "100ms"]),
        ("cluster limits", vec!["cluster", "limits"]),
        ("cluster status", vec!["cluster", "status"]),
        ("snapshot save", vec!["snapshot", "save", file]),
        ("snapshot inspect", vec!["snapshot", "inspect", file]),
        ("advise-ttl", vec!["advise-ttl", "--operation", "1s", "--samples", "10"]),
    ];
    for (command, args) in commands {
        let document = data(&cluster, 0, &args).await;
        assert_tokens_are_texts(&document);
        printed.insert(command, keys(&document));
    }
    for (command, keys) in documented() {
        let mut keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
        keys.sort();
        assert_eq!(printed.remove(command), Some(keys), "{command}");
    }
    drop((handed_over, waiting.await.unwrap().unwrap()));
    assert!(printed.is_empty(), "not on the page: {:?}", printed.keys());
}
