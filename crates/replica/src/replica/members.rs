//! How a leader manages the membership. It carries out the changes that operators ask for. It records addresses and
//! directories of members in the log. It promotes learners that have caught up. It transfers leadership before its own
//! removal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use super::follow_members::RootMembers;
use super::{Fatal, Replica};
use crate::consensus::Step;
use crate::effect::{Effect, Ticket, Unavailable};
use crate::id::{ClusterId, NodeId};
use crate::membership::{
    ChangeRefusal, ChangeVerdict, Configuration, Member, Membership, MembershipChange, Note,
    decode_addition, encode_addition,
};

/// Changes that may be queued; more are refused as an overload.
const QUEUED_MAX: usize = 16;
/// Nodes whose reports are kept, whether or not they are members yet.
const REPORTED_MAX: usize = 32;
/// A learner that lags by no more than this has caught up.
const LAG_MAX: u64 = 1_000;

/// What this replica knows about members beyond the log, and the membership changes under way.
#[derive(Debug, Default)]
pub(super) struct MembershipManager {
    reported: BTreeMap<NodeId, MemberReport>,
    /// All of `reported` is in the log, so the next turns need not compare it.
    pub(super) is_recorded: bool,
    /// Consensus ticks so far, and the tick of the last message of each node.
    ticks: u64,
    last_contact: BTreeMap<NodeId, u64>,
    queued: VecDeque<(Ticket, MembershipChange)>,
    pending: Option<PendingChange>,
    /// Index and term of this leader's note that is not applied yet.
    noting: Option<(u64, u64)>,
    /// Of a group beside the root group.
    pub(super) root_members: RootMembers,
}

#[derive(Debug)]
struct MemberReport {
    member: Member,
    /// The node itself reported it. Only the node knows that its address has changed.
    is_self_reported: bool,
}

#[derive(Debug)]
struct PendingChange {
    ticket: Ticket,
    index: u64,
}

impl MembershipManager {
    /// No change is queued.
    pub(super) fn has_no_queued_change(&self) -> bool {
        self.queued.is_empty()
    }
}

/// Why leadership is not transferred.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandOverRefusal {
    #[error("this node does not lead")]
    NotLeader { leader: Option<NodeId> },
    #[error("node {node} is not a voter, so it cannot lead")]
    NotAVoter { node: NodeId },
    #[error("node {node} cannot be reached")]
    Unreachable { node: NodeId },
    #[error("no other voter can be reached")]
    NoOtherVoter,
}

impl Replica {
    /// Queues a change of the membership. `Effect::ChangeEnded` follows when it is complete or refused.
    /// `Effect::Failed` means that this replica does not know what became of it.
    pub fn propose_membership(&mut self, ticket: Ticket, change: MembershipChange) {
        let reason = if !self.consensus.is_leader() {
            Unavailable::NotLeader { leader: self.consensus.leader() }
        } else if self.membership_manager.queued.len() >= QUEUED_MAX {
            Unavailable::Overloaded
        } else {
            return self.membership_manager.queued.push_back((ticket, change));
        };
        self.effects.push(Effect::Failed { ticket, reason });
    }

    /// Takes over what a file, or (`is_self_reported`) the node itself, says about a node. A leader records in the log
    /// what is missing there.
    pub fn report_member(&mut self, node: NodeId, member: Member, is_self_reported: bool) {
        self.membership_manager.is_recorded = false;
        let reported = &mut self.membership_manager.reported;
        if reported.contains_key(&node) || reported.len() < REPORTED_MAX {
            let known = reported.entry(node).or_insert_with(|| MemberReport {
                member: Member::default(),
                is_self_reported: false,
            });
            if is_self_reported || !known.is_self_reported {
                *known = MemberReport { member, is_self_reported };
            }
        }
    }

