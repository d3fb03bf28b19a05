//! A node without a quorum: its pages show what it knows by itself.

use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::browser::{see, start_browser};
use super::{cluster, get};
use crate::support::{Cluster, PATIENCE, data, eventually};

/// The only node that is left of three, which knows of a lock and a freeze.
async fn last_of_three() -> (Cluster, u64) {
    let mut cluster = cluster().await;
    data(&cluster, 0, &["acquire", "deploy/api", "--ttl", "60s", "--reason", "release 2.14"]).await;
    data(&cluster, 0, &["freeze", "billing/", "--for", "1h", "--reason", "migration"]).await;
    cluster.converged().await;
    let leader = cluster.leader().await;
    let last = cluster.follower().await;
    let other = cluster.ids().into_iter().find(|id| *id != leader && *id != last).unwrap();
    cluster.kill(other);
    cluster.kill(leader);
    (cluster, last)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_quorum_tells_whom_it_reaches_since_when_and_what_it_knows() {
    let (cluster, last) = last_of_three().await;
    let at = cluster.http_address(last);
    let own =
        eventually("the node knows that there is no leader, and since when", PATIENCE, || {
            let (code, own) = get(&at, "/api/own");
            assert_eq!(code, 200, "{own}");
            let is_known = own["leader"] == 0 && own["leaderless_since_unix_ms"].is_u64();
            std::future::ready(is_known.then_some(own))
        })
        .await;
    let since = own["leaderless_since_unix_ms"].as_u64().unwrap();
    assert!(since <= own["unix_ms"].as_u64().unwrap(), "{own}");
    let voters = ["voters", "voters_reachable", "voters_needed"].map(|key| own[key].clone());
    assert_eq!(voters, [3, 1, 2].map(Value::from), "{own}");
    let reached: Vec<u64> = own["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["reachable"] == true)
        .map(|node| node["id"].as_u64().unwrap())
        .collect();
    assert_eq!(reached, [last], "{own}");
    assert!(own["applied_index"].as_u64() > Some(0), "{own}");
    let lock = &own["locks"][0];
    assert_eq!((&lock["name"], &lock["holders"]), (&json!("deploy/api"), &json!(1)), "{own}");
    assert!(lock["token"].is_string(), "{own}");
    assert_eq!(own["freezes"][0]["prefix"], "billing/", "{own}");
    // What asks the leader still says that there is none.
    let (code, failed) = get(&at, "/api/locks");
    assert_eq!(code, 503, "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_opens_the_page_without_a_quorum_sees_the_nodes_own_view_and_then_the_clusters()
 {
    let Some(browser) = start_browser() else { return };
    let (mut cluster, last) = last_of_three().await;
    block_in_place(|| browser.open(&format!("http://{}/", cluster.http_address(last)))).unwrap();
    let text = see(&browser, "main", |text| text.contains("none since"));
    assert!(text.contains(&format!("1 of 3 reachable from node {last}, 2 needed")), "{text}");
    assert!(text.contains("may be old: as of log entry"), "{text}");
    assert!(text.contains("deploy/api") && text.contains("billing/"), "{text}");
    assert!(text.contains("not reachable"), "{text}");
    let banner = see(&browser, "#banner", |text| text.contains("no leader since"));
    assert!(banner.contains("nothing is granted"), "{banner}");

    let dead = cluster.ids().into_iter().find(|id| *id != last).unwrap();
    cluster.launch(dead);
    cluster.leader().await;
    see(&browser, "main", |text| text.contains("Longest queues") && !text.contains("may be old"));
    see(&browser, "#banner", str::is_empty);
}
