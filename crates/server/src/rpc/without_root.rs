//! Gives up the leadership of groups while this node does not hear the leader of the root group.
//!
//! The leader of a group takes the policy from its own node's copy of the root group. If that copy gets no news, a user
//! who was revoked keeps what it has in the group. Another node may hear both leaders: then the group should be led
//! there. This node does not know which one that is, so it tries another one each time.

use std::time::Duration;

use holdfast_proto::v1::TransferLeadershipRequest;
use holdfast_replica::{GroupId, NodeId};
use holdfast_service::Caller;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Rpc, cluster};

const INTERVAL: Duration = Duration::from_millis(500);
/// Longer than the root group takes to elect a leader.
const PATIENCE: Duration = Duration::from_secs(5);
/// The next node is tried after this time. It is enough for the one before to find out that it does not hear the leader
/// either.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Decides when. Time is passed in.
#[derive(Debug, Default)]
struct WithoutRoot {
    due: Option<Duration>,
}

impl WithoutRoot {
    fn is_due(&mut self, now: Duration, hears_leader: bool) -> bool {
        if hears_leader {
            self.due = None;
            return false;
        }
        *self.due.get_or_insert(now + PATIENCE) <= now
    }

    fn tried(&mut self, now: Duration) {
        self.due = Some(now + AGAIN_AFTER);
    }
}

/// Runs on every node until it stops.
pub(crate) async fn give_up_groups_without_root(rpc: Rpc) {
    if rpc.membership.groups.is_one() {
        return;
    }
    let started = Instant::now();
    let mut without_root = WithoutRoot::default();
    let mut tries = 0;
    let mut looks = interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = rpc.stopping.begun() => return,
        }
        if without_root.is_due(started.elapsed(), hears_root_leader(&rpc))
            && give_up_groups(&rpc, tries).await
        {
            tries += 1;
            without_root.tried(started.elapsed());
        }
    }
}

/// The leader sends to this node, and this node to the leader.
fn hears_root_leader(rpc: &Rpc) -> bool {
    let known = rpc.door.leadership(GroupId::FIRST).leader;
    let me = rpc.membership.me;
    let leader = rpc.membership.in_group(GroupId::FIRST, |members| members.heard_leader(me, known));
    leader.is_some_and(|leader| leader == me || rpc.links.reachable(leader))
}

/// The other voters of the group, beginning with another one each time.
fn next_leaders(rpc: &Rpc, group: GroupId, tries: usize) -> Vec<NodeId> {
    let members = rpc.membership.now();
    let others = members.members.keys().copied().filter(|node| {
        let is_voter = rpc.membership.is_voter(group, *node);
        is_voter && *node != rpc.membership.me && rpc.links.reachable(*node)
    });
    let mut others: Vec<NodeId> = others.collect();
    let first = tries % others.len().max(1);
    others.rotate_left(first);
    others
}

/// Whether there was something to give up.
async fn give_up_groups(rpc: &Rpc, tries: usize) -> bool {
    let is_led = |group: &GroupId| rpc.door.leadership(*group).is_here;
    let led: Vec<GroupId> = rpc.membership.groups.all().filter(is_led).collect();
    for group in &led {
        if !give_up(rpc, *group, &next_leaders(rpc, *group, tries)).await {
            break;
        }
    }
    !led.is_empty()
}

/// Whether one of the nodes took it.
async fn give_up(rpc: &Rpc, group: GroupId, nodes: &[NodeId]) -> bool {
    for to in nodes {
        if hears_root_leader(rpc) || rpc.stopping.has_begun() {
            return false;
        }
        let caller = Caller::node(rpc.membership.me.0);
        let request = TransferLeadershipRequest { to: to.0, group: group.0 };
        match cluster::transfer_leadership(rpc, caller, request).await {
            Ok(_) => {
                tracing::warn!(
                    %group,
                    %to,
                    "handed the leadership over: this node does not hear the leader of group 1, so it would not learn \
                     of changes of the policy"
                );
                return true;
            }
            Err(failure) => tracing::info!(
                %group,
                %to,
                why = failure.message,
                "this node does not hear the leader of group 1, and another node did not take over a group"
            ),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_given_up_after_a_while_and_then_rarely() {
        let mut without_root = WithoutRoot::default();
        let mut due_at = |seconds: std::ops::Range<u64>, hears_leader, leads: bool| {
            let mut due = Vec::new();
            for at in seconds {
                let now = Duration::from_secs(at);
                if without_root.is_due(now, hears_leader) && leads {
                    without_root.tried(now);
                    due.push(at);
                }
            }
            due
        };
        assert_eq!(due_at(0..100, true, true), [0; 0]);
        assert_eq!(due_at(100..104, false, true), [0; 0], "an election takes a while");
        assert_eq!(due_at(104..105, true, true), [0; 0]);
        assert_eq!(due_at(105..131, false, true), [110, 120, 130]);
        assert_eq!(due_at(131..150, false, false), [0; 0]);
        assert_eq!(due_at(150..152, false, true), [150], "a group that it leads since");
    }
}
