//! The end of a run: all faults are healed, and then everything that the service promises to do in the
//! end has to be done. Whatever waits, ends; the replicas agree; the cluster serves.

use holdfast_core::RulesVersion;

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

    /// Goes on for at most so long, while there is reason to.
    fn run_while(&mut self, at_most_us: u64, reason: impl Fn(&World) -> bool) {
        let end = self.now.0 + at_most_us;
        while self.now.0 < end && reason(self) {
            self.run_until(RealTime(self.now.0 + SECOND_US));
        }
    }

    fn check_that_it_serves(&mut self, healed: RealTime) {
        let operations = &self.recorder.history.operations;
        let served = operations
            .iter()
            .rev()
            .take_while(|operation| operation.invoked > healed)
            .any(|operation| operation.returned.is_some());
        if !served {
            let what = "nothing is answered although everything is healed".to_owned();
            self.recorder.violation("liveness", what);
        }
    }

    /// The nodes that are to agree.
    fn members(&self) -> impl Iterator<Item = &Node> {
        let members = &self.operator.members;
        self.nodes.iter().filter(|node| !node.ruined && members.is_member(node.id))
    }

    fn is_at_rest(&self) -> bool {
        let waiting = self.members().filter_map(|node| node.replica());
        self.clients.iter().all(|client| client.is_at_rest())
            && waiting.map(|replica| replica.table().waiter_count()).all(|count| count == 0)
    }

    fn check_that_nobody_waits(&mut self) {
        for (index, client) in self.clients.iter().enumerate() {
            if !client.is_at_rest() {
                let what = format!("client {index} still waits for {:?}", client.unanswered());
                self.recorder.violation("liveness", what);
            }
        }
        self.check_that_nothing_is_left_behind();
        let waiters = |node: &Node| node.replica().map_or(0, |at| at.table().waiter_count());
        let waiters: Vec<_> = self.members().map(|node| (node.id, waiters(node))).collect();
        for (node, waiters) in waiters.into_iter().filter(|(_, waiters)| *waiters > 0) {
            let what = format!("node {node} still has {waiters} waiters in its table");
            self.recorder.violation("liveness", what);
        }
    }

    /// What a client has given back, or never got, must not be held in its name: its heartbeats would keep it for ever.
    fn check_that_nothing_is_left_behind(&mut self) {
        let leader = self.leader().and_then(|leader| self.nodes[leader].replica());
        let Some(table) = leader.map(|replica| replica.table()) else { return };
        let mut left = Vec::new();
        for (index, client) in self.clients.iter().enumerate().filter(|(_, it)| it.is_at_rest()) {
            let summary = client.session().and_then(|session| table.session(session));
            if let Some(summary) = summary.filter(|summary| summary.hold_count > 0) {
                left.push(format!("client {index} holds nothing, and its session {summary:?}"));
            }
        }
        left.into_iter().for_each(|what| self.recorder.violation("leftover", what));
    }

    /// Every member can be asked what it reads.
    fn all_members_live(&self) -> bool {
        self.members().count() == self.operator.members.members.len()
    }

    /// In what the replicas of members differ.
    fn disagreement(&self) -> Option<String> {
        let mut first = None;
        for node in self.members() {
            let Some(replica) = node.replica() else {
                return Some(format!("node {} is down although nothing is wrong", node.id));
            };
            if *replica.membership() != self.operator.members {
                return Some(format!("node {} has other members", node.id));
            }
            if replica.table().rules() < RulesVersion::NEWEST && self.all_members_live() {
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
