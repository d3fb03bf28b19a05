//! Texts and frames from outside: refused, or read as one value that is written in one way.
//!
//! `FUZZ_CASES=1000000 cargo test -p holdfast-proto --test fuzz` runs for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, reason = "a failure says where its input is kept")]

#[path = "../../../fuzz/support.rs"]
mod support;

use holdfast_proto::{Fence, Guarantee, SessionId, peer_v1, v1};
use proptest::prelude::*;
use prost::Message;
use support::{Target, cases};

const CASES_USUAL: u32 = 3_000;

const TEXTS: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "texts", feed: parse_texts };
const FRAMES: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "frames", feed: decode_frames };

fn parse_texts(input: &[Vec<u8>]) {
    for bytes in input {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(fence) = text.parse::<Fence>() {
            assert_eq!(fence.to_string(), text);
        }
        if let Ok(session) = text.parse::<SessionId>() {
            assert_eq!(session.to_secret_text(), text);
        }
    }
}

fn decode_frames(input: &[Vec<u8>]) {
    for bytes in input {
        again(v1::ClientFrame::decode(&bytes[..]));
        again(v1::ServerFrame::decode(&bytes[..]));
        again(peer_v1::PeerFrame::decode(&bytes[..]));
        again(peer_v1::SnapshotChunk::decode(&bytes[..]));
        again(peer_v1::Welcome::decode(&bytes[..]));
    }
}

/// What was understood is understood again.
fn again<M: Message + Default + PartialEq + std::fmt::Debug>(
    decoded: Result<M, prost::DecodeError>,
) {
    if let Ok(message) = decoded {
        assert_eq!(M::decode(&message.encode_to_vec()[..]).unwrap(), message);
    }
}

fn texts() -> Vec<Vec<u8>> {
    let fence = |number| Fence::new(Guarantee::Linearizable, "wallet:42", number).unwrap();
    vec![
        fence(1).to_string().into_bytes(),
        fence((1 << 63) - 1).to_string().into_bytes(),
        b"hf1.B.0123456789abcdef.7".to_vec(),
        b"000102030405060708090a0b0c0d0e0f".to_vec(),
    ]
}

fn frames() -> Vec<Vec<u8>> {
    use v1::operation::Kind;
    let acquire = v1::AcquireRequest {
        request_id: 7,
        name: "wallet:42".into(),
        wait_ms: 5_000,
        ttl_ms: Some(1_000),
        metadata: vec![1, 2, 3],
        ..Default::default()
    };
    let open = v1::OpenSessionRequest {
        session_id: "000102030405060708090a0b0c0d0e0f".into(),
        request_id: 1,
        owner: Some(v1::Owner { application: "app".into(), ..Default::default() }),
        ..Default::default()
    };
    let release =
        v1::ReleaseRequest { request_id: 8, name: "a".into(), token: 9, ..Default::default() };
    let operations = [Kind::Open(open), Kind::Acquire(acquire), Kind::Release(release)];
    let operations = operations.map(|kind| v1::Operation { kind: Some(kind) });
    let client = v1::ClientFrame { acked_through: 3, operations: operations.into() };
    let hello = peer_v1::Hello {
        version: 1,
        cluster: "dev".into(),
        from_node: 1,
        to_node: 2,
        data_dir_id: "00".repeat(16),
        cluster_id: "01".repeat(16),
        peer_address: "127.0.0.1:7421".into(),
        client_address: "127.0.0.1:7420".into(),
        log_version: 1,
        timing: Some(peer_v1::Timing { tick_ms: 50, election_ticks: 10 }),
        auth_mode: "required".into(),
        groups: 4,
    };
    let start = peer_v1::SnapshotStart { group: 1, total_bytes: 1 << 40 };
    vec![
        client.encode_to_vec(),
        peer_v1::PeerFrame { hello: Some(hello) }.encode_to_vec(),
        peer_v1::SnapshotChunk { kind: Some(peer_v1::snapshot_chunk::Kind::Start(start)) }
            .encode_to_vec(),
    ]
}

#[test]
fn the_corpus_of_texts_is_read() {
    TEXTS.replay(&texts().into_iter().map(|text| vec![text]).collect::<Vec<_>>());
}

#[test]
fn the_corpus_of_frames_is_read() {
    FRAMES.replay(&frames().into_iter().map(|frame| vec![frame]).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn damaged_texts_never_panic_and_have_one_spelling(
        which: prop::sample::Index,
        other: prop::sample::Index,
        damage in support::damage(),
    ) {
        let texts = texts();
        TEXTS.feed(&[damage.of(which.get::<Vec<u8>>(&texts), other.get::<Vec<u8>>(&texts))]);
    }

    #[test]
    fn damaged_frames_never_panic(
        which: prop::sample::Index,
        other: prop::sample::Index,
        damage in support::damage(),
    ) {
        let frames = frames();
        FRAMES.feed(&[damage.of(which.get::<Vec<u8>>(&frames), other.get::<Vec<u8>>(&frames))]);
    }
}
