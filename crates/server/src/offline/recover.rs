//! Going on with the one node that is left, when the majority is lost for good.
//!
//! Everything in the survivor's log counts, whether it was committed or not. Its old files stay, aside. All is
//! prepared in a directory of its own first; then the old files make room for the new ones, and a crash
//! on the way leaves a directory on which no node starts until the recovery is run again and completed.
//!
//! All groups of the node are recovered, or none: they are in one log, and one step decides for all of them.
//!
//! ```text
//! recovering/state.snapshot   what the survivor knew, as a backup
//! recovering/new/             the new files, until they are in place
//! recovering/old/             from here on it goes only forward: the old files
//! before-recovery-<unix ms>/  in the end, what was `recovering`
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_core::LogicalTime;
use holdfast_engine::to_durable;
use holdfast_replica::{
    ClusterId, Configuration, GroupId, Membership, NodeId, SnapshotFile, read_snapshot, salvage,
};
use holdfast_wal::{FileDisk, GroupLog, Options, Wal};

use super::backup_file::{BackupWriter, header_of};
use super::init_data_dir::init_data_dir;
use super::{NewCluster, NewClusterOptions, OfflineError, restore_all, terms};
use crate::config::NodeConfig;
use crate::durable_file::{self, FileError, sync_dir};
use crate::groups::Groups;
use crate::identity::{self, Identity, LOG_DIR, RECOVERING_DIR};
use crate::initial_members;
use crate::known_peers;
use crate::membership::Membership as Published;
use crate::shard::{replica_config, unix_ms};

const OLD_DIR: &str = "old";
const NEW_DIR: &str = "new";
const STATE_FILE: &str = "state.snapshot";

/// A stopped node with what it knows. As long as this lives, no node starts on its directory.
#[derive(Debug)]
pub struct Survivor {
    config: NodeConfig,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Found(Box<FoundState>),
    /// An earlier recovery was interrupted when nothing was left to decide.
    Interrupted,
}

#[derive(Debug)]
struct FoundState {
    identity: Identity,
    /// The first group, whose members are those of the cluster.
    root: FoundGroup,
    /// In the order of their numbers.
    others: Vec<FoundGroup>,
    /// Keeps the directory locked.
    _disk: FileDisk,
}

/// What the node knows of one group.
#[derive(Debug)]
struct FoundGroup {
    id: GroupId,
    state: SnapshotFile,
    membership: Membership,
    logical_time: LogicalTime,
    /// Nothing of the group can be lost with other nodes.
    needs_no_other: bool,
}

impl FoundState {
    fn groups(&self) -> impl Iterator<Item = &FoundGroup> {
        std::iter::once(&self.root).chain(&self.others)
    }
}

/// Who had a vote in a group of the old cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVoters {
    pub group: u32,
    /// The other nodes, and where clients reach them.
    pub others: Vec<(u64, String)>,
    /// Whether this node had a vote.
    pub has_own: bool,
}

/// What a recovery did.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// None if it completed an earlier one.
    pub new: Option<NewCluster>,
    /// Where the old files are, and a backup of what the survivor knew.
    pub aside: PathBuf,
    pub state_file: PathBuf,
    /// Ids of nodes up to this one were used.
    pub highest_node: u64,
}

impl Survivor {
    /// Applies all that is in the node's log. Changes nothing yet.
    pub fn open(config: &NodeConfig) -> Result<Survivor, OfflineError> {
        let directory = &config.data_dir;
        let recovering = directory.join(RECOVERING_DIR);
        if recovering.join(OLD_DIR).exists() {
            return Ok(Survivor { config: config.clone(), stage: Stage::Interrupted });
        }
        let no_data = || OfflineError::NoData { path: directory.clone() };
        let identity = Identity::load(directory, &config.cluster, config.node_id())?;
        let identity = identity.ok_or_else(no_data)?;
        if !directory.join(LOG_DIR).is_dir() {
            return Err(no_data());
        }
        let disk = FileDisk::open(directory.join(LOG_DIR))?;
        if recovering.exists() {
            // It was interrupted before anything was decided.
            fs::remove_dir_all(&recovering).map_err(FileError::of("remove", &recovering))?;
        }
        let options = Options { segment_bytes: config.segment_bytes };
        let (_, logs) = Wal::open(disk.clone(), options)?;
        if logs.is_empty() {
            return Err(no_data());
        }
        let initial_members = initial_members::load_or_create(config)?;
        let mut groups = found_groups(config, identity.groups, logs, &initial_members)?.into_iter();
        let root = groups.next().ok_or_else(no_data)?;
        let others = groups.collect();
        let found = FoundState { identity, root, others, _disk: disk };
        Ok(Survivor { config: config.clone(), stage: Stage::Found(Box::new(found)) })
    }

