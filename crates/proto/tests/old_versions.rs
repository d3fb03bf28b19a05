//! Frames that clients and nodes of version 0.1 sent are read, and mean what they meant.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::path::Path;

use holdfast_proto::v1::operation::Kind;
use holdfast_proto::{peer_v1, v1};
use prost::Message;

const SESSION: &str = "000102030405060708090a0b0c0d0e0f";

fn read<M: Message + Default>(name: &str) -> M {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1");
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let message = M::decode(&bytes[..]).unwrap();
    assert_eq!(message.encode_to_vec(), bytes, "{name} is read as a whole");
    message
}

fn operation(name: &str) -> Kind {
    let frame: v1::ClientFrame = read(&format!("client-{name}"));
    assert_eq!(frame.acked_through, 3);
    let [operation] = &frame.operations[..] else { panic!("{name} has one operation") };
    operation.kind.clone().unwrap()
}

#[test]
fn every_operation_of_an_old_client_is_read() {
    let Kind::Open(open) = operation("open") else { panic!("an open") };
    assert_eq!((open.session_id.as_str(), open.request_id, open.ttl_ms), (SESSION, 1, 30_000));
    let owner = open.owner.unwrap();
    assert_eq!((owner.application.as_str(), owner.host.as_str()), ("app", "host"));
    let Kind::Resume(resume) = operation("resume") else { panic!("a resume") };
    assert_eq!((resume.session_id.as_str(), resume.request_id), (SESSION, 2));
    let Kind::KeepAlive(alive) = operation("keep-alive") else { panic!("a heartbeat") };
    assert_eq!((alive.session_id.as_str(), alive.request_id), (SESSION, 3));
    let Kind::Acquire(acquire) = operation("acquire") else { panic!("an acquire") };
    assert_eq!((acquire.name.as_str(), acquire.request_id), ("wallet:42", 4));
    assert_eq!((acquire.wait_ms, acquire.ttl_ms), (5_000, Some(1_000)));
    assert_eq!(acquire.metadata, [1, 2, 3]);
    // What it did not know of is as it was: exclusive, one name, no re-entrance.
    let unknown_then = v1::AcquireRequest {
        session_id: SESSION.into(),
        request_id: 4,
        name: "wallet:42".into(),
        wait_ms: 5_000,
        ttl_ms: Some(1_000),
        metadata: vec![1, 2, 3],
        ..Default::default()
    };
    assert_eq!(acquire, unknown_then);
    let Kind::Cancel(cancel) = operation("cancel") else { panic!("a cancel") };
    assert_eq!(cancel.request_id, 5);
    let Kind::Release(release) = operation("release") else { panic!("a release") };
    assert_eq!((release.name.as_str(), release.token), ("wallet:42", 9));
    let Kind::Renew(renew) = operation("renew") else { panic!("a renewal") };
    assert_eq!((renew.token, renew.ttl_ms), (9, Some(2_000)));
    let Kind::Close(close) = operation("close") else { panic!("a close") };
    assert_eq!((close.session_id.as_str(), close.request_id), (SESSION, 8));
}

#[test]
fn every_frame_of_an_old_peer_is_read_and_claims_nothing_that_it_did_not_know() {
    let frame: peer_v1::PeerFrame = read("peer-hello");
    let hello = frame.hello.unwrap();
    assert_eq!((hello.version, hello.cluster.as_str()), (1, "fixture"));
    assert_eq!((hello.from_node, hello.to_node), (1, 2));
    assert_eq!(hello.data_dir_id, "0a".repeat(16));
    assert_eq!((hello.log_version, hello.cluster_id.as_str()), (0, ""));
    let welcome: peer_v1::Welcome = read("peer-welcome");
    assert_eq!((welcome.version, welcome.node), (1, 2));
    assert_eq!((welcome.log_version, welcome.cluster_id.as_str()), (0, ""));
    use peer_v1::snapshot_chunk::Kind;
    let chunk = |name| read::<peer_v1::SnapshotChunk>(name).kind.unwrap();
    assert_eq!(chunk("snapshot-hello"), Kind::Hello(hello));
    let start = peer_v1::SnapshotStart { group: 1, total_bytes: 5 };
    assert_eq!(chunk("snapshot-start"), Kind::Start(start));
    assert_eq!(chunk("snapshot-piece"), Kind::Piece(b"piece".to_vec()));
}
