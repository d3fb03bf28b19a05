//! The membership changes that an operator may ask for, and the checks before anything is in the log.

use std::collections::BTreeSet;

use thiserror::Error;

use super::bytes::is_short_enough;
use super::{MEMBERS_MAX, Member, Membership, Role, VOTERS_MAX};
use crate::id::NodeId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// Adds a node as a learner. Unless `stays_learner` is set, the leader promotes it to voter once it has caught up.
    /// It then takes the place of the voter that it replaces.
    Add { node: NodeId, member: Member },
    /// A learner becomes a voter now.
    Promote { node: NodeId },
    /// Removes a node for good: its id is never used again.
    Remove { node: NodeId },
}

impl MembershipChange {
    /// The node that comes, goes or gets a vote.
    pub fn node(&self) -> NodeId {
        match self {
            MembershipChange::Add { node, .. }
            | MembershipChange::Promote { node }
            | MembershipChange::Remove { node } => *node,
        }
    }
}

/// Why a change is not made. Nothing is in the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeRefusal {
    #[error("a node's id is above 0")]
    InvalidId,
    #[error("the address '{address}' is empty or too long")]
    InvalidAddress { address: String },
    #[error("node {node} is a member already, with other addresses or another role")]
    IdInUse { node: NodeId },
    #[error(
        "ids are used once, in rising order: {node} is not above {highest}, the highest so far; choose \
         {} or higher", highest.0.saturating_add(1)
    )]
    IdUsedBefore { node: NodeId, highest: NodeId },
    #[error("node {by} has the address {address}")]
    AddressInUse { address: String, by: NodeId },
    #[error("there is no node {node}")]
    UnknownNode { node: NodeId },
    #[error("node {node} is not a voter")]
    NotAVoter { node: NodeId },
    #[error("node {node} is the last voter; a cluster without voters cannot decide anything")]
    LastVoter { node: NodeId },
    #[error(
        "another change is under way: {what}; wait for it, or remove the node that does not get on"
    )]
    UnderWay { what: String },
    #[error(
        "of the {voters} voters that would be left only {live} can be reached, and {needed} are needed: \
         the change could not be completed; bring a node back first, or add one"
    )]
    NoQuorumLeft { voters: usize, live: usize, needed: usize },
    #[error("node {node} has not caught up: it lags by {lag} entries or cannot be reached")]
    NotCaughtUp { node: NodeId, lag: u64 },
    #[error("a cluster has at most {VOTERS_MAX} voters and {MEMBERS_MAX} nodes")]
    TooManyNodes,
}

/// What to do about a requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeVerdict {
    Propose,
    /// The membership is as requested already.
    Already,
}

impl Membership {
    /// Whether a change may be proposed, as far as the members alone can tell.
    pub(crate) fn judge(&self, change: &MembershipChange) -> Result<ChangeVerdict, ChangeRefusal> {
        match change {
            MembershipChange::Add { node, member } => self.judge_addition(*node, member),
            MembershipChange::Promote { node } => match self.role(*node) {
                Some(Role::Voter) => Ok(ChangeVerdict::Already),
                Some(Role::Learner) => {
                    self.judge_idle(Some(*node))?;
                    Ok(ChangeVerdict::Propose)
                }
                Some(_) => self.judge_idle(None).map(|()| ChangeVerdict::Already),
                None => Err(ChangeRefusal::UnknownNode { node: *node }),
            },
            MembershipChange::Remove { node } => self.judge_removal(*node),
        }
    }

    fn judge_addition(
        &self,
        node: NodeId,
        member: &Member,
    ) -> Result<ChangeVerdict, ChangeRefusal> {
        if node == NodeId(0) {
            return Err(ChangeRefusal::InvalidId);
        }
        for address in [&member.peer_address, &member.client_address] {
            if address.is_empty() || !is_short_enough(address) {
                return Err(ChangeRefusal::InvalidAddress { address: address.clone() });
            }
        }
        if let Some(known) = self.members.get(&node) {
            let asked_before = Member { directory: None, ..known.clone() } == *member;
            let refusal = ChangeRefusal::IdInUse { node };
            return asked_before.then_some(ChangeVerdict::Already).ok_or(refusal);
        }
        if node <= self.highest {
            return Err(ChangeRefusal::IdUsedBefore { node, highest: self.highest });
        }
        self.judge_addresses(node, member)?;
        if let Some(replaced) = member.replaces
            && self.role(replaced) != Some(Role::Voter)
        {
            return Err(match self.is_member(replaced) {
                true => ChangeRefusal::NotAVoter { node: replaced },
                false => ChangeRefusal::UnknownNode { node: replaced },
            });
        }
        self.judge_idle(None)?;
        let is_one_more_voter = !member.stays_learner && member.replaces.is_none();
        let too_many = self.members.len() >= MEMBERS_MAX
            || (is_one_more_voter && self.configuration.voters.len() >= VOTERS_MAX);
        if too_many { Err(ChangeRefusal::TooManyNodes) } else { Ok(ChangeVerdict::Propose) }
    }

    fn judge_addresses(&self, node: NodeId, new: &Member) -> Result<(), ChangeRefusal> {
        let taken =
            |address: &String, by| ChangeRefusal::AddressInUse { address: address.clone(), by };
        if new.peer_address == new.client_address {
            return Err(taken(&new.peer_address, node));
        }
        for (by, member) in &self.members {
            for address in [&new.peer_address, &new.client_address] {
                if [&member.peer_address, &member.client_address].contains(&address) {
                    return Err(taken(address, *by));
                }
            }
        }
        Ok(())
    }