    /// The voters of each group of the old cluster.
    pub fn voters(&self) -> Vec<GroupVoters> {
        let Stage::Found(found) = &self.stage else { return Vec::new() };
        let voters_of = |group: &FoundGroup| {
            let (me, voters) = (self.config.node_id(), &group.membership.configuration.voters);
            let published =
                Published::of(&self.config, &voters.iter().copied().collect::<Vec<_>>());
            published.publish(GroupId::FIRST, group.membership.clone());
            let others = voters.iter().filter(|voter| **voter != me);
            let others = others.map(|voter| (voter.0, published.client_address(Some(*voter))));
            GroupVoters {
                group: group.id.0,
                others: others.collect(),
                has_own: voters.contains(&me),
            }
        };
        found.groups().map(voters_of).collect()
    }

    /// Whether the node needs no other one in any group, as after a recovery. So there is nothing to recover from.
    pub fn is_alone(&self) -> bool {
        match &self.stage {
            Stage::Found(found) => found.groups().all(|group| group.needs_no_other),
            Stage::Interrupted => false,
        }
    }

    /// Makes the node the only one of a new cluster.
    pub fn recover_alone(self, options: NewClusterOptions) -> Result<Recovered, OfflineError> {
        let directory = &self.config.data_dir;
        let new = match &self.stage {
            Stage::Interrupted => None,
            Stage::Found(found) => Some(prepare(&self.config, found, options)?),
        };
        let recovering = directory.join(RECOVERING_DIR);
        swap_directories(directory, &recovering)?;
        let aside = directory.join(format!("before-recovery-{}", unix_ms()));
        rename(&recovering, &aside)?;
        sync_dir(directory)?;
        let highest = match &self.stage {
            Stage::Found(found) => found.groups().map(|group| group.membership.highest).max(),
            Stage::Interrupted => None,
        };
        Ok(Recovered {
            new,
            state_file: aside.join(STATE_FILE),
            aside,
            highest_node: highest.unwrap_or_default().max(self.config.node_id()).0,
        })
    }
}

/// What the log says of each group that the data directory is of.
fn found_groups(
    config: &NodeConfig,
    groups: u32,
    mut logs: Vec<GroupLog>,
    initial_members: &[NodeId],
) -> Result<Vec<FoundGroup>, OfflineError> {
    let path = || config.data_dir.join(LOG_DIR);
    let shares = Groups::with_equal_shares(groups);
    let mut found = Vec::new();
    for id in shares.all() {
        let missing = || OfflineError::GroupMissing { path: path(), group: id, groups };
        let place = logs.iter().position(|log| log.group == id.0).ok_or_else(missing)?;
        let durable = to_durable(logs.swap_remove(place));
        // A group that was founded has a term.
        if groups > 1 && durable.hard_state.term == 0 {
            return Err(missing());
        }
        let snapshot = durable.snapshot.clone();
        let replica_config = replica_config(config, id, initial_members.to_vec());
        let state = salvage(replica_config, durable).map_err(|source| OfflineError::Salvage {
            group: id,
            groups,
            source,
        })?;
        let (membership, table) = read_snapshot(&state.data)
            .map_err(|source| OfflineError::Content { path: path(), source })?;
        let node = config.node_id();
        if membership.was_removed(node) {
            return Err(OfflineError::Removed { node, group: id, groups });
        }
        if !shares.are_slots_of(id, table.ownership()) {
            return Err(OfflineError::OtherShares { path: path(), group: id, groups });
        }
        let committed = || snapshot.and_then(|snapshot| read_snapshot(&snapshot.data).ok());
        let needs_no_other = is_only_voter(node, &membership)
            && committed().is_some_and(|(committed, _)| committed == membership);
        found.push(FoundGroup { id, state, membership, logical_time: table.now(), needs_no_other });
    }
    match logs.first() {
        None => Ok(found),
        Some(log) => {
            Err(OfflineError::UnknownGroup { path: path(), group: GroupId(log.group), groups })
        }
    }
}

