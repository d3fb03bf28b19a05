//! How a leader looks after the membership: carries out what operators ask for, writes down what is not
//! known yet, makes voters of those who have caught up, and hands over before it leaves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use super::{Fatal, Replica};
use crate::consensus::Step;
use crate::effect::{Effect, Ticket, Unavailable};
use crate::id::{ClusterId, NodeId};
use crate::membership::{
    ChangeRefusal, ChangeVerdict, Configuration, Member, Membership, MembershipChange, Note,
    decode_addition, encode_addition,
};

/// Changes that wait for their turn; more are refused as an overload.
const QUEUED_MAX: usize = 16;
/// Nodes that are remembered as introduced, members or not yet.
const INTRODUCED_MAX: usize = 32;
/// A learner that lags by no more than this has caught up.
const LAG_MAX: u64 = 1_000;

/// What this replica knows beyond the log, and what is under way.
#[derive(Debug, Default)]
pub(super) struct Care {
    introduced: BTreeMap<NodeId, Introduction>,
    /// All of that is in the log; so it need not be looked through in every turn.
    is_written_down: bool,
    /// What consensus has counted, and when each node was last heard of in it.
    ticks: u64,
    heard_at: BTreeMap<NodeId, u64>,
    queued: VecDeque<(Ticket, MembershipChange)>,
    pending: Option<PendingChange>,
    /// A note of this leader that is not applied yet.
    noting: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Introduction {
    member: Member,
    /// Only the node itself knows that its address has changed.
    in_its_own_words: bool,
}

#[derive(Debug)]
struct PendingChange {
    ticket: Ticket,
    index: u64,
}

impl Care {
    /// No change waits for its turn.
    pub(super) fn is_asked_nothing(&self) -> bool {
        self.queued.is_empty()
    }
}

/// Why leadership is not handed over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandOverRefusal {
    #[error("this node does not lead")]
    NotLeader { leader: Option<NodeId> },
    #[error("node {node} is not a voter, so it cannot lead")]
    NotAVoter { node: NodeId },
    #[error("node {node} cannot be reached")]
    Unreachable { node: NodeId },
    #[error("no other voter can be reached")]
    NobodyElse,
}

impl Replica {
    /// A change of the membership. `Effect::ChangeEnded` says when it is complete, or why it is refused;
    /// `Effect::Failed` that this replica cannot say.
    pub fn propose_membership(&mut self, ticket: Ticket, change: MembershipChange) {
        let reason = if !self.consensus.is_leader() {
            Unavailable::NotLeader { leader: self.consensus.leader() }
        } else if self.care.queued.len() >= QUEUED_MAX {
            Unavailable::Overloaded
        } else {
            return self.care.queued.push_back((ticket, change));
        };
        self.effects.push(Effect::Failed { ticket, reason });
    }

    /// What is known of a node from elsewhere: a file, or (`in_its_own_words`) the node itself. A leader
    /// writes down what the log does not say yet.
    pub fn introduce(&mut self, node: NodeId, member: Member, in_its_own_words: bool) {
        self.care.is_written_down = false;
        let introduced = &mut self.care.introduced;
        if introduced.contains_key(&node) || introduced.len() < INTRODUCED_MAX {
            let known = introduced.entry(node).or_insert_with(|| Introduction {
                member: Member::default(),
                in_its_own_words: false,
            });
            if in_its_own_words || !known.in_its_own_words {
                *known = Introduction { member, in_its_own_words };
            }
        }
    }

