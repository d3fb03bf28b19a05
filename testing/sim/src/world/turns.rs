//! The nodes' loops: when they turn, and what comes of it.

use std::collections::BTreeSet;

use holdfast_replica::{GroupId, NodeId, Replica};

use super::{Due, World, index_of};
use crate::history::{Happening, RealTime};
use crate::message::{Endpoint, Message};
use crate::node::{self, Build, Incoming, StartFailure};
use crate::world::restore::Backup;

/// A turn takes this long; what arrives meanwhile is taken in by the next one.
const TURN_US: u64 = 10_000;

impl World {
    pub(crate) fn schedule_input(&mut self, node: usize, incoming: Incoming, after_us: u64) {
        let process = self.nodes[node].starts;
        self.agenda.plan(RealTime(self.now.0 + after_us), Due::Tell { node, process, incoming });
    }

    /// The node's loop turns at that time, or sooner if it was going to.
    pub(crate) fn wake(&mut self, node: usize, at: RealTime) {
        let ready = RealTime(self.turned[node].0 + TURN_US).max(self.nodes[node].busy_until);
        let at = at.max(ready);
        if self.wakes[node].is_none_or(|planned| planned > at) {
            self.wakes[node] = Some(at);
        }
    }

    pub(super) fn turn(&mut self, node: usize) {
        if !self.nodes[node].is_up() || self.nodes[node].is_paused() {
            return;
        }
        self.turned[node] = self.now;
        let mut outputs = std::mem::take(&mut self.node_outputs);
        self.nodes[node].turn(self.now, &mut outputs);
        for output in outputs.drain(..) {
            self.carry_out_for_node(node, output);
        }
        self.node_outputs = outputs;
        for group in self.groups() {
            self.note_followers(node, group);
        }
        self.check_tiers();
        let busy_until = self.nodes[node].busy_until;
        let next = if busy_until > self.now {
            busy_until
        } else if self.nodes[node].has_input() {
            // It came while the disk was at work.
            self.now
        } else {
            RealTime(self.now.0 + self.nodes[node].rest_us())
        };
        self.wake(node, next);
    }

    /// No two nodes grant locks of the efficiency tier at the same time, as long as clocks run as they are trusted to.
    fn check_tiers(&mut self) {
        let history = self.recorder.root_history();
        // A stop is written down when it is over.
        let stands_still = self.nodes.iter().any(|node| node.clock.stopped_since().is_some());
        let is_trusted =
            history.clocks.stops.is_empty() && history.clocks.leaps.is_empty() && !stands_still;
        if !self.plan.settings.uses_tier || history.rates_broken || !is_trusted {
            return;
        }
        let nodes = self.nodes.iter().skip(self.first_node);
        let granting: Vec<_> = nodes.filter(|node| node.tier_grants(self.now)).collect();
        if let [one, other, ..] = granting[..] {
            let at = self.now.0 / 1_000;
            let what = format!("at {at} ms nodes {} and {} would both grant", one.id, other.id);
            self.recorder.violation("best-effort", what);
        }
    }

    /// Of the members, as any node knows them.
    fn smallest_majority(&self, group: GroupId) -> usize {
        let replicas = self.nodes.iter().filter_map(|node| node.replica(group));
        let members = replicas.map(Replica::membership);
        members.map(|members| members.configuration.voters.len() / 2 + 1).min().unwrap_or(1)
    }

    /// Whether this node leads the group, and it and others, a majority, hear each other and could write, though there may be
    /// nothing to be written. In the other runs a client writes all the time.
    fn note_followers(&mut self, node: usize, group: GroupId) {
        let replica = self.nodes[node].replica(group);
        let Some(replica) = replica.filter(|_| self.plan.falls_silent) else {
            return;
        };
        let leadership = replica.leadership();
        let is_able = self.nodes[node].can_write()
            && !self.network.is_lossy()
            && !self.network.is_group_cut(group);
        if !leadership.is_here || !is_able || replica.is_handing_over() {
            return;
        }
        let is_followed_by = |voter: &&NodeId| {
            let other = index_of(**voter);
            let (here, there) = (Endpoint::Node(node), Endpoint::Node(other));
            let is_cut = self.network.is_cut(here, there) || self.network.is_cut(there, here);
            let follows = |theirs: &Replica| {
                let theirs = theirs.leadership();
                (theirs.leader, theirs.term) == (leadership.leader, leadership.term)
            };
            other == node
                || !is_cut
                    && self.nodes[other].can_write()
                    && self.nodes[other].replica(group).is_some_and(follows)
        };
        let members = &replica.membership().configuration;
        let is_majority = |voters: &BTreeSet<NodeId>| {
            voters.iter().filter(is_followed_by).count() * 2 > voters.len()
        };
        let joint = &members.outgoing;
        if is_majority(&members.voters) && (joint.is_empty() || is_majority(joint)) {
            let (now, id) = (self.now, self.nodes[node].id);
            self.recorder.of(group).followed(now, id, leadership.term);
        }
    }

