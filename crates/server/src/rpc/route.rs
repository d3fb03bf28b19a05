//! Where an action is carried out, once there is a leader.

use std::time::Duration;

use holdfast_engine::Unavailable;
use holdfast_proto::v1::Failure;
use holdfast_replica::{GroupId, Leadership, NodeId};
use holdfast_service::{Caller, Leader, Method, Route, route};
use tokio::time::timeout;

use super::Rpc;
use super::failure::{no_leader, stopping, unavailable};

/// An election is over well within this time if a majority is up.
pub(super) const LEADER_WAIT: Duration = Duration::from_secs(1);

/// Which node carries an action out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Here,
    At(NodeId),
}

impl Rpc {
    /// For an action of this group. Waits for a leader if the action needs one and none is known.
    pub(super) async fn destination(
        &self,
        caller: &Caller,
        method: Method,
        group: GroupId,
    ) -> Result<Destination, Failure> {
        let decide = |now: &Leadership| route(caller, method, self.leader(now));
        let mut leadership = self.door.watch_leadership(group);
        let now = *leadership.borrow();
        let mut found = decide(&now);
        // Whatever the action: one that needs no leader must not make the next one wait as long again.
        let has_leader = self.leader(&now) != Leader::Unknown;
        let waited = self.leader_search.leaderless_for(group, has_leader);
        if found == Route::Wait {
            // A node with a full disk follows no leader until there is room.
            let wait = if self.has_full_disk() { Duration::ZERO } else { LEADER_WAIT };
            let known = leadership.wait_for(|now| decide(now) != Route::Wait);
            found = match timeout(wait.saturating_sub(waited), known).await {
                Ok(Ok(now)) => decide(&now),
                Ok(Err(_)) => return Err(stopping()),
                Err(_) => Route::Wait,
            };
        }
        match found {
            Route::Here => Ok(Destination::Here),
            Route::Forward(leader) => Ok(Destination::At(NodeId(leader))),
            Route::NotLeader { leader } => {
                let leader = leader.map(NodeId);
                Err(unavailable(Unavailable::NotLeader { leader }, &self.membership))
            }
            Route::Wait if caller.forwarded_by.is_some() => Err(no_leader()),
            Route::Wait => Err(self.why_no_leader(group).await),
        }
    }

    /// None: there is no leader that could be known without waiting.
    pub(super) fn destination_now(
        &self,
        caller: &Caller,
        method: Method,
        group: GroupId,
    ) -> Option<Destination> {
        let place = match route(caller, method, self.leader(&self.door.leadership(group))) {
            Route::Here => Destination::Here,
            Route::Forward(leader) => Destination::At(NodeId(leader)),
            Route::NotLeader { .. } | Route::Wait => return None,
        };
        self.leader_search.leaderless_for(group, true);
        Some(place)
    }

    fn leader(&self, now: &Leadership) -> Leader {
        match now.leader {
            _ if now.is_here => Leader::ThisNode,
            Some(leader) if leader != self.membership.me => Leader::Node(leader.0),
            _ => Leader::Unknown,
        }
    }
}
