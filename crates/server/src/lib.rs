//! A node of Holdfast: the lock table of `holdfast-core`, replicated by `holdfast-replica`, on disk
//! through `holdfast-wal`, served over gRPC.
//!
//! The path of one acquire, down once and up once:
//!
//! 1. `rpc`: decode, validate, authorise; a node that does not lead forwards one hop.
//! 2. `shard`: one loop that owns the replicas, the log and the reply channels. Everything reaches it
//!    through one bounded inbox.
//! 3. `peers`: consensus messages between nodes.
//! 4. back in `rpc`: the outcome becomes the answer.
//!
//! An acquire of the efficiency tier goes from `rpc` to `efficiency_tier` and back, without 2 and 3.
//!
//! Around it: [`NodeConfig`] says what the node is, `identity` and `known_peers` keep a data directory
//! and a node id together, `initial_members` and `membership` know who belongs to the cluster, `readiness` tells
//! whether the node can serve, and [`Node`] starts and stops it all. `offline` works on the files of a node
//! that does not run.

mod access;
mod access_reset;
mod audit;
mod boot_clock;
mod config;
mod connections;
#[doc(hidden)]
pub mod cost;
mod durable_file;
mod efficiency_tier;
mod events;
mod groups;
mod hold_times;
mod http;
mod identity;
mod inbox;
mod initial_members;
mod kafka;
mod known_peers;
mod leaderless_warning;
mod listener;
mod loop_watchdog;
mod membership;
mod metrics;
mod node;
mod offline;
mod outbox;
mod peers;
mod private_file;
mod readiness;
mod rpc;
mod shard;
mod stopping;
#[cfg(test)]
mod testing;
mod traces;
mod transport;
mod utc;
mod wrong_port;

pub use access::{BootstrapError, bootstrap_token, bootstrap_token_file};
pub use access_reset::{ResetError, reset_access};
pub use audit::AuditFileError;
pub use config::{
    Address, AddressError, AuditConfig, AuthConfig, CheckError, CheckErrors, ConfigError,
    ConnectionsConfig, HttpConfig, KafkaConfig, ListenConfig, LogFormat, MemberConfig, NodeConfig,
    OutgoingTlsConfig, PeerTlsConfig, SaslConfig, SaslMechanism, TlsConfig, TracingConfig,
};
pub use connections::TooFewDescriptors;
pub use durable_file::FileError;
pub use holdfast_service::AuthMode;
pub use http::http_paths;
pub use identity::IdentityError;
pub use initial_members::InitialMembersError;
pub use kafka::KafkaFileError;
pub use known_peers::KnownPeersError;
pub use node::{CredentialReloader, Liveness, Node, ReloadError, StartError};
pub use offline::{
    BackupWriter, FreezeLine, GroupInspection, GroupVoters, Inspection, LockLine, MemberLine,
    NewCluster, NewClusterOptions, OfflineError, Recovered, Restored, Survivor, restore,
};
pub use private_file::is_readable_by_others;
pub use shard::{ShardError, StopReason};
pub use transport::TlsError;
pub use utc::utc;
