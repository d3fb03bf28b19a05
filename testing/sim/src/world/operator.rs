//! An operator who changes the members of the cluster: one change after the other, each asked for until it is
//! known what came of it. Asking again is safe, so that is what it does when it hears nothing.
//!
//! It does nothing that the replicas cannot know to be foolish: it never counts on a node that is lost for ever.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::LogIndex;
use holdfast_replica::{Configuration, GroupId, Member, Membership, MembershipChange, NodeId};

use crate::fault::{FaultKind, Undo, between};
use crate::history::RealTime;
use crate::message::ChangeAnswer;
use crate::message::Endpoint;
use crate::network::{Cut, NODES_MAX};
use crate::node::{Incoming, member};
use crate::world::{Due, World, index_of};

/// More nodes cost time and show nothing new.
const MEMBERS_MAX: usize = 7;
const VOTERS_MIN: usize = 2;
/// The attempt that is planned when the first one is answered.
const FIRST_ANSWERED: u64 = 2;
/// How often a change of voters meets a split.
const SPLIT_PERCENT: u64 = 25;
/// After this it asks again, wherever the leader is by then.
const PATIENCE_US: (u64, u64) = (3_000_000, 6_000_000);

#[derive(Debug)]
pub(crate) struct Operator {
    /// The newest that any node has applied.
    pub(crate) members: Membership,
    task: Option<Task>,
    changes: u64,
    /// What it was told is done: whether these are members.
    done: BTreeMap<NodeId, bool>,
    /// Whose places others were to take.
    given_up: BTreeSet<NodeId>,
    /// A group, the node that has just applied a change of its voters that no other had, and the new voters.
    news: Option<(GroupId, usize, BTreeSet<NodeId>)>,
}

/// What it wants.
#[derive(Debug)]
struct Task {
    number: u64,
    attempt: u64,
    change: MembershipChange,
}

impl Operator {
    pub(crate) fn new(initial_members: usize) -> Operator {
        let voters: BTreeSet<NodeId> = (1..=initial_members as u64).map(NodeId).collect();
        let known = voters.iter().map(|node| (*node, Member::default())).collect();
        let configuration = Configuration { voters, ..Configuration::default() };
        let highest = NodeId(initial_members as u64);
        let members =
            Membership { configuration, highest, members: known, ..Membership::default() };
        Operator::of(members)
    }

    /// Of a cluster with these members.
    pub(crate) fn of(members: Membership) -> Operator {
        let (done, given_up) = (BTreeMap::new(), BTreeSet::new());
        Operator { members, task: None, changes: 0, done, given_up, news: None }
    }

    /// A node that was added and is to become a voter.
    fn on_its_way(&self) -> Option<NodeId> {
        let learners = self.members.configuration.learners.iter().copied();
        let mut wanted = learners.filter(|node| {
            self.members.members.get(node).is_some_and(|member| !member.stays_learner)
        });
        wanted.next()
    }
}

impl World {
    /// Those that count: all members, and every other node that may still be heard.
    pub(crate) fn present(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        let counts =
            nodes.filter(|(_, node)| !node.ruined || self.operator.members.is_member(node.id));
        counts.map(|(index, _)| index).collect()
    }

    pub(crate) fn is_lost(&self, node: NodeId) -> bool {
        self.nodes.get(index_of(node)).is_none_or(|node| node.ruined)
    }

    /// Nothing about the members is under way, as far as the operator can know.
    pub(crate) fn members_are_settled(&self) -> bool {
        let operator = &self.operator;
        operator.task.is_none()
            && !operator.members.configuration.is_joint()
            && operator.on_its_way().is_none()
            && self.group_behind().is_none()
    }

    /// Why the membership is not what was asked for, now that nothing is wrong any more.
    pub(crate) fn unfinished_change(&self) -> Option<String> {
        let operator = &self.operator;
        if let Some(task) = &operator.task {
            return Some(format!("the operator still waits for {:?}", task.change));
        }
        if operator.members.configuration.is_joint() {
            return Some("a change of voters is half done".to_owned());
        }
        let waiting = operator.on_its_way().filter(|node| !self.is_lost(*node));
        if let Some(node) = waiting {
            return Some(format!("node {node} is not made a voter"));
        }
        let mut asked = operator.done.iter();
        let wrong = asked.find(|(node, is)| {
            operator.members.is_member(**node) != **is && !operator.given_up.contains(node)
        });
        if let Some((node, is)) = wrong {
            return Some(format!("that node {node} is a member was to be {is}, and is not"));
        }
        let voters = operator.members.members.iter();
        let mut beside = voters.filter(|(node, member)| {
            let votes = operator.members.configuration.voters.contains(node);
            votes && member.replaces.is_some_and(|old| operator.members.is_member(old))
        });
        let beside = beside.next().map(|(node, _)| node);
        let beside =
            beside.map(|node| format!("node {node} did not take the place it was to take"));
        beside.or_else(|| {
            let (group, node) = self.group_behind()?;
            Some(format!("group {group} has not made the last change of node {node}"))
        })
    }