    /// Transfers leadership to this voter, or to the one with the longest log. The transfer may fail; call it again
    /// then.
    pub fn hand_over(&mut self, to: Option<NodeId>) -> Result<NodeId, HandOverRefusal> {
        if !self.consensus.is_leader() {
            return Err(HandOverRefusal::NotLeader { leader: self.consensus.leader() });
        }
        let successor = match to {
            Some(node) if !self.membership.configuration.voters.contains(&node) => {
                return Err(HandOverRefusal::NotAVoter { node });
            }
            Some(node) if !self.is_live(node) => {
                return Err(HandOverRefusal::Unreachable { node });
            }
            Some(node) => node,
            None => self.best_successor().ok_or(HandOverRefusal::NoOtherVoter)?,
        };
        if successor != self.config.node {
            self.consensus.hand_over(successor);
        }
        Ok(successor)
    }

    /// As `hand_over` without a target, for a node that is about to stop.
    pub fn transfer_leadership(&mut self) {
        let _ = self.hand_over(None);
    }

    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(super) fn note_contact(&mut self, node: NodeId) {
        if self.membership.is_member(node) {
            self.membership_manager.last_contact.insert(node, self.membership_manager.ticks);
        }
    }

    pub(super) fn count_ticks(&mut self, ticks: u64) {
        self.membership_manager.ticks += ticks;
    }

    /// The membership's part in the first half of a leader's turn.
    pub(super) fn advance_membership(&mut self) {
        if !self.consensus.has_committed_in_own_term() || self.consensus.is_handing_over() {
            return;
        }
        if self.membership_manager.noting.is_none() && !self.membership_manager.is_recorded {
            self.propose_member_note();
        }
        // Known facts are recorded before any change.
        if self.membership_manager.noting.is_none() {
            self.propose_queued_changes();
        }
        if !self.consensus.has_unapplied_change() {
            self.continue_change();
        }
        if !self.consensus.has_unapplied_change() && !self.consensus.is_handing_over() {
            self.follow_root_members();
        }
    }

    /// Proposes a note about members of which this leader knows more than the log.
    fn propose_member_note(&mut self) {
        let here = self.config.node;
        let own =
            self.membership_manager.reported.get(&here).and_then(|known| known.member.directory);
        let cluster = own.map(|own| ClusterId(own.0)).filter(|_| self.membership.cluster.is_none());
        let news = |(node, known): (&NodeId, &Member)| {
            let reported = self.membership_manager.reported.get(node)?;
            let news = reported.news_about(known);
            (news != Member::default()).then_some((*node, news))
        };
        let used_up = self.membership_manager.root_members.id_to_retire(&self.membership);
        let used_up = used_up.map(|node| (node, Member::default()));
        let members = self.membership.members.iter().filter_map(news);
        let members: Vec<_> = members.chain(used_up).collect();
        if cluster.is_none() && members.is_empty() {
            self.membership_manager.is_recorded = true;
            return;
        }
        let note = Note { cluster, members };
        self.membership_manager.noting = self.consensus.propose_note(note.encode()).ok();
    }

    /// Waits until a change in the log is applied, because that change decides what is allowed.
    fn propose_queued_changes(&mut self) {
        while !self.consensus.has_unapplied_change()
            && let Some((ticket, change)) = self.membership_manager.queued.pop_front()
        {
            let verdict = self.membership.judge(&change).and_then(|verdict| match verdict {
                ChangeVerdict::Already => Ok(verdict),
                ChangeVerdict::Propose => self.judge_liveness(&change).map(|()| verdict),
            });
            match verdict {
                Ok(ChangeVerdict::Already) => self.change_ended(ticket, Ok(())),
                Ok(ChangeVerdict::Propose) => self.propose_change(ticket, &change),
                Err(refusal) => self.change_ended(ticket, Err(refusal)),
            }
        }
    }