    /// Hands leadership to a voter, or to the best one. It may come to nothing: ask again.
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
            None => self.best_successor().ok_or(HandOverRefusal::NobodyElse)?,
        };
        if successor != self.config.node {
            self.consensus.hand_over(successor);
        }
        Ok(successor)
    }

    /// As `hand_over` to the best one, for a node that is about to stop.
    pub fn transfer_leadership(&mut self) {
        let _ = self.hand_over(None);
    }

    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(super) fn heard_of(&mut self, node: NodeId) {
        if self.membership.is_member(node) {
            self.care.heard_at.insert(node, self.care.ticks);
        }
    }

    pub(super) fn count_ticks(&mut self, ticks: u64) {
        self.care.ticks += ticks;
    }

    /// The first half of a leader's turn.
    pub(super) fn look_after_membership(&mut self) {
        if !self.consensus.leads_surely() || self.consensus.is_handing_over() {
            return;
        }
        if self.care.noting.is_none() && !self.care.is_written_down {
            self.write_down();
        }
        // What is known is written down before anything is changed.
        if self.care.noting.is_none() {
            self.propose_what_is_asked();
        }
        if !self.consensus.has_unapplied_change() {
            self.go_on_with_change();
        }
    }

    /// Proposes a note on members of whom more is known than the log says.
    fn write_down(&mut self) {
        let here = self.config.node;
        let own = self.care.introduced.get(&here).and_then(|known| known.member.directory);
        let cluster = own.map(|own| ClusterId(own.0)).filter(|_| self.membership.cluster.is_none());
        let news = |(node, known): (&NodeId, &Member)| {
            let introduced = self.care.introduced.get(node)?;
            let news = introduced.news_about(known);
            (news != Member::default()).then_some((*node, news))
        };
        let members: Vec<_> = self.membership.members.iter().filter_map(news).collect();
        if cluster.is_none() && members.is_empty() {
            self.care.is_written_down = true;
            return;
        }
        let note = Note { cluster, members };
        self.care.noting = self.consensus.propose_note(note.encode()).ok();
    }

    /// What is in the log is applied first: it decides what may be asked for.
    fn propose_what_is_asked(&mut self) {
        while !self.consensus.has_unapplied_change()
            && let Some((ticket, change)) = self.care.queued.pop_front()
        {
            let verdict = self.membership.judge(&change).and_then(|verdict| match verdict {
                ChangeVerdict::Already => Ok(verdict),
                ChangeVerdict::Propose => self.judge_with_what_is_live(&change).map(|()| verdict),
            });
            match verdict {
                Ok(ChangeVerdict::Already) => self.change_ended(ticket, Ok(())),
                Ok(ChangeVerdict::Propose) => self.propose_change(ticket, &change),
                Err(refusal) => self.change_ended(ticket, Err(refusal)),
            }
        }
    }

    fn judge_with_what_is_live(&self, change: &MembershipChange) -> Result<(), ChangeRefusal> {
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

    /// A change that the voters of after cannot complete would leave the group without any.
    fn judge_quorum(&self, voters: &BTreeSet<NodeId>) -> Result<(), ChangeRefusal> {
        let (needed, voters_count) = (voters.len() / 2 + 1, voters.len());
        let live = voters.iter().filter(|node| self.is_live(**node)).count();
        if live >= needed {
            return Ok(());
        }
        Err(ChangeRefusal::NoQuorumLeft { voters: voters_count, live, needed })
    }

    fn propose_change(&mut self, ticket: Ticket, change: &MembershipChange) {
        let proposed = match change {
            MembershipChange::Add { node, member } => {
                let context = encode_addition(*node, member);
                self.consensus.propose_change(&[Step::AddLearner(*node)], context)
            }
            MembershipChange::Promote { node } => self.propose_promotion(*node),
            // Nobody removes itself from under its own feet: the next leader does.
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
        };
        match proposed {
            Ok((index, _)) => self.care.pending = Some(PendingChange { ticket, index }),
            Err(reason) => self.effects.push(Effect::Failed { ticket, reason }),
        }
    }

    fn propose_promotion(&mut self, node: NodeId) -> Result<(u64, u64), Unavailable> {
        let leaving = self.membership.replaced_by(node).map(Step::RemoveVoter);
        let steps: Vec<Step> = [Step::MakeVoter(node)].into_iter().chain(leaving).collect();
        self.consensus.propose_change(&steps, Vec::new())
    }

    /// What nobody has to ask for.
    fn go_on_with_change(&mut self) {
        if self.membership.configuration.is_joint() {
            if self.membership.configuration.voters.contains(&self.config.node) {
                let _ = self.consensus.propose_change(&[], Vec::new());
            } else {
                // The next leader completes the change that this one is not part of any more.
                let _ = self.hand_over(None);
            }
            return;
        }
        let Some(node) = self.membership.on_its_way() else { return };
        let promote = MembershipChange::Promote { node };
        if self.judge_with_what_is_live(&promote).is_err() {
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
        if self.care.noting == Some((index, term)) {
            self.care.noting = None;
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
        self.consensus.forget_the_beginning();
        self.membership_changed();
        if !self.membership.configuration.is_joint()
            && let Some(pending) = self.care.pending.take_if(|pending| pending.index <= index)
        {
            self.change_ended(pending.ticket, Ok(()));
        }
        Ok(())
    }

    pub(super) fn membership_changed(&mut self) {
        self.care.is_written_down = false;
        self.care.heard_at.retain(|node, _| self.membership.is_member(*node));
        let (index, members) = (self.applied_index, self.membership.clone());
        self.effects.push(Effect::MembershipChanged { index, members });
    }

    fn change_ended(&mut self, ticket: Ticket, result: Result<(), ChangeRefusal>) {
        self.effects.push(Effect::ChangeEnded { ticket, result });
    }

    /// Office is lost: whether a change that is in the log happens is for the next leader to say.
    pub(super) fn leave_membership_alone(&mut self) {
        let leader = self.consensus.leader();
        self.care.noting = None;
        if let Some(PendingChange { ticket, .. }) = self.care.pending.take() {
            let reason = Unavailable::LeadershipLost { leader };
            self.effects.push(Effect::Failed { ticket, reason });
        }
    }

    pub(super) fn refuse_waiting_changes(&mut self) {
        let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
        let waiting = self.care.queued.drain(..);
        self.effects.extend(waiting.map(|(ticket, _)| Effect::Failed { ticket, reason }));
    }

    /// The voter with the longest log of those that were heard of lately.
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

    /// A leader hears of everybody who is alive several times within an election timeout.
    fn is_live(&self, node: NodeId) -> bool {
        let patience = self.config.election_ticks.0 as u64;
        let heard_at = self.care.heard_at.get(&node);
        node == self.config.node
            || heard_at.is_some_and(|heard_at| self.care.ticks - heard_at <= patience)
    }

    pub(super) fn lag_of(&self, node: NodeId) -> u64 {
        let matched = self.consensus.matched();
        let matched =
            matched.iter().find(|(other, _)| *other == node).map_or(0, |(_, index)| *index);
        self.consensus.last_index().saturating_sub(matched)
    }
}

impl Introduction {
    /// What is to be written down about a member of which `known` is written down.
    fn news_about(&self, known: &Member) -> Member {
        let address = |said: &String, known: &String| {
            let is_news = known.is_empty() || (self.in_its_own_words && said != known);
            if is_news { said.clone() } else { String::new() }
        };
        Member {
            peer_address: address(&self.member.peer_address, &known.peer_address),
            client_address: address(&self.member.client_address, &known.client_address),
            directory: self.member.directory.filter(|_| known.directory.is_none()),
            ..Member::default()
        }
    }
}