    /// A node says who the members of a group are.
    pub(crate) fn note_members(
        &mut self,
        node: usize,
        group: GroupId,
        index: LogIndex,
        members: Membership,
    ) {
        let known = self.members_of(group).configuration.voters.clone();
        let new = members.configuration.voters.difference(&known).copied().collect();
        let has_new_voters = known != members.configuration.voters;
        if !self.judge_members(node, group, index, &members) {
            // It is no news any more.
            self.operator.news.take_if(|(of, ..)| *of == group);
            return;
        }
        self.operator.news = Some((group, node, new)).filter(|_| has_new_voters);
        self.trace
            .line(self.now, || format!("members of group {group}: {:?}", members.configuration));
        let nodes = self.members_of_any_group();
        for client in &mut self.clients {
            client.nodes.clone_from(&nodes);
        }
        if group == GroupId::FIRST {
            self.operator.members = members;
        }
        let split = FaultKind::SplitOverChange;
        let may_split = !self.settling && self.fault_kinds.contains(&split);
        if self.operator.news.is_some() && may_split && self.fault_rng.percent(SPLIT_PERCENT) {
            self.begin_fault(split);
        }
    }

    /// Cuts off those who know of a change of voters, and are a majority by it, from those who do not.
    pub(crate) fn around_news(&mut self) -> Option<Vec<Cut>> {
        let (group, knows, new) = self.operator.news.take()?;
        let voters = self.members_of(group).configuration.voters.len();
        let mut others: Vec<usize> =
            self.present().into_iter().filter(|node| *node != knows).collect();
        self.fault_rng.shuffle(&mut others);
        // Those who vote since then go with it, as far as they are needed.
        others.sort_by_key(|node| !new.contains(&self.nodes[*node].id));
        let ignorant = others.split_off((voters / 2).min(others.len()));
        let place = |nodes: Vec<usize>| nodes.into_iter().map(Endpoint::Node).collect::<Vec<_>>();
        others.push(knows);
        Some(between(&place(others), &place(ignorant)))
    }

    /// One more, to vote as soon as it can.
    pub(crate) fn add_voter(&mut self) {
        self.add_node(Member::default());
    }

    pub(crate) fn add_or_promote(&mut self) -> Option<Undo> {
        let members = &self.operator.members;
        let learner = members.configuration.learners.first().copied();
        if let Some(node) = learner.filter(|_| self.fault_rng.percent(60)) {
            // A leader refuses a learner that it does not hear. A late message may speak for one that is lost.
            let mut voters = self.operator.members.configuration.voters.clone();
            voters.insert(node);
            if !self.have_majority(voters.iter(), 0) {
                return None;
            }
            return self.begin_change(MembershipChange::Promote { node });
        }
        if members.members.len() >= MEMBERS_MAX {
            return None;
        }
        let stays_learner = self.fault_rng.percent(30);
        self.add_node(Member { stays_learner, ..Member::default() })
    }

    pub(crate) fn replace_node(&mut self) -> Option<Undo> {
        let voters: Vec<NodeId> =
            self.operator.members.configuration.voters.iter().copied().collect();
        let lost = voters.iter().copied().find(|voter| self.is_lost(*voter));
        let any = self.fault_rng.pick(&voters).copied();
        let replaces = if self.fault_rng.percent(70) { lost.or(any)? } else { any? };
        if !self.can_do_without(replaces, 1) {
            return None;
        }
        let begun = self.add_node(Member { replaces: Some(replaces), ..Member::default() })?;
        self.operator.given_up.insert(replaces);
        Some(begun)
    }

    pub(crate) fn remove_node(&mut self) -> Option<Undo> {
        let members: Vec<NodeId> = self.operator.members.members.keys().copied().collect();
        let stuck = self.operator.on_its_way().filter(|node| self.is_lost(*node));
        let lost = members.iter().copied().find(|node| self.is_lost(*node));
        let lost = lost.filter(|_| self.fault_rng.percent(50));
        // Until all groups have followed, no other node can be removed.
        let changed = self.group_behind().map(|(_, node)| node);
        let changed = changed.filter(|node| self.operator.members.is_member(*node));
        let changed = changed.filter(|_| self.fault_rng.percent(70));
        let node = stuck.or(changed).or(lost).or_else(|| self.fault_rng.pick(&members).copied())?;
        if !self.can_do_without(node, 0) {
            return None;
        }
        self.begin_change(MembershipChange::Remove { node })
    }

    /// Would enough voters be left, with so many new ones?
    fn can_do_without(&self, node: NodeId, new: usize) -> bool {
        let voters = &self.operator.members.configuration.voters;
        let left = || voters.iter().filter(|voter| **voter != node);
        let are_enough = left().count() + new >= VOTERS_MIN;
        !voters.contains(&node) || (are_enough && self.have_majority(left(), new))
    }

