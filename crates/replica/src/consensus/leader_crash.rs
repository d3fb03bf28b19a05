//! Fast failover: followers that are told that the leader's process has ended do not wait for an election timeout.
//!
//! The report may be wrong. So a follower only does what an election timeout would do, but sooner: it forgets its
//! leader and asks for pre-votes. As long as a majority follows the leader, no voter grants a pre-vote and no term
//! changes. The leader's next message then makes this node its follower again.

use super::Consensus;
use crate::id::NodeId;

/// How much later each voter campaigns than the voter before it. By then the earlier one is elected, or will not be.
const TICKS_APART: usize = 2;

impl Consensus {
    /// Forgets the leader if it is the crashed node, and campaigns soon. The voters campaign in the order of their ids,
    /// so that they do not split the vote. If the campaign fails, the ordinary election timeout counts from then on.
    pub(crate) fn forget_leader(&mut self, crashed: NodeId) {
        let raft = &mut self.raft.raft;
        if crashed == self.here || raft.leader_id != crashed.0 {
            return;
        }
        let voters = raft.prs().conf().voters().ids();
        let before = voters.iter().filter(|id| *id < self.here.0 && *id != crashed.0).count();
        let delay_ticks = 1 + TICKS_APART * before;
        raft.become_follower(raft.term, raft::INVALID_ID);
        raft.election_elapsed = raft.randomized_election_timeout().saturating_sub(delay_ticks);
    }
}
