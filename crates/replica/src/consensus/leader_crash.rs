//! Fast failover: followers that are told that the leader's process has ended do not wait for an election timeout.
//!
//! The report may be wrong. So a follower only does what an election timeout would do, but sooner: it forgets its
//! leader and asks for pre-votes. As long as a majority follows the leader, no voter grants a pre-vote and no term
//! changes. The leader's next message then makes this node its follower again.

use super::Consensus;
use crate::id::{GroupId, NodeId};

/// How much later each voter campaigns than the voter before it. By then the earlier one is elected, or will not be.
const TICKS_APART: usize = 2;

impl Consensus {
    /// Forgets the leader if it is the crashed node, and campaigns soon. The voters campaign one after another, so that
    /// they do not split the vote. If the campaign fails, the ordinary election timeout counts from then on.
    pub(crate) fn forget_leader(&mut self, crashed: NodeId) {
        let raft = &mut self.raft.raft;
        if crashed == self.here || raft.leader_id != crashed.0 {
            return;
        }
        let voters = raft.prs().conf().voters().ids();
        let survivors = voters.iter().map(NodeId).filter(|voter| *voter != crashed);
        let before = candidates_before(self.here, self.group, survivors);
        let delay_ticks = 1 + TICKS_APART * before;
        raft.become_follower(raft.term, raft::INVALID_ID);
        raft.election_elapsed = raft.randomized_election_timeout().saturating_sub(delay_ticks);
    }
}

/// How many of the surviving voters campaign before this one. They do so in the order of their ids, and each group
/// begins with another of them: otherwise the survivor with the lowest id would win every group of the lost node.
fn candidates_before(
    here: NodeId,
    group: GroupId,
    survivors: impl Iterator<Item = NodeId>,
) -> usize {
    let (mut lower, mut count) = (0, 0);
    for voter in survivors {
        lower += usize::from(voter < here);
        count += 1;
    }
    let first = group.0.saturating_sub(1) as usize % count.max(1);
    (lower + count - first) % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_candidate_after_a_crash_rotates_by_group() {
        let survivors = [2, 4, 5].map(NodeId);
        let order = |group| {
            let mut order = survivors;
            order.sort_by_key(|here| {
                candidates_before(*here, GroupId(group), survivors.into_iter())
            });
            order.map(|node| node.0)
        };
        assert_eq!(order(1), [2, 4, 5]);
        assert_eq!(order(2), [4, 5, 2]);
        assert_eq!(order(3), [5, 2, 4]);
        assert_eq!(order(4), [2, 4, 5]);
        assert_eq!(candidates_before(NodeId(1), GroupId(3), [NodeId(1)].into_iter()), 0);
        assert_eq!(candidates_before(NodeId(1), GroupId(3), std::iter::empty()), 0);
    }
}
