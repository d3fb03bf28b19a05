//! Spreads the leaders of the groups over the nodes.
//!
//! The leader of the root group watches who leads what. If a node leads at least two groups more than another one, it
//! asks the leader of one of these groups to hand its leadership over.
//!
//! - One group moves at a time. The next one moves when all groups have a leader again.
//! - Nothing moves before the leaders have been uneven for [`PATIENCE`]: after a failure, elections come first.
//! - The root group never moves, because the efficiency tier follows its leader.
//! - A node that did not take a group over is left alone for a while, and longer each time: a handover that fails stops
//!   its group for up to an election timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_proto::v1::TransferLeadershipRequest;
use holdfast_replica::{GroupId, NodeId, Role};
use holdfast_service::Caller;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Rpc, cluster};

/// How often the leader of the root group looks.
const INTERVAL: Duration = Duration::from_millis(200);
/// For so long the leaders have to be uneven before one moves.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a node is left alone that did not take over; doubled each time, up to [`AVOIDED_MAX`].
const AVOIDED_FIRST: Duration = Duration::from_secs(10);
const AVOIDED_MAX: Duration = Duration::from_secs(300);

/// One group's leadership goes to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    group: GroupId,
    to: NodeId,
}

/// Who leads, as the leader of the root group sees it.
#[derive(Clone, Debug, Default)]
struct Leaders {
    /// None: the group has no leader that is known.
    of_groups: BTreeMap<GroupId, Option<NodeId>>,
    /// The voters that are connected.
    can_lead: BTreeSet<NodeId>,
}

impl Leaders {
    /// The move that makes the leaders more even; none if no two nodes differ by two groups or more.
    fn plan(&self) -> Option<Move> {
        let mut led: BTreeMap<NodeId, Vec<GroupId>> =
            self.can_lead.iter().map(|node| (*node, Vec::new())).collect();
        for (group, leader) in &self.of_groups {
            led.entry((*leader)?).or_default().push(*group);
        }
        let (_, most) = led.iter().max_by_key(|(_, groups)| groups.len())?;
        let candidates = led.iter().filter(|(node, _)| self.can_lead.contains(node));
        let (to, fewest) = candidates.min_by_key(|(_, groups)| groups.len())?;
        let group = most.iter().rev().find(|group| **group != GroupId::FIRST)?;
        (most.len() >= fewest.len() + 2).then_some(Move { group: *group, to: *to })
    }
}

/// Decides when to move what. Time is passed in.
#[derive(Debug, Default)]
struct Balance {
    uneven_since: Option<Duration>,
    /// Until when a node is left alone, and for how long the next time.
    avoided: BTreeMap<NodeId, (Duration, Duration)>,
}

impl Balance {
    /// The group to move now, if there is one.
    fn next_move(&mut self, now: Duration, mut leaders: Leaders) -> Option<Move> {
        leaders
            .can_lead
            .retain(|node| self.avoided.get(node).is_none_or(|(until, _)| *until <= now));
        let Some(wanted) = leaders.plan() else {
            self.uneven_since = None;
            return None;
        };
        let since = *self.uneven_since.get_or_insert(now);
        (now.saturating_sub(since) >= PATIENCE).then_some(wanted)
    }

    /// What came of a move.
    fn moved(&mut self, now: Duration, to: NodeId, has_taken_over: bool) {
        if has_taken_over {
            self.avoided.remove(&to);
            return;
        }
        let pause = self.avoided.get(&to).map_or(AVOIDED_FIRST, |(_, pause)| *pause);
        self.avoided.insert(to, (now + pause, AVOIDED_MAX.min(pause * 2)));
    }
}

/// Runs on every node until it stops; only the leader of the root group does something.
pub(crate) async fn keep_balanced(rpc: Rpc) {
    if rpc.membership.groups.is_one() {
        return;
    }
    let started = Instant::now();
    let mut balance = Balance::default();
    let mut looks = interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = rpc.stopping.begun() => return,
        }
        if !rpc.door.leadership(GroupId::FIRST).is_here {
            balance = Balance::default();
            continue;
        }
        let Some(Move { group, to }) = balance.next_move(started.elapsed(), leaders(&rpc)) else {
            continue;
        };
        let request = TransferLeadershipRequest { to: to.0, group: group.0 };
        let caller = Caller::node(rpc.membership.me.0);
        let moved = cluster::transfer_leadership(&rpc, caller, request).await;
        match &moved {
            Ok(_) => {
                tracing::info!(%group, %to, "the leader of a group moved, so that all nodes lead as many")
            }
            Err(failure) => {
                tracing::info!(%group, %to, why = failure.message, "a node did not take over the leadership of a group");
            }
        }
        balance.moved(started.elapsed(), to, moved.is_ok());
    }
}

