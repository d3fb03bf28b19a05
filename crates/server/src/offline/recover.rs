//! Going on with the one node that is left, when the majority is lost for good.
//!
//! Everything in the survivor's log counts, whether it was committed or not. Its old files stay, aside. All is
//! prepared in a directory of its own first; then the old files make room for the new ones, and a crash
//! on the way leaves a directory on which no node starts until the recovery is run again and completed:
//!
//! ```text
//! recovering/state.snapshot   what the survivor knew, as a backup
//! recovering/new/             the new files, until they are in place
//! recovering/old/             from here on it goes only forward: the old files
//! before-recovery-<unix ms>/  in the end, what was `recovering`
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_engine::to_durable;
use holdfast_replica::{
    ClusterId, GroupId, Membership, NodeId, SnapshotFile, read_snapshot, restore_group, salvage,
};
use holdfast_wal::{FileDisk, Options, Wal};

use super::backup_file::{BackupWriter, header_of};
use super::init_data_dir::init_data_dir;
use super::{NewCluster, NewClusterOptions, OfflineError, terms};
use crate::config::NodeConfig;
use crate::durable_file::{self, FileError, sync_dir};
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
    state: SnapshotFile,
    membership: Membership,
    logical_time: holdfast_core::LogicalTime,
    /// Keeps the directory locked.
    _disk: FileDisk,
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
        if identity.groups > 1 {
            let (path, groups) = (directory.clone(), identity.groups);
            return Err(OfflineError::SeveralGroups { path, groups });
        }
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
        let log = logs.into_iter().find(|log| log.group == GroupId::FIRST.0).ok_or_else(no_data)?;
        let initial_members = initial_members::load_or_create(config)?;
        let state =
            salvage(replica_config(config, GroupId::FIRST, initial_members), to_durable(log))?;
        let (membership, table) = read_snapshot(&state.data)
            .map_err(|source| OfflineError::Content { path: directory.join(LOG_DIR), source })?;
        let node = config.node_id();
        if membership.was_removed(node) {
            return Err(OfflineError::Removed { node });
        }
        let logical_time = table.now();
        let found = FoundState { identity, state, membership, logical_time, _disk: disk };
        Ok(Survivor { config: config.clone(), stage: Stage::Found(Box::new(found)) })
    }

    /// The other voters of the old cluster, and where clients reach them.
    pub fn other_voters(&self) -> Vec<(u64, String)> {
        let Stage::Found(found) = &self.stage else { return Vec::new() };
        let voters = &found.membership.configuration.voters;
        let published = Published::of(&self.config, &voters.iter().copied().collect::<Vec<_>>());
        published.publish(found.membership.clone());
        let others = voters.iter().filter(|voter| **voter != self.config.node_id());
        others.map(|voter| (voter.0, published.client_address(Some(*voter)))).collect()
    }

    /// It had a vote in the old cluster.
    pub fn is_voter(&self) -> bool {
        let Stage::Found(found) = &self.stage else { return false };
        found.membership.configuration.voters.contains(&self.config.node_id())
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
            Stage::Found(found) => found.membership.highest,
            Stage::Interrupted => NodeId(0),
        };
        Ok(Recovered {
            new,
            state_file: aside.join(STATE_FILE),
            aside,
            highest_node: highest.max(self.config.node_id()).0,
        })
    }
}

/// Writes all new files where no node looks for them. The last step decides.
fn prepare(
    config: &NodeConfig,
    found: &FoundState,
    options: NewClusterOptions,
) -> Result<NewCluster, OfflineError> {
    let recovering = config.data_dir.join(RECOVERING_DIR);
    durable_file::create_dir(&recovering)?;
    let cluster: Option<ClusterId> = found.membership.cluster;
    let name = &found.identity.cluster;
    let header = header_of(name, cluster, GroupId::FIRST, found.logical_time, &found.state);
    let mut backup = BackupWriter::begin(&recovering.join(STATE_FILE), &header.encode())?;
    backup.take(&found.state.data)?;
    backup.finish(true)?;

    let identity = Identity::random(&config.cluster, config.node_id())?;
    let reason = "the majority of the cluster was lost; nothing is granted until those who held locks \
                  have noticed";
    let terms = terms(config, &identity, None, options, reason.to_owned());
    let (state, account) = restore_group(&found.state, terms)?;
    init_data_dir(&recovering.join(NEW_DIR), config, &identity, GroupId::FIRST, &state)?;
    durable_file::create_dir(&recovering.join(OLD_DIR))?;
    Ok(NewCluster::of(&identity, &account))
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