    pub(super) fn judge_liveness(&self, change: &MembershipChange) -> Result<(), ChangeRefusal> {
        match change {
            MembershipChange::Add { .. } => Ok(()),
            MembershipChange::Promote { node } => {
                let lag = self.lag_of(*node);
                if self.is_live(*node) && lag <= LAG_MAX {
                    self.judge_quorum(&self.membership.voters_with(*node))
                } else {
                    Err(ChangeRefusal::NotCaughtUp { node: *node, lag })
                }
            }
            MembershipChange::Remove { node } => {
                let mut voters = self.membership.configuration.voters.clone();
                match voters.remove(node) {
                    true => self.judge_quorum(&voters),
                    false => Ok(()),
                }
            }
        }
    }

    /// Refuses a change that the voters after it could not complete: the group would lose its quorum.
    fn judge_quorum(&self, voters: &BTreeSet<NodeId>) -> Result<(), ChangeRefusal> {
        let (needed, voters_count) = (voters.len() / 2 + 1, voters.len());
        let live = voters.iter().filter(|node| self.is_live(**node)).count();
        if live >= needed {
            return Ok(());
        }
        Err(ChangeRefusal::NoQuorumLeft { voters: voters_count, live, needed })
    }

    fn propose_change(&mut self, ticket: Ticket, change: &MembershipChange) {
        match self.begin_change(change) {
            Ok((index, _)) => {
                self.membership_manager.pending = Some(PendingChange { ticket, index })
            }
            Err(reason) => self.effects.push(Effect::Failed { ticket, reason }),
        }
    }

    pub(super) fn begin_change(
        &mut self,
        change: &MembershipChange,
    ) -> Result<(u64, u64), Unavailable> {
        match change {
            MembershipChange::Add { node, member } => {
                let context = encode_addition(*node, member);
                self.consensus.propose_change(&[Step::AddLearner(*node)], context)
            }
            MembershipChange::Promote { node } => self.propose_promotion(*node),
            // A leader does not remove itself. The next leader does.
            MembershipChange::Remove { node } if *node == self.config.node => {
                let leader = self.hand_over(None).ok();
                Err(Unavailable::NotLeader { leader })
            }
            MembershipChange::Remove { node } => {
                let is_learner = self.membership.configuration.learners.contains(node);
                let step =
                    if is_learner { Step::RemoveLearner(*node) } else { Step::RemoveVoter(*node) };
                self.consensus.propose_change(&[step], Vec::new())
            }
        }
    }

    fn propose_promotion(&mut self, node: NodeId) -> Result<(u64, u64), Unavailable> {
        let leaving = self.membership.replaced_by(node).map(Step::RemoveVoter);
        let steps: Vec<Step> = [Step::MakeVoter(node)].into_iter().chain(leaving).collect();
        self.consensus.propose_change(&steps, Vec::new())
    }

    /// Steps that follow from the membership itself: leaving the joint state, and promoting a learner that caught up.
    fn continue_change(&mut self) {
        if self.membership.configuration.is_joint() {
            if self.membership.configuration.voters.contains(&self.config.node) {
                let _ = self.consensus.propose_change(&[], Vec::new());
            } else {
                // This leader is not among the new voters. The next leader completes the change.
                let _ = self.hand_over(None);
            }
            return;
        }
        let Some(node) = self.membership.on_its_way() else { return };
        if !self.membership_manager.root_members.lets_vote(node) {
            return;
        }
        let promote = MembershipChange::Promote { node };
        if self.judge_liveness(&promote).is_err() {
            return;
        }
        if self.membership.replaced_by(node) == Some(self.config.node) {
            let _ = self.hand_over(None);
        } else {
            let _ = self.propose_promotion(node);
        }
    }

    /// A note was committed.
    pub(super) fn apply_note(&mut self, index: u64, term: u64, data: &[u8]) -> Result<(), Fatal> {
        let group = self.config.group;
        let note =
            Note::decode(data).map_err(|source| Fatal::UndecodableNote { group, index, source })?;
        self.membership.note(&note);
        if self.membership_manager.noting == Some((index, term)) {
            self.membership_manager.noting = None;
        }
        self.membership_changed();
        Ok(())
    }

