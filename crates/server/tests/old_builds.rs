//! What the build before left behind and what its clients send: this build goes on with it.
//!
//! Recorded with build c567b4a on loopback. `data` is the data directory of a lone node that was killed: a snapshot at
//! entry 100, and a log that goes on after it. `sessions` has both directions of the plain connections of six commands of
//! `holdfast`, made one after the other against that node while it was new. `example.toml` is its example
//! configuration. The zeros at the end of the log's segment are left out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::{
    ClientFrame, Grant, ListRequest, ReleaseOutcome, ReleaseRequest, ServerFrame, StatusRequest,
    answer,
};
use holdfast_server::NodeConfig;
use prost::Message;
use support::{Client, Cluster, PATIENCE, acquire, open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SEGMENT_BYTES: u64 = 1 << 20;
const GREETING: [u8; 4] = [0xf5, b'h', b's', b'1'];
const FRAME: u8 = 0;
const SESSIONS: [&str; 6] = ["1-lock", "2-shared", "3-permits", "4-all", "5-elect", "6-max-hold"];
const SESSION_OF_FIRST: &str = "36f0d2986c33c76f5c6f0dea100a66b4";
const LAST_TOKEN: u64 = 36;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/build-c567b4a").join(path)
}

fn inherit(config: &mut NodeConfig) {
    config.cluster = "fixture".into();
    config.segment_bytes = SEGMENT_BYTES;
    let (from, log) = (fixture("data"), config.data_dir.join("log"));
    std::fs::create_dir_all(&log).unwrap();
    for file in ["identity.toml", "founders.toml"] {
        std::fs::copy(from.join(file), config.data_dir.join(file)).unwrap();
    }
    for file in std::fs::read_dir(from.join("log")).unwrap() {
        let file = file.unwrap();
        let copy = log.join(file.file_name());
        std::fs::copy(file.path(), &copy).unwrap();
        if copy.extension().is_some_and(|extension| extension == "seg") {
            let copy = std::fs::File::options().write(true).open(&copy).unwrap();
            copy.set_len(SEGMENT_BYTES).unwrap();
        }
    }
}

async fn tokens_of(client: &mut Client, name: &str) -> Vec<u64> {
    let request = StatusRequest { name: name.into(), request_id: 0 };
    let status = client.status(request).await.unwrap().into_inner();
    status.holders.iter().map(|holder| holder.token).collect()
}

#[tokio::test]
async fn a_node_goes_on_with_the_data_of_the_build_before() {
    let mut cluster = Cluster::start_with(1, inherit).await;
    let mut client = cluster.client(0).await;
    let held = [
        ("first", vec![8]),
        ("readers", vec![9, 9]),
        ("pool", vec![10]),
        ("last", vec![LAST_TOKEN]),
    ];
    for (name, tokens) in &held {
        assert_eq!(&tokens_of(&mut client, name).await, tokens, "{name}");
    }
    let listed = client.list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.locks.len(), held.len(), "{listed:?}");
    let quota = StatusRequest { name: "quota".into(), request_id: 0 };
    assert_eq!(client.status(quota).await.unwrap().into_inner().permits, 5);
    let frozen = StatusRequest { name: "frozen/x".into(), request_id: 0 };
    let freeze = client.status(frozen).await.unwrap().into_inner().frozen.unwrap();
    assert_eq!((freeze.prefix.as_str(), freeze.reason.as_str()), ("frozen/", "kept frozen"));

    let release = ReleaseRequest {
        session_id: SESSION_OF_FIRST.into(),
        request_id: 1 << 60,
        name: "first".into(),
        token: 8,
        ..Default::default()
    };
    let released = client.release(release).await.unwrap().into_inner();
    assert_eq!(released.outcome(), ReleaseOutcome::Released);
    let session = open(&mut client, 60_000).await;
    let answer = client.acquire(acquire(&session, 1, "first", 0)).await.unwrap().into_inner();
    let Some(Outcome::Granted(grant)) = answer.outcome else { panic!("not granted: {answer:?}") };
    assert_eq!(grant.token, LAST_TOKEN + 1, "tokens go on where they were");

    cluster.stop(0).await;
    cluster.restart(0).await;
    let mut client = cluster.client(0).await;
    assert_eq!(tokens_of(&mut client, "first").await, [LAST_TOKEN + 1]);
    assert_eq!(tokens_of(&mut client, "readers").await, [9, 9]);
}

