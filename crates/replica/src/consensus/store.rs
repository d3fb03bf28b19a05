//! The log of this replica, as the storage of the Raft library.

use std::cell::Cell;

use raft::eraftpb::{ConfState, Entry, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};

use super::convert::{from_conf_state, to_raft_entry, to_raft_state};
use crate::id::NodeId;
use crate::log_store::{LogStore, Missing};

pub(super) struct Store {
    pub(super) log: LogStore,
    pub(super) members: ConfState,
    pub(super) offered: Option<Snapshot>,
    /// The library took the snapshot to send it. The host will report the result.
    pub(super) is_fetched: Cell<bool>,
    pub(super) snapshot_wanted: Cell<bool>,
}

impl raft::Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(to_raft_state(self.log.hard_state), self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        Ok(self.log.slice(low, high, bytes_max).map_err(missing)?.map(to_raft_entry).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        self.log.term(index).map_err(missing)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.log.first_index())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.log.last_index())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let usable = |offered: &&Snapshot| {
            let metadata = offered.get_metadata();
            let (index, members) = (metadata.index, metadata.get_conf_state());
            // A node cannot use a snapshot from before it was a member.
            index >= request_index
                && index + 1 >= self.log.first_index()
                && from_conf_state(members).role(NodeId(to)).is_some()
        };
        match self.offered.as_ref().filter(usable) {
            Some(snapshot) => {
                self.is_fetched.set(true);
                Ok(snapshot.clone())
            }
            None => {
                self.snapshot_wanted.set(true);
                Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

fn missing(missing: Missing) -> raft::Error {
    raft::Error::Store(match missing {
        Missing::Compacted => StorageError::Compacted,
        Missing::Unavailable => StorageError::Unavailable,
    })
}
