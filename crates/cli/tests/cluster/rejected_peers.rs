//! Who must not take part: clients on the peer port, peers of another cluster, a node that was wiped.

use std::time::Duration;

use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_proto::peer_v1::{Hello, PeerFrame};
use holdfast_proto::v1::StatusRequest;
use tonic::{Code, Status};

use crate::support::{Cluster, PlainClient, eventually, hold};

async fn greet(cluster: &Cluster, to: u64, hello: Hello) -> Result<(), Status> {
    let address = format!("http://{}", cluster.peer_address(to));
    let mut peer = PeerServiceClient::connect(address).await.unwrap();
    // The stream stays open after the greeting, as a peer's would.
    let hello = tokio_stream::StreamExt::chain(
        tokio_stream::iter([PeerFrame { hello: Some(hello) }]),
        tokio_stream::pending(),
    );
    let mut welcome = peer.exchange(hello).await?.into_inner();
    welcome.message().await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_on_the_peer_port_are_told_what_is_wrong() {
    let cluster = Cluster::start(3).await;
    let good = Hello {
        version: 2,
        cluster: "test".into(),
        from_node: 2,
        to_node: 1,
        data_dir_id: "ab".repeat(16),
        ..Hello::default()
    };

    let client = PlainClient::new(vec![cluster.peer_address(1)]);
    let status =
        client.stub().status(StatusRequest { name: "a".into(), request_id: 0 }).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains(&cluster.client_address(1)), "{}", status.message());

    let other_cluster = Hello { cluster: "other".into(), ..good.clone() };
    let status = greet(&cluster, 1, other_cluster).await.unwrap_err();
    assert!(status.message().contains("other"), "{status}");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");

    // Node 2 is known by the data directory that it has.
    let other_directory = greet(&cluster, 1, good.clone()).await.unwrap_err();
    assert_eq!(other_directory.code(), Code::FailedPrecondition, "{other_directory}");
    assert!(other_directory.message().contains("data directory"), "{other_directory}");

    let no_member = greet(&cluster, 1, Hello { from_node: 9, ..good.clone() }).await.unwrap_err();
    assert!(no_member.message().contains('9'), "{no_member}");
    let astray = greet(&cluster, 1, Hello { to_node: 3, ..good.clone() }).await.unwrap_err();
    assert!(astray.message().contains('3'), "{astray}");
    let newer = greet(&cluster, 1, Hello { version: 99, ..good }).await.unwrap_err();
    assert!(newer.message().contains("99"), "{newer}");

    let session = cluster.client().open(Duration::from_secs(60)).await;
    hold(&session, "still served").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_does_not_come_back_under_its_old_id() {
    let mut cluster = Cluster::start(3).await;
    let session = cluster.client().open(Duration::from_secs(120)).await;
    hold(&session, "kept").await;
    let wiped = cluster.follower().await;
    cluster.kill(wiped);
    cluster.wipe(wiped);
    cluster.launch(wiped);
    eventually("the others refuse it", Duration::from_secs(20), || async {
        cluster.log_of(wiped).contains("data directory").then_some(())
    })
    .await;
    let view = cluster.view_of(wiped).await.unwrap();
    assert_eq!((view.leader, view.applied_index), (0, 0), "it took part");
    // The other two are a quorum without it.
    hold(&session, "more").await;
}