/// The frames of one direction of a recorded connection.
fn frames(name: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(fixture("sessions").join(name)).unwrap();
    let mut rest = bytes.strip_prefix(&GREETING[..]).unwrap();
    let mut frames = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (piece, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        assert_eq!(piece[0], FRAME);
        frames.push(piece[1..].to_vec());
        rest = after;
    }
    frames
}

async fn next_frame(socket: &mut TcpStream) -> ServerFrame {
    let length = timeout(PATIENCE, socket.read_u32_le()).await.expect("no frame in time").unwrap();
    let mut piece = vec![0; length as usize];
    socket.read_exact(&mut piece).await.unwrap();
    assert_eq!(piece[0], FRAME, "{:?}", String::from_utf8_lossy(&piece));
    ServerFrame::decode(&piece[1..]).unwrap()
}

/// What an answer says, without times and addresses.
fn essence(result: &answer::Result) -> String {
    let grant = |grant: &Grant| {
        let Grant { name, token, fence, guarantee, mode, acquire_request_id, .. } = grant;
        format!("{name} {token} {fence} {guarantee} {mode} {acquire_request_id}")
    };
    match result {
        answer::Result::Open(open) => format!("open {} {}", open.public_id, open.ttl_ms),
        answer::Result::Release(release) => {
            format!("release {} {}", release.outcome, release.remaining)
        }
        answer::Result::Acquire(acquire) => match &acquire.outcome {
            Some(Outcome::Granted(granted)) => format!("granted {}", grant(granted)),
            Some(Outcome::AllGranted(all)) => {
                format!("granted {}", all.grants.iter().map(grant).collect::<Vec<_>>().join(", "))
            }
            other => format!("{other:?}"),
        },
        answer::Result::Close(_) => "close".to_owned(),
        other => format!("{other:?}"),
    }
}

fn note_answers(into: &mut BTreeMap<u64, String>, frame: &ServerFrame) {
    for answer in &frame.answers {
        into.insert(answer.request_id, essence(answer.result.as_ref().unwrap()));
    }
}

#[tokio::test]
async fn clients_of_the_build_before_are_answered_as_they_were_then() {
    let cluster = Cluster::start(1).await;
    for name in SESSIONS {
        let mut socket = TcpStream::connect(cluster.address(0)).await.unwrap();
        socket.write_all(&GREETING).await.unwrap();
        let mut greeting = [0; 4];
        socket.read_exact(&mut greeting).await.unwrap();
        assert_eq!(greeting, GREETING);
        let (mut sent, mut answers) = (0, BTreeMap::new());
        for frame in frames(&format!("{name}.up")) {
            sent += ClientFrame::decode(&frame[..]).unwrap().operations.len();
            socket.write_u32_le(frame.len() as u32 + 1).await.unwrap();
            socket.write_u8(FRAME).await.unwrap();
            socket.write_all(&frame).await.unwrap();
            while answers.len() < sent {
                note_answers(&mut answers, &next_frame(&mut socket).await);
            }
        }
        let mut recorded = BTreeMap::new();
        for frame in frames(&format!("{name}.down")) {
            note_answers(&mut recorded, &ServerFrame::decode(&frame[..]).unwrap());
        }
        assert!(recorded.len() >= 4, "{name}: {recorded:?}");
        assert_eq!(answers, recorded, "{name}");
    }
}

#[test]
fn the_example_configuration_of_the_build_before_is_read() {
    let text = std::fs::read_to_string(fixture("example.toml")).unwrap();
    NodeConfig::from_toml(&text).unwrap();
}
