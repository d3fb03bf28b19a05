//! `holdfast watch` and `holdfast top`, on a terminal and in a pipe; completions and manual pages.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    Cluster, Terminal, data, eventually, holdfast, json_lines, output, run, text,
};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn top_fills_a_terminal_and_leaves_it_as_it_was() {
    let cluster = Cluster::start(3).await;
    data(&cluster, 0, &["acquire", "deploy", "--ttl", "60s", "--reason", "month end"]).await;
    for key in [&b"q"[..], b"\x03"] {
        let terminal = Terminal::start(&cluster, "top --interval 200ms");
        terminal.shows("busiest").await;
        terminal.shows("queues").await;
        terminal.shows("leads").await;
        terminal.shows("follower").await;
        // Something happens while a user looks.
        assert!(run(&cluster, &["lock", "seen-by-top", "--", "true"]).await.status.success());
        terminal.shows("seen-by-top").await;
        terminal.leaves_the_screen_by(key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_in_a_pipe_counts_once_and_ends() {
    let mut cluster = Cluster::start(3).await;
    data(&cluster, 0, &["acquire", "deploy", "--ttl", "60s"]).await;
    let client = cluster.library().await;
    let waiting = tokio::spawn({
        let (first, second) = (client.lock("deploy").actor(1), client.lock("deploy").actor(2));
        async move { tokio::join!(first.wait(PATIENCE).acquire(), second.wait(PATIENCE).acquire()) }
    });
    eventually("two wait", PATIENCE, || async {
        (cluster.client().status("deploy").await.waiter_count == 2).then_some(())
    })
    .await;
    let dead = cluster.follower().await;
    cluster.kill(dead);
    let top = data(&cluster, 0, &["top", "--interval", "300ms"]).await;
    assert_eq!(top["queues"][0]["name"], "deploy", "{top}");
    assert_eq!(top["queues"][0]["waiter_count"], 2, "{top}");
    assert_eq!((&top["locks"], &top["waiting"]), (&1.into(), &2.into()), "{top}");
    assert!(top["busiest_sessions"][0]["wait_count"] == 2, "{top}");
    assert!(top["read_latency"]["median_us"].as_u64() > Some(0), "{top}");
    let leader = cluster.leader().await;
    for node in top["nodes"].as_array().unwrap() {
        assert_eq!(node["answers"], node["id"] != dead, "{top}");
        assert_eq!(node["role"] == "leader", node["id"] == leader, "{top}");
    }
    let table = run(&cluster, &["top", "--interval", "100ms"]).await;
    let table = text(&table.stdout);
    assert!(table.contains("longest queues") && !table.contains('\x1b'), "{table}");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_is_a_table_that_moves_on_a_terminal_and_lines_in_a_pipe() {
    let cluster = Cluster::start(1).await;
    let held =
        data(&cluster, 0, &["acquire", "a/1", "--ttl", "60s", "--reason", "month end"]).await;
    let terminal = Terminal::start(&cluster, "watch a/");
    terminal.shows("a/1").await;
    terminal.shows("month").await;
    data(&cluster, 0, &["acquire", "a/2", "--ttl", "60s"]).await;
    terminal.shows("granted").await;
    terminal.shows("a/2").await;
    terminal.leaves_the_screen_by(b"q").await;

    let mut watches = [&["watch", "a/"][..], &["watch", "a/", "--lines"]].map(|args| {
        let mut watch = holdfast();
        watch.args(args).env("HOLDFAST_ENDPOINTS", cluster.endpoints());
        watch.stdout(Stdio::piped()).spawn().unwrap()
    });
    let token = &held["token"];
    // The break comes after the snapshot, or with it: then it is not told. So one is broken until it is told.
    let mut reported = watches.each_mut().map(|watch| {
        let mut stdout = watch.stdout.take().unwrap();
        std::thread::spawn(move || {
            let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                seen.extend_from_slice(&buffer[..count]);
                if String::from_utf8_lossy(&seen).contains("broken") {
                    break;
                }
            }
            seen
        })
    });
    eventually("both tell of a broken lock", PATIENCE, || async {
        let _ = run(&cluster, &["acquire", "a/3", "--ttl", "60s"]).await;
        let _ = run(&cluster, &["break", "a/3", "--reason", "test"]).await;
        reported.iter().all(|reader| reader.is_finished()).then_some(())
    })
    .await;
    let [as_json, as_words] = reported
        .each_mut()
        .map(|reader| std::mem::replace(reader, std::thread::spawn(Vec::new)).join().unwrap());
    let last_line = as_json.iter().rposition(|byte| *byte == b'\n').unwrap();
    let events = json_lines(&as_json[..last_line]);
    assert_eq!((&events[0]["event"], &events[0]["names"][0]), (&"held".into(), &"a/1".into()));
    assert_eq!((&events[0]["token"], &events[0]["metadata"]), (token, &"month end".into()));
    assert!(events.iter().any(|event| event["event"] == "broken"), "{events:?}");
    let as_words = text(&as_words);
    let first = as_words.lines().next().unwrap();
    let rest = first.strip_prefix("now").unwrap().trim_start();
    assert!(rest.starts_with("held           a/1  holdfast acquire@"), "{first}");
    // The operator who broke it is shown with a time, and whose it was is known.
    let broken = as_words.lines().find(|line| line.contains("  broken ")).unwrap();
    assert!(broken.starts_with("20") && broken.contains("a/3  holdfast acquire@"), "{broken}");
    for mut watch in watches {
        watch.kill().unwrap();
        watch.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_complete_and_every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let mut completions = holdfast();
        completions.args(["completions", shell]);
        let script = text(&output(completions).await.stdout);
        assert!(script.contains("set-permits") && !script.contains("exec-child"), "{shell}");
        std::fs::write(dir.path().join(shell), script).unwrap();
    }
    let script = "source ./bash; COMP_WORDS=(holdfast kill); COMP_CWORD=1; _holdfast holdfast kill holdfast; echo ${COMPREPLY[@]}";
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).current_dir(dir.path());
    assert_eq!(text(&output(bash).await.stdout), "kill-session\n");

    let mut man = holdfast();
    man.args(["man", "--dir"]).arg(dir.path().join("man1"));
    assert!(output(man).await.status.success());
    for page in ["holdfast", "holdfast-lock", "holdfast-cluster-add", "holdfast-top"] {
        let page = std::fs::read_to_string(dir.path().join(format!("man1/{page}.1"))).unwrap();
        assert!(page.contains("Examples:") && page.contains(".TH holdfast"), "{page}");
    }
    let count = std::fs::read_dir(dir.path().join("man1")).unwrap().count();
    assert!(count > 35, "{count} pages");
    assert!(!dir.path().join("man1/holdfast-exec-child.1").exists());
}
