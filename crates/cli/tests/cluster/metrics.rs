//! What a real node says on `/metrics`: what tools accept, what is documented, and what happened.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast_client::Tier;
use holdfast_proto::v1::acquire_response::Outcome;

use crate::support::{
    Cluster, PATIENCE, data, eventually, hold, metric, metrics, page, wait_in_line,
};

fn project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(project(file)).unwrap()
}

/// What is installed nowhere is skipped loudly, or fails in CI.
fn promtool(args: &[&str]) -> Option<Command> {
    let is_there = Command::new("promtool").arg("--version").output().is_ok();
    if !is_there {
        let advice =
            "promtool is not installed: `cargo xtask test` or `apt-get install prometheus`";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{advice}");
        let _ = writeln!(std::io::stderr(), "SKIPPED a part of a test: {advice}");
        return None;
    }
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

pub(crate) fn promtool_accepts(args: &[&str], input: &str) {
    let Some(mut promtool) = promtool(args) else { return };
    let mut process = promtool.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Name, type and help of each metric.
fn described(page: &str) -> Vec<(String, String, String)> {
    let mut described = Vec::new();
    let mut help = "";
    for line in page.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ').unwrap().1;
        } else if let Some(about) = line.strip_prefix("# TYPE ") {
            let (name, kind) = about.split_once(' ').unwrap();
            described.push((name.to_owned(), kind.to_owned(), help.to_owned()));
        }
    }
    described
}

/// Every word that looks like one of our metrics or those of the process.
fn named_in(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("holdfast_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_what_happened_in_a_form_that_tools_and_documents_agree_with() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client();
    let holder = client.open(Duration::from_secs(60)).await;
    let waiter = Arc::new(client.open(Duration::from_secs(60)).await);
    for _ in 0..5 {
        let grant = hold(&holder, "m/fast").await;
        holder.release("m/fast", grant.token).await.unwrap();
    }
    let grant = hold(&holder, "m/contended").await;
    let waiting = wait_in_line(Arc::clone(&waiter), "m/contended", PATIENCE);
    eventually("a client waits", PATIENCE, || async {
        (client.status("m/contended").await.waiter_count == 1).then_some(())
    })
    .await;
    let busy = holder.acquire("m/contended", Duration::ZERO).await.unwrap();
    assert!(matches!(busy.outcome, Some(Outcome::Busy(_))), "{busy:?}");
    let leader = cluster.leader().await;
    let address = cluster.http_address(leader);
    eventually("the wait is seen", PATIENCE, || async {
        let text = metrics(&address).await;
        let seen = ["holdfast_waiters", "holdfast_longest_queue"].map(|name| metric(&text, name));
        (seen == [1.0, 1.0]).then_some(())
    })
    .await;
    holder.release("m/contended", grant.token).await.unwrap();
    waiting.await.unwrap().unwrap();
    data(&cluster, 0, &["break", "m/contended", "--reason", "test"]).await;
    let library = cluster.library().await;
    let cheap = library.lock("m/cheap").tier(Tier::Efficiency).acquire().await.unwrap();
    cheap.release().await.unwrap();

    let text = metrics(&address).await;
    let granted =
        "holdfast_operations_total{kind=\"acquire\",outcome=\"granted\",tier=\"correctness\"}";
    let busy = "holdfast_operations_total{kind=\"acquire\",outcome=\"busy\",tier=\"correctness\"}";
    for (series, least) in [
        (granted, 7.0),
        (busy, 1.0),
        (
            "holdfast_operations_total{kind=\"acquire\",outcome=\"granted\",tier=\"efficiency\"}",
            1.0,
        ),
        ("holdfast_operations_total{kind=\"release\",outcome=\"done\",tier=\"efficiency\"}", 1.0),
        ("holdfast_watches_left_behind_total", 0.0),
        ("holdfast_grants_total", 7.0),
        ("holdfast_queued_total", 1.0),
        ("holdfast_acquire_wait_seconds_count{queued=\"no\"}", 6.0),
        ("holdfast_acquire_wait_seconds_count{queued=\"yes\"}", 1.0),
        ("holdfast_holds_ended_total{reason=\"released\"}", 6.0),
        ("holdfast_holds_ended_total{reason=\"broken\"}", 1.0),
        ("holdfast_hold_time_seconds_count", 7.0),
        ("holdfast_queue_position_count", 1.0),
        ("holdfast_interventions_total", 1.0),
        ("holdfast_sessions_opened_total", 3.0),
    ] {
        assert_eq!(metric(&text, series), least, "{series}\n{text}");
    }
    assert!(metric(&text, "holdfast_log_sync_seconds_count") >= 10.0, "{text}");
    assert!(metric(&text, "holdfast_apply_seconds_count") >= 10.0, "{text}");
    assert!(metric(&text, "holdfast_batch_operations_sum") >= 15.0, "{text}");
    assert_eq!(metric(&text, "holdfast_is_leader"), 1.0);
    assert_eq!(metric(&text, "holdfast_leader"), leader as f64);
    assert_eq!(text.matches("holdfast_peer_lag_entries{peer=").count(), 2, "{text}");
    assert!(!text.contains("m/"), "a lock's name is in the metrics");

    let documented = read("docs/reference/metrics.md");
    let rows: Vec<&str> = documented.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = described(&text)
        .into_iter()
        .map(|(name, kind, help)| format!("| `{name}` | {kind} | {help} |"))
        .collect();
    assert_eq!(rows, expected, "docs/reference/metrics.md");

    let mut known: BTreeSet<String> = BTreeSet::new();
    for (name, kind, _) in described(&text) {
        if kind == "histogram" {
            known.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}")));
        }
        known.insert(name);
    }
    for file in ["deploy/prometheus/alerts.yml", "deploy/grafana/holdfast.json"] {
        let named = named_in(&read(file));
        assert!(named.len() > 10, "{file} names only {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names what no node shows: {unknown:?}");
    }
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/holdfast.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 20);

    let own = library.metrics().to_string();
    let closed = "holdfast_client_circuit{tier=\"correctness\",state=\"closed\"} 1";
    assert!(own.lines().any(|line| line == closed), "{own}");
    let granted = "holdfast_client_efficiency_total{outcome=\"granted\"} 1";
    assert!(own.lines().any(|line| line == granted), "{own}");
    promtool_accepts(&["check", "metrics"], &own);

    for id in cluster.ids() {
        let address = cluster.http_address(id);
        promtool_accepts(&["check", "metrics"], &metrics(&address).await);
        let (head, open) = page(&address, "/metrics", "application/openmetrics-text").await;
        assert!(head.contains("application/openmetrics-text"), "{head}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }
    let rules = project("deploy/prometheus/alerts.yml");
    promtool_accepts(&["check", "rules", rules.to_str().unwrap()], "");
}
