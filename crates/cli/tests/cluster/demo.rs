//! `holdfast demo` tells what really happened, and leaves nothing behind.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{
    PATIENCE, all_cluster_slots, eventually, finished, holdfast, json, output, signal, text,
};

/// In a directory of its own for what it writes.
fn demo(dir: &TempDir, args: &[&str]) -> Command {
    let mut command = holdfast();
    command.arg("demo").args(args).env("TMPDIR", dir.path()).env("NO_COLOR", "1");
    command
}

fn is_empty(dir: &TempDir) -> bool {
    std::fs::read_dir(dir.path()).unwrap().next().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_loses_money_without_the_fence_and_none_with_it() {
    let _slots = all_cluster_slots().await;
    let dir = tempfile::tempdir().unwrap();
    let ended = output(demo(&dir, &["--fast", "--output", "json"])).await;
    assert!(ended.status.success(), "{ended:?}");
    let reported = json(&ended);
    assert_eq!(reported["as_told"], true, "{reported}");
    for (act, refused, vanished) in [("fenced", true, 0), ("unfenced", false, 30)] {
        let act = &reported[act];
        assert_eq!(act["late_write_refused"], refused, "{reported}");
        let number = |key: &str| act[key].as_i64().unwrap();
        assert_eq!(number("vanished"), vanished, "{reported}");
        let paid_in = number("balance_at_first") + number("deposits_acknowledged");
        assert_eq!(paid_in - number("balance"), vanished, "{reported}");
        let token = |key: &str| act[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(token("token_of_b") > token("token_of_a"), "{reported}");
        assert!(
            number("takeover_ms") >= 1_000,
            "it was taken over before its lease ended: {reported}"
        );
    }
    let tokens = |key: &str| reported["failover"][key].as_array().unwrap().clone();
    let tokens: Vec<u64> = [tokens("tokens_before"), tokens("tokens_after")]
        .concat()
        .iter()
        .map(|token| token.as_str().unwrap().parse().unwrap())
        .collect();
    assert!(tokens.len() == 6 && tokens.is_sorted_by(|a, b| a < b), "{reported}");
    assert_ne!(
        reported["failover"]["killed_node"], reported["failover"]["new_leader"],
        "{reported}"
    );
    assert!(is_empty(&dir));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_the_demo_tells_its_story_in_plain_lines() {
    let _slots = all_cluster_slots().await;
    let dir = tempfile::tempdir().unwrap();
    let ended = output(demo(&dir, &["--fast"])).await;
    assert!(ended.status.success(), "{ended:?}");
    let said = text(&ended.stdout);
    assert!(!said.contains(['\x1b', '\r']), "{said}");
    let order = [
        "with a fence",
        "stands still",
        "refused: token",
        "0 vanished",
        "without a fence",
        "What B paid in is gone",
        "30 vanished",
        "killed with SIGKILL",
    ];
    let mut rest = said.as_str();
    for words in order {
        let Some((_, after)) = rest.split_once(words) else {
            panic!("'{words}' is not said, or not in this order:\n{said}")
        };
        rest = after;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_demo_leaves_neither_processes_nor_files() {
    let _slots = all_cluster_slots().await;
    let dir = tempfile::tempdir().unwrap();
    let mut command = demo(&dir, &[]);
    let demo = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = demo.id();
    let nodes = eventually("its three nodes run", PATIENCE, || async move {
        let nodes = children_of(pid);
        (nodes.len() == 3).then_some(nodes)
    })
    .await;
    signal(&demo, Signal::INT);
    let ended = tokio::time::timeout(Duration::from_secs(10), finished(demo)).await.unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    for node in nodes {
        crate::support::ends(node).await;
    }
    assert!(is_empty(&dir));
}

fn children_of(parent: u32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    listed.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