fn leaders(rpc: &Rpc) -> Leaders {
    let leader_of = |group| rpc.door.leadership(group).leader;
    let members = rpc.membership.now();
    let voters = members.members.keys().filter(|node| members.role(**node) == Some(Role::Voter));
    Leaders {
        of_groups: rpc.membership.groups.all().map(|group| (group, leader_of(group))).collect(),
        can_lead: voters.copied().filter(|node| rpc.links.reachable(*node)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// The leaders of the groups from the root group on.
    fn led_by(leaders: &[u64], can_lead: &[u64]) -> Leaders {
        let leaders = leaders.iter().map(|leader| Some(NodeId(*leader)).filter(|it| it.0 > 0));
        Leaders {
            of_groups: (1..).map(GroupId).zip(leaders).collect(),
            can_lead: can_lead.iter().map(|node| NodeId(*node)).collect(),
        }
    }

    fn counts(leaders: &Leaders) -> BTreeMap<NodeId, usize> {
        let mut counts: BTreeMap<NodeId, usize> =
            leaders.can_lead.iter().map(|node| (*node, 0)).collect();
        for leader in leaders.of_groups.values().flatten() {
            *counts.entry(*leader).or_default() += 1;
        }
        counts
    }

    proptest! {
        #[test]
        fn moves_make_the_leaders_even_to_within_one_and_then_stop(
            leaders in vec(1_u64..=5, 1..40),
        ) {
            let mut leaders = led_by(&leaders, &[1, 2, 3, 4, 5]);
            let root = leaders.of_groups[&GroupId::FIRST];
            for _ in 0..leaders.of_groups.len() {
                let Some(Move { group, to }) = leaders.plan() else { break };
                leaders.of_groups.insert(group, Some(to));
            }
            prop_assert_eq!(leaders.plan(), None);
            prop_assert_eq!(leaders.of_groups[&GroupId::FIRST], root);
            let counts = counts(&leaders);
            let (most, fewest) = (counts.values().max(), counts.values().min());
            prop_assert!(most.unwrap() - fewest.unwrap() <= 1, "{counts:?}");
        }
    }

    #[test]
    fn nothing_moves_while_a_group_has_no_leader_or_to_a_node_that_cannot_lead() {
        assert_eq!(led_by(&[1, 1, 1, 0], &[1, 2, 3]).plan(), None);
        assert_eq!(led_by(&[1, 1, 1, 1], &[1]).plan(), None);
        let to = led_by(&[1, 1, 1, 1], &[1, 3]).plan().unwrap().to;
        assert_eq!(to, NodeId(3));
    }

    const UNEVEN: [u64; 4] = [1, 1, 1, 1];
    const ALL: [u64; 3] = [1, 2, 3];

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn leaders_have_to_be_uneven_for_some_time() {
        let mut balance = Balance::default();
        assert_eq!(balance.next_move(ms(0), led_by(&UNEVEN, &ALL)), None);
        assert_eq!(balance.next_move(ms(1_000), led_by(&[1, 2, 3, 1], &ALL)), None);
        assert_eq!(balance.next_move(ms(1_500), led_by(&UNEVEN, &ALL)), None, "it begins again");
        assert_eq!(balance.next_move(ms(3_499), led_by(&UNEVEN, &ALL)), None);
        assert!(balance.next_move(ms(3_500), led_by(&UNEVEN, &ALL)).is_some());
    }

    #[test]
    fn a_node_that_does_not_take_over_is_left_alone_longer_each_time() {
        let mut balance = Balance::default();
        let mut tried = Vec::new();
        for at in (0..200_000).step_by(200) {
            let Some(wanted) = balance.next_move(ms(at), led_by(&UNEVEN, &[1, 2])) else {
                continue;
            };
            assert_eq!(wanted.to, NodeId(2));
            balance.moved(ms(at), wanted.to, false);
            tried.push(at);
        }
        let pauses: Vec<u64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.len() >= 3 && pauses.is_sorted() && pauses[0] >= 10_000, "{pauses:?}");
    }
}
