//! Which node carries an action out: this one if it leads, else the leader, one hop away.

use crate::caller::Caller;
use crate::method::{CarriedOutBy, Method};

/// Who leads, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    ThisNode,
    Node(u64),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// This node carries it out.
    Here,
    /// This node sends it to that one, with its caller.
    Forward(u64),
    /// No leader is known. The action waits for one, for a bounded time.
    Wait,
    /// It was forwarded to this node, which does not lead (any more). It goes no further.
    NotLeader { leader: Option<u64> },
}

pub fn route(caller: &Caller, method: Method, leader: Leader) -> Route {
    let is_forwarded = caller.forwarded_by.is_some();
    match (method.row().carried_out_by, leader) {
        (CarriedOutBy::ThisNode, _) | (_, Leader::ThisNode) => Route::Here,
        (CarriedOutBy::LeaderIfKnown, Leader::Unknown) => Route::Here,
        (CarriedOutBy::LeaderIfKnown, Leader::Node(_)) if is_forwarded => Route::Here,
        (_, Leader::Node(leader)) if is_forwarded => Route::NotLeader { leader: Some(leader) },
        (_, Leader::Node(leader)) => Route::Forward(leader),
        (_, Leader::Unknown) => Route::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Protocol;

    #[test]
    fn an_action_makes_one_hop_at_most() {
        let client = Caller::client(Protocol::Grpc, None);
        let forwarded = Caller { forwarded_by: Some(2), ..client.clone() };
        for method in Method::ALL {
            assert_eq!(route(&client, *method, Leader::ThisNode), Route::Here);
            assert_eq!(route(&forwarded, *method, Leader::ThisNode), Route::Here);
            let route = route(&forwarded, *method, Leader::Node(3));
            assert!(!matches!(route, Route::Forward(_)), "{method:?}: {route:?}");
        }
    }

    #[test]
    fn a_follower_forwards_changes_and_reads_and_answers_probes_itself() {
        let client = Caller::client(Protocol::Grpc, None);
        let at_follower = |method| route(&client, method, Leader::Node(3));
        for method in [Method::Acquire, Method::Status, Method::Watch, Method::AddNode] {
            assert_eq!(at_follower(method), Route::Forward(3), "{method:?}");
            assert_eq!(route(&client, method, Leader::Unknown), Route::Wait, "{method:?}");
        }
        assert_eq!(at_follower(Method::HealthCheck), Route::Here);
        assert_eq!(at_follower(Method::ClusterStatus), Route::Forward(3));
        assert_eq!(route(&client, Method::ClusterStatus, Leader::Unknown), Route::Here);
    }
}
