//! Snapshots that this replica takes, to shorten its log or for a follower that lags behind it.
//!
//! A large table takes longer to write than a lock may wait. So a snapshot is begun at one moment and
//! written a slice a turn, while the table goes on; it is of the moment at which it was begun.

use super::Replica;
use crate::effect::Effect;
use crate::log_store::SnapshotFile;
use crate::membership::Configuration;
use crate::snapshot_body;

/// A snapshot that is being written.
#[derive(Debug)]
pub(super) struct Unfinished {
    index: u64,
    term: u64,
    configuration: Configuration,
    to_save: bool,
    to_offer: bool,
}

impl Unfinished {
    pub(super) fn is_to_be_saved(&self) -> bool {
        self.to_save
    }
}

impl Replica {
    /// There is a snapshot to write: turns should follow each other, whether or not there is input.
    pub fn is_writing_snapshot(&self) -> bool {
        self.unfinished.is_some()
    }

    pub(super) fn save_snapshot_if_due(&mut self) {
        let entries = self.applied_index - self.snapshot_index;
        let bytes = self.consensus.log().bytes().saturating_sub(self.log_bytes_at_snapshot);
        let due = entries >= self.config.snapshot_every_entries
            || bytes >= self.config.snapshot_every_bytes
            || self.snapshot_requested;
        if due && entries > 0 && !self.snapshot_under_way {
            self.snapshot_under_way = true;
            self.snapshot_requested = false;
            self.snapshot_unfinished().to_save = true;
        }
    }

    pub(super) fn offer_snapshot_if_wanted(&mut self) {
        if self.consensus.snapshot_wanted() {
            let unfinished = self.snapshot_unfinished();
            unfinished.to_offer = true;
            // The follower will need what comes after it.
            self.snapshot_in_flight = Some(unfinished.index);
            self.write_snapshot();
        }
    }

    /// Nobody lags any more for whom this replica would be responsible.
    pub(super) fn withdraw_snapshot(&mut self) {
        self.consensus.withdraw_snapshot();
        self.snapshot_in_flight = None;
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.to_offer = false;
        }
    }

    /// The one that is being written; begun now if there is none.
    fn snapshot_unfinished(&mut self) -> &mut Unfinished {
        if self.unfinished.is_none() {
            self.table.begin_snapshot(&snapshot_body::head(&self.membership));
        }
        self.unfinished.get_or_insert_with(|| Unfinished {
            index: self.applied_index,
            term: self.applied_term,
            configuration: self.membership.configuration.clone(),
            to_save: false,
            to_offer: false,
        })
    }

    /// A slice more.
    pub(super) fn write_snapshot(&mut self) {
        if self.unfinished.is_none() {
            return;
        }
        let slice = self.config.snapshot_slice_entries;
        let Some(bytes) = self.table.continue_snapshot(slice) else { return };
        let Some(Unfinished { index, term, configuration, to_save, to_offer }) =
            self.unfinished.take()
        else {
            return;
        };
        let file = SnapshotFile { index, term, data: bytes.into() };
        if to_offer && self.consensus.is_leader() {
            self.consensus.offer_snapshot(file.clone(), &configuration);
        }
        if to_save {
            self.effects.push(Effect::SaveSnapshot(file));
        }
    }
}