    fn carry_out_for_node(&mut self, node: usize, output: node::Output) {
        let (from, id, now) = (Endpoint::Node(node), self.nodes[node].id, self.now);
        match output {
            node::Output::Send { group, outgoing } => {
                let (to, is_snapshot) = (place_of(outgoing.to), outgoing.is_snapshot);
                let bytes = outgoing.message;
                let log_version = self.nodes[node].build.log_version();
                let message = Message::Consensus { group, log_version, bytes, is_snapshot };
                self.send(from, to, message);
            }
            node::Output::Answer(answer) => {
                let to = match answer.reply_to.via {
                    Some(via) if via != node => Endpoint::Node(via),
                    _ => Endpoint::Client(answer.reply_to.client),
                };
                self.send(from, to, Message::Answer(answer));
            }
            node::Output::Forward { to, request } => {
                self.send(from, place_of(to), Message::Request(request));
            }
            node::Output::Notice { client, session, notice } => {
                let message = Message::Notice { session, notice };
                self.send(from, Endpoint::Client(client), message);
            }
            node::Output::SnapshotToSave { group, file } => {
                let after_us = self.rng.between(0, 500_000);
                self.schedule_input(node, Incoming::SnapshotDue { group, file }, after_us);
            }
            node::Output::Happened { group, index, at, event } => {
                self.trace.number(index.0 << 8 | node as u64);
                self.trace.line(now, || {
                    format!("node {id}, group {group} applies {} at {at}: {event:?}", index.0)
                });
                self.note_policy(group, &event);
                self.recorder.of(group).replicated(now, id, index, at, Happening::Event(event));
            }
            node::Output::Restored { group, index, at } => {
                self.trace.line(now, || {
                    format!("node {id}, group {group} has a table restored at {}", index.0)
                });
                self.recorder.of(group).replicated(now, id, index, at, Happening::Restored);
            }
            node::Output::Digest { group, index, at, digest } => {
                self.trace.number(digest);
                self.recorder.of(group).replicated(now, id, index, at, Happening::Digest(digest));
            }
            node::Output::Written { group, since } => {
                let took_ms = (now.0 - since.0) / 1_000;
                self.trace.line(now, || format!("node {id}, which leads, wrote for {took_ms} ms"));
                self.recorder.of(group).history.slow_writes.push((since, now));
            }
            node::Output::Committed { group, term } => {
                self.recorder.of(group).committed(now, id, term);
            }
            node::Output::FollowsRulesTwo { group, at } => {
                self.recorder.of(group).rules_two_followed(at);
            }
            node::Output::SearchesCut { group, entries } => {
                self.recorder.of(group).searches_cut(entries);
            }
            node::Output::Proposed { group, batch } => {
                self.recorder.of(group).proposed(now, &batch);
                if let Some(coverage) = &mut self.coverage {
                    coverage.proposed(&batch, &self.active);
                }
            }
            node::Output::Leadership { group, leadership } => {
                self.trace.line(now, || format!("node {id}, group {group}: {leadership:?}"));
            }
            node::Output::Members { group, index, members } => {
                self.note_members(node, group, index, *members);
            }
            node::Output::Backup { at, file } => {
                let (written_unix_ms, clusters_before) =
                    (self.wall_ms(), self.recorder.root().epochs.len());
                self.backup = Some(Backup { at, file, written_unix_ms, clusters_before });
            }
            node::Output::ChangeEnded { number, answer } => self.change_ended(number, answer),
            node::Output::FromRemoved { node: removed } => {
                self.check_that_it_was_removed(removed);
                self.schedule_input(index_of(removed), Incoming::Removed, 1_000);
            }
            node::Output::Removed => {
                self.check_that_it_was_removed(id);
                self.trace.line(now, || format!("node {id} was removed"));
                self.nodes[node].stop();
                self.nodes[node].ruined = true;
            }
            node::Output::Stopped { why } => {
                self.trace.line(now, || format!("node {id} stops: {why}"));
                self.power_off_or_not(node);
            }
            node::Output::Crashed => {
                self.trace.line(now, || format!("node {id} crashes while it writes"));
            }
            node::Output::Broken { checker, what } => {
                let what = format!("at {} s node {id}: {what}", now.0 / 1_000_000);
                self.trace.line(now, || what.clone());
                self.recorder.violation(checker, what);
            }
        }
    }

    /// A process that stopped because of its disk may take the machine with it.
    fn power_off_or_not(&mut self, node: usize) {
        if self.rng.percent(50) { self.nodes[node].crash() } else { self.nodes[node].stop() }
    }

    /// The new build is installed on a node, and its process starts again.
    pub(crate) fn upgrade(&mut self, node: usize) {
        if self.nodes[node].build == Build::New {
            return;
        }
        self.trace.line(self.now, || format!("node {} is upgraded", node + 1));
        self.nodes[node].build = Build::New;
        if self.nodes[node].is_up() {
            self.nodes[node].stop();
            let after_us = self.upgrade_rng.between(100_000, 3_000_000);
            self.agenda.plan(RealTime(self.now.0 + after_us), Due::Restart(node));
        }
    }

    /// Starts a node that is down, if it can start.
    pub(crate) fn restart(&mut self, node: usize) {
        if self.nodes[node].is_up() || self.nodes[node].ruined {
            return;
        }
        let mut outputs = std::mem::take(&mut self.node_outputs);
        for group in self.groups() {
            let majority = self.smallest_majority(group);
            self.recorder.of(group).process_began(majority);
        }
        let started = self.nodes[node].start(&mut outputs);
        for output in outputs.drain(..) {
            self.carry_out_for_node(node, output);
        }
        self.node_outputs = outputs;
        if let Err(StartFailure::Log(why) | StartFailure::Replica(why)) = started {
            let what = format!("at {} s node {node} cannot start: {why}", self.now.0 / 1_000_000);
            self.recorder.violation("recovery", what);
            self.nodes[node].ruined = true;
            return;
        }
        self.trace.line(self.now, || format!("node {} starts", node + 1));
        self.nodes[node].busy_until = self.now;
        self.wake(node, self.now);
    }
}

fn place_of(node: NodeId) -> Endpoint {
    Endpoint::Node(index_of(node))
}
