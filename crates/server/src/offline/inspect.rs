//! What is in a backup, in plain numbers and texts for display.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_core::command::Mode;
use holdfast_replica::{Role, SnapshotError, snapshot_versions};

use super::OfflineError;
use super::backup_file::{self, Backup, GroupBackup};
use crate::identity::{DataDirId, cluster_text};

/// A backup, looked into.
#[derive(Debug)]
pub struct Inspection {
    backup: Backup,
    pub cluster: String,
    /// Empty if the cluster had not chosen one yet.
    pub cluster_id: String,
    /// By the clocks of the nodes that made it; of several groups, when the last one was made.
    pub created_unix_ms: u64,
    pub made_by: String,
    pub file_bytes: u64,
    /// In the order of their numbers.
    pub groups: Vec<GroupInspection>,
    /// For how many locks an operator has set the number of permits.
    pub permits_set: usize,
    pub freezes: Vec<FreezeLine>,
    /// Of the first group.
    pub members: Vec<MemberLine>,
}

/// What a backup has of one group.
#[derive(Clone, Debug)]
pub struct GroupInspection {
    pub group: u32,
    /// How many slots the group owns.
    pub slots: usize,
    pub index: u64,
    pub term: u64,
    pub logical_time_ms: u64,
    pub created_unix_ms: u64,
    pub crc32c: u32,
    pub snapshot_version: u8,
    pub table_version: u8,
    pub sessions: usize,
    pub locks: usize,
    pub waiters: usize,
    pub last_token: u64,
}

#[derive(Clone, Debug)]
pub struct MemberLine {
    pub id: u64,
    pub role: &'static str,
    /// Empty if it is not known, like the next.
    pub client_address: String,
    pub peer_address: String,
    pub data_dir_id: String,
}

/// A prefix under which nothing was granted.
#[derive(Clone, Debug)]
pub struct FreezeLine {
    pub prefix: String,
    pub remaining_ms: u64,
    pub by: String,
    pub reason: String,
}

/// One lock, as it was when the backup was made.
#[derive(Clone, Debug)]
pub struct LockLine {
    pub name: String,
    pub mode: &'static str,
    pub holders: usize,
    pub waiters: usize,
    /// Of the first holder; 0 if it is free.
    pub token: u64,
    /// Of the first holder.
    pub application: String,
    pub host: String,
}

impl Inspection {
    /// Reads the whole file, and believes nothing that is not proven.
    pub fn of(path: &Path) -> Result<Inspection, OfflineError> {
        let backup = backup_file::read(path)?;
        let mut groups = Vec::new();
        for group in backup.groups() {
            let inspected = GroupInspection::of(group);
            groups.push(
                inspected
                    .map_err(|source| OfflineError::Content { path: path.to_owned(), source })?,
            );
        }
        let (header, membership) = (&backup.root.header, &backup.root.membership);
        let members = membership.members.iter().map(|(node, member)| MemberLine {
            id: node.0,
            role: role_text(membership.role(*node)),
            client_address: member.client_address.clone(),
            peer_address: member.peer_address.clone(),
            data_dir_id: member
                .directory
                .map(|directory| DataDirId::from(directory).to_string())
                .unwrap_or_default(),
        });
        Ok(Inspection {
            cluster: header.cluster.clone(),
            cluster_id: cluster_text(header.cluster_id),
            created_unix_ms: backup.created_unix_ms(),
            made_by: header.made_by.clone(),
            file_bytes: backup.file_bytes,
            groups,
            permits_set: backup.groups().map(|group| group.table.permits().len()).sum(),
            freezes: freezes(&backup),
            members: members.collect(),
            backup,
        })
    }

    /// The numbers of permits that operators have set, so many at most, in order of names.
    pub fn permits(&self, limit: usize) -> Vec<(String, u32)> {
        let of_group = |group: &GroupBackup| -> Vec<(String, u32)> {
            let permits = group.table.permits().take(limit);
            permits.map(|(name, permits)| (name.as_str().to_owned(), permits)).collect()
        };
        let mut permits: Vec<_> = self.backup.groups().flat_map(of_group).collect();
        permits.sort();
        permits.truncate(limit);
        permits
    }

    /// Locks whose names begin with `prefix`, so many at most, in order of names.
    pub fn locks(&self, prefix: &str, limit: usize) -> Vec<LockLine> {
        let of_group = |group: &GroupBackup| group.table.list(prefix, None, limit);
        let mut locks: Vec<_> = self.backup.groups().flat_map(of_group).collect();
        locks.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        locks.truncate(limit);
        let lines = locks.into_iter().map(|lock| {
            let holder = lock.first_holder.as_ref();
            LockLine {
                name: lock.name.as_str().to_owned(),
                mode: holder.map_or("free", |holder| mode_text(holder.mode)),
                holders: lock.holder_count,
                waiters: lock.waiter_count,
                token: holder.map_or(0, |holder| holder.token.0),
                application: holder
                    .map(|holder| holder.owner.application.to_string())
                    .unwrap_or_default(),
                host: holder.map(|holder| holder.owner.host.to_string()).unwrap_or_default(),
            }
        });
        lines.collect()
    }
}

impl GroupInspection {
    fn of(group: &GroupBackup) -> Result<GroupInspection, SnapshotError> {
        let (header, table) = (&group.header, &group.table);
        let (snapshot_version, table_version) = snapshot_versions(&group.state.data)?;
        Ok(GroupInspection {
            group: header.group.0,
            slots: table.ownership().slots().len(),
            index: header.index,
            term: header.term,
            logical_time_ms: header.logical_time.as_ms(),
            created_unix_ms: header.created_unix_ms,
            crc32c: header.body_crc32c,
            snapshot_version,
            table_version,
            sessions: table.session_count(),
            locks: table.lock_count(),
            waiters: table.waiter_count(),
            last_token: table.last_token(),
        })
    }
}

/// A freeze of the cluster is one in each group. Of these the one that ends last is shown.
fn freezes(backup: &Backup) -> Vec<FreezeLine> {
    let mut lines: BTreeMap<String, FreezeLine> = BTreeMap::new();
    for GroupBackup { table, .. } in backup.groups() {
        for freeze in table.freezes() {
            let line = FreezeLine {
                prefix: freeze.prefix,
                remaining_ms: freeze.until.since(table.now()).as_ms(),
                by: freeze.by.into(),
                reason: freeze.reason.into(),
            };
            let shown = lines.get(&line.prefix).map_or(0, |shown| shown.remaining_ms);
            if line.remaining_ms >= shown {
                lines.insert(line.prefix.clone(), line);
            }
        }
    }
    lines.into_values().collect()
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        _ => "permit",
    }
}

fn role_text(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::Voter) => "voter",
        Some(Role::Learner) => "learner",
        Some(Role::Entering) => "entering",
        Some(Role::Leaving) => "leaving",
        None => "none",
    }
}