/// The log may have changes of members that are not committed, and which need the votes of others. So its last word
/// counts only if a snapshot has the same.
fn is_only_voter(node: NodeId, membership: &Membership) -> bool {
    let Configuration { voters, outgoing, .. } = &membership.configuration;
    outgoing.is_empty() && voters.iter().eq([&node])
}

/// Writes all new files where no node looks for them. The last step decides, for all groups. Whatever fails before
/// leaves the directory as it was, so the node can start on it.
fn prepare(
    config: &NodeConfig,
    found: &FoundState,
    options: NewClusterOptions,
) -> Result<NewCluster, OfflineError> {
    let groups = found.identity.groups;
    let random = Identity::random(&config.cluster, config.node_id())?;
    let identity = Identity { groups, ..random };
    let reason = "the majority of the cluster was lost; nothing is granted until those who held locks \
                  have noticed";
    let terms = terms(config, &identity, None, options, reason.to_owned());
    let files: Vec<_> = found.groups().map(|group| (group.id, group.state.clone())).collect();
    let (states, new) = restore_all(&identity, &files, &terms)?;

    let recovering = config.data_dir.join(RECOVERING_DIR);
    let written = write_new(&recovering, config, found, &identity, &states);
    if written.is_err() && !recovering.join(OLD_DIR).exists() {
        // If this fails as well, the node says that the recovery was interrupted.
        fs::remove_dir_all(&recovering).ok();
    }
    written.map(|()| new)
}

fn write_new(
    recovering: &Path,
    config: &NodeConfig,
    found: &FoundState,
    identity: &Identity,
    states: &[(GroupId, SnapshotFile)],
) -> Result<(), OfflineError> {
    durable_file::create_dir(recovering)?;
    write_state(&recovering.join(STATE_FILE), found)?;
    init_data_dir(&recovering.join(NEW_DIR), config, identity, states)?;
    Ok(durable_file::create_dir(&recovering.join(OLD_DIR))?)
}

/// What the node knew, as a backup.
fn write_state(path: &Path, found: &FoundState) -> Result<(), OfflineError> {
    let shares = Groups::with_equal_shares(found.identity.groups);
    let cluster: Option<ClusterId> = found.root.membership.cluster;
    let header = |group: &FoundGroup| {
        let share = (group.id, shares.share_of(group.id));
        let name = &found.identity.cluster;
        header_of(name, cluster, share, group.logical_time, &group.state).encode()
    };
    let mut backup = BackupWriter::begin(path, &header(&found.root))?;
    backup.take(&found.root.state.data)?;
    for group in &found.others {
        backup.next_group(&header(group))?;
        backup.take(&group.state.data)?;
    }
    backup.finish(true)?;
    Ok(())
}

/// Whatever of it was done before is not done again.
fn swap_directories(directory: &Path, recovering: &Path) -> Result<(), OfflineError> {
    let (new, old) = (recovering.join(NEW_DIR), recovering.join(OLD_DIR));
    for name in [identity::FILE, LOG_DIR, initial_members::FILE, known_peers::FILE] {
        let is_old = new.join(name).exists() || name == known_peers::FILE;
        if is_old && directory.join(name).exists() {
            rename(&directory.join(name), &old.join(name))?;
        }
    }
    sync_dir(&old)?;
    sync_dir(directory)?;
    for name in [LOG_DIR, initial_members::FILE, identity::FILE] {
        if new.join(name).exists() {
            rename(&new.join(name), &directory.join(name))?;
        }
    }
    sync_dir(directory)?;
    if new.exists() {
        fs::remove_dir(&new).map_err(FileError::of("remove", &new))?;
    }
    Ok(sync_dir(recovering)?)
}

fn rename(from: &Path, to: &Path) -> Result<(), OfflineError> {
    Ok(fs::rename(from, to).map_err(FileError::of("move", from))?)
}

#[cfg(test)]
mod tests {
    use holdfast_core::Span;

    use super::*;
    use crate::identity::IdentityError;

    const GROUPS: u32 = 4;

    type States = Vec<(GroupId, SnapshotFile)>;

