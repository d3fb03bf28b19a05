//! The data directory of a new cluster's only node, made from a backup.

use std::fs;
use std::io;
use std::path::Path;

use super::backup_file::{self, Backup, GroupBackup};
use super::init_data_dir::init_data_dir;
use super::{NewCluster, NewClusterOptions, OfflineError, restore_all, terms};
use crate::config::NodeConfig;
use crate::durable_file::FileError;
use crate::groups::Groups;
use crate::identity::Identity;

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    pub new: NewCluster,
    /// The name and the id of the cluster that the backup is of.
    pub old_cluster: String,
    pub old_cluster_id: String,
    /// Ids of nodes up to this one were used.
    pub highest_node: u64,
}

pub fn restore(
    file: &Path,
    config: &NodeConfig,
    options: NewClusterOptions,
) -> Result<Restored, OfflineError> {
    let backup = backup_file::read(file)?;
    let groups = backup.group_count();
    let config = config_for(file, config, groups)?;
    check_shares(file, &backup)?;
    if !is_empty(&config.data_dir)? {
        return Err(OfflineError::NotEmpty { path: config.data_dir });
    }
    let random = Identity::random(&config.cluster, config.node_id())?;
    let identity = Identity { groups, ..random };
    let reason = "the cluster was restored from a backup; nothing is granted until those who held locks \
                  in the old one have noticed";
    let written = Some(backup.created_unix_ms());
    let terms = terms(&config, &identity, written, options, reason.to_owned());
    let files: Vec<_> =
        backup.groups().map(|group| (group.header.group, group.state.clone())).collect();
    let (states, new) = restore_all(&identity, &files, &terms)?;
    init_data_dir(&config.data_dir, &config, &identity, &states)?;
    let used = backup.groups().map(|group| group.membership.highest).max();
    let GroupBackup { header, .. } = backup.root;
    Ok(Restored {
        new,
        old_cluster: header.cluster,
        old_cluster_id: crate::identity::cluster_text(header.cluster_id),
        highest_node: used.unwrap_or_default().max(config.node_id()).0,
    })
}

/// The configuration with the number of groups of the file. A file of a node's configuration names none.
fn config_for(file: &Path, config: &NodeConfig, groups: u32) -> Result<NodeConfig, OfflineError> {
    let path = || file.to_owned();
    if config.groups > 1 && config.groups != groups {
        let (path, found, groups) = (path(), groups, config.groups);
        return Err(OfflineError::OtherGroups { path, found, groups });
    }
    let config = NodeConfig { groups, ..config.clone() };
    match config.check() {
        Ok(()) => Ok(config),
        Err(source) => Err(OfflineError::Config { path: path(), groups, source }),
    }
}

/// A node gives each group the slots that its number of groups says. A group with other slots would refuse what it is
/// sent.
fn check_shares(file: &Path, backup: &Backup) -> Result<(), OfflineError> {
    let shares = Groups::with_equal_shares(backup.group_count());
    let is_other =
        |group: &&GroupBackup| !shares.are_slots_of(group.header.group, group.table.ownership());
    match backup.groups().find(is_other) {
        None => Ok(()),
        Some(group) => {
            let (path, group) = (file.to_owned(), group.header.group);
            Err(OfflineError::OtherShares { path, group, groups: backup.group_count() })
        }
    }
}

