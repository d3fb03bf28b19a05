//! The data directory of a new cluster's only node, made from a backup.

use std::fs;
use std::io;
use std::path::Path;

use holdfast_replica::restore_group;

use super::init_data_dir::init_data_dir;
use super::{NewCluster, NewClusterOptions, OfflineError, backup_file, terms};
use crate::config::NodeConfig;
use crate::durable_file::FileError;
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
    if !is_empty(&config.data_dir)? {
        return Err(OfflineError::NotEmpty { path: config.data_dir.clone() });
    }
    let identity = Identity::random(&config.cluster, config.node_id())?;
    let reason = "the cluster was restored from a backup; nothing is granted until those who held locks \
                  in the old one have noticed";
    let written = Some(backup.header.created_unix_ms);
    let terms = terms(config, &identity, written, options, reason.to_owned());
    let (state, account) = restore_group(&backup.state, terms)?;
    init_data_dir(&config.data_dir, config, &identity, backup.header.group, &state)?;
    Ok(Restored {
        new: NewCluster::of(&identity, &account),
        old_cluster: backup.header.cluster,
        old_cluster_id: crate::identity::cluster_text(backup.header.cluster_id),
        highest_node: backup.membership.highest.max(config.node_id()).0,
    })
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