    fn states(groups: u32) -> States {
        let shares = Groups::with_equal_shares(groups);
        let voters = [1, 2, 3].map(NodeId);
        shares.all().map(|group| (group, shares.founding_state(group, &voters).unwrap())).collect()
    }

    /// The stopped node 1 of a cluster of three nodes, with these groups in its log.
    fn node_with(data: &Path, groups: u32, states: &States) -> NodeConfig {
        let config = NodeConfig::dev_cluster(3, data, 7420).unwrap().remove(0);
        let config = NodeConfig { groups, ..config };
        let random = Identity::random(&config.cluster, config.node_id()).unwrap();
        let identity = Identity { groups, ..random };
        init_data_dir(&config.data_dir, &config, &identity, states).unwrap();
        config
    }

    fn recover(config: &NodeConfig) -> Recovered {
        let options = NewClusterOptions { token_floor: None, closed_for: None };
        Survivor::open(config).unwrap().recover_alone(options).unwrap()
    }

    fn start(config: &NodeConfig) -> Result<Identity, IdentityError> {
        let NodeConfig { data_dir, cluster, groups, .. } = config;
        Identity::load_or_create(data_dir, cluster, config.node_id(), *groups)
    }

    /// All groups are the cluster that began with this directory, and nothing of the old one is left in any of them.
    fn assert_recovered(config: &NodeConfig, new: &NewCluster) {
        let identity = start(config).unwrap();
        assert_eq!(
            (identity.data_dir.to_string(), identity.groups),
            (new.cluster_id.clone(), GROUPS)
        );
        let disk = FileDisk::open(config.data_dir.join(LOG_DIR)).unwrap();
        let options = Options { segment_bytes: config.segment_bytes };
        let (_, logs) = Wal::open(disk, options).unwrap();
        let mut found = Vec::new();
        for log in logs {
            let group = log.group;
            let durable = to_durable(log);
            let state = durable.snapshot.unwrap();
            let (membership, table) = read_snapshot(&state.data).unwrap();
            assert_eq!(membership.cluster, Some(identity.cluster_id()), "group {group}");
            assert_eq!(membership.configuration.voters.len(), 1);
            assert_eq!(table.last_token(), new.last_token);
            assert!(table.closed_for() >= Span::from_secs(30));
            assert_eq!(
                (durable.hard_state.term, durable.hard_state.commit),
                (state.term, state.index)
            );
            assert!(state.term > 1 << 16 && state.index > 1 << 40);
            found.push(group);
        }
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 4]);
    }

    #[test]
    fn a_recovery_that_was_killed_between_two_groups_begins_again_with_all_of_them() {
        let states = states(GROUPS);
        for written in 0..=states.len() {
            let dir = tempfile::tempdir().unwrap();
            let config = node_with(dir.path(), GROUPS, &states);
            let before = start(&config).unwrap();
            let recovering = config.data_dir.join(RECOVERING_DIR);
            fs::create_dir(&recovering).unwrap();
            fs::write(recovering.join(STATE_FILE), "a part of it").unwrap();
            let identity =
                Identity { groups: GROUPS, ..Identity::random("dev", NodeId(1)).unwrap() };
            let some = states[..written].to_vec();
            init_data_dir(&recovering.join(NEW_DIR), &config, &identity, &some).unwrap();
            let refused = start(&config).unwrap_err();
            assert!(matches!(refused, IdentityError::RecoveryInterrupted { .. }), "{refused}");

            let recovered = recover(&config);
            let new = recovered.new.expect("it began again");
            assert_ne!(new.cluster_id, before.data_dir.to_string());
            assert_ne!(new.cluster_id, identity.data_dir.to_string());
            assert_recovered(&config, &new);
            let state = super::super::backup_file::read(&recovered.state_file).unwrap();
            assert_eq!(state.group_count(), GROUPS);
        }
    }

    #[test]
    fn a_recovery_that_was_killed_while_files_changed_places_is_completed_for_all_groups() {
        let out = [identity::FILE, LOG_DIR, initial_members::FILE];
        let into = [LOG_DIR, initial_members::FILE, identity::FILE];
        let crashes = (0..=3).map(|moved| (moved, 0)).chain((1..=3).map(|moved| (3, moved)));
        for (moved_out, moved_in) in crashes {
            let dir = tempfile::tempdir().unwrap();
            let config = node_with(dir.path(), GROUPS, &states(GROUPS));
            let recovered = recover(&config);
            let new = recovered.new.unwrap();
            // Back to the crash: some old files have made room, and some new ones are in place.
            let recovering = config.data_dir.join(RECOVERING_DIR);
            fs::rename(&recovered.aside, &recovering).unwrap();
            fs::create_dir(recovering.join(NEW_DIR)).unwrap();
            for name in &into[moved_in..] {
                let place = recovering.join(NEW_DIR).join(name);
                fs::rename(config.data_dir.join(name), place).unwrap();
            }
            for name in &out[moved_out..] {
                let old = recovering.join(OLD_DIR).join(name);
                fs::rename(old, config.data_dir.join(name)).unwrap();
            }
            let refused = start(&config).unwrap_err();
            assert!(matches!(refused, IdentityError::RecoveryInterrupted { .. }), "{refused}");

            let completed = recover(&config);
            assert!(completed.new.is_none(), "nothing was left to decide");
            assert_recovered(&config, &new);
            for name in out {
                assert!(completed.aside.join(OLD_DIR).join(name).exists(), "{name} is kept");
            }
        }
    }

    #[test]
    fn a_node_is_alone_if_a_snapshot_says_so_and_no_change_of_members_came_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = node_with(dir.path(), GROUPS, &states(GROUPS));
        let survivor = Survivor::open(&config).unwrap();
        assert!(!survivor.is_alone(), "three vote");
        let options = NewClusterOptions { token_floor: None, closed_for: None };
        survivor.recover_alone(options).unwrap();
        assert!(Survivor::open(&config).unwrap().is_alone());

        let voters = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
        let of = |now: &[u64], before: &[u64]| {
            let (voters, outgoing) = (voters(now), voters(before));
            let configuration = Configuration { voters, outgoing, ..Configuration::default() };
            Membership { configuration, ..Membership::default() }
        };
        assert!(is_only_voter(NodeId(1), &of(&[1], &[])));
        assert!(!is_only_voter(NodeId(1), &of(&[1], &[1, 2])), "the change needs node 2");
        assert!(!is_only_voter(NodeId(1), &of(&[2], &[])));
        assert!(!is_only_voter(NodeId(1), &of(&[1, 2], &[])));
    }

    #[test]
    fn a_recovery_that_is_refused_leaves_a_node_that_starts() {
        let dir = tempfile::tempdir().unwrap();
        let config = node_with(dir.path(), GROUPS, &states(GROUPS));
        let before = start(&config).unwrap();
        let too_high = NewClusterOptions { token_floor: Some(u64::MAX), closed_for: None };
        let refused = Survivor::open(&config).unwrap().recover_alone(too_high).unwrap_err();
        assert!(matches!(refused, OfflineError::Restore { .. }), "{refused}");
        assert_eq!(start(&config).unwrap().data_dir.to_string(), before.data_dir.to_string());
    }

    #[test]
    fn a_log_without_one_of_the_groups_or_with_another_one_is_not_recovered() {
        let refusal = |groups: u32, states: States| {
            let dir = tempfile::tempdir().unwrap();
            let config = node_with(dir.path(), groups, &states);
            let error = Survivor::open(&config).unwrap_err();
            assert!(!config.data_dir.join(RECOVERING_DIR).exists(), "nothing was changed");
            error.to_string()
        };
        let mut without_third = states(GROUPS);
        without_third.remove(2);
        let words = refusal(GROUPS, without_third);
        assert!(words.contains("nothing of group 3"), "{words}");
        // Three of four groups own fewer slots than three of three.
        let words = refusal(3, states(GROUPS));
        assert!(words.contains("other slots for group 1"), "{words}");
        let mut with_another = states(3);
        with_another.push(states(GROUPS).remove(3));
        let words = refusal(3, with_another);
        assert!(words.contains("has group 4"), "{words}");
    }

    #[test]
    fn a_group_whose_founding_was_interrupted_is_not_recovered() {
        let mut states = states(GROUPS);
        states[1].1.term = 0;
        let dir = tempfile::tempdir().unwrap();
        let config = node_with(dir.path(), GROUPS, &states);
        let words = Survivor::open(&config).unwrap_err().to_string();
        assert!(words.contains("nothing of group 2"), "{words}");
    }
}
