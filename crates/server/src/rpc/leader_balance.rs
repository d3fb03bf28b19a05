//! Spreads the leaders of the groups over the nodes.
//!
//! The leader of the root group watches who leads what. If a node leads at least two groups more than another one, the
//! leader of the root group asks that node to hand one of its groups over.
//!
//! - One group moves at a time. The next one moves when all groups have a leader again.
//! - Nothing moves before the leaders have been uneven for [`PATIENCE`]: after a failure, elections come first.
//! - The root group never moves, because the efficiency tier follows its leader.
//! - A group that an operator or its own leader handed over stays where it is for some minutes, and the former leader
//!   gets no other group meanwhile. A change of leader that was not asked for here counts as such a handover while the
//!   connection to the former leader stays the same. If that connection ends, the node handed over because it was
//!   stopping.
//! - A node that did not take a group over, or did not keep it, is left alone for a while, and longer each time: a
//!   handover that fails stops its group for up to an election timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_proto::v1::TransferLeadershipRequest;
use holdfast_replica::{GroupId, NodeId};
use holdfast_service::Caller;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Rpc, cluster};

/// How often the leader of the root group looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// For so long the leaders have to be uneven before one moves.
const PATIENCE: Duration = Duration::from_secs(2);
/// A node that leads a group for so long has taken it over.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How long a node is left alone that did not take over; doubled each time, up to the time for which groups stay where
/// they were handed over to.
const AVOIDED_FIRST: Duration = Duration::from_secs(5);

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
    /// The voters of all groups that are connected, and by which connection; none for this node itself.
    can_lead: BTreeMap<NodeId, Option<Connection>>,
}

/// A number that no other connection has.
type Connection = u128;

/// A group whose leader changed though this node had not asked for it.
#[derive(Clone, Copy, Debug)]
struct Pin {
    from: NodeId,
    connection: Option<Connection>,
    at: Duration,
}

impl Leaders {
    /// The move that makes the leaders more even; none if no such move is possible, or a group has no leader that is
    /// known. Nodes in `avoided` get no group, and groups in `pinned` stay.
    fn plan(&self, avoided: &BTreeSet<NodeId>, pinned: &BTreeSet<GroupId>) -> Option<Move> {
        let mut led: BTreeMap<NodeId, Vec<GroupId>> =
            self.can_lead.keys().map(|node| (*node, Vec::new())).collect();
        for (group, leader) in &self.of_groups {
            led.entry((*leader)?).or_default().push(*group);
        }
        // A leader that is not connected cannot be asked.
        led.retain(|node, _| self.can_lead.contains_key(node));
        let candidates = led.iter().filter(|(node, _)| !avoided.contains(node));
        let (to, fewest) = candidates.min_by_key(|(_, groups)| groups.len())?;
        let stays = |group: &GroupId| *group == GroupId::FIRST || pinned.contains(group);
        let can_move = |groups: &Vec<GroupId>| {
            let group = groups.iter().rev().find(|group| !stays(group))?;
            (groups.len() >= fewest.len() + 2).then_some((groups.len(), *group))
        };
        let (_, group) = led.values().filter_map(can_move).max()?;
        Some(Move { group, to: *to })
    }
}

/// Decides when to move what. Time is passed in.
#[derive(Debug, Default)]
struct Balance {
    /// How long a group stays where it was handed over to.
    pinned_for: Duration,
    uneven_since: Option<Duration>,
    /// Until when a node is left alone, and for how long the next time.
    avoided: BTreeMap<NodeId, (Duration, Duration)>,
    /// The last leader of each group that was known.
    known: BTreeMap<GroupId, NodeId>,
    /// The groups that moved lately: to which node, and when.
    moved: BTreeMap<GroupId, (NodeId, Duration)>,
    pinned: BTreeMap<GroupId, Pin>,
    /// The nodes that could lead when this was last called.
    could_lead: BTreeMap<NodeId, Option<Connection>>,
}

impl Balance {
    fn new(pinned_for: Duration) -> Balance {
        Balance { pinned_for, ..Balance::default() }
    }

