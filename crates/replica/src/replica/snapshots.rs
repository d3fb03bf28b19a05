//! Snapshots that this replica takes: to shorten its log, for a follower that lags behind it, or as a backup.
//!
//! A large table takes longer to write than a lock may wait. So a snapshot is begun at one moment and
//! written a slice a turn, while the table goes on; it is of the moment at which it was begun. Between two slices
//! there is a pause, so that it does not take all the time there is from others.

use holdfast_core::LogicalTime;

use super::Replica;
use crate::effect::{Effect, Ticket, Unavailable};
use crate::id::ClusterId;
use crate::log_store::SnapshotFile;
use crate::membership::Configuration;
use crate::snapshot_body;

/// However long the last turn took.
const SLICES_AT_ONCE_MAX: u128 = 8;

/// A snapshot that is being written.
#[derive(Debug)]
pub(super) struct Unfinished {
    index: u64,
    term: u64,
    configuration: Configuration,
    to_save: bool,
    to_offer: bool,
    /// Who wants it as a backup.
    backups: Vec<Ticket>,
    cluster: Option<ClusterId>,
    logical_time: LogicalTime,
}

impl Replica {
    /// There is a snapshot to write: turns should follow each other, whether or not there is input.
    pub fn is_writing_snapshot(&self) -> bool {
        self.unfinished.is_some()
    }

    /// The table as it is now, and later: `Effect::BackupMade`. Ask once `Effect::Read` has said that the table
    /// is recent enough.
    pub fn handle_backup(&mut self, ticket: Ticket) {
        self.backups_wanted.push(ticket);
        // One that was begun earlier does not show what was committed since.
        if self.unfinished.is_none() {
            self.begin_backup();
        }
    }

    fn begin_backup(&mut self) {
        if !self.backups_wanted.is_empty() {
            let tickets = std::mem::take(&mut self.backups_wanted);
            self.snapshot_unfinished().backups = tickets;
        }
    }

    /// The table at once, for when nobody waits for anything else.
    pub(crate) fn snapshot(&self) -> SnapshotFile {
        let data = snapshot_body::encode(&self.membership, &self.table);
        SnapshotFile { index: self.applied_index, term: self.applied_term, data }
    }

    /// The table that was being written is not this replica's any more.
    pub(super) fn give_up_snapshot(&mut self) {
        let Some(unfinished) = self.unfinished.take() else { return };
        if unfinished.to_save {
            self.snapshot_under_way = false;
        }
        let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
        let tickets = unfinished.backups.into_iter().chain(self.backups_wanted.drain(..));
        self.effects.extend(tickets.map(|ticket| Effect::Failed { ticket, reason }));
    }

    pub(super) fn save_snapshot_if_due(&mut self) {
        let entries = self.applied_index - self.snapshot_index;
        let bytes = self.consensus.log().bytes().saturating_sub(self.log_bytes_at_snapshot);
        let due = entries >= self.config.snapshot_every_entries
            || bytes >= self.config.snapshot_every_bytes.max(self.snapshot_bytes)
            || self.snapshot_requested;
        // What is committed is applied first: until then a snapshot would be old before it is written, and everything
        // that changes meanwhile would be written down as it was.
        let is_behind = self.applied_index < self.consensus.commit_index();
        if due && entries > 0 && !self.snapshot_under_way && !is_behind {
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

    /// There is a snapshot in memory for a follower, and it has not been sent.
    pub fn has_unsent_snapshot(&self) -> bool {
        self.consensus.has_unsent_snapshot()
    }

    /// The follower for which it was written is gone: it would lie in memory until that comes back. Then
    /// consensus asks for another one, which shows more.
    pub(super) fn withdraw_unsent_snapshot(&mut self, ticks: u64) {
        if !self.consensus.has_unsent_snapshot() {
            return;
        }
        self.snapshot_unsent_ticks += ticks;
        if self.snapshot_unsent_ticks >= 2 * self.config.election_ticks.1 as u64 {
            self.withdraw_snapshot();
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
            // The first slice at once, and no larger than the next.
            self.sliced_last = self.told_time.saturating_sub(self.config.snapshot_slice_pause);
        }
        self.unfinished.get_or_insert_with(|| Unfinished {
            index: self.applied_index,
            term: self.applied_term,
            configuration: self.membership.configuration.clone(),
            to_save: false,
            to_offer: false,
            backups: Vec::new(),
            cluster: self.membership.cluster,
            logical_time: self.table.now(),
        })
    }

    /// A slice more, if it is time for one; a larger one if it has been for long. Turns that take long must not make
    /// a snapshot take for ever.
    pub(super) fn write_snapshot(&mut self) {
        let (pause, since) = (self.config.snapshot_slice_pause, self.told_time - self.sliced_last);
        if self.unfinished.is_none() || since < pause {
            return;
        }
        self.sliced_last = self.told_time;
        let slices = since.as_nanos().checked_div(pause.as_nanos()).unwrap_or(1);
        let slices = slices.clamp(1, SLICES_AT_ONCE_MAX) as usize;
        let entries = self.config.snapshot_slice_entries.saturating_mul(slices);
        let Some(bytes) = self.table.continue_snapshot(entries) else { return };
        let Some(written) = self.unfinished.take() else { return };
        self.snapshot_bytes = bytes.len() as u64;
        let file = SnapshotFile { index: written.index, term: written.term, data: bytes.into() };
        if written.to_offer && self.consensus.is_leader() {
            self.consensus.offer_snapshot(file.clone(), &written.configuration);
            self.snapshot_unsent_ticks = 0;
        }
        for ticket in written.backups {
            let (cluster, at, file) = (written.cluster, written.logical_time, file.clone());
            self.effects.push(Effect::BackupMade { ticket, cluster, at, file });
        }
        if written.to_save {
            self.effects.push(Effect::SaveSnapshot(file));
        }
        self.begin_backup();
    }
}
