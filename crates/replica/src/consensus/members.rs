//! Membership changes in consensus.
//!
//! A change of voters goes through a joint state, in which a majority of the old voters and one of the new voters have
//! to agree. The library could leave that state by itself. Here the replica proposes it: a leader that is not among the
//! new voters must not lead after the change. It transfers leadership first, and the next leader leaves the joint
//! state.
//!
//! A change counts on a node from when the node applies it. So a voter that has not heard that the joint state is left
//! needs votes of the old voters, the removed one included. A leader that was elected with the end of its own removal
//! in the log therefore applies it only when a majority of the new voters knows that it is committed. Its process ends
//! after that.

use protobuf::Message as _;
use raft::StateRole;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType,
};

use super::convert::{NOTE_MARK, from_conf_state};
use super::{Committed, Consensus, Content, ImpossibleChange};
use crate::effect::Unavailable;
use crate::id::NodeId;

/// One part of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    AddLearner(NodeId),
    MakeVoter(NodeId),
    RemoveVoter(NodeId),
    RemoveLearner(NodeId),
}

impl Consensus {
    /// Proposes a change; without steps, proposes to leave the joint state. `context` comes back when the change is
    /// committed. Call it only if no change is under way: the library would write an empty entry instead.
    pub(crate) fn propose_change(
        &mut self,
        steps: &[Step],
        context: Vec<u8>,
    ) -> Result<(u64, u64), Unavailable> {
        if !self.is_leader() || self.is_handing_over() {
            return Err(Unavailable::NotLeader { leader: None });
        }
        let mut change = ConfChangeV2::default();
        change.set_changes(steps.iter().map(|step| step.to_raft()).collect::<Vec<_>>().into());
        change.set_context(context.into());
        let needs_joint_state = steps.iter().any(Step::is_of_voters);
        #[cfg(feature = "planted")]
        let needs_joint_state = needs_joint_state
            && (self.group == crate::id::GroupId::FIRST
                || !crate::planted::Bug::FollowerSkipsJointState.is_active());
        if needs_joint_state {
            change.set_transition(ConfChangeTransition::Explicit);
        }
        self.raft.propose_conf_change(Vec::new(), change).map_err(|_| Unavailable::Overloaded)?;
        Ok((self.last_index(), self.term()))
    }

    /// A change is in the log and not applied yet. For a moment after an election this may be true without a change.
    pub(crate) fn has_unapplied_change(&self) -> bool {
        self.raft.raft.has_pending_conf()
    }

    pub(crate) fn is_handing_over(&self) -> bool {
        self.raft.raft.lead_transferee.is_some()
    }

    /// Transfers leadership to this node, unless a transfer is under way. The transfer may fail.
    pub(crate) fn hand_over(&mut self, to: NodeId) {
        if !self.is_handing_over() {
            self.raft.transfer_leader(to.0);
        }
    }

    /// Converts a committed entry, and applies it to consensus if it changes the membership.
    pub(super) fn committed(&mut self, entry: Entry) -> Result<Committed, ImpossibleChange> {
        let (index, term) = (entry.index, entry.term);
        let content = match entry.get_entry_type() {
            EntryType::EntryNormal if entry.context == NOTE_MARK => Content::Note(entry.data),
            EntryType::EntryNormal => Content::Commands(entry.data),
            EntryType::EntryConfChange => {
                let words = "it is of a kind that is never proposed".to_owned();
                return Err(ImpossibleChange { index, words });
            }
            EntryType::EntryConfChangeV2 => {
                self.apply_change(&entry.data).map_err(|words| ImpossibleChange { index, words })?
            }
        };
        Ok(Committed { index, term, content })
    }

    /// The entry removes this leader, and too few of the new voters know that it is committed. They learn it from this
    /// leader. One that has lost their contact loses its leadership, and waits no longer.
    pub(super) fn is_early_own_removal(&self, entry: &Entry) -> bool {
        if !self.is_leader() || !is_end_of_change(entry) {
            return false;
        }
        let configuration = from_conf_state(&self.raft.store().members);
        if configuration.voters.contains(&self.here) {
            return false;
        }
        let progress = self.raft.raft.prs();
        let knows = |node: &&NodeId| {
            progress.get(node.0).is_some_and(|progress| progress.committed_index >= entry.index)
        };
        configuration.voters.iter().filter(knows).count() <= configuration.voters.len() / 2
    }

    fn apply_change(&mut self, bytes: &[u8]) -> Result<Content, String> {
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut change =
            ConfChangeV2::parse_from_bytes(bytes).map_err(|error| error.to_string())?;
        #[cfg(feature = "planted")]
        self.apply_without_joint_state(&mut change)?;
        let state = self.raft.apply_conf_change(&change).map_err(|error| error.to_string())?;
        let configuration = from_conf_state(&state);
        if !state.learners_next.is_empty() || !configuration.is_sound() {
            return Err("it makes a group that cannot be".to_owned());
        }
        self.raft.mut_store().members = state;
        self.has_new_members = true;
        // A node without a vote neither campaigns nor leads.
        let raft = &mut self.raft.raft;
        if !raft.promotable() && raft.state != StateRole::Follower {
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
        }
        Ok(Content::Change { configuration, context: change.context })
    }

    /// Planted bug: applies all steps but the last one by one, and leaves the last in the change.
    #[cfg(feature = "planted")]
    fn apply_without_joint_state(&mut self, change: &mut ConfChangeV2) -> Result<(), String> {
        if !crate::planted::Bug::JointStateSkipped.is_active() || change.changes.is_empty() {
            return Ok(());
        }
        change.set_transition(ConfChangeTransition::Auto);
        while change.changes.len() > 1 {
            let mut first = ConfChangeV2::default();
            first.mut_changes().push(change.mut_changes().remove(0));
            self.raft.apply_conf_change(&first).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Drops the first entry, so that no node catches up from the beginning of the log. The log does not contain the
    /// initial members; a snapshot does.
    pub(crate) fn drop_first_entry(&mut self) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::BeginningIsServed.is_active() {
            return;
        }
        self.raft.mut_store().log.compact(1);
    }
}

/// Leaves the joint state. The only change without steps is that.
fn is_end_of_change(entry: &Entry) -> bool {
    entry.get_entry_type() == EntryType::EntryConfChangeV2
        && ConfChangeV2::parse_from_bytes(&entry.data).is_ok_and(|change| change.changes.is_empty())
}

impl Step {
    fn is_of_voters(&self) -> bool {
        matches!(self, Step::MakeVoter(_) | Step::RemoveVoter(_))
    }

    fn to_raft(self) -> ConfChangeSingle {
        let (kind, node) = match self {
            Step::AddLearner(node) => (ConfChangeType::AddLearnerNode, node),
            Step::MakeVoter(node) => (ConfChangeType::AddNode, node),
            Step::RemoveVoter(node) | Step::RemoveLearner(node) => {
                (ConfChangeType::RemoveNode, node)
            }
        };
        let mut single = ConfChangeSingle { node_id: node.0, ..ConfChangeSingle::default() };
        single.set_change_type(kind);
        single
    }
}
