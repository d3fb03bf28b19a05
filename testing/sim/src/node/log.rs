//! The real log on a simulated disk, and the slow work beside it, which a real node does in the background.

use std::collections::BTreeMap;

use holdfast_engine::{LogError, TurnLog, to_durable, to_wal_snapshot};
use holdfast_replica::{Durable, GroupId, SnapshotFile, Turn};
use holdfast_wal::{OpenError, Options, SimDisk};

/// Past it the replica is asked for a snapshot. Few and small, so that a run sees many of them go.
const SEGMENTS_MAX: u64 = 6;

#[derive(Debug)]
pub(super) struct Log {
    log: TurnLog<SimDisk>,
}

impl Log {
    /// A new process opens the log.
    pub(super) fn open(
        disk: &SimDisk,
        segment_bytes: u64,
    ) -> Result<(Log, BTreeMap<GroupId, Durable>), OpenError> {
        let (log, recovered) = TurnLog::open(disk.clone(), Options { segment_bytes })?;
        let recovered = recovered.into_iter().map(|log| (GroupId(log.group), to_durable(log)));
        Ok((Log { log }, recovered.collect()))
    }

    /// Everything that the turns promise is durable when this returns `Ok`.
    pub(super) fn persist(&mut self, turns: &[(GroupId, Turn)]) -> Result<(), LogError> {
        // As in a real node, files go a while after they have become garbage.
        let garbage = self.log.wal().take_garbage();
        let persisted = self.log.persist(turns);
        if let Some(garbage) = garbage {
            garbage.remove()?;
        }
        persisted?;
        if self.log.wal().spare_wanted() {
            // A segment that could not be prepared ahead is made when it is needed.
            if let Ok(spare) = self.log.wal().segment_preparer().prepare() {
                self.log.wal().add_spare(spare);
            }
        }
        Ok(())
    }

    pub(super) fn groups_pinning_log(&self) -> Vec<GroupId> {
        self.log.groups_pinning_log(SEGMENTS_MAX)
    }

    /// Saves a snapshot of this node's own, and lets go of what it covers.
    pub(super) fn save(&mut self, group: GroupId, file: &SnapshotFile) -> Result<(), LogError> {
        let written = self.log.wal().snapshot_writer().write(group.0, to_wal_snapshot(file))?;
        self.log.snapshot_written(written)
    }
}

/// What `snapshot restore` writes, or the founding of groups.
pub(super) fn init_data_dir(
    disk: &SimDisk,
    segment_bytes: u64,
    states: &[(GroupId, SnapshotFile)],
) -> Result<(), String> {
    let (mut log, _) = TurnLog::open(disk.clone(), Options { segment_bytes })
        .map_err(|error| error.to_string())?;
    let turn = |(group, state): &(GroupId, SnapshotFile)| {
        let Durable { hard_state, snapshot, .. } = Durable::of_snapshot(state.clone());
        (*group, Turn { snapshot, hard_state: Some(hard_state), ..Turn::default() })
    };
    let turns: Vec<(GroupId, Turn)> = states.iter().map(turn).collect();
    log.persist(&turns).map_err(|error| error.to_string())
}
