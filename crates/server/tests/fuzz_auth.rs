//! Bytes on a framed connection in which a credential is damaged: they let no client in, and the node serves on.
//!
//! `FUZZ_CASES=20000 cargo test -p holdfast-server --test fuzz_auth` runs for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(dead_code, clippy::print_stdout, reason = "what tests share has more than this one uses")]

#[path = "../../../fuzz/support.rs"]
mod fuzz;
mod support;

use holdfast_proto::AccessToken;
use holdfast_proto::plain::{self, GREETING, Pieces};
use holdfast_proto::v1::{ServerFrame, answer};
use holdfast_server::{AuthMode, bootstrap_token};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use prost::Message;
use support::framed::{BYTES_MAX, frame, opening};
use support::{Cluster, PATIENCE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CASES_USUAL: u32 = 200;
/// A length of four bytes, and the kind.
const PIECE_HEAD_BYTES: usize = 5;

fn auth(credential: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(credential.len() + 1).unwrap().to_le_bytes().to_vec();
    bytes.push(plain::AUTH);
    bytes.extend(credential);
    bytes
}

fn open_session() -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(plain::put(&mut bytes, plain::FRAME, &frame(vec![opening(0)]), BYTES_MAX));
    bytes
}

/// Whether the node opens a session for who sends this, and nothing more.
async fn is_let_in(address: &str, bytes: &[u8]) -> bool {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(&[&GREETING, bytes].concat()).await.unwrap();
    let _ = socket.shutdown().await;
    let mut answered = Vec::new();
    // A node that has refused may close the connection before it has read everything.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut answered)).await.expect("the node is silent");
    let mut pieces = Pieces::new(BYTES_MAX);
    pieces.room().extend_from_slice(answered.strip_prefix(&GREETING).unwrap_or_default());
    let mut is_open = false;
    while let Some(piece) = pieces.next_piece().unwrap() {
        if piece.kind == plain::FRAME {
            let frame = ServerFrame::decode(piece.message).unwrap();
            let is_opened = |result: &Option<_>| matches!(result, Some(answer::Result::Open(_)));
            is_open |= frame.answers.iter().any(|answer| is_opened(&answer.result));
        }
    }
    is_open
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_credentials_let_no_client_in_and_the_node_serves_on() {
    let cluster = Cluster::start_with(1, |config| config.auth.mode = AuthMode::Required).await;
    let address = cluster.address(0);
    let secret = bootstrap_token(&cluster.configs[0].data_dir).unwrap().to_secret_text();
    let good = auth(secret.as_bytes());
    // The first administrator is known by the secret alone. The id in the token says nothing.
    let digest = secret.parse::<AccessToken>().unwrap().digest();
    let has_secret = |piece: &[u8]| {
        let text = piece.get(PIECE_HEAD_BYTES..).map(String::from_utf8_lossy).unwrap_or_default();
        text.parse::<AccessToken>().is_ok_and(|token| token.digest() == digest)
    };
    assert!(is_let_in(&address, &[good.clone(), open_session()].concat()).await);
    let mut runner = TestRunner::new(fuzz::cases(CASES_USUAL));
    let credentials = prop_oneof![
        fuzz::damage().prop_map({
            let good = good.clone();
            move |damage| damage.of(&good, &good)
        }),
        fuzz::damage().prop_map(move |damage| auth(&damage.of(secret.as_bytes(), b"Bearer a.b.c"))),
        proptest::collection::vec(any::<u8>(), 0..9_000).prop_map(|bytes| auth(&bytes)),
    ];
    for case in 0..runner.config().cases {
        let damaged = credentials.new_tree(&mut runner).unwrap().current();
        let is_in = is_let_in(&address, &[damaged.clone(), open_session()].concat()).await;
        assert!(!is_in || has_secret(&damaged), "case {case}: {damaged:?}");
    }
    assert!(is_let_in(&address, &[good, open_session()].concat()).await);
}
