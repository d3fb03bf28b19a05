//! Gives up the leadership of groups while this node does not hear the leader of the root group.
//!
//! The leader of a group takes the policy from its own node's copy of the root group. If that copy gets no news, a user
//! who was revoked keeps what it has in the group. Another node may hear both leaders: then the group should be led
//! there. If no node can lead the root group, handing over does not help, and it is tried rarely.

use std::time::Duration;

use holdfast_proto::v1::{TransferLeadershipRequest, TransferLeadershipResponse};
use holdfast_replica::GroupId;
use holdfast_service::Caller;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Rpc, cluster};

const INTERVAL: Duration = Duration::from_millis(500);
/// Longer than the root group takes to elect a leader.
const PATIENCE: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(30);

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
        let is_due = *self.due.get_or_insert(now + PATIENCE) <= now;
        if is_due {
            self.due = Some(now + AGAIN_AFTER);
        }
        is_due
    }
}

/// Runs on every node until it stops.
pub(crate) async fn give_up_groups_without_root(rpc: Rpc) {
    if rpc.membership.groups.is_one() {
        return;
    }
    let started = Instant::now();
    let mut without_root = WithoutRoot::default();
    let mut looks = interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = rpc.stopping.begun() => return,
        }
        let hears_leader = rpc.door.leadership(GroupId::FIRST).leader.is_some();
        if without_root.is_due(started.elapsed(), hears_leader) {
            give_up_groups(&rpc).await;
        }
    }
}

async fn give_up_groups(rpc: &Rpc) {
    for group in rpc.membership.groups.all().filter(|group| rpc.door.leadership(*group).is_here) {
        let (caller, to_any) = (Caller::node(rpc.membership.me.0), 0);
        let request = TransferLeadershipRequest { to: to_any, group: group.0 };
        match cluster::transfer_leadership(rpc, caller, request).await {
            Ok(TransferLeadershipResponse { leader }) => tracing::warn!(
                %group,
                to = leader,
                "handed the leadership over: this node does not hear the leader of group 1, so it would not learn of \
                 changes of the policy"
            ),
            Err(failure) => tracing::warn!(
                %group,
                why = failure.message,
                "this node does not hear the leader of group 1, and no other node took over the leadership of a group"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_given_up_after_a_while_and_then_rarely() {
        let mut without_root = WithoutRoot::default();
        let mut due_at = |seconds: std::ops::Range<u64>, hears_leader| {
            let is_due = |at: &u64| without_root.is_due(Duration::from_secs(*at), hears_leader);
            seconds.filter(is_due).collect::<Vec<_>>()
        };
        assert_eq!(due_at(0..100, true), [0; 0]);
        assert_eq!(due_at(100..104, false), [0; 0], "an election takes a while");
        assert_eq!(due_at(104..105, true), [0; 0]);
        assert_eq!(due_at(105..175, false), [110, 140, 170]);
    }
}
