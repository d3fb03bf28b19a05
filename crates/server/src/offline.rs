//! What is done to files while no node runs on them: looking into a backup, making a data directory from one,
//! and going on with the one node that is left of a cluster.
//!
//! Both of the latter make a *new* cluster of one voter. Its id is new, as is the id of its data directory, so
//! nodes of the old cluster and it refuse each other. Its tokens begin above all that the old cluster can
//! have granted: at the highest of the state's last token + 2^40, the wall clock's milliseconds x 2^20, and what the
//! operator says. This is the one place where a wall clock decides anything, and it does so once, on one node.

mod backup_file;
mod init_data_dir;
mod inspect;
mod recover;
mod restore;

use std::path::PathBuf;
use std::time::Duration;

use holdfast_core::Span;
use holdfast_replica::{
    BEST_EFFORT_TERM_END, BackupError, GroupId, GroupRestoreOptions, Member, NodeId, RestoreError,
    SalvageError, SnapshotError, TOKENS_PER_TERM_BITS,
};
use holdfast_wal::{DirectoryError, OpenError};

pub use backup_file::BackupWriter;
pub(crate) use backup_file::header_of;
pub use inspect::{FreezeLine, Inspection, LockLine, MemberLine};
pub use recover::{Recovered, Survivor};
pub use restore::{Restored, restore};

use crate::config::NodeConfig;
use crate::durable_file::FileError;
use crate::identity::{Identity, IdentityError};
use crate::initial_members::InitialMembersError;
use crate::membership::Membership;
use crate::shard::unix_ms;

/// What an operator may say about a new beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewClusterOptions {
    /// New tokens of both tiers are higher than this.
    pub token_floor: Option<u64>,
    /// For how long nothing is granted; otherwise as long as a client can believe that it holds a lock.
    pub closed_for: Option<Duration>,
}

/// What a new beginning made of the old state.
#[derive(Clone, Debug)]
pub struct NewCluster {
    /// 32 hexadecimal digits.
    pub cluster_id: String,
    pub sessions_ended: usize,
    pub holds_ended: usize,
    pub waits_ended: usize,
    pub last_token_before: u64,
    /// All new tokens are higher.
    pub last_token: u64,
    /// All new best-effort tokens are higher; `None` if there are none left, and the efficiency tier is off.
    pub last_best_effort_token: Option<u64>,
    pub closed_for: Duration,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("cannot use {}: {source}", path.display())]
    Backup { path: PathBuf, source: BackupError },
    #[error("cannot use {}: {source}", path.display())]
    Content { path: PathBuf, source: SnapshotError },
    #[error(
        "{} is of group {group}, and this build knows of group 1 only", path.display()
    )]
    OtherGroup { path: PathBuf, group: GroupId },
    #[error("{} exists; --force overwrites it", path.display())]
    Exists { path: PathBuf },
    #[error("what the cluster sent cannot be used: {0}")]
    Received(BackupError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "the data directory {} is not empty; a restore needs an empty one, so that nothing is lost",
        path.display()
    )]
    NotEmpty { path: PathBuf },
    #[error(
        "there is no data of a node in {}; look at data_dir in the configuration", path.display()
    )]
    NoData { path: PathBuf },
    #[error(
        "node {node} was removed from its cluster before the others were lost: what it has is older \
         than what any member had"
    )]
    Removed { node: NodeId },
    #[error(
        "the data directory {} has the logs of {groups} groups, and this version recovers a cluster with one group only",
        path.display()
    )]
    SeveralGroups { path: PathBuf, groups: u32 },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Founders(#[from] InitialMembersError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("the log cannot be opened: {0}")]
    Log(#[from] OpenError),
    #[error("the log cannot be written: {0}")]
    Write(String),
    #[error("the log cannot be applied: {0}")]
    Salvage(#[from] SalvageError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl OfflineError {
    /// A node runs on the directory: the same later may succeed.
    pub fn is_in_use(&self) -> bool {
        matches!(self, OfflineError::Directory(DirectoryError::InUse { .. }))
    }

    /// The disk failed, and not the caller.
    pub fn is_of_the_disk(&self) -> bool {
        matches!(
            self,
            OfflineError::File(_)
                | OfflineError::Directory(_)
                | OfflineError::Log(_)
                | OfflineError::Write(_)
                | OfflineError::Salvage(_)
                | OfflineError::Received(_)
        )
    }
}

/// How the state of an old cluster becomes that of a new one, on this node alone.
fn terms(
    config: &NodeConfig,
    identity: &Identity,
    written_unix_ms: Option<u64>,
    options: NewClusterOptions,
    reason: String,
) -> GroupRestoreOptions {
    let node = config.node_id();
    let addresses = Membership::of(config, &[node]).own();
    GroupRestoreOptions {
        node,
        member: Member { directory: Some(identity.data_dir.into()), ..addresses },
        cluster: identity.cluster_id(),
        clock_unix_ms: unix_ms(),
        written_unix_ms,
        token_floor: options.token_floor,
        closed_for: options.closed_for.map(|closed_for| {
            Span::from_ms(u64::try_from(closed_for.as_millis()).unwrap_or(u64::MAX))
        }),
        by: format!("node {node}"),
        reason,
    }
}

impl NewCluster {
    fn of(identity: &Identity, account: &holdfast_replica::GroupRestoreSummary) -> NewCluster {
        NewCluster {
            cluster_id: identity.data_dir.to_string(),
            sessions_ended: account.ended.sessions,
            holds_ended: account.ended.holds,
            waits_ended: account.ended.waits,
            last_token_before: account.last_token_before,
            last_token: account.last_token,
            last_best_effort_token: last_best_effort_token(account.last_term),
            closed_for: Duration::from_millis(account.closed_for.as_ms()),
        }
    }
}

/// The first leader has the next term, which is the upper part of its tokens.
fn last_best_effort_token(last_term: u64) -> Option<u64> {
    let first_term = last_term.checked_add(1)?;
    (first_term < BEST_EFFORT_TERM_END).then_some(first_term << TOKENS_PER_TERM_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_is_too_high_has_no_best_effort_tokens() {
        assert_eq!(last_best_effort_token(6), Some(7 << 40));
        assert_eq!(last_best_effort_token(BEST_EFFORT_TERM_END - 1), None);
        assert_eq!(last_best_effort_token(u64::MAX), None);
    }
}