    /// While another node leads the root group. A node that gives all its groups up gives up the root group among them.
    /// So the next leader of the root group has to know who led the others just before.
    fn look_on(&mut self, now: Duration, leaders: &Leaders) {
        *self = Balance::new(self.pinned_for);
        self.note_changes(now, leaders);
    }

    /// The group to move now, if there is one.
    fn next_move(&mut self, now: Duration, leaders: &Leaders) -> Option<Move> {
        self.note_changes(now, leaders);
        let avoided = self.avoided.iter().filter(|(_, (until, _))| *until > now);
        // A group that leaves a node unasked says that the node should not lead: it is drained, or its disk is slow.
        let left = self.pinned.values().map(|pin| pin.from);
        let avoided = avoided.map(|(node, _)| *node).chain(left).collect();
        let pinned = self.pinned.keys().copied().collect();
        let Some(wanted) = leaders.plan(&avoided, &pinned) else {
            self.uneven_since = None;
            return None;
        };
        let since = *self.uneven_since.get_or_insert(now);
        (now.saturating_sub(since) >= PATIENCE).then_some(wanted)
    }

    /// Distinguishes the changes that were asked for here from all others, and notes both.
    fn note_changes(&mut self, now: Duration, leaders: &Leaders) {
        let is_over = |since: Duration, time: Duration| now.saturating_sub(since) >= time;
        self.pinned.retain(|_, Pin { from, connection, at }| {
            leaders.can_lead.get(from) == Some(connection) && !is_over(*at, self.pinned_for)
        });
        let could_lead = std::mem::replace(&mut self.could_lead, leaders.can_lead.clone());
        let stayed = |node: &NodeId| {
            leaders.can_lead.get(node).filter(|now| could_lead.get(node) == Some(*now)).copied()
        };
        for (group, leader) in &leaders.of_groups {
            let Some(leader) = *leader else { continue };
            let before = self.known.insert(*group, leader).unwrap_or(leader);
            match self.moved.get(group).copied() {
                Some((to, at)) if leader == to => {
                    if is_over(at, KEPT_FOR) {
                        self.moved.remove(group);
                        self.avoided.remove(&to);
                    }
                    continue;
                }
                // This node has yet to hear of the handover that it asked for.
                Some((to, at)) if !is_over(at, 2 * INTERVAL) => {
                    self.known.insert(*group, to);
                    continue;
                }
                Some((to, _)) => {
                    self.moved.remove(group);
                    self.avoid(now, to);
                }
                None => {}
            }
            if leader != before
                && let Some(connection) = stayed(&before)
            {
                self.pinned.insert(*group, Pin { from: before, connection, at: now });
            }
        }
    }

    /// What came of a move.
    fn moved(&mut self, now: Duration, Move { group, to }: Move, has_taken_over: bool) {
        if has_taken_over {
            self.moved.insert(group, (to, now));
            self.known.insert(group, to);
        } else {
            self.avoid(now, to);
        }
    }

    /// Leaves the node alone for a while, and longer each time. A node that is left alone already stays so: if it gives
    /// up several groups at a time, that has one cause.
    fn avoid(&mut self, now: Duration, node: NodeId) {
        let (until, pause) = self.avoided.get(&node).copied().unwrap_or((now, AVOIDED_FIRST));
        if until <= now {
            let longest = AVOIDED_FIRST.max(self.pinned_for);
            self.avoided.insert(node, (now + pause, longest.min(pause * 2)));
        }
    }
}

