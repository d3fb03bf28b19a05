//! Snapshots that this replica takes: to compact its log, for a follower that lags, or as a backup.
//!
//! Writing a large table takes longer than callers may wait. So a turn writes only a slice, while the table goes on
//! changing. The snapshot shows the moment at which it was begun. A pause between two slices leaves time for other
//! work.

use holdfast_core::LogicalTime;

use super::Replica;
use crate::effect::{Effect, Ticket, Unavailable};
use crate::id::ClusterId;
use crate::log_store::SnapshotFile;
use crate::membership::Configuration;
use crate::snapshot_body;

/// The most slices that one turn writes, however long the last turn took.
const SLICES_AT_ONCE_MAX: u128 = 8;

/// A snapshot that is being written.
#[derive(Debug)]
pub(super) struct UnfinishedSnapshot {
    index: u64,
    term: u64,
    configuration: Configuration,
    to_save: bool,
    to_offer: bool,
    /// The callers that want it as a backup.
    backups: Vec<Ticket>,
    cluster: Option<ClusterId>,
    logical_time: LogicalTime,
}

impl Replica {
    /// A snapshot is being written. Turns should follow each other even without input.
    pub fn is_writing_snapshot(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Begins a backup of the present table. `Effect::BackupMade` delivers it. Call this after `Effect::Read` has said
    /// that the table is recent enough.
    pub fn handle_backup(&mut self, ticket: Ticket) {
        self.backups_wanted.push(ticket);
        // A snapshot begun earlier lacks what was committed since.
        if self.unfinished.is_none() {
            self.begin_wanted_backups();
        }
    }

    fn begin_wanted_backups(&mut self) {
        if !self.backups_wanted.is_empty() {
            let tickets = std::mem::take(&mut self.backups_wanted);
            self.begin_or_continue_snapshot().backups = tickets;
        }
    }

    /// Encodes the whole table at once. Only for offline use: it blocks for long.
    pub(crate) fn snapshot(&self) -> SnapshotFile {
        let data = snapshot_body::encode(&self.membership, &self.table);
        SnapshotFile { index: self.applied_index, term: self.applied_term, data }
    }

    /// Drops an unfinished snapshot, because an installed one has replaced the table.
    pub(super) fn abandon_snapshot(&mut self) {
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
        // Committed entries are applied first. Otherwise the snapshot would be outdated before it is written, and every
        // entry that changes meanwhile would have to be kept in its old form.
        let is_behind = self.applied_index < self.consensus.commit_index();
        if due && entries > 0 && !self.snapshot_under_way && !is_behind {
            self.snapshot_under_way = true;
            self.snapshot_requested = false;
            self.begin_or_continue_snapshot().to_save = true;
        }
    }

    pub(super) fn offer_snapshot_if_wanted(&mut self) {
        if self.consensus.snapshot_wanted() {
            let unfinished = self.begin_or_continue_snapshot();
            unfinished.to_offer = true;
            // The follower will need the entries after the snapshot.
            self.snapshot_in_flight = Some(unfinished.index);
            self.write_snapshot();
        }
    }

    /// A snapshot for a follower is in memory and has not been sent.
    pub fn has_unsent_snapshot(&self) -> bool {
        self.consensus.has_unsent_snapshot()
    }

    /// Frees a snapshot whose follower has disappeared. When the follower comes back, consensus asks for a newer one.
    pub(super) fn withdraw_unsent_snapshot(&mut self, ticks: u64) {
        if !self.consensus.has_unsent_snapshot() {
            return;
        }
        self.snapshot_unsent_ticks += ticks;
        if self.snapshot_unsent_ticks >= 2 * self.config.election_ticks.1 as u64 {
            self.withdraw_snapshot();
        }
    }

    /// No follower of this replica needs the snapshot any more.
    pub(super) fn withdraw_snapshot(&mut self) {
        self.consensus.withdraw_snapshot();
        self.snapshot_in_flight = None;
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.to_offer = false;
        }
    }

    /// The snapshot that is being written. Begins one if there is none.
    fn begin_or_continue_snapshot(&mut self) -> &mut UnfinishedSnapshot {
        if self.unfinished.is_none() {
            self.table.begin_snapshot(&snapshot_body::head(&self.membership));
            // The first slice is written at once, and has the usual size.
            self.sliced_last = self.latest_time.saturating_sub(self.config.snapshot_slice_pause);
        }
        self.unfinished.get_or_insert_with(|| UnfinishedSnapshot {
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

    /// Writes one more slice, if the pause is over. After a longer pause the slice is larger, so that slow turns do not
    /// delay a snapshot for ever.
    pub(super) fn write_snapshot(&mut self) {
        let (pause, since) =
            (self.config.snapshot_slice_pause, self.latest_time - self.sliced_last);
        if self.unfinished.is_none() || since < pause {
            return;
        }
        self.sliced_last = self.latest_time;
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
        self.begin_wanted_backups();
    }
}