    fn judge_removal(&self, node: NodeId) -> Result<ChangeVerdict, ChangeRefusal> {
        match self.role(node) {
            None if node != NodeId(0) && node <= self.highest => Ok(ChangeVerdict::Already),
            None => Err(ChangeRefusal::UnknownNode { node }),
            Some(Role::Voter) if self.configuration.voters.len() == 1 => {
                Err(ChangeRefusal::LastVoter { node })
            }
            Some(_) => self.judge_idle(Some(node)).map(|()| ChangeVerdict::Propose),
        }
    }

    /// One change at a time. The node that is on its way in may be removed, or hurried.
    fn judge_idle(&self, except: Option<NodeId>) -> Result<(), ChangeRefusal> {
        if self.configuration.is_joint() {
            let what = "the voters are being changed".to_owned();
            return Err(ChangeRefusal::UnderWay { what });
        }
        match self.on_its_way().filter(|node| Some(*node) != except) {
            Some(node) => {
                let what = format!("node {node} is catching up, to become a voter");
                Err(ChangeRefusal::UnderWay { what })
            }
            None => Ok(()),
        }
    }

    /// The learner that is to become a voter.
    pub(crate) fn on_its_way(&self) -> Option<NodeId> {
        let learners = self.configuration.learners.iter().copied();
        let mut wanted = learners
            .filter(|node| self.members.get(node).is_some_and(|member| !member.stays_learner));
        wanted.next()
    }

    /// The voters once this node has become one.
    pub(crate) fn voters_with(&self, node: NodeId) -> BTreeSet<NodeId> {
        let mut voters = self.configuration.voters.clone();
        if let Some(replaced) = self.replaced_by(node) {
            voters.remove(&replaced);
        }
        voters.insert(node);
        voters
    }

    /// The voter that leaves when this node becomes one. It may have been removed meanwhile.
    pub(crate) fn replaced_by(&self, node: NodeId) -> Option<NodeId> {
        let replaced = self.members.get(&node)?.replaces?;
        self.configuration.voters.contains(&replaced).then_some(replaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Configuration;

    fn member(host: &str) -> Member {
        Member {
            peer_address: format!("{host}:7421"),
            client_address: format!("{host}:7420"),
            ..Member::default()
        }
    }

    fn group() -> Membership {
        let mut group = Membership::founded_by(&[1, 2, 3].map(NodeId));
        for (node, known) in &mut group.members {
            *known = member(&format!("h{node}"));
        }
        group
    }

    fn add(node: u64, member: Member) -> MembershipChange {
        MembershipChange::Add { node: NodeId(node), member }
    }

    #[test]
    fn an_invalid_addition_is_refused() {
        let group = group();
        let new = member("h4");
        assert_eq!(group.judge(&add(4, new.clone())), Ok(ChangeVerdict::Propose));
        assert_eq!(group.judge(&add(0, new.clone())), Err(ChangeRefusal::InvalidId));
        let in_use = ChangeRefusal::IdInUse { node: NodeId(3) };
        assert_eq!(group.judge(&add(3, new.clone())), Err(in_use));
        assert_eq!(group.judge(&add(3, member("h3"))), Ok(ChangeVerdict::Already));
        let long = Member { peer_address: "x".repeat(301), ..new.clone() };
        for address in [long, Member { client_address: String::new(), ..new.clone() }] {
            let refused = group.judge(&add(4, address));
            assert!(matches!(refused, Err(ChangeRefusal::InvalidAddress { .. })), "{refused:?}");
        }
        for address in ["h2:7420", "h2:7421", "h4:7420"] {
            let new = Member { peer_address: address.into(), ..new.clone() };
            let refused = group.judge(&add(4, new));
            assert!(matches!(refused, Err(ChangeRefusal::AddressInUse { .. })), "{refused:?}");
        }
        let replaces = |node| Member { replaces: Some(NodeId(node)), ..new.clone() };
        assert_eq!(group.judge(&add(4, replaces(2))), Ok(ChangeVerdict::Propose));
        let unknown = ChangeRefusal::UnknownNode { node: NodeId(9) };
        assert_eq!(group.judge(&add(4, replaces(9))), Err(unknown));
    }

    #[test]
    fn a_removed_node_id_is_not_used_again() {
        let mut group = group();
        group.set_configuration(Configuration::of_voters(&[1, 2].map(NodeId)));
        let refused = group.judge(&add(3, member("h9")));
        let used = ChangeRefusal::IdUsedBefore { node: NodeId(3), highest: NodeId(3) };
        assert_eq!(refused, Err(used));
        let again = group.judge(&MembershipChange::Remove { node: NodeId(3) });
        assert_eq!(again, Ok(ChangeVerdict::Already));
        let never = group.judge(&MembershipChange::Remove { node: NodeId(4) });
        assert_eq!(never, Err(ChangeRefusal::UnknownNode { node: NodeId(4) }));
    }

    #[test]
    fn while_a_node_joins_only_that_node_can_be_removed() {
        let mut group = group();
        let mut configuration = group.configuration.clone();
        configuration.learners.insert(NodeId(4));
        group.add(NodeId(4), member("h4"), configuration);
        let under_way =
            |change| matches!(group.judge(&change), Err(ChangeRefusal::UnderWay { .. }));
        assert!(under_way(add(5, member("h5"))));
        assert!(under_way(MembershipChange::Remove { node: NodeId(2) }));
        let remove = MembershipChange::Remove { node: NodeId(4) };
        assert_eq!(group.judge(&remove), Ok(ChangeVerdict::Propose));
    }

    #[test]
    fn the_last_voter_cannot_be_removed() {
        let group = Membership::founded_by(&[NodeId(1)]);
        let refused = group.judge(&MembershipChange::Remove { node: NodeId(1) });
        assert_eq!(refused, Err(ChangeRefusal::LastVoter { node: NodeId(1) }));
    }
}