/// Runs on every node until it stops; only the leader of the root group does something.
pub(crate) async fn keep_balanced(rpc: Rpc, pinned_for: Duration) {
    if rpc.membership.groups.is_one() {
        return;
    }
    let started = Instant::now();
    let mut balance = Balance::new(pinned_for);
    let mut looks = interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = rpc.stopping.begun() => return,
        }
        if !rpc.door.leadership(GroupId::FIRST).is_here {
            balance.look_on(started.elapsed(), &leaders(&rpc));
            continue;
        }
        let Some(wanted) = balance.next_move(started.elapsed(), &leaders(&rpc)) else { continue };
        let Move { group, to } = wanted;
        let request = TransferLeadershipRequest { to: to.0, group: group.0 };
        let caller = Caller::node(rpc.membership.me.0);
        let moved = cluster::transfer_leadership(&rpc, caller, request).await;
        match &moved {
            Ok(_) => {
                tracing::info!(%group, %to, "the leader of a group moved, to spread the leaders over the nodes")
            }
            Err(failure) => {
                tracing::info!(%group, %to, why = failure.message, "a node did not take over the leadership of a group");
            }
        }
        balance.moved(started.elapsed(), wanted, moved.is_ok());
        // The handover took a while, and this node may hear of it later than the nodes that took part.
        looks.reset();
    }
}

fn leaders(rpc: &Rpc) -> Leaders {
    let leader_of = |group| rpc.door.leadership(group).leader;
    let members = rpc.membership.now();
    // A node that comes or goes votes in some groups only.
    let votes_in_all = |node: NodeId| {
        rpc.membership.groups.all().all(|group| rpc.membership.is_voter(group, node))
    };
    let voters = members.members.keys().filter(|node| votes_in_all(**node));
    Leaders {
        of_groups: rpc.membership.groups.all().map(|group| (group, leader_of(group))).collect(),
        can_lead: voters.filter_map(|node| Some((*node, connection(rpc, *node)?))).collect(),
    }
}

