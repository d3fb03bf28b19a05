//! The audit file of real nodes, what is logged, and what is in none of them: a session's secret.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Cluster, ClusterOptions, PATIENCE, data, eventually, hold, json_lines, metric, metrics,
    wait_in_line,
};

/// All lines, the oldest file first.
fn lines_of(file: &Path) -> Vec<Value> {
    let numbered = |number: u64| {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{number}"));
        std::fs::read(name)
    };
    let older = (1..).map_while(|number| numbered(number).ok()).collect::<Vec<_>>();
    let newest = std::fs::read(file).unwrap_or_default();
    older.iter().rev().chain([&newest]).flat_map(|bytes| json_lines(bytes)).collect()
}

fn position(line: &Value) -> (u64, u64) {
    (line["index"].as_u64().unwrap(), line["number"].as_u64().unwrap())
}

/// Lines of other kinds have the position of the event before them.
const OTHER_LINES: [&str; 10] = [
    "leadership",
    "membership",
    "gap",
    "positions",
    "beginning",
    "denied",
    "would_be_denied",
    "login",
    "requested",
    "notes_lost",
];

pub(crate) fn is_event(line: &Value) -> bool {
    !OTHER_LINES.iter().any(|kind| line["event"] == *kind)
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_in_the_file_of_every_node_once_though_files_are_rotated_and_nodes_killed() {
    let dir = tempfile::tempdir().unwrap();
    let settings = format!(
        "log = \"trace\"\n[audit]\nfile = \"{}/audit-{{node}}.jsonl\"\nfile_bytes = 4096\nfiles_kept = 100\n",
        dir.path().display()
    );
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let file = |id: u64| dir.path().join(format!("audit-{id}.jsonl"));
    // From here on everything is logged.
    for id in cluster.ids() {
        cluster.send(id, Signal::HUP);
        eventually("the node logs more", PATIENCE, || {
            std::future::ready(cluster.log_of(id).contains(" TRACE ").then_some(()))
        })
        .await;
    }

    let client = cluster.client();
    let holder = client.open(Duration::from_secs(60)).await;
    let waiter = Arc::new(client.open(Duration::from_secs(60)).await);
    for number in 0..20 {
        let grant = hold(&holder, &format!("a/{number}")).await;
        holder.release(&format!("a/{number}"), grant.token).await.unwrap();
    }
    let grant = hold(&holder, "a/contended").await;
    let waiting = wait_in_line(Arc::clone(&waiter), "a/contended", PATIENCE);
    eventually("a client waits", PATIENCE, || async {
        (client.status("a/contended").await.waiter_count == 1).then_some(())
    })
    .await;
    holder.release("a/contended", grant.token).await.unwrap();
    waiting.await.unwrap().unwrap();
    data(&cluster, 0, &["break", "a/contended", "--reason", "for the audit"]).await;
    data(&cluster, 0, &["freeze", "a/", "--reason", "a pause", "--for", "1m"]).await;
    let brief = client.open(Duration::from_secs(1)).await;
    hold(&brief, "brief").await;
    eventually("it expires", PATIENCE, || async {
        (client.status("brief").await.holder_count == 0).then_some(())
    })
    .await;

    let killed = cluster.leader().await;
    cluster.kill(killed);
    cluster.leader().await;
    cluster.launch(killed);
    hold(&holder, "the last").await;
    let last = |lines: &[Value]| {
        lines.iter().any(|line| line["event"] == "granted" && line["names"][0] == "the last")
    };
    for id in cluster.ids() {
        let lines = eventually("the last event is written", PATIENCE, || {
            std::future::ready(Some(lines_of(&file(id))).filter(|lines| last(lines)))
        })
        .await;
        let positions: Vec<_> = lines.iter().filter(|line| is_event(line)).map(position).collect();
        assert!(positions.is_sorted(), "node {id}: {positions:?}");
        let once: BTreeSet<_> = positions.iter().collect();
        assert_eq!(once.len(), positions.len(), "node {id} wrote an event twice");
        assert_eq!(of_kind(&lines, "gap"), Vec::<&Value>::new());
        assert_eq!(of_kind(&lines, "granted").len(), 24, "node {id}");
        assert_eq!(of_kind(&lines, "released").len(), 21, "node {id}");
        assert_eq!(of_kind(&lines, "queued").len(), 1, "node {id}");
        assert_eq!(of_kind(&lines, "expired").len(), 1, "node {id}");
        let broken = of_kind(&lines, "broken");
        assert_eq!((broken.len(), &broken[0]["names"][0]), (1, &Value::from("a/contended")));
        let frozen = of_kind(&lines, "frozen");
        assert!(frozen[0]["detail"].as_str().unwrap().contains("a pause"), "{frozen:?}");
        assert!(!of_kind(&lines, "leadership").is_empty());
        assert_eq!(of_kind(&lines, "membership")[0]["voters"], serde_json::json!([1, 2, 3]));
        let granted = of_kind(&lines, "granted")[0];
        for field in ["time", "unix_ms", "group", "logical_time_ms", "session", "token", "owner"] {
            assert!(!granted[field].is_null(), "{field} is missing in {granted}");
        }
        assert!(file(id).with_extension("jsonl.1").exists(), "node {id} did not rotate");
    }

    let secrets = [&holder.id, &waiter.id, &brief.id];
    for id in cluster.ids() {
        let page = metrics(&cluster.http_address(id)).await;
        assert!(metric(&page, "holdfast_audit_lines_total") >= 1.0, "{page}");
        let audit: String = lines_of(&file(id)).iter().map(Value::to_string).collect();
        for (what, text) in [("log", cluster.log_of(id)), ("metrics", page), ("audit", audit)] {
            for secret in secrets {
                assert!(!text.contains(secret.as_str()), "a secret is in the {what} of node {id}");
            }
        }
        assert!(cluster.log_of(id).contains("what is logged has changed"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_for_programs_has_a_json_object_in_every_line() {
    let settings = "log_format = \"json\"\n".to_owned();
    let cluster = Cluster::start_with(ClusterOptions { nodes: 1, settings }).await;
    let lines = eventually("it serves", PATIENCE, || {
        let log = cluster.log_of(1);
        std::future::ready(log.contains("serving clients on").then_some(log))
    })
    .await;
    for line in json_lines(lines.as_bytes()) {
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
        assert!(line["message"].is_string(), "{line}");
    }
}
