//! How large the lock table may become, with the command line.

use std::process::Stdio;

use crate::support::{Cluster, PATIENCE, data, eventually, holdfast, run, text, words};

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
