//! Makes the data directory of the one node with which a new cluster begins.

use std::path::Path;

use holdfast_engine::to_wal_snapshot;
use holdfast_replica::{GroupId, SnapshotFile};
use holdfast_wal::{FileDisk, HardState, Options, Wal};

use super::OfflineError;
use crate::config::NodeConfig;
use crate::identity::{Identity, LOG_DIR};
use crate::{durable_file, initial_members};

/// The mark of the directory comes last: until then no node starts on it.
pub(super) fn init_data_dir(
    directory: &Path,
    config: &NodeConfig,
    identity: &Identity,
    group: GroupId,
    state: &SnapshotFile,
) -> Result<(), OfflineError> {
    durable_file::create_dir(directory)?;
    let disk = FileDisk::open(directory.join(LOG_DIR))?;
    let (mut wal, _) = Wal::open(disk, Options { segment_bytes: config.segment_bytes })?;
    let failed = |error: &dyn std::error::Error| OfflineError::Write(error.to_string());
    wal.install_snapshot(group.0, to_wal_snapshot(state)).map_err(|error| failed(&error))?;
    let (term, commit) = (state.term, state.index);
    wal.set_hard_state(group.0, HardState { term, vote: 0, commit });
    wal.sync_turn().map_err(|error| failed(&error))?;
    drop(wal);
    initial_members::write(directory, &[identity.node])?;
    Ok(identity.write(directory)?)
}