/// Also if it is not there. What a file system keeps for itself does not count.
fn is_empty(directory: &Path) -> Result<bool, OfflineError> {
    let failed = |error| OfflineError::from(FileError::of("look into", directory)(error));
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        if entry.map_err(failed)?.file_name() != "lost+found" {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use holdfast_core::LogicalTime;
    use holdfast_engine::to_durable;
    use holdfast_replica::{
        BackupHeader, BackupPart, GroupId, NodeId, SnapshotFile, found_group, read_parts,
        read_snapshot,
    };
    use holdfast_wal::{FileDisk, Options, Wal};

    use super::super::backup_file::header_of;
    use super::*;
    use crate::identity::LOG_DIR;

    const GROUPS: u32 = 4;

    /// The backup of a cluster that has done nothing yet, with changes of its headers and states.
    fn file(
        groups: u32,
        change: impl Fn(&mut BackupHeader),
        state_of: impl Fn(GroupId, SnapshotFile) -> SnapshotFile,
    ) -> Vec<u8> {
        let shares = Groups::with_equal_shares(groups);
        let voters = [1, 2, 3].map(NodeId);
        let mut bytes = Vec::new();
        for group in shares.all() {
            let state = state_of(group, shares.founding_state(group, &voters).unwrap());
            let share = (group, shares.share_of(group));
            let mut header = header_of("dev", None, share, LogicalTime::ZERO, &state);
            change(&mut header);
            bytes.extend(header.encode());
            bytes.extend_from_slice(&state.data);
        }
        bytes
    }

    fn restore_file(
        bytes: &[u8],
        change: impl Fn(&mut NodeConfig),
    ) -> (tempfile::TempDir, NodeConfig, Result<Restored, OfflineError>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        fs::write(&path, bytes).unwrap();
        let mut config = NodeConfig::dev_cluster(1, dir.path(), 7420).unwrap().remove(0);
        change(&mut config);
        let restored = restore(&path, &config, NewClusterOptions::default());
        (dir, config, restored)
    }

    fn refusal(bytes: &[u8], change: impl Fn(&mut NodeConfig)) -> String {
        let (_dir, config, restored) = restore_file(bytes, change);
        assert!(!config.data_dir.exists(), "nothing was made");
        restored.unwrap_err().to_string()
    }

    #[test]
    fn a_restored_directory_has_as_many_groups_as_the_file() {
        let (_dir, config, restored) =
            restore_file(&file(GROUPS, |_| (), |_, state| state), |_| ());
        let restored = restored.unwrap();
        assert_eq!((restored.new.groups, restored.highest_node), (GROUPS, 3));
        assert_eq!(Identity::groups_in(&config.data_dir), Some(GROUPS));
        let disk = FileDisk::open(config.data_dir.join(LOG_DIR)).unwrap();
        let (_, logs) = Wal::open(disk, Options { segment_bytes: config.segment_bytes }).unwrap();
        let shares = Groups::with_equal_shares(GROUPS);
        assert_eq!(logs.len(), GROUPS as usize);
        for log in logs {
            let group = GroupId(log.group);
            let durable = to_durable(log);
            let (membership, table) = read_snapshot(&durable.snapshot.unwrap().data).unwrap();
            assert!(shares.are_slots_of(group, table.ownership()), "group {group}");
            assert_eq!(table.last_token(), restored.new.last_token);
            assert!(membership.was_removed(NodeId(2)) && !membership.was_removed(NodeId(1)));
            assert!(durable.hard_state.term > 1 << 16);
        }
    }

    #[test]
    fn a_configuration_that_cannot_serve_the_groups_of_the_file_is_refused() {
        let bytes = file(GROUPS, |_| (), |_, state| state);
        let words = refusal(&bytes, |config| config.groups = 2);
        assert!(words.contains("has 4 groups") && words.contains("groups = 2"), "{words}");
        let (_dir, _, restored) = restore_file(&bytes, |config| config.groups = GROUPS);
        assert_eq!(restored.unwrap().new.groups, GROUPS);
    }

    #[test]
    fn a_cluster_of_several_groups_that_publishes_to_kafka_is_restored() {
        let bytes = file(GROUPS, |_| (), |_, state| state);
        let kafka = r#"{"brokers": ["127.0.0.1:9092"], "topic": "locks"}"#;
        let (_dir, _, restored) = restore_file(&bytes, |config| {
            config.kafka = Some(serde_json::from_str(kafka).unwrap());
        });
        assert_eq!(restored.unwrap().new.groups, GROUPS);
    }

    #[test]
    fn a_file_without_one_of_the_groups_is_refused() {
        let bytes = file(GROUPS, |_| (), |_, state| state);
        let parts = read_parts(&bytes).unwrap();
        let length = |part: &BackupPart<'_>| part.header.encode().len() + part.body.len();
        let words = refusal(&bytes[..bytes.len() - length(&parts[3])], |_| ());
        assert!(words.contains("3 of 4 groups are there"), "{words}");
        let words = refusal(&bytes[length(&parts[0])..], |_| ());
        assert!(words.contains("group 2 is where group 1 should be"), "{words}");
    }

    #[test]
    fn a_group_whose_table_owns_other_slots_than_its_header_says_is_refused() {
        let shares = Groups::with_equal_shares(GROUPS);
        let voters = [1, 2, 3].map(NodeId);
        let of_third = shares.founding_state(GroupId(3), &voters).unwrap();
        let swapped = file(
            GROUPS,
            |_| (),
            |group, state| match group {
                GroupId(2) => of_third.clone(),
                _ => state,
            },
        );
        let words = refusal(&swapped, |_| ());
        assert!(words.contains("the lock table of group 2 owns other slots"), "{words}");
    }

    #[test]
    fn slots_that_this_build_would_send_to_other_groups_are_refused() {
        // Groups 1 and 2 have each other's slots, in their headers and in their tables.
        let shares = Groups::with_equal_shares(GROUPS);
        let voters = [1, 2, 3].map(NodeId);
        let slots_of = |group: GroupId| {
            let other = match group.0 {
                1 => GroupId(2),
                2 => GroupId(1),
                _ => group,
            };
            shares.share_of(other).unwrap()
        };
        let moved = file(
            GROUPS,
            |header| header.share = Some(slots_of(header.group)),
            |group, _| found_group(&voters, slots_of(group).epoch, slots_of(group).slots),
        );
        let words = refusal(&moved, |_| ());
        assert!(words.contains("cannot move slots"), "{words}");
        // A later map of the same slots, too: the nodes begin with the first one.
        let later = |group: GroupId| {
            let share = shares.share_of(group).unwrap();
            holdfast_replica::GroupShare { epoch: holdfast_core::MapEpoch(2), ..share }
        };
        let renumbered = file(
            GROUPS,
            |header| header.share = Some(later(header.group)),
            |group, _| found_group(&voters, later(group).epoch, later(group).slots),
        );
        let words = refusal(&renumbered, |_| ());
        assert!(words.contains("cannot move slots"), "{words}");
    }
}
