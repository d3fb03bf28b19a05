//! The command line as scripts rely on it: exit codes, what goes to stdout, JSON.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::support::{
    Cluster, PATIENCE, cluster_slot, eventually, free_base_port, holdfast, json, output, run,
    signal, text,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_of_lock_is_the_child_s_own() {
    let cluster = Cluster::start(3).await;
    let script = "echo $HOLDFAST_LOCK $HOLDFAST_TOKEN $HOLDFAST_FENCE; exit 7";
    let output = run(&cluster, &["lock", "a", "--", "sh", "-c", script]).await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let line = text(&output.stdout);
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[0], "a");
    let token: u64 = words[1].parse().unwrap();
    assert!(token > 0);
    let fence: holdfast_proto::Fence = words[2].parse().unwrap();
    assert_eq!(fence.number(), token);
    let killed = run(&cluster, &["lock", "a", "--", "sh", "-c", "kill -TERM $$"]).await;
    assert_eq!(killed.status.code(), Some(128 + 15));
    let missing = run(&cluster, &["lock", "a", "--", "no-such-command-here"]).await;
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    // However it ended, the lock is free again.
    let status = json(&run(&cluster, &["status", "a", "--output", "json"]).await);
    assert_eq!(status["holders"].as_array().map(Vec::len), Some(0), "{status}");
}

