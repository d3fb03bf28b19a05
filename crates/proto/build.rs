//! Compiles the `.proto` files with `protox`, so that building needs no `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;

const CLIENT_API: &str = "holdfast/v1/holdfast.proto";
const CLUSTER_API: &str = "holdfast/v1/cluster.proto";
const OPERATOR_API: &str = "holdfast/v1/operator.proto";
const WATCH_API: &str = "holdfast/v1/watch.proto";
const ELECTION_API: &str = "holdfast/v1/election.proto";
const ACCESS_API: &str = "holdfast/v1/access.proto";
const PEER_API: &str = "holdfast/peer/v1/peer.proto";

fn main() -> Result<(), Box<dyn Error>> {
    // Asked for at run time: a target directory may have been built by a checkout at another path.
    let proto_root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let client_apis = [CLIENT_API, CLUSTER_API, OPERATOR_API, WATCH_API, ELECTION_API, ACCESS_API];
    for file in client_apis.into_iter().chain([PEER_API]) {
        println!("cargo:rerun-if-changed={}", proto_root.join(file).display());
    }

    // Reflection is served to clients, so its descriptors hold the client API only.
    let client_descriptors = protox::compile(client_apis, [&proto_root])?;
    let out_dir = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out_dir.join("holdfast_v1.descriptors"), client_descriptors.encode_to_vec())?;

    let all_descriptors =
        protox::compile(client_apis.into_iter().chain([PEER_API]), [&proto_root])?;
    tonic_prost_build::configure()
        // Written by hand: `src/watch_frame.rs`.
        .extern_path(".holdfast.v1.WatchFrame", "crate::v1::WatchFrame")
        // An answer to a look is much larger than all others, and seldom.
        .boxed(".holdfast.v1.Answer.result.status")
        .codec_path("crate::codec::HoldfastCodec")
        .compile_fds(all_descriptors)?;
    Ok(())
}
