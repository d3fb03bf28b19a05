//! The end of a run: all faults are healed, and then everything that the service promises to do in the
//! end has to be done. Whatever waits, ends; the replicas agree; the cluster serves.

use holdfast_core::RulesVersion;
use holdfast_replica::GroupId;

use crate::check::refused_copies::is_granted_to_refused_copy;
use crate::history::RealTime;
use crate::node::Node;
use crate::world::World;

const SECOND_US: u64 = 1_000_000;
/// Clients go on as before for this long, so that it shows whether the cluster serves.
const SERVING_US: u64 = 30 * SECOND_US;
/// The longest wait is 30 s; elections and retries come on top.
const DRAINING_US: u64 = 90 * SECOND_US;
const AGREEING_US: u64 = 60 * SECOND_US;

impl World {
    pub(crate) fn settle(&mut self) {
        self.settling = true;
        self.trace.line(self.now, || "everything is healed".to_owned());
        for node in 0..self.nodes.len() {
            self.upgrade(node);
        }
        self.heal();
        let healed = self.now;
        self.run_until(RealTime(healed.0 + SERVING_US));
        self.check_that_it_serves(healed);
        for client in &mut self.clients {
            client.draining = true;
        }
        self.run_while(DRAINING_US, |world| !world.is_at_rest());
        self.check_that_nobody_waits();
        self.run_while(AGREEING_US, |world| {
            world.unfinished_change().is_some() || world.disagreement().is_some()
        });
        for what in self.unfinished_change().into_iter().chain(self.disagreement()) {
            self.recorder.violation("liveness", what);
        }
    }

    /// Runs the world while there is reason to, for at most so long.
    fn run_while(&mut self, at_most_us: u64, reason: impl Fn(&World) -> bool) {
        let end = self.now.0 + at_most_us;
        while self.now.0 < end && reason(self) {
            self.run_until(RealTime(self.now.0 + SECOND_US));
        }
    }

    fn check_that_it_serves(&mut self, healed: RealTime) {
        for group in self.groups() {
            let operations = &self.recorder.history(group).operations;
            let served = operations
                .iter()
                .rev()
                .take_while(|operation| operation.invoked > healed)
                .any(|operation| operation.returned.is_some());
            if !served {
                let what = format!("group {group} answers nothing although everything is healed");
                self.recorder.violation("liveness", what);
            }
        }
    }

    /// The nodes that are to agree.
    fn members(&self) -> impl Iterator<Item = &Node> {
        let members = &self.operator.members;
        self.nodes.iter().filter(|node| !node.ruined && members.is_member(node.id))
    }

    fn is_at_rest(&self) -> bool {
        self.clients.iter().all(|client| client.is_at_rest())
            && self.members().all(|node| self.waiters(node) == 0)
    }

    /// In the tables of all groups of a node.
    fn waiters(&self, node: &Node) -> usize {
        let replicas = self.groups().filter_map(|group| node.replica(group));
        replicas.map(|replica| replica.table().waiter_count()).sum()
    }

    fn check_that_nobody_waits(&mut self) {
        for (index, client) in self.clients.iter().enumerate() {
            if !client.is_at_rest() {
                let what = format!("client {index} still waits for {:?}", client.unanswered());
                self.recorder.violation("liveness", what);
            }
        }
        self.check_that_nothing_is_left_behind();
        let waiters: Vec<_> = self.members().map(|node| (node.id, self.waiters(node))).collect();
        for (node, waiters) in waiters.into_iter().filter(|(_, waiters)| *waiters > 0) {
            let what = format!("node {node} still has {waiters} waiters in its table");
            self.recorder.violation("liveness", what);
        }
    }

    /// What a client has given back, or never got, must not be held in its name: its heartbeats would keep it for ever.
    fn check_that_nothing_is_left_behind(&mut self) {
        let mut left = Vec::new();
        for (index, client) in self.clients.iter().enumerate().filter(|(_, it)| it.is_at_rest()) {
            let group = client.group;
            let leader = self.leader(group).and_then(|leader| self.nodes[leader].replica(group));
            let Some(table) = leader.map(|replica| replica.table()) else { continue };
            let Some(session) = client.session() else { continue };
            let summary = table.session(session).filter(|summary| summary.hold_count > 0);
            let history = self.recorder.history(group);
            if let Some(summary) = summary
                && !(client.is_unary() && is_granted_to_refused_copy(history, session))
            {
                left.push(format!("client {index} holds nothing, and its session {summary:?}"));
            }
        }
        left.into_iter().for_each(|what| self.recorder.violation("leftover", what));
    }

    /// No member is ruined. So each can still tell the leader which formats of log entries it reads.
    fn all_members_live(&self) -> bool {
        self.members().count() == self.operator.members.members.len()
    }

    /// In what the replicas of members differ.
    fn disagreement(&self) -> Option<String> {
        let disagreement = self.groups().find_map(|group| {
            self.disagreement_in(group).map(|what| format!("group {group}: {what}"))
        });
        disagreement.or_else(|| self.policy_not_adopted())
    }

    /// A group that follows another policy than the root group.
    fn policy_not_adopted(&self) -> Option<String> {
        self.members().find_map(|node| {
            let root = node.replica(GroupId::FIRST)?.table();
            let newest = RulesVersion::ADOPTED;
            let differs = self.groups().find(|group| {
                node.replica(*group).is_some_and(|replica| {
                    let rules = replica.table().rules().min(root.rules());
                    rules == newest && replica.table().access() != root.access()
                })
            })?;
            Some(format!("group {differs} has not adopted the policy at node {}", node.id))
        })
    }

    fn disagreement_in(&self, group: GroupId) -> Option<String> {
        let mut first = None;
        let mut members = (group == GroupId::FIRST).then_some(&self.operator.members);
        for node in self.members() {
            let Some(replica) = node.replica(group) else {
                return Some(format!("node {} is down although nothing is wrong", node.id));
            };
            if replica.membership() != *members.get_or_insert(replica.membership()) {
                return Some(format!("node {} has other members", node.id));
            }
            if replica.table().rules() < RulesVersion::ADOPTED && self.all_members_live() {
                return Some(format!(
                    "node {} follows rules {} although every member reads newer ones",
                    node.id,
                    replica.table().rules()
                ));
            }
            let here = (replica.applied_index(), replica.table().digest().0);
            let (there, expected) = *first.get_or_insert((node.id, here));
            if here != expected {
                let what = format!(
                    "node {there} is at {expected:x?} (index, digest), node {} at {here:x?}",
                    node.id
                );
                return Some(what);
            }
        }
        None
    }
}
