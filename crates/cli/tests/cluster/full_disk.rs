//! Nodes whose disks are full: what they say, and that they serve again once there is room.

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{Failure, Reason, StatusRequest};
use serde_json::{Value, json};

use crate::dashboard::get;
use crate::support::{Cluster, PATIENCE, data, eventually, run, text};

/// More than a node tells in a test, and less than the log of its entries has after [`fill_log`].
const FILE_BYTES: u64 = 64 * 1024;

/// Writes more into the log of each node than [`FILE_BYTES`].
async fn fill_log(cluster: &Cluster) {
    let client = cluster.library().await;
    for number in 0..100 {
        let lock = client.lock(format!("filler/{number}")).metadata(vec![7; 1_000]);
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}

async fn refusal_of(cluster: &Cluster, node: u64) -> Option<Failure> {
    let address = format!("http://{}", cluster.client_address(node));
    let mut client = LockServiceClient::connect(address).await.ok()?;
    let request = StatusRequest { name: "deploy/api".into(), request_id: 0 };
    let refused = client.status(request).await.err()?;
    Some(Failure::from_status(&refused))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_majority_of_full_disks_every_node_says_so_and_the_full_ones_show_what_they_know() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let full: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    for node in &full {
        cluster.terminate(*node).await;
        cluster.launch_with_limitable_files(*node);
    }
    cluster.leader().await;
    fill_log(&cluster).await;
    data(&cluster, 0, &["acquire", "deploy/api", "--ttl", "10m", "--reason", "release 2.14"]).await;
    cluster.converged().await;
    for node in &full {
        cluster.limit_files(*node, Some(FILE_BYTES));
    }
    // The first write that the followers cannot take.
    let refused = run(&cluster, &["acquire", "other", "--wait", "1s"]).await;
    assert!(!refused.status.success(), "{refused:?}");

    for node in cluster.ids() {
        let failure = eventually("the node refuses because of full disks", PATIENCE, || async {
            refusal_of(&cluster, node).await.filter(|it| it.reason() == Reason::OutOfSpace)
        })
        .await;
        assert!(failure.message.contains("make room"), "{failure:?}");
        assert!(failure.retryable && !failure.may_have_happened, "{failure:?}");
    }
    for node in &full {
        let at = cluster.http_address(*node);
        let (code, words) = readiness(&at);
        assert_eq!(code, 503, "{words}");
        assert!(words.contains("the disk of this node is full"), "{words}");
        let (code, own) = get(&at, "/api/own");
        assert_eq!(code, 200, "{own}");
        assert_eq!((&own["disk_full"], &own["leader"]), (&json!(true), &json!(0)), "{own}");
        assert_eq!(names(&own), ["deploy/api"], "{own}");
    }
    let (code, own) = get(&cluster.http_address(leader), "/api/own");
    assert_eq!((code, &own["disk_full"]), (200, &json!(false)), "{own}");

    for node in &full {
        cluster.limit_files(*node, None);
    }
    cluster.leader().await;
    let status = data(&cluster, 0, &["status", "deploy/api"]).await;
    assert_eq!(status["holder_count"], 1, "{status}");
    for node in full {
        eventually("the node has room again", PATIENCE, || async {
            (get(&cluster.http_address(node), "/api/own").1["disk_full"] == false).then_some(())
        })
        .await;
    }
}

fn readiness(address: &str) -> (u16, String) {
    let answer = tokio::task::block_in_place(|| {
        holdfast_browser::request(address, "GET", "/readyz", &[], b"").unwrap()
    });
    (answer.status, text(&answer.body))
}

fn names(own: &Value) -> Vec<&str> {
    own["locks"].as_array().unwrap().iter().filter_map(|lock| lock["name"].as_str()).collect()
}
