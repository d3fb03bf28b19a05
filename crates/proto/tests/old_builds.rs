//! The handshake of two nodes of the build before is read, and means what it meant.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use holdfast_proto::peer_v1::{Hello, PeerFrame, Welcome};
use prost::Message;

const HELLO: &[u8] = include_bytes!("fixtures/build-c567b4a/peer-hello");
const WELCOME: &[u8] = include_bytes!("fixtures/build-c567b4a/peer-welcome");

#[test]
fn the_handshake_of_the_build_before_is_read_as_a_whole() {
    let frame = PeerFrame::decode(HELLO).unwrap();
    assert_eq!(frame.encode_to_vec(), HELLO);
    let Hello { version, cluster, from_node, to_node, data_dir_id, log_version, .. } =
        frame.hello.unwrap();
    assert_eq!((version, cluster.as_str(), from_node, to_node), (2, "fixture", 1, 2));
    assert_eq!((data_dir_id.len(), log_version), (32, 2));
    let welcome = Welcome::decode(WELCOME).unwrap();
    assert_eq!(welcome.encode_to_vec(), WELCOME);
    assert_eq!((welcome.version, welcome.node, welcome.log_version), (2, 2, 2));
    assert_eq!((welcome.cluster.as_str(), welcome.wire_pass.len()), ("fixture", 16));
}
