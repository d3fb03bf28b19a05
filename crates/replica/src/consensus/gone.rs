//! A leader whose process has ended. Its followers need not wait out an election timeout to believe it.
//!
//! What they are told may be wrong. So nothing is done that an election timeout would not do as well, only sooner: a
//! follower forgets whom it follows, and asks for pre-votes. As long as a majority follows the leader nobody answers
//! them, no term changes, and the leader's next message makes its follower of this node again.

use super::Consensus;
use crate::id::NodeId;

/// Whoever is next in line waits for so much longer: by then the one before is elected, or will not be.
const TICKS_APART: usize = 2;

impl Consensus {
    /// Forgets the leader if it is this node, and stands for election soon: the voters in the order of their ids, so
    /// that they do not take each other's votes. If that comes to nothing, the ordinary timeout counts from there.
    pub(crate) fn forget_leader(&mut self, gone: NodeId) {
        let raft = &mut self.raft.raft;
        if gone == self.here || raft.leader_id != gone.0 {
            return;
        }
        let voters = raft.prs().conf().voters().ids();
        let before = voters.iter().filter(|id| *id < self.here.0 && *id != gone.0).count();
        let patience = 1 + TICKS_APART * before;
        raft.become_follower(raft.term, raft::INVALID_ID);
        raft.election_elapsed = raft.randomized_election_timeout().saturating_sub(patience);
    }
}