    /// A change was committed, and consensus goes by it.
    pub(super) fn apply_change(
        &mut self,
        index: u64,
        configuration: Configuration,
        context: &[u8],
    ) -> Result<(), Fatal> {
        if context.is_empty() {
            self.membership.set_configuration(configuration);
        } else {
            let group = self.config.group;
            let (node, member) = decode_addition(context)
                .map_err(|source| Fatal::UndecodableNote { group, index, source })?;
            self.membership.add(node, member, configuration);
        }
        self.consensus.drop_first_entry();
        self.membership_changed();
        if !self.membership.configuration.is_joint()
            && let Some(pending) =
                self.membership_manager.pending.take_if(|pending| pending.index <= index)
        {
            self.change_ended(pending.ticket, Ok(()));
        }
        Ok(())
    }

    pub(super) fn membership_changed(&mut self) {
        self.membership_manager.is_recorded = false;
        self.membership_manager.root_members.compare(&self.membership);
        self.membership_manager.last_contact.retain(|node, _| self.membership.is_member(*node));
        let (index, members) = (self.applied_index, self.membership.clone());
        self.effects.push(Effect::MembershipChanged { index, members });
    }

    fn change_ended(&mut self, ticket: Ticket, result: Result<(), ChangeRefusal>) {
        self.effects.push(Effect::ChangeEnded { ticket, result });
    }

    /// Leadership is lost. Only the next leader knows whether a change in the log is committed.
    pub(super) fn abandon_membership_changes(&mut self) {
        let leader = self.consensus.leader();
        self.membership_manager.noting = None;
        if let Some(PendingChange { ticket, .. }) = self.membership_manager.pending.take() {
            let reason = Unavailable::LeadershipLost { leader };
            self.effects.push(Effect::Failed { ticket, reason });
        }
    }

    pub(super) fn refuse_queued_changes(&mut self) {
        let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
        let waiting = self.membership_manager.queued.drain(..);
        self.effects.extend(waiting.map(|(ticket, _)| Effect::Failed { ticket, reason }));
    }

    /// The live voter with the longest log.
    pub(super) fn best_successor(&self) -> Option<NodeId> {
        let voters = &self.membership.configuration.voters;
        let matched = self.consensus.matched().into_iter();
        matched
            .filter(|(node, _)| *node != self.config.node)
            .filter(|(node, _)| voters.contains(node) && self.is_live(*node))
            .map(|(node, matched)| (matched, node))
            .max()
            .map(|(_, node)| node)
    }

    /// A live node sends the leader several messages within an election timeout.
    fn is_live(&self, node: NodeId) -> bool {
        let silence_max = self.config.election_ticks.0 as u64;
        let last_contact = self.membership_manager.last_contact.get(&node);
        node == self.config.node
            || last_contact.is_some_and(|last_contact| {
                self.membership_manager.ticks - last_contact <= silence_max
            })
    }

    pub(super) fn lag_of(&self, node: NodeId) -> u64 {
        let matched = self.consensus.matched();
        let matched =
            matched.iter().find(|(other, _)| *other == node).map_or(0, |(_, index)| *index);
        self.consensus.last_index().saturating_sub(matched)
    }
}

impl MemberReport {
    /// What a note must add, given that the log says `known` about the member.
    fn news_about(&self, known: &Member) -> Member {
        let address = |said: &String, known: &String| {
            let is_new = known.is_empty() || (self.is_self_reported && said != known);
            if is_new { said.clone() } else { String::new() }
        };
        Member {
            peer_address: address(&self.member.peer_address, &known.peer_address),
            client_address: address(&self.member.client_address, &known.client_address),
            directory: self.member.directory.filter(|_| known.directory.is_none()),
            ..Member::default()
        }
    }
}