#[test]
fn an_argument_that_is_no_text_is_a_mistake_like_any_other() {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"a\xff");
    let output = holdfast().arg("status").arg(name).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_hold_a_lock_across_commands() {
    let cluster = Cluster::start(3).await;
    let acquired = run(&cluster, &["acquire", "job", "--ttl", "60s", "--output", "json"]).await;
    assert!(acquired.status.success(), "{acquired:?}");
    let grant = json(&acquired);
    let (session, token) = (grant["session"].as_str().unwrap(), grant["token"].as_str().unwrap());

    let busy = run(&cluster, &["acquire", "job"]).await;
    assert_eq!(busy.status.code(), Some(75), "{busy:?}");
    assert!(busy.stdout.is_empty() && !busy.stderr.is_empty());
    let busy = run(&cluster, &["lock", "job", "--wait", "0s", "--", "true"]).await;
    assert_eq!(busy.status.code(), Some(75), "{busy:?}");
    let late = run(&cluster, &["lock", "job", "--wait", "300ms", "--", "true"]).await;
    assert_eq!(late.status.code(), Some(75), "{late:?}");

    let held = ["--session", session, "--token", token];
    let renewed = run(&cluster, &[&["renew", "job"][..], &held].concat()).await;
    assert!(renewed.status.success(), "{renewed:?}");
    let listed = json(&run(&cluster, &["ls", "jo", "--output", "json"]).await);
    assert_eq!(listed["locks"][0]["name"], "job", "{listed}");
    let sessions = run(&cluster, &["sessions", "--output", "json"]).await;
    assert!(!text(&sessions.stdout).contains(session), "a listing shows the secret");
    assert_eq!(json(&sessions)["sessions"].as_array().map(Vec::len), Some(1));

    // A name that was mistyped frees nothing.
    let mistyped = run(&cluster, &[&["release", "jbo"][..], &held].concat()).await;
    assert!(!text(&mistyped.stdout).starts_with("released"), "{mistyped:?}");
    assert_eq!(cluster.client().status("job").await.holders.len(), 1);

    let released = run(&cluster, &[&["release", "job"][..], &held].concat()).await;
    assert!(released.status.success(), "{released:?}");
    assert!(text(&released.stdout).contains("released"));
    let again = run(&cluster, &[&["release", "job"][..], &held].concat()).await;
    assert!(again.status.success(), "{again:?}");
    assert!(text(&again.stdout).contains("already_released"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_a_file_that_only_its_owner_can_read_renews_and_releases_its_lock() {
    let cluster = Cluster::start(1).await;
    let acquired = run(&cluster, &["acquire", "job", "--ttl", "60s"]).await;
    assert!(acquired.status.success(), "{acquired:?}");
    let lines = text(&acquired.stdout);
    let value = |key: &str| lines.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let (session, token) = (value("session="), value("token="));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.session");
    std::fs::write(&file, &lines).unwrap();
    let set_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
    };
    let by_file = ["--session-file", file.to_str().unwrap(), "--token", token];
    for verb in ["renew", "release"] {
        let both = [&[verb, "job", "--session", session][..], &by_file].concat();
        assert_eq!(run(&cluster, &both).await.status.code(), Some(64));
        set_mode(0o640);
        let readable = run(&cluster, &[&[verb, "job"][..], &by_file].concat()).await;
        assert_eq!(readable.status.code(), Some(64), "{readable:?}");
        assert!(text(&readable.stderr).contains("chmod 600"), "{readable:?}");
        assert_eq!(cluster.client().status("job").await.holders.len(), 1);
        set_mode(0o600);
        let done = run(&cluster, &[&[verb, "job"][..], &by_file].concat()).await;
        assert!(done.status.success(), "{done:?}");
    }
    assert_eq!(cluster.client().status("job").await.holders.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_use_ends_with_64_and_an_unreachable_node_with_69() {
    let cluster = Cluster::start(3).await;
    for args in [
        &["lock", "a"][..],
        &["no-such-verb"],
        &["lock", "a", "--ttl", "0s", "--", "true"],
        &["lock", "a", "--ttl", "-5s", "--", "true"],
        &["lock", "a", "--ttl", "10", "--", "true"],
        &["lock", "a", "--wait", "forever", "--", "true"],
        &["lock", "", "--", "true"],
        &["release", "a", "--session", "xyz", "--token", "1"],
        &["release", "a", "--session", &"ab".repeat(16), "--token", "0"],
        &["server", "--config", "/nonexistent/holdfast.toml"],
    ] {
        let output = run(&cluster, args).await;
        assert_eq!(output.status.code(), Some(64), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    let mut unreachable = holdfast();
    unreachable.args(["status", "a", "--endpoints", "127.0.0.1:1"]);
    assert_eq!(output(unreachable).await.status.code(), Some(69));
    let mut unreachable = holdfast();
    unreachable.args(["lock", "a", "--endpoints", "127.0.0.1:1", "--", "true"]);
    assert_eq!(output(unreachable).await.status.code(), Some(69));
    for help in ["--help", "lock --help", "dev --help", "cluster status --help"] {
        let output = run(&cluster, &help.split(' ').collect::<Vec<_>>()).await;
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("holdfast"), "{help} has no example");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_status_shows_who_leads_and_who_lags() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let dead = cluster.follower().await;
    cluster.kill(dead);
    eventually("the dead node is seen to be gone", Duration::from_secs(10), || async {
        let status = json(&run(&cluster, &["cluster", "status", "--output", "json"]).await);
        assert_eq!(status["groups"][0]["leader"], leader, "{status}");
        let nodes = status["nodes"].as_array()?.clone();
        let gone = nodes.iter().find(|node| node["id"] == dead)?;
        (gone["reachable"] == false).then_some(())
    })
    .await;
    let table = run(&cluster, &["cluster", "status"]).await;
    assert!(table.status.success() && text(&table.stdout).contains("leader"), "{table:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_is_a_whole_cluster_in_one_command() {
    let _slots = cluster_slot().await;
    let port = free_base_port(30);
    let mut dev = Dev::start(&["--port", &port.to_string()]);
    let lines = dev.lines_until("ready").await;
    assert!(lines.contains(&format!("127.0.0.1:{port}")), "{lines}");
    assert!(lines.contains("holdfast lock"), "{lines}");
    let mut lock = holdfast();
    lock.args(["lock", "a", "--endpoints", &format!("127.0.0.1:{port}"), "--", "true"]);
    let taken = output(lock).await;
    assert!(taken.status.success(), "{taken:?}");
    assert_eq!(dev.ended_by_one_signal().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_says_what_is_wrong_with_the_data_of_another_cluster_and_ends_at_the_first_signal() {
    let _slots = cluster_slot().await;
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    let (port, other) = (free_base_port(30).to_string(), free_base_port(30).to_string());
    let mut dev = Dev::start(&["--data-dir", data_dir, "--port", &port]);
    dev.lines_until("ready").await;
    assert_eq!(dev.ended_by_one_signal().await, Some(0));

    for wrong in [&["--port", &other][..], &["--port", &port, "--nodes", "1"]] {
        let (code, said) = Dev::start(&[&["--data-dir", data_dir], wrong].concat()).refused().await;
        assert_eq!(code, Some(64), "{wrong:?}: {said}");
        assert!(said.contains(&format!("--nodes 3 --port {port}")), "{wrong:?}: {said}");
    }

    // As a version left it that did not note this: it is never ready.
    std::fs::remove_file(dir.path().join("dev.json")).unwrap();
    let mut dev = Dev::start(&["--data-dir", data_dir, "--port", &other]);
    dev.lines_until("  holdfast cluster status").await;
    assert_eq!(dev.ended_by_one_signal().await, Some(0));
}

/// `holdfast dev`, and what it says.
pub(crate) struct Dev {
    process: Child,
    stdout: Option<std::io::Lines<BufReader<ChildStdout>>>,
}

impl Dev {
    pub(crate) fn start(args: &[&str]) -> Dev {
        let mut dev = holdfast();
        dev.arg("dev").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = dev.spawn().unwrap();
        let stdout = process.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Dev { process, stdout }
    }

    pub(crate) async fn lines_until(&mut self, last: &'static str) -> String {
        let mut stdout = self.stdout.take().unwrap();
        let read = move || {
            let until = stdout.by_ref().map_while(Result::ok).take_while(|line| line != last);
            (until.collect::<Vec<_>>(), stdout)
        };
        let (lines, stdout) = tokio::task::spawn_blocking(read).await.unwrap();
        self.stdout = Some(stdout);
        lines.join("\n")
    }

    pub(crate) async fn ended_by_one_signal(mut self) -> Option<i32> {
        signal(&self.process, rustix::process::Signal::TERM);
        self.ended().await
    }

    async fn refused(mut self) -> (Option<i32>, String) {
        let code = self.ended().await;
        let mut said = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (code, said)
    }

    async fn ended(&mut self) -> Option<i32> {
        let ended = eventually("it ends", PATIENCE, || {
            std::future::ready(self.process.try_wait().unwrap())
        });
        ended.await.code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It has ended already unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
