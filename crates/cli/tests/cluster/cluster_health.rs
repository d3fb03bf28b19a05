//! `holdfast cluster status` for scripts: its exit code, and `--check`.

use serde_json::json;

use crate::support::{Cluster, PATIENCE, data, eventually, run, text};

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_tells_a_cluster_that_serves_from_one_without_a_voter_or_a_leader() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let wait_for = async |cluster: &Cluster, code: i32| {
        eventually("the check ends as it should", PATIENCE, || async {
            let checked = run(cluster, &["cluster", "status", "--check"]).await;
            (checked.status.code() == Some(code)).then(|| text(&checked.stdout))
        })
        .await
    };
    let line = wait_for(&cluster, 0).await;
    assert_eq!(line, format!("ok: node {leader} leads, 3 of 3 voters reachable\n"));
    data(&cluster, 0, &["cluster", "status"]).await;

    let follower = cluster.follower().await;
    cluster.kill(follower);
    let line = wait_for(&cluster, 75).await;
    let expected =
        format!("degraded: node {leader} leads, 2 of 3 voters reachable; not node {follower}\n");
    assert_eq!(line, expected);
    let document = data(&cluster, 75, &["cluster", "status", "--check"]).await;
    let expected = json!({
        "state": "degraded", "leader": leader, "groups": 1, "groups_without_leader": [],
        "voters": 3, "unreachable_voters": [follower],
    });
    assert_eq!(document, expected);
    data(&cluster, 0, &["cluster", "status"]).await;

    cluster.kill(leader);
    let line = wait_for(&cluster, 69).await;
    assert!(line.starts_with("no_leader: no leader answers, 1 of 3 voters reachable"), "{line}");
    // What there is to see is shown all the same.
    let status = data(&cluster, 69, &["cluster", "status"]).await;
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3, "{status}");
    let shown = run(&cluster, &["cluster", "status"]).await;
    assert_eq!(shown.status.code(), Some(69), "{shown:?}");
    assert!(text(&shown.stdout).starts_with("NO LEADER"), "{shown:?}");

    let last = cluster.running()[0];
    cluster.kill(last);
    let checked = run(&cluster, &["cluster", "status", "--check"]).await;
    assert_eq!(checked.status.code(), Some(69), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_is_never_ok_after_the_leader_has_stopped() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let endpoints: Vec<String> = others.iter().map(|id| cluster.client_address(*id)).collect();
    let endpoints = endpoints.join(",");
    cluster.freeze(leader);
    for _ in 0..5 {
        let args = ["--endpoints", &endpoints, "cluster", "status", "--check"];
        let checked = run(&cluster, &args).await;
        assert!(matches!(checked.status.code(), Some(69 | 75)), "{checked:?}");
    }
    cluster.thaw(leader);
    eventually("all is well again", PATIENCE, || async {
        let checked = run(&cluster, &["cluster", "status", "--check"]).await;
        checked.status.success().then_some(())
    })
    .await;
}
