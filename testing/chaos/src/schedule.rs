//! When which fault happens: a pure function of the seed.
//!
//! The run is a row of episodes: a fault, and a calm after it, longer now and then. At most a minority
//! is touched by most faults, so that a quorum remains; those that take the quorum away are short. A
//! second, light fault falls into some episodes: a cluster that elects should also have slow wires.

use std::time::Duration;

use crate::fault::{Fault, Target};
use crate::random::Random;

/// Faults begin when the clients are at work, and the last one heals well before the end.
const QUIET_AT_START: Duration = Duration::from_secs(2);
const QUIET_AT_END: Duration = Duration::from_secs(4);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Episode {
    /// Since the beginning of the run.
    pub(crate) begins: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
    /// Comes some time after the fault, and heals with it.
    pub(crate) second: Option<(Duration, Fault)>,
}

#[derive(Clone, Copy)]
enum Kind {
    KillOne,
    /// For so long that the others have forgotten the part of the log that it lacks.
    LongAbsence,
    KillLeader,
    KillMinority,
    KillAll,
    FreezeOne,
    FreezeLeader,
    FreezeMinority,
    RollingRestart,
    IsolateOne,
    IsolateLeader,
    IsolateMinority,
    OneWay,
    NoQuorum,
    BreakPeers,
    Delay,
    BreakClients,
    SilenceClients,
    ClockJump,
}

/// How many there are; their numbers start at 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: u64,
    pub(crate) groups: u32,
}

/// What a run of this length has in store.
pub(crate) fn plan(random: &Random, size: Size, length: Duration) -> Vec<Episode> {
    let mut random = random.fork(1);
    let mut episodes = Vec::new();
    let mut begins = QUIET_AT_START;
    // The first ones are not left to chance: a short run, too, has the faults that matter most.
    let mut first = vec![
        Kind::ClockJump,
        Kind::IsolateLeader,
        Kind::FreezeLeader,
        Kind::LongAbsence,
        Kind::KillLeader,
    ];
    loop {
        let kind = first.pop().unwrap_or_else(|| any_kind(&mut random));
        let (fault, lasts) = fault_of(kind, size, &mut random);
        if begins + lasts + QUIET_AT_END > length {
            return episodes;
        }
        let second = random.once_in(3).then(|| second_of(lasts, size, &mut random));
        episodes.push(Episode { begins, lasts, fault, second });
        let calm_ms = if random.once_in(4) { 2_000..4_000 } else { 500..2_000 };
        begins += lasts + Duration::from_millis(random.within(calm_ms));
    }
}

fn any_kind(random: &mut Random) -> Kind {
    random
        .weighted(&[
            (3, Kind::KillOne),
            (1, Kind::LongAbsence),
            (4, Kind::KillLeader),
            (3, Kind::KillMinority),
            (1, Kind::KillAll),
            (2, Kind::FreezeOne),
            (3, Kind::FreezeLeader),
            (2, Kind::FreezeMinority),
            (1, Kind::RollingRestart),
            (2, Kind::IsolateOne),
            (4, Kind::IsolateLeader),
            (2, Kind::IsolateMinority),
            (3, Kind::OneWay),
            (1, Kind::NoQuorum),
            (1, Kind::BreakPeers),
            (3, Kind::Delay),
            (2, Kind::BreakClients),
            (2, Kind::SilenceClients),
            (2, Kind::ClockJump),
        ])
        .unwrap_or(Kind::KillOne)
}

