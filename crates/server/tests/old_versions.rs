//! The data directory of a node of version 0.1, killed in the middle: this build starts from it and serves the
//! locks that were held then.
//!
//! It has a snapshot and a log that goes on after it. `first`, `second` and `third` are held, each for a day by a
//! session of its own; `churn` was taken and released sixty times. The zeros at the end of the log's segment
//! are left out of the fixture.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod support;

use std::path::Path;

use holdfast_proto::v1::{ReleaseOutcome, ReleaseRequest, StatusRequest, acquire_response};
use holdfast_server::{GroupVoters, Inspection, NewClusterOptions, NodeConfig, Survivor};
use support::{Client, Cluster, acquire, open};

const SEGMENT_BYTES: u64 = 1 << 20;
const HELD: [(&str, u64); 3] = [("first", 1), ("second", 2), ("third", 63)];
const SESSION_OF_FIRST: &str = "271e5185f39c0b44a1a66346c0282eb8";

/// Gives a node the directory, as it was.
fn inherit(config: &mut NodeConfig) {
    config.cluster = "fixture".into();
    config.segment_bytes = SEGMENT_BYTES;
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1/data");
    let log = config.data_dir.join("log");
    std::fs::create_dir_all(&log).unwrap();
    std::fs::copy(fixture.join("identity.toml"), config.data_dir.join("identity.toml")).unwrap();
    for file in std::fs::read_dir(fixture.join("log")).unwrap() {
        let file = file.unwrap();
        let copy = log.join(file.file_name());
        std::fs::copy(file.path(), &copy).unwrap();
        if copy.extension().is_some_and(|extension| extension == "seg") {
            let copy = std::fs::File::options().write(true).open(&copy).unwrap();
            copy.set_len(SEGMENT_BYTES).unwrap();
        }
    }
}

async fn token_of(client: &mut Client, name: &str) -> Option<u64> {
    let request = StatusRequest { name: name.into(), request_id: 0 };
    let status = client.status(request).await.unwrap().into_inner();
    status.holders.first().map(|holder| holder.token)
}

#[tokio::test]
async fn a_node_goes_on_with_the_data_of_version_0_1() {
    let mut cluster = Cluster::start_with(1, inherit).await;
    let mut client = cluster.client(0).await;
    for (name, token) in HELD {
        assert_eq!(token_of(&mut client, name).await, Some(token), "{name}");
    }
    assert_eq!(token_of(&mut client, "churn").await, None);
    // A holder of then gives its lock back.
    let release = ReleaseRequest {
        session_id: SESSION_OF_FIRST.into(),
        request_id: 1 << 60,
        name: "first".into(),
        token: 1,
        ..Default::default()
    };
    let released = client.release(release).await.unwrap().into_inner();
    assert_eq!(released.outcome(), ReleaseOutcome::Released);
    let session = open(&mut client, 60_000).await;
    let answer = client.acquire(acquire(&session, 1, "first", 0)).await.unwrap().into_inner();
    let Some(acquire_response::Outcome::Granted(grant)) = answer.outcome else {
        panic!("not granted: {answer:?}");
    };
    assert_eq!(grant.token, 64, "tokens go on where they were");

    cluster.stop(0).await;
    cluster.restart(0).await;
    let mut client = cluster.client(0).await;
    for (name, token) in [("first", 64), ("second", 2), ("third", 63)] {
        assert_eq!(token_of(&mut client, name).await, Some(token), "{name} after a restart");
    }
}

#[test]
fn a_node_of_version_0_1_can_be_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::dev_cluster(1, dir.path(), 7_420).unwrap().remove(0);
    inherit(&mut config);
    let survivor = Survivor::open(&config).unwrap();
    assert_eq!(survivor.voters(), [GroupVoters { group: 1, others: Vec::new(), has_own: true }]);
    let recovered = survivor.recover_alone(NewClusterOptions::default()).unwrap();
    let new = recovered.new.unwrap();
    assert_eq!((new.sessions_ended, new.holds_ended, new.last_token_before), (3, 3, 63));
    assert!(new.last_token > 1 << 60 && new.last_token < 1 << 63);
    assert_eq!(new.closed_for.as_secs(), 24 * 60 * 60, "its sessions had a day");
    let state = Inspection::of(&recovered.state_file).unwrap();
    let held: Vec<_> = state.locks("", 10).into_iter().map(|l| (l.name, l.token)).collect();
    let expected: Vec<_> = HELD.map(|(name, token)| (name.to_owned(), token)).into();
    assert_eq!(held, expected);
}
