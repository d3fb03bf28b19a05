//! What a seed decides before a run begins: how large the cluster is, how fast it ticks, how good the
//! network is, how often something goes wrong.

use std::time::Duration;

use holdfast_core::Span;

use crate::network::Quality;
use crate::node::Settings;
use crate::rng::Rng;

/// Rates are trusted to be within one percent.
const TRUSTED_PPM: u64 = 9_900;
/// In so many seeds each node runs several groups.
const SEVERAL_GROUPS_PERCENT: u64 = 25;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    /// Programs that use locks.
    pub(crate) clients: usize,
    /// How many locks of each group are plain, mixed, and semaphores.
    pub(crate) names: [usize; 3],
    pub(crate) quality: Quality,
    /// The mean time between two actions of a client.
    pub(crate) pace_us: u64,
    /// The mean time between two faults, and the longest of them.
    pub(crate) fault_pace_us: u64,
    pub(crate) fault_length_us: u64,
    /// No client is paused alone: all fall silent, and none writes anything.
    pub(crate) falls_silent: bool,
    /// All nodes begin with an old build, and are upgraded one by one.
    pub(crate) is_upgraded: bool,
    /// A node whose clock is not within the trusted rate, and by how much it drifts.
    pub(crate) wild_clock: Option<(usize, i64)>,
}

impl Plan {
    /// `groups` overrides what the seed says.
    pub(crate) fn new(rng: &mut Rng, groups: Option<u32>) -> Plan {
        let nodes = if rng.percent(60) { 3 } else { 5 };
        let tick_ms = rng.between(400, 500);
        let shortest_election = rng.between(4, 7) as usize;
        let wild_ppm = rng.between(30_000, 200_000) as i64;
        let wild_ppm = if rng.percent(50) { wild_ppm } else { -wild_ppm };
        let wild_node = rng.index(nodes);
        let mut plan = Plan {
            settings: Settings {
                nodes,
                groups: 1,
                tick: Duration::from_millis(tick_ms),
                heartbeat_ticks: 2,
                election_ticks: (shortest_election, shortest_election + 4),
                grace: Span::from_ms(rng.between(1_000, 5_000)),
                snapshot_every_entries: rng.between(20, 200),
                keep_entries: rng.between(0, 30),
                segment_bytes: 512 * rng.between(8, 64),
                publishes: false,
                uses_tier: false,
            },
            clients: rng.between(6, 12) as usize,
            names: [rng.between(2, 3), rng.between(2, 4), rng.between(1, 2)]
                .map(|count| count as usize),
            quality: Quality {
                delay_us: (200, rng.between(1_000, 30_000)),
                loss_permille: if rng.percent(50) { rng.below(10) } else { 0 },
                duplication_permille: rng.below(20),
                straggler_us: rng.between(1_000, 20_000_000),
            },
            pace_us: 3_000_000,
            fault_pace_us: rng.between(10_000_000, 40_000_000),
            fault_length_us: rng.between(5_000_000, 30_000_000),
            falls_silent: false,
            is_upgraded: false,
            wild_clock: rng.percent(10).then_some((wild_node, wild_ppm)),
        };
        // By what is drawn anyway, so that the other seeds are the runs that they were.
        plan.settings.publishes = (plan.settings.segment_bytes / 512).is_multiple_of(2);
        plan.settings.uses_tier = plan.settings.keep_entries.is_multiple_of(5);
        plan.is_upgraded = plan.settings.grace.as_ms().is_multiple_of(3);
        plan.falls_silent = plan.fault_length_us.is_multiple_of(4);
        let several =
            if rng.percent(SEVERAL_GROUPS_PERCENT) { rng.between(2, 4) as u32 } else { 1 };
        plan.run_groups(groups.unwrap_or(several));
        plan
    }

    /// With several groups each program has a session in each of them, so there are fewer programs and names.
    fn run_groups(&mut self, groups: u32) {
        self.settings.groups = groups;
        if groups > 1 {
            self.clients = self.clients.div_ceil(2);
            self.names = self.names.map(|count| count.min(2));
            // An old build reads no table that owns some slots.
            self.is_upgraded = false;
        }
    }

    /// How much a clock drifts that can be trusted.
    pub(crate) fn drift_ppm(rng: &mut Rng) -> i64 {
        rng.between(0, 2 * TRUSTED_PPM) as i64 - TRUSTED_PPM as i64
    }
}