    /// Are more than half of these voters, and so many new ones, not lost?
    fn have_majority<'a>(&self, voters: impl Iterator<Item = &'a NodeId>, new: usize) -> bool {
        let (count, sound) = voters.fold((new, new), |(count, sound), voter| {
            (count + 1, sound + usize::from(!self.is_lost(*voter)))
        });
        sound > count / 2
    }

    fn add_node(&mut self, what: Member) -> Option<Undo> {
        if self.operator.task.is_some() || self.nodes.len() >= NODES_MAX {
            return None;
        }
        let index = self.add_empty_node();
        let node = self.nodes[index].id;
        // Its process may come up when others talk of it already.
        let after = self.fault_rng.between(0, 5_000_000);
        self.agenda.plan(RealTime(self.now.0 + after), Due::Restart(index));
        let member = Member { directory: None, ..member(node) };
        let Member { stays_learner, replaces, .. } = what;
        let member = Member { stays_learner, replaces, ..member };
        self.begin_change(MembershipChange::Add { node, member })
    }

    fn begin_change(&mut self, change: MembershipChange) -> Option<Undo> {
        if self.operator.task.is_some() {
            return None;
        }
        self.trace.line(self.now, || format!("operator: {change:?}"));
        self.operator.changes += 1;
        let number = self.operator.changes;
        self.operator.task = Some(Task { number, attempt: 0, change });
        self.ask_later(0);
        Some(Undo::Nothing)
    }

    fn ask_later(&mut self, after_us: u64) {
        if let Some(task) = &mut self.operator.task {
            task.attempt += 1;
            let due = Due::Ask { change: task.number, attempt: task.attempt };
            self.agenda.plan(RealTime(self.now.0 + after_us), due);
        }
    }

    /// Asks the leader, and again later.
    pub(crate) fn ask_for_change(&mut self, number: u64, attempt: u64) {
        let wanted = |task: &&Task| task.number == number && task.attempt == attempt;
        let Some(task) = self.operator.task.as_ref().filter(wanted) else { return };
        let change = task.change.clone();
        if let Some(leader) = self.leader(GroupId::FIRST) {
            let after = self.fault_rng.between(200, 50_000);
            self.schedule_input(
                leader,
                Incoming::Change { group: GroupId::FIRST, number, change },
                after,
            );
        }
        let patience = self.fault_rng.between(PATIENCE_US.0, PATIENCE_US.1);
        self.ask_later(patience);
    }

    /// A node answers.
    pub(crate) fn change_ended(&mut self, number: u64, answer: ChangeAnswer) {
        let Some(task) = self.operator.task.take_if(|task| task.number == number) else { return };
        self.trace.line(self.now, || format!("operator is told of {:?}: {answer:?}", task.change));
        match answer {
            None => {
                self.operator.task = Some(task);
                let pause = self.fault_rng.between(20_000, 500_000);
                self.ask_later(pause);
            }
            Some(Ok(())) => match task.change {
                MembershipChange::Add { node, .. } => drop(self.operator.done.insert(node, true)),
                MembershipChange::Promote { .. } => {}
                MembershipChange::Remove { node } => drop(self.operator.done.insert(node, false)),
            },
            // An earlier leader may have written it down and not said so: then it may yet come about.
            Some(Err(_)) if task.attempt > FIRST_ANSWERED => {
                if let MembershipChange::Remove { node } = task.change {
                    self.operator.done.remove(&node);
                }
            }
            // Nothing is in the log, and a node that was not taken in is not needed.
            Some(Err(_)) => {
                if let MembershipChange::Add { node, .. } = task.change {
                    self.nodes[index_of(node)].stop();
                    self.nodes[index_of(node)].ruined = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    /// Three voters and a learner that stays one.
    fn with_learner() -> World {
        let seed = (1..).find(|seed| World::new(*seed, Options::default()).nodes.len() == 3);
        let mut world = World::new(seed.unwrap_or(1), Options::default());
        let learner = world.add_empty_node();
        let node = world.nodes[learner].id;
        let mut members = world.operator.members.clone();
        members.configuration.learners.insert(node);
        members.members.insert(node, Member { stays_learner: true, ..Member::default() });
        world.operator = Operator::of(members);
        world
    }

    fn promotes(world: &mut World) -> bool {
        (0..20).any(|_| {
            world.operator.task = None;
            world.add_or_promote();
            let task = world.operator.task.take();
            task.is_some_and(|task| matches!(task.change, MembershipChange::Promote { .. }))
        })
    }

    #[test]
    fn a_lost_learner_is_made_a_voter_only_if_a_majority_is_left() {
        let mut world = with_learner();
        assert!(promotes(&mut world));
        world.nodes[3].ruined = true;
        assert!(promotes(&mut world), "three of four are left");
        world.nodes[0].ruined = true;
        assert!(!promotes(&mut world), "two of four would be left");
        world.nodes[3].ruined = false;
        assert!(promotes(&mut world), "three of four are left");
    }
}
