//! How large the lock table may become, with the command line.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;

use crate::support::{
    Cluster, ClusterOptions, PATIENCE, data, eventually, holdfast, run, text, words,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_the_limits_and_raises_them_when_the_table_is_full() {
    let cluster = Cluster::start(3).await;
    let shown = data(&cluster, 0, &["cluster", "limits"]).await;
    assert_eq!(shown["bytes_limit"], 1_u64 << 30, "{shown}");
    assert_eq!(shown["locks_limit"], 1_000_000, "{shown}");

    // Once every node is known to read it.
    let set = ["cluster", "limits", "--locks", "1", "--bytes", "1MiB", "--reason", "a test"];
    let shown = data(&cluster, 0, &set).await;
    assert_eq!((&shown["locks_limit"], &shown["bytes_limit"]), (&1.into(), &(1 << 20).into()));
    assert_eq!(shown["are_in_force"], true, "{shown}");

    data(&cluster, 0, &["acquire", "one"]).await;
    let refused = words(&cluster, 75, &["acquire", "two"]).await;
    assert!(refused.contains("as many locks as it may have, 1"), "{refused}");
    assert!(refused.contains("holdfast cluster limits --locks"), "{refused}");
    let table = run(&cluster, &["cluster", "limits"]).await;
    assert!(text(&table.stdout).contains("100%"), "{table:?}");

    data(&cluster, 0, &["cluster", "limits", "--locks", "2", "--reason", "a test"]).await;
    data(&cluster, 0, &["acquire", "two"]).await;
    for wrong in [
        &["cluster", "limits", "--locks", "2"][..],
        &["cluster", "limits", "--reason", "x"],
        &["cluster", "limits", "--bytes", "4GiB", "--reason", "x"],
        &["cluster", "limits", "--bytes", "many", "--reason", "x"],
        &["cluster", "limits", "--locks", "0", "--reason", "x"],
    ] {
        words(&cluster, 64, wrong).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_acquire_leaves_its_place_in_the_queue() {
    let cluster = Cluster::start(3).await;
    data(&cluster, 0, &["acquire", "wallet"]).await;
    eventually("the rules are adopted", PATIENCE, || async {
        let shown = data(&cluster, 0, &["cluster", "limits"]).await;
        (shown["are_in_force"] == true).then_some(())
    })
    .await;
    let mut waiting = holdfast()
        .args(["acquire", "wallet", "--wait", "10m", "--ttl", "10m"])
        .env("HOLDFAST_ENDPOINTS", cluster.endpoints())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let waiters = async |count: u64| {
        eventually("so many wait", PATIENCE, || async {
            let status = data(&cluster, 0, &["status", "wallet"]).await;
            (status["waiter_count"] == count).then_some(())
        })
        .await;
    };
    waiters(1).await;
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    // Long before its TTL.
    waiters(0).await;
}

/// A client's preface and its settings, and nothing else.
const SILENT: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_descriptors_silent_clients_want_goes_on_writing_its_log() {
    const CONNECTIONS: usize = 300;
    let settings = "segment_bytes = 1048576".to_owned();
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 1, settings }).await;
    cluster.terminate(1).await;
    cluster.launch_with_descriptors(1, 192, 256);
    cluster.leader().await;
    let address = cluster.client_address(1);
    let silent: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut connection = TcpStream::connect(&address).unwrap();
            // One that had to give way may be closed by now.
            let _ = connection.write_all(SILENT);
            connection
        })
        .collect();
    // Enough for several files of the log.
    let client = cluster.library().await;
    let mut granted = tokio::task::JoinSet::new();
    for number in 0..2_500 {
        let lock = client.lock(format!("lock-{number}")).metadata(vec![7; 1_000]);
        granted.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    granted.join_all().await;
    let log = cluster.data_dir(1).join("log");
    assert!(std::fs::read_dir(log).unwrap().count() > 2, "no new file of the log was needed");
    assert!(cluster.running().contains(&1));
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_have_too_few_open_files_does_not_start_and_says_what_to_do() {
    let settings = String::new();
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 1, settings }).await;
    cluster.terminate(1).await;
    cluster.launch_with_descriptors(1, 100, 100);
    assert!(!cluster.ends(1).await.success());
    let said = cluster.log_of(1);
    assert!(said.contains("may have 100 open files") && said.contains("ulimit -n"), "{said}");
}