fn fault_of(kind: Kind, size: Size, random: &mut Random) -> (Fault, Duration) {
    let nodes = size.nodes;
    let minority = (nodes.saturating_sub(1) / 2).max(1);
    let leader = match kind {
        Kind::KillLeader | Kind::FreezeLeader | Kind::IsolateLeader => leader(size, random),
        _ => Target::Leader { group: 1 },
    };
    let mut some = |count: u64| Target::Nodes(random.some_of(nodes, count));
    let fault = match kind {
        Kind::KillOne | Kind::LongAbsence => Fault::Kill(some(1)),
        Kind::KillLeader => Fault::Kill(leader),
        Kind::KillMinority => Fault::Kill(some(minority)),
        Kind::KillAll => Fault::KillAll,
        Kind::FreezeOne => Fault::Freeze(some(1)),
        Kind::FreezeLeader => Fault::Freeze(leader),
        Kind::FreezeMinority => Fault::Freeze(some(minority)),
        Kind::RollingRestart => Fault::RollingRestart,
        Kind::IsolateOne => Fault::Isolate(some(1)),
        Kind::IsolateLeader => Fault::Isolate(leader),
        Kind::IsolateMinority => Fault::Isolate(some(minority)),
        Kind::OneWay => {
            let pair = random.some_of(nodes, 2);
            let node = |at: usize| pair.get(at).copied().unwrap_or(1);
            Fault::OneWay { from: node(0), to: node(1) }
        }
        Kind::NoQuorum => Fault::NoQuorum,
        Kind::BreakPeers => Fault::BreakPeers,
        Kind::Delay => Fault::Delay { ms: random.within(5..120) },
        Kind::BreakClients => Fault::BreakClients,
        Kind::SilenceClients => Fault::SilenceClients { node: random.within(1..nodes + 1) },
        Kind::ClockJump => Fault::ClockJump {
            node: random.within(1..nodes + 1),
            seconds: if random.once_in(2) { 86_400 } else { -86_400 },
        },
    };
    let lasts_ms = match kind {
        Kind::KillAll | Kind::BreakPeers | Kind::BreakClients => random.within(100..600),
        Kind::NoQuorum => random.within(1_000..4_000),
        Kind::RollingRestart => 500,
        Kind::LongAbsence => random.within(7_000..10_000),
        _ => random.within(1_000..6_000),
    };
    (fault, Duration::from_millis(lasts_ms))
}

/// Of a group that is left to chance. With one group nothing is drawn, so a seed makes the schedule that it always made.
fn leader(size: Size, random: &mut Random) -> Target {
    let group = match size.groups {
        1 => 1,
        groups => random.within(1..u64::from(groups) + 1) as u32,
    };
    Target::Leader { group }
}

/// Takes no quorum away, whatever the first fault is.
fn second_of(lasts: Duration, size: Size, random: &mut Random) -> (Duration, Fault) {
    let kinds = [(3, Kind::Delay), (2, Kind::BreakClients), (2, Kind::SilenceClients)];
    let kind = random.weighted(&kinds).unwrap_or(Kind::Delay);
    let after_ms = random.within(0..lasts.as_millis() as u64 / 2 + 1);
    (Duration::from_millis(after_ms), fault_of(kind, size, random).0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const FIVE: Size = Size { nodes: 5, groups: 1 };

    proptest! {
        #[test]
        fn one_seed_makes_one_schedule(seed: u64) {
            let length = Duration::from_secs(300);
            let plans = [0, 0].map(|_| plan(&Random::new(seed), FIVE, length));
            prop_assert_eq!(&plans[0], &plans[1]);
        }

        #[test]
        fn episodes_follow_one_another_and_heal_before_the_end(seed: u64, secs in 10_u64..600) {
            let length = Duration::from_secs(secs);
            let mut free = Duration::ZERO;
            for episode in plan(&Random::new(seed), FIVE, length) {
                prop_assert!(episode.begins >= free);
                free = episode.begins + episode.lasts;
                prop_assert!(free + QUIET_AT_END <= length);
                if let Some((after, _)) = episode.second {
                    prop_assert!(after <= episode.lasts);
                }
            }
        }

        #[test]
        fn chosen_nodes_are_a_minority(seed: u64) {
            for episode in plan(&Random::new(seed), FIVE, Duration::from_secs(300)) {
                if let Fault::Kill(Target::Nodes(nodes)) | Fault::Freeze(Target::Nodes(nodes)) =
                    episode.fault
                {
                    prop_assert!(nodes.len() <= 2 && nodes.iter().all(|node| (1..=5).contains(node)));
                }
            }
        }
    }

    #[test]
    fn leaders_of_all_groups_are_struck() {
        let (size, length) = (Size { nodes: 5, groups: 4 }, Duration::from_secs(300));
        let episodes = (0..10).flat_map(|seed| plan(&Random::new(seed), size, length));
        let groups: BTreeSet<u32> = episodes
            .filter_map(|episode| match episode.fault {
                Fault::Kill(Target::Leader { group })
                | Fault::Freeze(Target::Leader { group })
                | Fault::Isolate(Target::Leader { group }) => Some(group),
                _ => None,
            })
            .collect();
        assert_eq!(groups, BTreeSet::from([1, 2, 3, 4]));
    }

    #[test]
    fn a_run_of_one_minute_has_several_faults() {
        for seed in 0..50 {
            let episodes = plan(&Random::new(seed), FIVE, Duration::from_secs(60));
            assert!(episodes.len() >= 7, "seed {seed}: {}", episodes.len());
        }
    }
}
