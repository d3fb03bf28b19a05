//! The wire of Holdfast: the generated messages and services, and the few things that both ends of
//! a connection have to agree on beyond them.
//!
//! - [`v1`]: the client API. [`peer_v1`]: what the nodes of one cluster say to each other.
//! - [`Fence`]: the full form of a fencing token, `hf1.L.<name hash>.<number>`.
//! - [`SessionId`]: the secret by which a client acts as a session, and its public twin.
//! - [`AccessToken`]: the secret by which a client proves who it is.
//! - [`failure`]: a typed [`v1::Failure`] carried by a gRPC status, and back.
//! - [`GroupMap`]: which group owns which slots, checked.
//! - [`v1::WatchFrame`]: the one message that is not generated. [`WatchPositions`]: after what a watch goes on.
//! - [`codec`]: answers a message that cannot be decoded as the caller's mistake.
//! - [`plain`]: a session's stream without HTTP/2.
//! - [`decode`], [`encode`]: between the messages and the lock table's own types.

mod access_token;
pub mod codec;
mod count;
pub mod decode;
pub mod encode;
pub mod failure;
mod group_map;
mod hex;
pub mod plain;
mod session_id;
mod watch_frame;
mod watch_positions;

pub use access_token::{AccessToken, ParseAccessTokenError, same_digest};
pub use group_map::{GROUPS_MAX, GroupMap, InvalidGroupMap};
pub use holdfast_core::{SLOTS, Slot};
pub use holdfast_fence::{Fence, Guarantee, ParseFenceError, TOKEN_LIMIT, name_hash};
pub use session_id::{ParsePublicSessionIdError, ParseSessionIdError, PublicSessionId, SessionId};
pub use watch_positions::WatchPositions;

/// The client API, package `holdfast.v1`.
#[allow(
    clippy::all,
    missing_debug_implementations,
    rustdoc::all,
    unreachable_pub,
    rust_2018_idioms
)]
pub mod v1 {
    pub use crate::watch_frame::{BorrowedEvent, WatchEvents, WatchFrame};

    tonic::include_proto!("holdfast.v1");
}

/// The protocol between the nodes of one cluster, package `holdfast.peer.v1`.
#[allow(
    clippy::all,
    missing_debug_implementations,
    rustdoc::all,
    unreachable_pub,
    rust_2018_idioms
)]
pub mod peer_v1 {
    tonic::include_proto!("holdfast.peer.v1");
}

/// The encoded descriptors of the client API, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/holdfast_v1.descriptors"));