/// None if the node is not connected. This node itself always is, by no connection.
fn connection(rpc: &Rpc, node: NodeId) -> Option<Option<Connection>> {
    if node == rpc.membership.me {
        return Some(None);
    }
    let ticket = rpc.links.ticket(node).filter(|_| rpc.links.reachable(node))?;
    let bytes: [u8; 16] = ticket.as_bytes().try_into().ok()?;
    Some(Some(Connection::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// The leaders of the groups from the root group on; 0: none.
    fn led_by(leaders: &[u64], can_lead: &[u64]) -> Leaders {
        let leaders = leaders.iter().map(|leader| Some(NodeId(*leader)).filter(|it| it.0 > 0));
        Leaders {
            of_groups: (1..).map(GroupId).zip(leaders).collect(),
            can_lead: can_lead.iter().map(|node| (NodeId(*node), Some(1))).collect(),
        }
    }

    fn plan(leaders: &Leaders) -> Option<Move> {
        leaders.plan(&BTreeSet::new(), &BTreeSet::new())
    }

    fn counts(leaders: &Leaders) -> BTreeMap<NodeId, usize> {
        let mut counts: BTreeMap<NodeId, usize> =
            leaders.can_lead.keys().map(|node| (*node, 0)).collect();
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
                let Some(Move { group, to }) = plan(&leaders) else { break };
                leaders.of_groups.insert(group, Some(to));
            }
            prop_assert_eq!(plan(&leaders), None);
            prop_assert_eq!(leaders.of_groups[&GroupId::FIRST], root);
            let counts = counts(&leaders);
            let (most, fewest) = (counts.values().max(), counts.values().min());
            prop_assert!(most.unwrap() - fewest.unwrap() <= 1, "{counts:?}");
        }
    }

    #[test]
    fn nothing_moves_while_a_group_has_no_leader_or_to_a_node_that_cannot_lead() {
        assert_eq!(plan(&led_by(&[1, 1, 1, 0], &[1, 2, 3])), None);
        assert_eq!(plan(&led_by(&[1, 1, 1, 1], &[1])), None);
        assert_eq!(plan(&led_by(&[1, 1, 1, 1], &[2, 3])), None, "the leader cannot be asked");
        assert_eq!(plan(&led_by(&[1, 1, 1, 1], &[1, 3])).unwrap().to, NodeId(3));
    }

    const PINNED_FOR: Duration = Duration::from_secs(300);
    const UNEVEN: [u64; 4] = [1, 1, 1, 1];
    const ALL: [u64; 3] = [1, 2, 3];

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn leaders_have_to_be_uneven_for_some_time() {
        let mut balance = Balance::new(PINNED_FOR);
        let (uneven, alone) = (led_by(&UNEVEN, &ALL), led_by(&UNEVEN, &[1]));
        assert_eq!(balance.next_move(ms(0), &uneven), None);
        assert_eq!(balance.next_move(ms(1_000), &alone), None);
        assert_eq!(balance.next_move(ms(1_500), &uneven), None, "it begins again");
        assert_eq!(balance.next_move(ms(3_499), &uneven), None);
        assert!(balance.next_move(ms(3_500), &uneven).is_some());
    }

    #[test]
    fn a_group_that_an_operator_moved_stays_there_while_the_former_leader_is_up() {
        let mut balance = Balance::new(PINNED_FOR);
        assert_eq!(balance.next_move(ms(0), &led_by(&[1, 2, 3, 1], &ALL)), None);
        let drained = led_by(&[1, 1, 1, 1], &ALL);
        for at in (1_000..301_000).step_by(500) {
            assert_eq!(balance.next_move(ms(at), &drained), None, "after {at} ms");
        }
        assert_eq!(balance.next_move(ms(301_000), &drained), None);
        let wanted = balance.next_move(ms(303_000), &drained);
        assert_eq!(wanted.map(|wanted| wanted.group), Some(GroupId(4)), "its time is over");
    }

    #[test]
    fn a_node_that_an_operator_drained_gets_no_other_group() {
        let mut balance = Balance::new(PINNED_FOR);
        assert_eq!(balance.next_move(ms(0), &led_by(&[1, 2, 3, 1, 2, 3], &ALL)), None);
        let drained = led_by(&[1, 2, 1, 1, 2, 2], &ALL);
        for at in (1_000..301_000).step_by(500) {
            assert_eq!(balance.next_move(ms(at), &drained), None, "after {at} ms");
        }
    }

    #[test]
    fn a_node_that_gave_up_the_root_group_and_all_others_gets_none_back() {
        let mut balance = Balance::new(PINNED_FOR);
        balance.look_on(ms(0), &led_by(&[1, 1, 2, 3], &ALL));
        // Node 2 leads the root group now.
        let left = led_by(&[2, 3, 2, 3], &ALL);
        for at in (500..300_000).step_by(500) {
            assert_eq!(balance.next_move(ms(at), &left), None, "after {at} ms");
        }
    }

    #[test]
    fn a_group_that_moved_here_lately_stays_where_an_operator_moves_it() {
        let mut balance = Balance::new(PINNED_FOR);
        let wanted = Move { group: GroupId(3), to: NodeId(3) };
        balance.next_move(ms(0), &led_by(&[1, 2, 2], &ALL));
        balance.moved(ms(1_000), wanted, true);
        assert_eq!(balance.next_move(ms(1_500), &led_by(&[1, 2, 3], &ALL)), None);
        for at in (10_000..100_000).step_by(500) {
            assert_eq!(balance.next_move(ms(at), &led_by(&[1, 2, 2], &ALL)), None, "after {at} ms");
        }
        assert!(balance.pinned.contains_key(&GroupId(3)), "{balance:?}");
    }

    #[test]
    fn a_handover_that_this_node_has_yet_to_hear_of_was_not_undone() {
        let mut balance = Balance::new(PINNED_FOR);
        let (before, after) = (led_by(&UNEVEN, &ALL), led_by(&[1, 1, 1, 2], &ALL));
        balance.next_move(ms(0), &before);
        balance.moved(ms(2_000), Move { group: GroupId(4), to: NodeId(2) }, true);
        balance.next_move(ms(2_100), &before);
        balance.next_move(ms(2_600), &after);
        assert!(balance.avoided.is_empty() && balance.pinned.is_empty(), "{balance:?}");
        assert!(balance.moved.contains_key(&GroupId(4)), "{balance:?}");
    }

    #[test]
    fn groups_that_stay_on_one_node_do_not_keep_others_from_moving() {
        let leaders = led_by(&[3, 1, 1, 1, 1, 2, 2, 2, 2], &[1, 2, 4]);
        let leaders =
            Leaders { of_groups: leaders.of_groups.into_iter().skip(1).collect(), ..leaders };
        let pinned = (6..=9).map(GroupId).collect();
        let wanted = leaders.plan(&BTreeSet::new(), &pinned).unwrap();
        assert_eq!((wanted.group, wanted.to), (GroupId(5), NodeId(4)));
        assert_eq!(leaders.plan(&BTreeSet::from([NodeId(4)]), &pinned), None);
    }

    #[test]
    fn a_group_that_a_stopping_node_handed_over_may_move_again() {
        let mut balance = Balance::new(PINNED_FOR);
        balance.next_move(ms(0), &led_by(&[1, 2, 3, 1], &ALL));
        balance.next_move(ms(500), &led_by(&[1, 1, 3, 1], &ALL));
        assert!(balance.pinned.contains_key(&GroupId(2)), "{balance:?}");
        balance.next_move(ms(1_000), &led_by(&[1, 1, 3, 1], &[1, 3]));
        assert!(balance.pinned.is_empty(), "{balance:?}");
    }

    #[test]
    fn a_node_that_was_back_before_this_one_looked_had_stopped_all_the_same() {
        let again = |leaders: &[u64]| {
            let mut leaders = led_by(leaders, &ALL);
            leaders.can_lead.insert(NodeId(2), Some(2));
            leaders
        };
        let mut balance = Balance::new(PINNED_FOR);
        balance.next_move(ms(0), &led_by(&[1, 2, 3, 1], &ALL));
        balance.next_move(ms(500), &again(&[1, 1, 3, 1]));
        assert!(balance.pinned.is_empty(), "the handover was not seen before: {balance:?}");

        let mut balance = Balance::new(PINNED_FOR);
        balance.next_move(ms(0), &led_by(&[1, 2, 3, 1], &ALL));
        balance.next_move(ms(500), &led_by(&[1, 1, 3, 1], &ALL));
        balance.next_move(ms(1_000), &again(&[1, 1, 3, 1]));
        assert!(balance.pinned.is_empty(), "{balance:?}");
    }

    #[test]
    fn a_node_that_does_not_take_over_is_left_alone_longer_each_time() {
        let mut balance = Balance::new(PINNED_FOR);
        let mut tried = Vec::new();
        for at in (0..200_000).step_by(200) {
            let leaders = led_by(&UNEVEN, &[1, 2]);
            let Some(wanted) = balance.next_move(ms(at), &leaders) else { continue };
            assert_eq!(wanted.to, NodeId(2));
            balance.moved(ms(at), wanted, false);
            tried.push(at);
        }
        let pauses: Vec<u64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.len() >= 3 && pauses.is_sorted() && pauses[0] >= 5_000, "{pauses:?}");
    }

    #[test]
    fn a_node_that_takes_over_and_hands_back_is_left_alone() {
        let mut balance = Balance::new(PINNED_FOR);
        let mut moves = Vec::new();
        let mut leaders = led_by(&UNEVEN, &[1, 2]);
        for at in (0..60_000).step_by(500) {
            if let Some(wanted) = balance.next_move(ms(at), &leaders) {
                balance.moved(ms(at), wanted, true);
                leaders.of_groups.insert(wanted.group, Some(wanted.to));
                moves.push(at);
            } else if at % 3_000 == 0 {
                // Node 2 has a slow disk.
                leaders = led_by(&UNEVEN, &[1, 2]);
            }
        }
        assert!((1..=8).contains(&moves.len()), "{moves:?}");
    }

    #[test]
    fn a_node_that_keeps_what_it_took_over_is_trusted_again() {
        let mut balance = Balance::new(PINNED_FOR);
        balance.avoid(ms(0), NodeId(2));
        let wanted = Move { group: GroupId(4), to: NodeId(2) };
        balance.moved(ms(20_000), wanted, true);
        let leaders = led_by(&[1, 1, 2, 2], &[1, 2]);
        balance.next_move(ms(79_000), &leaders);
        assert!(balance.avoided.contains_key(&NodeId(2)));
        balance.next_move(ms(80_000), &leaders);
        assert!(balance.avoided.is_empty(), "{balance:?}");
    }
}
