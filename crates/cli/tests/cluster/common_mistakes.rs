//! What people stumble over on their first day: each mistake is told soon, and with what to do about it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::{
    Cluster, CommandFixture, PATIENCE, data, eventually, finished, free_base_port, holdfast,
    metric, metrics, output, run, text, words,
};

const NO_NODE: &str = "127.0.0.1:1";

/// Without a cluster.
async fn run_without_cluster(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = holdfast();
    command.args(args).env("HOLDFAST_ENDPOINTS", NO_NODE);
    let output = output(command).await;
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_to_wait_briefly_is_not_kept_longer_when_there_is_no_leader() {
    let mut cluster = Cluster::start(3).await;
    cluster.kill(1);
    cluster.kill(2);
    eventually("the last node knows that it has no leader", PATIENCE, || async {
        cluster.view_of(3).await.filter(|view| view.leader == 0).map(drop)
    })
    .await;
    let began = Instant::now();
    let said = words(&cluster, 69, &["snapshot", "save", "/nonexistent/not-saved"]).await;
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert!(said.contains("the cluster has no leader"), "{said}");
    for (wait, args) in [
        (0, &["lock", "a", "--wait", "0s", "--", "true"][..]),
        (0, &["elect", "a", "--wait", "0s", "--", "true"]),
        (0, &["acquire", "a"]),
        (3, &["lock", "a", "--wait", "3s", "--", "true"]),
        (3, &["elect", "a", "--wait", "3s", "--", "true"]),
        (3, &["acquire", "a", "--wait", "3s"]),
    ] {
        let began = Instant::now();
        let said = words(&cluster, 69, args).await;
        // A client that is more patient is kept for ten.
        let (least, most) = (Duration::from_secs(wait), Duration::from_secs(wait + 4));
        assert!((least..most).contains(&began.elapsed()), "{args:?}: {:?}", began.elapsed());
        assert!(said.contains("the cluster has no leader"), "{args:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_was_asked_for_lasts_until_the_cluster_is_back() {
    let mut fixture = CommandFixture::start().await;
    fixture.cluster.kill(1);
    for args in [
        &["lock", "a", "--wait", "60s", "--", "true"][..],
        &["elect", "a", "--wait", "60s", "--", "true"],
        &["acquire", "b", "--wait", "60s"],
    ] {
        let mut waiting = fixture.holdfast(args).spawn().unwrap();
        let mut stderr = BufReader::new(waiting.stderr.take().unwrap());
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            stderr.read_line(&mut line).unwrap();
            line
        });
        let line = line.await.unwrap();
        assert!(line.contains("cannot reach any node"), "{args:?}: {line}");
        assert!(line.contains("trying again for another"), "{args:?}: {line}");
        fixture.cluster.launch(1);
        let ended = finished(waiting).await;
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {ended:?}");
        fixture.cluster.kill(1);
    }
    let began = Instant::now();
    let said = words(&fixture.cluster, 69, &["lock", "a", "--wait", "3s", "--", "true"]).await;
    assert!(began.elapsed() >= Duration::from_secs(3), "{said}");
    assert!(said.lines().last().unwrap().contains("--endpoints"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_go_without_a_lock_does_so_when_the_cluster_is_down_and_is_told() {
    let show = "echo [$HOLDFAST_LOCK][$HOLDFAST_TOKEN][$HOLDFAST_FENCE]";
    let go_without = ["--when-down", "go-without", "--", "sh", "-c", show];
    let efficiency = [&["lock", "a", "--tier", "efficiency"][..], &go_without].concat();
    let (code, stdout, stderr) = run_without_cluster(&efficiency).await;
    assert_eq!((code, stdout.as_str()), (Some(0), "[a][][]\n"), "{stderr}");
    assert!(stderr.contains("cannot reach any node"), "{stderr}");
    assert!(stderr.contains("running the command without a lock"), "{stderr}");

    let fall_back = ["--when-down", "fall-back", "--", "sh", "-c", show];
    let efficiency = [&["lock", "a", "--tier", "efficiency"][..], &fall_back].concat();
    let (code, stdout, _) = run_without_cluster(&efficiency).await;
    assert_eq!((code, stdout.as_str()), (Some(69), ""));

    // What is damaged when it is done twice is not done at all.
    let redis = ["--efficiency-redis", "redis://127.0.0.1:1", "--", "sh", "-c", show];
    for what in [&go_without, &fall_back, &redis] {
        let (code, stdout, stderr) =
            run_without_cluster(&[&["lock", "a"][..], what].concat()).await;
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{stderr}");
        assert!(stderr.contains("is for --tier efficiency"), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_names_the_wrong_lock_or_tier_is_told_the_right_one() {
    let cluster = Cluster::start(1).await;
    let job = data(&cluster, 0, &["acquire", "job"]).await;
    let (session, token) = (job["session"].as_str().unwrap(), job["token"].as_str().unwrap());
    let held = ["--session", session, "--token", token];
    let in_memory = ["--tier", "efficiency"];

    let mistyped = run(&cluster, &[&["release", "jbo"][..], &held].concat()).await;
    assert_eq!(mistyped.status.code(), Some(77), "{mistyped:?}");
    assert_eq!(text(&mistyped.stdout), "not_owner\n");
    assert!(text(&mistyped.stderr).contains("`holdfast release job`"), "{mistyped:?}");
    let said = words(&cluster, 64, &[&["renew", "jbo"][..], &held].concat()).await;
    assert!(said.contains("`holdfast renew job`"), "{said}");
    let said = words(&cluster, 77, &[&["release", "job"][..], &held, &in_memory].concat()).await;
    assert!(said.contains("--tier correctness"), "{said}");
    let said = words(&cluster, 64, &[&["renew", "job"][..], &held, &in_memory].concat()).await;
    assert!(said.contains("--tier correctness"), "{said}");

    // A release that comes again is as good as the first, whatever became of the lock since.
    let release = [&["release", "job"][..], &held].concat();
    assert_eq!(data(&cluster, 0, &release).await["outcome"], "released");
    assert_eq!(data(&cluster, 0, &release).await["outcome"], "already_released");
    data(&cluster, 0, &["acquire", "job"]).await;
    assert_eq!(data(&cluster, 0, &release).await["outcome"], "already_released");

    let taken = data(&cluster, 0, &["acquire", "taken"]).await;
    let (session, token) = (taken["session"].as_str().unwrap(), taken["token"].as_str().unwrap());
    data(&cluster, 0, &["break", "taken", "--reason", "test"]).await;
    let late = ["release", "taken", "--session", session, "--token", token];
    assert!(words(&cluster, 79, &late).await.contains("`holdfast history taken` shows which"));

    let fast = data(&cluster, 0, &["acquire", "fast", "--tier", "efficiency"]).await;
    let (session, token) = (fast["session"].as_str().unwrap(), fast["token"].as_str().unwrap());
    let held = ["--session", session, "--token", token];
    for (verb, code) in [("release", 77), ("renew", 64)] {
        let said = words(&cluster, code, &[&[verb, "fast"][..], &held].concat()).await;
        assert!(said.contains(&format!("`holdfast {verb} fast --tier efficiency`")), "{said}");
    }
    let said = words(&cluster, 79, &["break", "fast", "--reason", "test"]).await;
    assert!(said.contains("in the efficiency tier"), "{said}");
    let why = text(&run(&cluster, &["why", "fast"]).await.stdout);
    assert!(why.contains("`holdfast lock fast --tier efficiency`"), "{why}");
    let right = [&["release", "fast"][..], &held, &in_memory].concat();
    assert_eq!(data(&cluster, 0, &right).await["outcome"], "released");
    assert!(data(&cluster, 0, &["why", "fast"]).await["other_tier"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_the_http_port_for_the_client_port_is_told_where_that_is() {
    let cluster = Cluster::start(1).await;
    let (http, client) = (cluster.http_address(1), cluster.client_address(1));
    let expected = format!("this is the HTTP port of node 1; clients use {client}");
    for args in [&["status", "a"][..], &["cluster", "status"], &["lock", "a", "--", "true"]] {
        let said = words(&cluster, 69, &[&["--endpoints", &http][..], args].concat()).await;
        assert!(said.contains(&expected), "{args:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_port_is_taken_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let first = free_base_port(3);
    let _taken = TcpListener::bind(("127.0.0.1", first + 2)).unwrap();
    let config = format!(
        "cluster = \"test\"\nnode = 1\ndata_dir = {data_dir:?}\n[[nodes]]\nid = 1\nclient = \"127.0.0.1:{first}\"\n\
         peer = \"127.0.0.1:{}\"\nhttp = \"127.0.0.1:{}\"\n",
        first + 1,
        first + 2
    );
    let path = dir.path().join("node.toml");
    std::fs::write(&path, config).unwrap();
    let (code, _, stderr) =
        run_without_cluster(&["server", "--config", path.to_str().unwrap()]).await;
    assert_eq!(code, Some(69), "{stderr}");
    assert!(stderr.contains("is in use"), "{stderr}");
    assert!(!data_dir.exists(), "it has written its identity");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dev_cluster_of_which_one_port_is_taken_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let first = free_base_port(23);
    let taken = TcpListener::bind(("127.0.0.1", first + 12)).unwrap();
    let (port, data) = (first.to_string(), data_dir.to_str().unwrap());
    let (code, _, stderr) =
        run_without_cluster(&["dev", "--port", &port, "--data-dir", data]).await;
    assert_eq!(code, Some(69), "{stderr}");
    let address = taken.local_addr().unwrap();
    assert!(stderr.contains(&format!("{address} is in use")), "{stderr}");
    assert!(!data_dir.exists(), "the next start would find the data of one node");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_cluster_would_take_is_refused_without_one() {
    let long = "x".repeat(513);
    for (args, said) in [
        (&["lock", "", "--", "true"][..], "must not be empty"),
        (&["lock", "--all", "a,", "--", "true"], "must not be empty"),
        (&["lock", &long, "--", "true"], "at most 512 bytes"),
        (&["status", "a\nb"], "control characters"),
        (&["lock", "a", "--wait", "999d", "--", "true"], "at most 24h"),
        (&["elect", "a", "--wait", "25h", "--", "true"], "at most 24h"),
        (&["acquire", "a", "--wait", "25h"], "at most 24h"),
        (&["acquire", "a", "--lock-delay", "61m"], "at most 1h"),
        (&["lock", "a", "--max-hold", "31d", "--", "true"], "at most 30d"),
        (&["freeze", "a", "--for", "31d", "--reason", "x"], "at most 30d"),
        (&["who", "a", "--token", "abc"], "a token is a whole number from 1 on"),
        (&["lock", "a", "--timeout", "5s", "--", "true"], "--wait D is how long to wait"),
    ] {
        let (code, stdout, stderr) = run_without_cluster(args).await;
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{args:?}: {stderr}");
        assert!(stderr.contains(said) && !stderr.contains("--tier"), "{args:?}: {stderr}");
        assert!(!stderr.contains(&long), "{args:?}: {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_alone_says_for_whom_it_waits() {
    let mut cluster = Cluster::start(3).await;
    for id in cluster.ids() {
        cluster.kill(id);
    }
    cluster.launch(2);
    let line = eventually("it says so", PATIENCE, || {
        let log = cluster.log_of(2);
        let line = log.lines().find(|line| line.contains("waiting for a majority"));
        std::future::ready(line.map(str::to_owned))
    });
    let line = line.await;
    assert!(line.contains("1 of 3 nodes are here and 2 are needed"), "{line}");
    assert!(line.contains("node 1 at 127.0.0.1:") && line.contains("node 3 at"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_which_nothing_is_known_has_no_table_but_words() {
    let cluster = Cluster::start(1).await;
    let never = run(&cluster, &["history", "never-used"]).await;
    assert!(never.status.success() && never.stdout.is_empty(), "{never:?}");
    let said = text(&never.stderr);
    assert!(said.contains("there are no events of 'never-used'"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_time_is_over_has_not_released_its_lock() {
    let fixture = CommandFixture::start().await;
    let args = ["lock", "a", "--max-hold", "300ms", "--lock-delay", "10m", "--", "sleep", "60"];
    assert!(words(&fixture.cluster, 79, &args).await.contains("the --max-hold of 300ms is over"));
    eventually("the lock delay has begun", PATIENCE, || async {
        let status = fixture.cluster.client().status("a").await;
        assert!(status.holder_count > 0 || status.closed_for_ms.is_some(), "it was released");
        status.closed_for_ms
    })
    .await;
    let history = data(&fixture.cluster, 0, &["history", "a"]).await;
    assert_eq!(history["events"][1]["event"], "expired", "{history}");
    let said = words(&fixture.cluster, 75, &["acquire", "a"]).await;
    assert!(said.contains("is closed for another"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_ended_with_its_session_is_told_so_by_all() {
    let cluster = Cluster::start(1).await;
    data(&cluster, 0, &["acquire", "a", "--ttl", "100ms"]).await;
    eventually("it has expired", PATIENCE, || async {
        (cluster.client().status("a").await.holder_count == 0).then_some(())
    })
    .await;
    let history = data(&cluster, 0, &["history", "a"]).await;
    assert_eq!(history["events"][1]["event"], "expired", "{history}");
    assert_eq!(history["events"][1]["reason"], "session_expired", "{history}");
    let page = metrics(&cluster.http_address(1)).await;
    let ended = "holdfast_holds_ended_total{reason=\"session_expired\"}";
    assert_eq!(metric(&page, ended), 1.0, "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_right_and_is_not_is_refused_before_anybody_is_asked() {
    for (args, says) in [
        (&["lock", "--all", "acct/1, acct/2", "--", "true"][..], "' acct/2' begins or ends with"),
        (&["lock", "--all", "a,b,a", "--", "true"], "--all names a twice"),
        (&["who", "a", "--token", "-1"], "a token is a whole number from 1 on"),
        (&["lock", "a", "--permits", "-1", "--", "true"], "invalid value '-1' for '--permits <N>'"),
        (&["snapshot", "save", "-"], "./- is a file of that name"),
        (&["dev", "--port", "0"], "0 is not in 1..=65535"),
    ] {
        let (code, _, said) = run_without_cluster(args).await;
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_the_log_that_means_nothing_is_told() {
    let mut cluster = Cluster::start(1).await;
    let mut ls = holdfast();
    ls.args(["ls", "--endpoints", &cluster.endpoints()]).env("HOLDFAST_LOG", "inof");
    let listed = output(ls).await;
    assert!(listed.status.success(), "{listed:?}");
    let said = text(&listed.stderr);
    assert!(said.contains("HOLDFAST_LOG is ignored: 'inof' is no level"), "{said}");
    cluster.terminate(1).await;
    let config = std::fs::read_to_string(cluster.config_path(1)).unwrap();
    cluster.configure(1, &format!("log = \"inof\"\n{config}"));
    let mut server = holdfast();
    server.args(["server", "--config", &cluster.config_path(1)]);
    let refused = output(server).await;
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    assert!(text(&refused.stderr).contains("'inof' is no level"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_down_is_told_by_those_who_go_on_telling_too() {
    let fixture = CommandFixture::start().await;
    for script in ["$HF watch a > /dev/full", "$HF observe a --once > /dev/full"] {
        let held = fixture.cluster.library().await.lock("a").acquire().await.unwrap();
        let ended = output(fixture.shell(script)).await;
        assert_eq!(ended.status.code(), Some(69), "{script}: {ended:?}");
        assert!(text(&ended.stderr).contains("cannot write to stdout"), "{ended:?}");
        held.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn that_nothing_happened_of_late_does_not_mean_that_nothing_ever_did() {
    let cluster = Cluster::start(1).await;
    run(&cluster, &["lock", "a", "--", "true"]).await;
    let said = words(&cluster, 0, &["history", "a", "--since", "1ms"]).await;
    assert!(said.contains("there are no events of 'a' within 1ms"), "{said}");
    assert!(!said.contains("no client has asked"), "{said}");
    let said = words(&cluster, 0, &["history", "b"]).await;
    assert!(said.contains("no client has asked for it"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_of_a_node_that_is_not_waited_for_is_told_in_json_too() {
    let cluster = Cluster::start(1).await;
    let args = ["cluster", "add", "--id", "6", "--peer-address", "127.0.0.1:2"];
    let more = ["--client-address", "127.0.0.1:3", "--timeout", "1ms", "--output", "json"];
    let added = run(&cluster, &[&args[..], &more[..]].concat()).await;
    assert_eq!(added.status.code(), Some(75), "{added:?}");
    let reported = crate::support::json(&added);
    assert!(reported["config"].as_str().unwrap().contains("127.0.0.1:2"), "{reported}");
    assert_eq!(reported["role"], "learner");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_for_a_client_that_has_gone_ends_though_nothing_happens() {
    let fixture = CommandFixture::start().await;
    let held = fixture.cluster.library().await.lock("a").acquire().await.unwrap();
    for script in ["$HF watch a | head -1", "$HF watch nothing | true", "$HF observe b | head -1"] {
        let ended = tokio::time::timeout(PATIENCE, output(fixture.shell(script)));
        let ended = ended.await.unwrap_or_else(|_| panic!("{script} goes on"));
        assert!(ended.status.success(), "{script}: {ended:?}");
    }
    held.release().await.unwrap();
}
