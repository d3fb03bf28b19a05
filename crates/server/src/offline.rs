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
    RestoredGroup, SalvageError, SnapshotError, SnapshotFile, TOKENS_PER_TERM_BITS, restore_groups,
};
use holdfast_wal::{DirectoryError, OpenError};

pub use backup_file::BackupWriter;
pub(crate) use backup_file::header_of;
pub use inspect::{FreezeLine, GroupInspection, Inspection, LockLine, MemberLine};
pub use recover::{GroupVoters, Recovered, Survivor};
pub use restore::{Restored, restore};

use crate::config::{ConfigError, NodeConfig};
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
    /// As many as the old cluster had.
    pub groups: u32,
    /// A client has a session in each group whose locks it uses.
    pub sessions_ended: usize,
    pub holds_ended: usize,
    pub waits_ended: usize,
    /// The highest of all groups.
    pub last_token_before: u64,
    /// All new tokens of all groups are higher.
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
    #[error(
        "cannot use {}: the lock table of group {group} owns other slots than the file says", path.display()
    )]
    OtherSlots { path: PathBuf, group: GroupId },
    #[error(
        "{} has other slots for group {group} than a cluster of {groups} groups gives to it, and this build cannot move \
         slots; use the version of holdfast that saved it", path.display()
    )]
    OtherShares { path: PathBuf, group: GroupId, groups: u32 },
    #[error(
        "{} has {found} groups, and the configuration says groups = {groups}: a restore keeps the number of groups",
        path.display()
    )]
    OtherGroups { path: PathBuf, found: u32, groups: u32 },
    #[error("{} has {groups} groups: {source}", path.display())]
    Config { path: PathBuf, groups: u32, source: ConfigError },
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
        "{}node {node} was removed from its cluster before the others were lost: what it has is older \
         than what any member had", in_group(*group, *groups)
    )]
    Removed { node: NodeId, group: GroupId, groups: u32 },
    #[error(
        "the log in {} has nothing of group {group}, and the data directory is of {groups} groups: it is damaged, or the \
         first start of the node was interrupted. Recover another node",
        path.display()
    )]
    GroupMissing { path: PathBuf, group: GroupId, groups: u32 },
    #[error(
        "the log in {} has group {group}, and the data directory is of {groups} groups: use the version of holdfast that \
         wrote the log", path.display()
    )]
    UnknownGroup { path: PathBuf, group: GroupId, groups: u32 },
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
    #[error("{}the log cannot be applied: {source}", in_group(*group, *groups))]
    Salvage { group: GroupId, groups: u32, source: SalvageError },
    #[error("{}{source}", in_group(*group, *groups))]
    Restore { group: GroupId, groups: u32, source: RestoreError },
}

/// Before the words about a group. In a cluster with one group they need no number.
fn in_group(group: GroupId, groups: u32) -> String {
    if groups == 1 { String::new() } else { format!("group {group}: ") }
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
                | OfflineError::Salvage { .. }
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

/// The state of each group of the new cluster's only node, and what became of the old state.
fn restore_all(
    identity: &Identity,
    files: &[(GroupId, SnapshotFile)],
    options: &GroupRestoreOptions,
) -> Result<(Vec<(GroupId, SnapshotFile)>, NewCluster), OfflineError> {
    let groups = identity.groups;
    let restored = restore_groups(files, options)
        .map_err(|(group, source)| OfflineError::Restore { group, groups, source })?;
    let mut new = NewCluster {
        cluster_id: identity.data_dir.to_string(),
        groups,
        sessions_ended: 0,
        holds_ended: 0,
        waits_ended: 0,
        last_token_before: 0,
        last_token: 0,
        last_best_effort_token: None,
        closed_for: Duration::ZERO,
    };
    let mut states = Vec::with_capacity(restored.len());
    for RestoredGroup { group, state, summary } in restored {
        new.sessions_ended += summary.ended.sessions;
        new.holds_ended += summary.ended.holds;
        new.waits_ended += summary.ended.waits;
        new.last_token_before = new.last_token_before.max(summary.last_token_before);
        new.last_token = new.last_token.max(summary.last_token);
        new.closed_for = new.closed_for.max(Duration::from_millis(summary.closed_for.as_ms()));
        if group == GroupId::FIRST {
            new.last_best_effort_token = last_best_effort_token(summary.last_term);
        }
        states.push((group, state));
    }
    Ok((states, new))
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
