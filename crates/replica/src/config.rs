//! The configuration of a replica.

use std::time::Duration;

use holdfast_core::{Limits, Span};

use crate::id::{GroupId, NodeId};

#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    pub group: GroupId,
    pub node: NodeId,
    /// The initial voters of a group without a snapshot. Later the snapshot contains the members.
    pub voters: Vec<NodeId>,
    /// The length of one tick of consensus.
    pub tick: Duration,
    pub heartbeat_ticks: usize,
    /// An election timeout is drawn from `[min, max)`. With `max = min + 1` it is fixed, and the
    /// replica deterministic.
    pub election_ticks: (usize, usize),
    /// By how much an election postpones the end of sessions that are about to expire.
    pub grace: Span,
    /// A snapshot is taken after so many log entries, or so many bytes of them, whichever is first. The bytes must be
    /// at least those of the last snapshot. So writing a large state costs no more than writing its log.
    pub snapshot_every_entries: u64,
    pub snapshot_every_bytes: u64,
    /// How many entries of the table one slice of a snapshot has; fewer if they are large.
    pub snapshot_slice_entries: usize,
    /// The time from one slice to the next. With zero, each turn writes a slice.
    pub snapshot_slice_pause: Duration,
    /// Entries below a snapshot that are kept for followers that lag a little.
    pub keep_entries: u64,
    /// ... but no more bytes of them than this.
    pub keep_bytes: u64,
    pub limits: Limits,
}

impl ReplicaConfig {
    /// A turn that took longer counts as this long. While a node stalls, it reads no heartbeats, so the stalled time
    /// must not count against the sessions that sent them.
    pub fn stall_max(&self) -> Duration {
        let ticks = u32::try_from(self.election_ticks.0 / 2).unwrap_or(u32::MAX).max(1);
        self.tick.saturating_mul(ticks)
    }

    /// How long a slow leader stays if the leader before it led only for a short time.
    pub(crate) fn leadership_min(&self) -> Duration {
        self.stall_max().saturating_mul(40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_longer_than_half_the_shortest_election_timeout() {
        let stall_max_ms = |election_ticks| {
            let config = ReplicaConfig {
                group: GroupId(1),
                node: NodeId(1),
                voters: Vec::new(),
                tick: Duration::from_millis(50),
                heartbeat_ticks: 2,
                election_ticks,
                grace: Span::ZERO,
                snapshot_every_entries: 1,
                snapshot_every_bytes: 1,
                snapshot_slice_entries: 1,
                snapshot_slice_pause: Duration::ZERO,
                keep_entries: 1,
                keep_bytes: 1,
                limits: Limits::default(),
            };
            config.stall_max().as_millis()
        };
        assert_eq!(stall_max_ms((10, 20)), 250);
        assert_eq!(stall_max_ms((7, 8)), 150);
        assert_eq!(stall_max_ms((1, 2)), 50, "never less than a tick");
    }
}
