//! What the shard counts of its own work. It is the only one to write these numbers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_core::{Event, LockTable, LogicalTime, Outcome};
use holdfast_replica::{GroupId, Leadership, NodeId};

use super::Shard;
use super::longest_queue::LongestQueue;
use crate::metrics::{GroupLevels, Metrics, RELEASED, ending};

/// How often levels are published: more often than an operator looks, and far less often than the loop turns.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// How things stand, now and then.
#[derive(Debug, Default)]
pub(super) struct Levels {
    due: Duration,
    longest_queue: LongestQueue,
    skipped_searches: SkippedSearches,
}

impl Shard {
    pub(super) fn publish_levels(&mut self) {
        let now = self.started.elapsed();
        self.metrics.turns.add(1);
        if now < self.levels.due {
            return;
        }
        self.levels.due = now + PUBLISH_EVERY;
        let grants = self.engine.host().grants().clone();
        let (metrics, engine) = (&self.metrics, &self.engine);
        metrics.session_streams.set(engine.streams().len() as u64);
        metrics.framed_connections.set(self.framed.len() as u64);
        let tables = || engine.replicas().map(|(_, replica)| replica.table());
        let total = |of: fn(&LockTable) -> usize| tables().map(of).sum::<usize>() as u64;
        metrics.locks.set(total(LockTable::lock_count));
        metrics.waiters.set(total(LockTable::waiter_count));
        metrics.sessions.set(total(LockTable::session_count));
        metrics.table_bytes.set(tables().map(LockTable::size_bytes).sum());
        let groups = engine.replicas().map(|(group, replica)| {
            let grants = grants.get(&group).copied().unwrap_or_default();
            (group, GroupLevels::of(replica, grants))
        });
        metrics.set_groups(groups.collect());
        let Some((_, replica)) = engine.replicas().next() else { return };
        let (table, progress) = (replica.table(), replica.progress());
        let Leadership { leader, is_here, term } = progress.leadership;
        metrics.rules_version.set(u64::from(table.rules().number()));
        let skipped = self.levels.skipped_searches.count(table.search_cost().skipped, now);
        if is_here {
            metrics.deadlock_searches_skipped.add(skipped);
        }
        let limits = table.table_limits();
        metrics.table_bytes_limit.set(limits.bytes);
        metrics.locks_limit.set(limits.locks);
        metrics.longest_queue.set(self.levels.longest_queue.look(table));
        metrics.term.set(term);
        metrics.leader.set(leader.map_or(0, |node| node.0));
        metrics.is_leader.set(u64::from(is_here));
        metrics.applied_index.set(progress.applied_index);
        metrics.committed_index.set(progress.commit_index);
        metrics.last_index.set(progress.last_index);
        let me = self.membership.me;
        let peers = progress.matched.iter().filter(|(node, _)| is_here && *node != me);
        let lag =
            peers.map(|(node, matched)| (node.0, progress.last_index.saturating_sub(*matched)));
        metrics.set_peer_lag(lag.collect());
    }

    /// What the present turn has written, and how long that took.
    pub(super) fn measure_writing(&self, took: Duration) {
        let metrics = &self.metrics;
        for (group, turn) in self.engine.turns() {
            let entries = turn.entries.len() as u64;
            let bytes: usize = turn.entries.iter().map(|entry| entry.data.len()).sum();
            metrics.entries_written.add(entries);
            metrics.bytes_written.add(bytes as u64);
            if self.engine.replica(*group).is_some_and(|replica| replica.leadership().is_here) {
                metrics.proposals.add(entries);
            }
            if turn.snapshot.is_some() {
                metrics.snapshots_installed.record_time(took);
            }
        }
        if self.engine.turns().iter().any(|(_, turn)| turn.needs_disk()) {
            metrics.sync_time.record_time(took);
        }
    }
}

/// Counted where it was decided, so that the nodes' numbers can be added up.
pub(super) fn event(metrics: &Metrics, at: LogicalTime, event: &Event) {
    let held = |granted_at: LogicalTime| {
        metrics.hold_time.record(at.since(granted_at).as_ms().saturating_mul(1_000));
    };
    let count = |of: &[crate::metrics::Tally], ending: usize| {
        if let Some(tally) = of.get(ending) {
            tally.add(1);
        }
    };
    match event {
        Event::SessionOpened { .. } => metrics.sessions_opened.add(1),
        Event::SessionEnded { reason, .. } => count(&metrics.sessions_ended, ending(*reason)),
        Event::Granted { .. } => metrics.grants.add(1),
        Event::Queued { .. } => metrics.queued.add(1),
        Event::Released { granted_at, .. } => {
            count(&metrics.holds_ended, RELEASED);
            held(*granted_at);
        }
        Event::HoldEnded { granted_at, reason, .. } => {
            count(&metrics.holds_ended, ending(*reason));
            held(*granted_at);
        }
        Event::Refused { outcome: Outcome::Deadlock(_), .. }
        | Event::WaitEnded { outcome: Outcome::Deadlock(_), .. } => {
            metrics.deadlocks_refused.add(1)
        }
        Event::Intervened(_) => metrics.interventions.add(1),
        Event::SessionEnding { .. }
        | Event::Refused { .. }
        | Event::WaitEnded { .. }
        | Event::Converted { .. }
        | Event::Proclaimed { .. }
        | Event::Reopened { .. }
        | Event::AccessChanged { .. }
        | Event::PolicyAdopted { .. }
        | Event::OwnershipChanged { .. }
        | Event::HoldMovedIn { .. }
        | Event::Thawed { .. } => {}
    }
}

/// How often the log is told that searches for deadlocks were skipped.
const SKIPPED_TOLD_EVERY: Duration = Duration::from_secs(60);

/// What of the searches that the lock table skipped has been counted.
#[derive(Debug, Default)]
pub(super) struct SkippedSearches {
    seen: u64,
    untold: u64,
    told_at: Option<Duration>,
}

impl SkippedSearches {
    /// Gives how many are new. A table that was replaced by a snapshot counts from zero.
    fn count(&mut self, skipped: u64, now: Duration) -> u64 {
        let new = skipped.checked_sub(self.seen).unwrap_or(skipped);
        self.seen = skipped;
        self.untold += new;
        let is_due = self.told_at.is_none_or(|told_at| now >= told_at + SKIPPED_TOLD_EVERY);
        if self.untold > 0 && is_due {
            let searches = self.untold;
            tracing::warn!(
                searches,
                "requests were queued without a search for deadlocks, because the searches of their log entry \
                 had reached their bound; if such a request is in a deadlock, its deadline ends it"
            );
            self.untold = 0;
            self.told_at = Some(now);
        }
        new
    }
}

/// When snapshots that are under way were begun.
#[derive(Debug, Default)]
pub(super) struct SnapshotTimes {
    /// With the number of bytes.
    pub(super) saving: BTreeMap<GroupId, (Instant, u64)>,
    pub(super) sending: BTreeMap<(GroupId, NodeId), Instant>,
}
