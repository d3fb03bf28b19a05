//! What a node counts and measures, for `/metrics`.
//!
//! Nothing here costs the shard more than a few plain stores: no lock, no allocation, no clock of its own per
//! operation. The shard is the only writer of what it counts. The names, units and descriptions are in `page.rs`;
//! docs/reference/metrics.md lists them.

mod distribution;
mod groups;
mod kafka;
mod number;
mod operations;
mod page;
mod process;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::QuotaKind;
use holdfast_replica::GroupId;

pub(crate) use self::distribution::Distribution;
pub(crate) use self::groups::{GroupGrants, GroupLevels};
pub(crate) use self::kafka::KafkaMetrics;
pub(crate) use self::number::{Level, SharedTally, Tally};
pub(crate) use self::operations::{Kind, Operations, Settled};
pub(crate) use self::page::{Extra, page};

/// 0.1 ms to about a minute.
const OPERATION_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
/// 1 ms, the step of logical time, to a day.
const HOLD_BOUNDS_US: &[u64] = &[
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    86_400_000_000,
];
/// 10 µs to some seconds, for what the loop does in a turn.
const TURN_BOUNDS_US: &[u64] = &[
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000,
];
/// 1 ms to some minutes.
const SNAPSHOT_BOUNDS_US: &[u64] = &[
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];
const SIZE_BOUNDS: &[u64] =
    &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 16_384, 65_536];

/// What the lock table counts for quotas.
pub(crate) const QUOTA_KINDS: [(QuotaKind, &str); 3] =
    [(QuotaKind::Sessions, "sessions"), (QuotaKind::Locks, "locks"), (QuotaKind::Waits, "waits")];

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) operations: Operations,
    pub(crate) efficiency: Arc<EfficiencyMetrics>,
    /// The time from the arrival of an acquire at the leader to its grant: here for acquires that did not wait in the
    /// queue, below for those that did.
    pub(crate) granted_at_once: Distribution,
    pub(crate) granted_after_wait: Distribution,
    pub(crate) hold_time: Distribution,
    pub(crate) queue_position: Distribution,
    pub(crate) grants: Tally,
    pub(crate) queued: Tally,
    pub(crate) deadlocks_refused: Tally,
    pub(crate) deadlock_searches_skipped: Tally,
    pub(crate) holds_ended: [Tally; ENDINGS.len()],
    pub(crate) sessions_ended: [Tally; ENDINGS.len()],
    pub(crate) sessions_opened: Tally,
    pub(crate) interventions: Tally,

    pub(crate) locks: Level,
    pub(crate) locks_limit: Level,
    pub(crate) table_bytes: Level,
    pub(crate) table_bytes_limit: Level,
    pub(crate) full_refusals: Tally,
    /// Refusals because of a quota, in the order of [`QUOTA_KINDS`].
    pub(crate) quota_refusals: [Tally; QUOTA_KINDS.len()],
    pub(crate) waiters: Level,
    pub(crate) longest_queue: Level,
    pub(crate) sessions: Level,
    pub(crate) session_streams: Level,
    pub(crate) framed_connections: Level,
    pub(crate) watch_streams: Level,
    /// Watches that ended because their readers did not keep up. It only rises, but is no [`Tally`], because several
    /// threads count it.
    pub(crate) watches_left_behind: Level,
    /// Actions that callers were denied, or would be denied in the mode `required`. Several threads count it, as above.
    pub(crate) denied: Level,
    /// Requests that were refused because they came more often than a rate quota allows. Several threads count it.
    pub(crate) rate_limited: Level,

    pub(crate) batch: Distribution,
    pub(crate) proposals: Tally,
    pub(crate) entries_written: Tally,
    pub(crate) bytes_written: Tally,
    pub(crate) sync_time: Distribution,
    pub(crate) apply_time: Distribution,
    pub(crate) turns: Tally,
    pub(crate) events: Tally,
    pub(crate) disk_full: Level,

    pub(crate) elections_won: Tally,
    pub(crate) leader_changes: Tally,
    pub(crate) term: Level,
    pub(crate) rules_version: Level,
    pub(crate) is_leader: Level,
    pub(crate) leader: Level,
    pub(crate) applied_index: Level,
    pub(crate) committed_index: Level,
    pub(crate) last_index: Level,
    /// Empty unless this node leads. For each peer, how many entries its log lacks.
    peer_lag: Mutex<Vec<(u64, u64)>>,
    groups: Mutex<BTreeMap<GroupId, GroupLevels>>,

    pub(crate) snapshots_taken: Distribution,
    pub(crate) snapshots_sent: Distribution,
    pub(crate) snapshots_installed: Distribution,
    pub(crate) snapshots_failed: Tally,
    pub(crate) snapshot_bytes: Level,

    pub(crate) audit: AuditMetrics,
    pub(crate) kafka: KafkaMetrics,
}

/// What the writer of the audit file counts.
#[derive(Debug, Default)]
pub(crate) struct AuditMetrics {
    pub(crate) lines: Tally,
    pub(crate) bytes: Tally,
    pub(crate) lost: Tally,
    pub(crate) failures: Tally,
    pub(crate) failing: Level,
    pub(crate) behind: Level,
    pub(crate) rotations: Tally,
}

/// How holds and sessions end; `released` is by the holder itself.
pub(crate) const ENDINGS: [&str; 11] = [
    "released",
    "ttl",
    "max_hold",
    "closed",
    "disconnected",
    "session_expired",
    "killed",
    "broken",
    "wounded",
    "transferred",
    "moved",
];

/// The index of the reason in [`ENDINGS`].
pub(crate) fn ending(reason: holdfast_core::EndReason) -> usize {
    use holdfast_core::EndReason as Reason;
    match reason {
        Reason::Ttl => 1,
        Reason::MaxHold => 2,
        Reason::Closed => 3,
        Reason::Disconnected => 4,
        Reason::SessionExpired => 5,
        Reason::Killed => 6,
        Reason::Broken => 7,
        Reason::Wounded => 8,
        Reason::Transferred => 9,
        Reason::Moved => 10,
    }
}

/// The index of `released` in [`ENDINGS`].
pub(crate) const RELEASED: usize = 0;

/// What the efficiency tier counts. The mutex of its table protects the tallies.
#[derive(Debug, Default)]
pub(crate) struct EfficiencyMetrics {
    pub(crate) operations: Operations,
    pub(crate) full_refusals: Tally,
    pub(crate) deadlock_searches_skipped: Tally,
    pub(crate) locks: Level,
    pub(crate) table_bytes: Level,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics {
            operations: Operations::default(),
            efficiency: Arc::default(),
            granted_at_once: Distribution::of_micros(OPERATION_BOUNDS_US),
            granted_after_wait: Distribution::of_micros(OPERATION_BOUNDS_US),
            hold_time: Distribution::of_micros(HOLD_BOUNDS_US),
            queue_position: Distribution::of_counts(SIZE_BOUNDS),
            grants: Tally::default(),
            queued: Tally::default(),
            deadlocks_refused: Tally::default(),
            deadlock_searches_skipped: Tally::default(),
            holds_ended: Default::default(),
            sessions_ended: Default::default(),
            sessions_opened: Tally::default(),
            interventions: Tally::default(),
            locks: Level::default(),
            locks_limit: Level::default(),
            table_bytes: Level::default(),
            table_bytes_limit: Level::default(),
            full_refusals: Tally::default(),
            quota_refusals: Default::default(),
            waiters: Level::default(),
            longest_queue: Level::default(),
            sessions: Level::default(),
            session_streams: Level::default(),
            framed_connections: Level::default(),
            watch_streams: Level::default(),
            watches_left_behind: Level::default(),
            denied: Level::default(),
            rate_limited: Level::default(),
            batch: Distribution::of_counts(SIZE_BOUNDS),
            proposals: Tally::default(),
            entries_written: Tally::default(),
            bytes_written: Tally::default(),
            sync_time: Distribution::of_micros(TURN_BOUNDS_US),
            apply_time: Distribution::of_micros(TURN_BOUNDS_US),
            turns: Tally::default(),
            events: Tally::default(),
            disk_full: Level::default(),
            elections_won: Tally::default(),
            leader_changes: Tally::default(),
            term: Level::default(),
            rules_version: Level::default(),
            is_leader: Level::default(),
            leader: Level::default(),
            applied_index: Level::default(),
            committed_index: Level::default(),
            last_index: Level::default(),
            peer_lag: Mutex::default(),
            groups: Mutex::default(),
            snapshots_taken: Distribution::of_micros(SNAPSHOT_BOUNDS_US),
            snapshots_sent: Distribution::of_micros(SNAPSHOT_BOUNDS_US),
            snapshots_installed: Distribution::of_micros(SNAPSHOT_BOUNDS_US),
            snapshots_failed: Tally::default(),
            snapshot_bytes: Level::default(),
            audit: AuditMetrics::default(),
            kafka: KafkaMetrics::default(),
        }
    }

    /// Entries that each peer's log is known to lack.
    pub(crate) fn set_peer_lag(&self, lag: Vec<(u64, u64)>) {
        *self.peer_lag.lock().unwrap_or_else(PoisonError::into_inner) = lag;
    }

    pub(crate) fn set_groups(&self, groups: BTreeMap<GroupId, GroupLevels>) {
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    /// As of the last tenth of a second.
    pub(crate) fn groups(&self) -> BTreeMap<GroupId, GroupLevels> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn peer_lag(&self) -> Vec<(u64, u64)> {
        self.peer_lag.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
