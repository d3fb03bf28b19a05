//! How each fault is done and undone.

use holdfast_replica::{GroupId, NodeId};

use super::{Due, World, index_of};
use crate::fault::{ActiveFault, FaultKind, QuorumLoss, Undo, partition};
use crate::history::{RealTime, SlowSpan};
use crate::network::{Cut, Quality};
use crate::node::{CrashPoint, Incoming};

const SECOND_US: u64 = 1_000_000;
/// Before one node in a while is lost to a flipped bit, so many are tried on copies of its disk.
const CORRUPTIONS_TRIED: usize = 6;
/// So long that other groups have served in the second half of it, if they can.
const QUORUM_LOSS_MIN_US: u64 = 40 * SECOND_US;

impl World {
    /// Something goes wrong; and the next thing is planned.
    pub(crate) fn strike(&mut self) {
        if let Some(kind) = self.fault_rng.pick(&self.fault_kinds).copied() {
            self.begin_fault(kind);
        }
        let pause = SECOND_US + self.fault_rng.around(self.plan.fault_pace_us);
        self.agenda.plan(RealTime(self.now.0 + pause), Due::Fault);
    }

    pub(crate) fn begin_fault(&mut self, kind: FaultKind) {
        let number = self.faults_begun + 1;
        let Some(undo) = self.do_fault(kind, number) else { return };
        self.faults_begun = number;
        *self.faults.entry(kind).or_default() += 1;
        self.trace.number(kind as u64);
        self.trace.line(self.now, || format!("fault {number} {}: {undo:?}", kind.name()));
        let mut length = self.fault_rng.between(SECOND_US, self.plan.fault_length_us);
        if matches!(kind, FaultKind::WipedDisk | FaultKind::Corruption) {
            // Nothing mends these; an operator has to replace the node.
            length += 60 * SECOND_US;
        }
        if kind == FaultKind::GroupQuorumLoss {
            length += QUORUM_LOSS_MIN_US;
        }
        if let Undo::StopFlapping { .. }
        | Undo::StopCrashing(_)
        | Undo::StopTransfers
        | Undo::StopRumours = undo
        {
            self.agenda.plan(RealTime(self.now.0 + SECOND_US), Due::Repeat(number));
        }
        self.active.push(ActiveFault { number, kind, undo });
        self.agenda.plan(RealTime(self.now.0 + length), Due::FaultOver(number));
    }

    /// None if it cannot be done now.
    fn do_fault(&mut self, kind: FaultKind, number: u64) -> Option<Undo> {
        let nodes = &self.present()[..];
        let node = self.any_node();
        let client = self.fault_rng.index(self.clients.len());
        let rng = &mut self.fault_rng;
        Some(match kind {
            FaultKind::IsolatedNode => self.cut(partition::isolated(node, nodes)),
            FaultKind::Minority => {
                let cuts = partition::minority(node, false, nodes, rng);
                self.cut(cuts)
            }
            FaultKind::Majority => {
                let cuts = partition::minority(node, true, nodes, rng);
                self.cut(cuts)
            }
            FaultKind::SplitClients => {
                let clients = self.clients.len();
                let leader = self.any_leader().unwrap_or(node);
                let cuts = partition::with_clients(leader, nodes, clients, &mut self.fault_rng);
                self.cut(cuts)
            }
            FaultKind::Ring => {
                let cuts = partition::ring(nodes, rng);
                self.cut(cuts)
            }
            FaultKind::Bridge => {
                let cuts = partition::bridge(nodes, rng);
                self.cut(cuts)
            }
            FaultKind::OneWay => {
                let hears = rng.percent(50);
                self.cut(partition::one_way(node, nodes, hears))
            }
            FaultKind::Flapping => {
                let cuts = partition::isolated(node, nodes);
                self.network.cut(&cuts);
                Undo::StopFlapping { cuts, is_cut: true }
            }
            FaultKind::ClientsCutOff => {
                let cuts = partition::clients(nodes, self.clients.len(), rng);
                self.cut(cuts)
            }
            FaultKind::Loss | FaultKind::Delay | FaultKind::Duplication => {
                self.worsen_network(kind, number);
                Undo::ImproveNetwork
            }
            FaultKind::Crash => {
                self.crash(node)?;
                Undo::Restart(vec![node])
            }
            FaultKind::PowerCut => {
                let is_up = |node: &usize| self.nodes[*node].is_up();
                let up: Vec<usize> = (0..self.nodes.len()).filter(is_up).collect();
                for node in &up {
                    self.crash(*node)?;
                    // They come back one by one, while the fault still counts as going on.
                    let after = self.fault_rng.between(100_000, 4 * SECOND_US);
                    self.agenda.plan(RealTime(self.now.0 + after), Due::Restart(*node));
                }
                Undo::Restart(up)
            }
            FaultKind::TornWrite => self.crash_at(node, CrashPoint::Turn)?,
            FaultKind::TornSnapshot => self.crash_at(node, CrashPoint::Snapshot)?,
            FaultKind::SyncError => {
                let successes = rng.below(4);
                self.up(node)?.fail_sync_after(successes);
                Undo::Restart(vec![node])
            }
            FaultKind::DiskFull => {
                self.up(node)?.fill_disk(true);
                Undo::MakeRoom(node)
            }
            FaultKind::SlowDisk => {
                let slowest = [300_000, 2 * SECOND_US, 10 * SECOND_US][rng.index(3)];
                self.nodes[node].slow_disk_us = Some((10_000, slowest));
                Undo::HealDisk(node)
            }
            FaultKind::CrashLoop => {
                // Votes that are long under way may find another process than they were meant for.
                if rng.percent(50) {
                    self.worsen_network(FaultKind::Delay, number);
                }
                self.crash_for_a_moment(node);
                Undo::StopCrashing(node)
            }
            FaultKind::WipedDisk => self.wipe(node)?,
            FaultKind::Corruption => self.corrupt(node)?,
            FaultKind::PausedNode => {
                let with_clock = rng.percent(40);
                self.up(node)?.pause();
                if with_clock {
                    self.nodes[node].clock.stop(self.now);
                }
                Undo::ResumeNode { node, with_clock }
            }
            FaultKind::PausedClient if self.plan.falls_silent => {
                self.clients.iter_mut().for_each(|client| client.paused += 1);
                Undo::EndSilence
            }
            FaultKind::PausedClient => {
                let with_clock = rng.percent(40);
                for client in self.program_of(client) {
                    self.clients[client].paused += 1;
                    if with_clock {
                        self.clients[client].stop_clock(self.now);
                    }
                }
                Undo::ResumeClient { client, with_clock }
            }
            FaultKind::DeadClient => {
                if self.clients[client].dead {
                    return None;
                }
                for client in self.program_of(client) {
                    self.clients[client].die();
                }
                Undo::ReplaceClient(client)
            }
            FaultKind::LeaderTransfer => {
                self.transfer_leadership()?;
                if self.fault_rng.percent(50) { Undo::Nothing } else { Undo::StopTransfers }
            }
            FaultKind::CrashReport => self.report_leader_crash()?,
            FaultKind::AddedNode => self.add_or_promote()?,
            FaultKind::RemovedNode => self.remove_node()?,
            FaultKind::ReplacedNode => self.replace_node()?,
            FaultKind::SplitOverChange => {
                let cuts = self.around_news()?;
                self.cut(cuts)
            }
            FaultKind::Restore => self.announce_disaster()?,
            FaultKind::StoppedClock if rng.percent(30) => {
                for client in self.program_of(client) {
                    self.clients[client].stop_clock(self.now);
                }
                Undo::StartClientClock(client)
            }
            FaultKind::StoppedClock => {
                self.nodes[node].clock.stop(self.now);
                Undo::StartNodeClock(node)
            }
            FaultKind::LeapingClock => {
                // One that is longer than an election timeout costs a leader its leadership at once.
                let furthest = [3 * SECOND_US, 6 * SECOND_US, 3_600 * SECOND_US][rng.index(3)];
                let ahead_us = rng.between(SECOND_US, furthest);
                if rng.percent(30) {
                    for client in self.program_of(client) {
                        self.clients[client].leap_clock(ahead_us);
                    }
                } else {
                    let leap = (self.now, self.nodes[node].leap_clock(ahead_us));
                    let recorders = self.recorder.all();
                    recorders.for_each(|recorder| recorder.history.clocks.leaps.push(leap));
                }
                Undo::Nothing
            }
            // It began with the run, or it does not come.
            FaultKind::WildClock => return None,
            FaultKind::Revocation => self.revoke()?,
            FaultKind::SlotsTaken => self.take_slots()?,
            FaultKind::GroupQuorumLoss => self.lose_group_quorum(),
        })
    }

    /// The leader more often than chance would have it.
    fn any_node(&mut self) -> usize {
        let present = self.present();
        let any = present[self.fault_rng.index(present.len())];
        if self.fault_rng.percent(40) { self.any_leader().unwrap_or(any) } else { any }
    }

    /// The leader of some group.
    fn any_leader(&mut self) -> Option<usize> {
        let group = self.any_group();
        self.leader(group)
    }

    fn lose_group_quorum(&mut self) -> Undo {
        let group = self.any_group();
        self.network.cut_group(group);
        let is_alone = self.active.is_empty() && self.all_members_run();
        let began = self.now;
        Undo::MendGroup(QuorumLoss { group, began, is_alone })
    }

    /// A node whose disk failed, or is damaged, stays down although no fault is active.
    fn all_members_run(&self) -> bool {
        self.operator.members.members.keys().all(|member| {
            let node = self.nodes.get(index_of(*member));
            node.is_some_and(|node| node.replica(GroupId::FIRST).is_some())
        })
    }

    /// If nothing else was wrong meanwhile, the other groups have served.
    fn check_blast_radius(&mut self, number: u64, loss: QuorumLoss) {
        let QuorumLoss { group: lost, began, is_alone } = loss;
        let lasted_us = self.now.0 - began.0;
        let is_judged =
            is_alone && self.faults_begun == number && !self.settling && self.all_members_run();
        if !is_judged || lasted_us < QUORUM_LOSS_MIN_US {
            return;
        }
        let half = RealTime(began.0 + lasted_us / 2);
        for group in self.groups().filter(|group| *group != lost) {
            let operations = self.recorder.history(group).operations.iter().rev();
            let mut recent = operations.take_while(|operation| operation.invoked >= half);
            if !recent.any(|operation| operation.returned.is_some()) {
                let (from, to) = (half.0 / SECOND_US, self.now.0 / SECOND_US);
                let what = format!(
                    "group {lost} has no quorum, and group {group} serves no client from {from} s to {to} s"
                );
                self.recorder.violation("blast-radius", what);
            }
        }
    }

    /// To a named node, or to the best one.
    fn transfer_leadership(&mut self) -> Option<()> {
        let group = self.any_group();
        let leader = self.leader(group)?;
        let voters: Vec<NodeId> =
            self.operator.members.configuration.voters.iter().copied().collect();
        let to = self.fault_rng.pick(&voters).copied();
        let to = if self.fault_rng.percent(50) { to } else { None };
        self.schedule_input(leader, Incoming::TransferLeadership { group, to }, 0);
        Some(())
    }

    fn report_leader_crash(&mut self) -> Option<Undo> {
        let leader = self.any_leader()?;
        let undo = match self.fault_rng.below(4) {
            0 => {
                self.up(leader)?.stop();
                Undo::Restart(vec![leader])
            }
            // As by a proxy that ends connections and takes no new ones. Clients reach it all the same.
            1 => self.cut(partition::isolated(leader, &self.present())),
            2 => Undo::StopRumours,
            _ => Undo::Nothing,
        };
        self.send_crash_reports(leader);
        Some(undo)
    }

    /// Most of the others hear of it, sooner or later.
    fn send_crash_reports(&mut self, gone: usize) {
        let id = self.nodes[gone].id;
        for node in self.present() {
            if node != gone && self.fault_rng.percent(85) {
                let slowest_us = [1_000, 50_000, 2 * SECOND_US][self.fault_rng.index(3)];
                let after_us = self.fault_rng.below(slowest_us);
                self.schedule_input(node, Incoming::PeerCrashed(id), after_us);
            }
        }
    }

    fn up(&mut self, node: usize) -> Option<&mut crate::node::Node> {
        Some(&mut self.nodes[node]).filter(|node| node.is_up())
    }

    fn cut(&mut self, cuts: Vec<Cut>) -> Undo {
        self.network.cut(&cuts);
        Undo::Mend(cuts)
    }

    fn crash(&mut self, node: usize) -> Option<()> {
        self.up(node)?.crash();
        Some(())
    }

    fn crash_at(&mut self, node: usize, point: CrashPoint) -> Option<Undo> {
        self.up(node)?.crash_point = Some(point);
        Some(Undo::Restart(vec![node]))
    }

    /// A crash, or just the end of a process, and a new one right away.
    fn crash_for_a_moment(&mut self, node: usize) {
        let loses_power = self.fault_rng.percent(50);
        let Some(up) = self.up(node) else { return };
        if loses_power {
            up.crash()
        } else {
            up.stop()
        }
        let after = self.fault_rng.between(1_000, 300_000);
        self.agenda.plan(RealTime(self.now.0 + after), Due::Restart(node));
    }

    /// At most a minority is lost for ever, until others have taken their places. Not while the members change: the operator would
    /// have reckoned with this node.
    fn may_ruin(&mut self, node: usize, percent: u64) -> bool {
        let voters = &self.operator.members.configuration.voters;
        let lost = voters.iter().filter(|voter| self.is_lost(**voter)).count();
        let is_spare = !voters.contains(&self.nodes[node].id) || lost < (voters.len() - 1) / 2;
        is_spare && self.members_are_settled() && self.fault_rng.percent(percent)
    }

    /// The node comes back as another one or not at all. That its peers see to that is not simulated.
    fn wipe(&mut self, node: usize) -> Option<Undo> {
        if !self.may_ruin(node, 80) {
            return None;
        }
        self.up(node)?.wipe();
        self.nodes[node].ruined = true;
        #[cfg(feature = "planted")]
        if crate::planted::Bug::WipedNodeComesBack.is_active() {
            self.nodes[node].ruined = false;
            return Some(Undo::Restart(vec![node]));
        }
        Some(Undo::Nothing)
    }

    fn corrupt(&mut self, node: usize) -> Option<Undo> {
        for _ in 0..CORRUPTIONS_TRIED {
            if let Some(file) = self.up(node)?.overlooks_corruption() {
                let what = format!("the log of node {node} opens although a bit of {file} flipped");
                self.recorder.violation("disk", what);
            }
        }
        if !self.may_ruin(node, 60) {
            return None;
        }
        let file = self.up(node)?.corrupt()?;
        self.nodes[node].ruined = true;
        let refused = self.nodes[node].start(&mut Vec::new()).is_err();
        if !refused {
            let what = format!("node {node} started although a bit of {file} had flipped");
            self.recorder.violation("disk", what);
            self.nodes[node].stop();
        }
        Some(Undo::Nothing)
    }

    fn worsen_network(&mut self, kind: FaultKind, number: u64) {
        let quality = self.bad_quality(kind);
        self.network.worsen(number, quality);
        // What is lost is said again with the next heartbeat, and where half of everything is lost that takes
        // seconds: a node that no other hears does not lead.
        let delay_us = match kind {
            FaultKind::Delay => quality.delay_us.1,
            FaultKind::Loss => quality.loss_permille * SECOND_US / 500,
            _ => 0,
        };
        if delay_us > 0 {
            let from = self.now;
            // It ends with the fault, or with what is under way by then.
            let to = RealTime(from.0 + self.plan.fault_length_us + delay_us);
            let span = SlowSpan { from, to, delay_us: 4 * delay_us };
            self.recorder.all().for_each(|recorder| recorder.history.slow.push(span));
        }
    }

    fn bad_quality(&mut self, kind: FaultKind) -> Quality {
        let rng = &mut self.fault_rng;
        let mut quality = self.plan.quality;
        match kind {
            FaultKind::Loss => quality.loss_permille = rng.between(50, 500),
            FaultKind::Delay => quality.delay_us = (1_000, rng.between(200_000, 3 * SECOND_US)),
            _ => {
                quality.duplication_permille = rng.between(100, 600);
                quality.straggler_us = rng.between(SECOND_US, 30 * SECOND_US);
            }
        }
        quality
    }

    /// The fault is over.
    pub(crate) fn end_fault(&mut self, number: u64) {
        let Some(at) = self.active.iter().position(|fault| fault.number == number) else { return };
        let ActiveFault { kind, undo, .. } = self.active.remove(at);
        self.trace.line(self.now, || format!("fault {number} {} is over", kind.name()));
        match undo {
            Undo::GiveRightsBack(group) => self.give_rights_back(group),
            Undo::GiveSlotsBack(group) => self.give_slots_back(group),
            Undo::MendGroup(loss) => {
                self.network.mend_group(loss.group);
                self.check_blast_radius(number, loss);
            }
            Undo::Nothing | Undo::StopTransfers | Undo::StopRumours => {}
            Undo::StopCrashing(node) => {
                self.network.improve(number);
                self.restart(node);
            }
            Undo::Mend(cuts) | Undo::StopFlapping { cuts, is_cut: true } => {
                self.network.mend(&cuts);
            }
            Undo::StopFlapping { is_cut: false, .. } => {}
            Undo::ImproveNetwork => self.network.improve(number),
            Undo::Restart(nodes) => {
                for node in nodes {
                    self.nodes[node].crash_point = None;
                    self.restart(node);
                }
            }
            Undo::MakeRoom(node) => {
                self.nodes[node].fill_disk(false);
                self.restart(node);
            }
            Undo::HealDisk(node) => self.nodes[node].slow_disk_us = None,
            Undo::ResumeNode { node, with_clock } => {
                if with_clock {
                    self.start_clock(node);
                }
                self.nodes[node].resume();
                self.wake(node, self.now);
            }
            Undo::StartNodeClock(node) => self.start_clock(node),
            Undo::StartClientClock(client) => {
                for client in self.program_of(client) {
                    self.clients[client].start_clock(self.now);
                }
            }
            Undo::ResumeClient { client, with_clock } => {
                for client in self.program_of(client) {
                    if with_clock {
                        self.clients[client].start_clock(self.now);
                    }
                    self.let_go_on(client);
                }
            }
            Undo::EndSilence => (0..self.clients.len()).for_each(|client| self.let_go_on(client)),
            Undo::ReplaceClient(client) => {
                for client in self.program_of(client) {
                    self.clients[client].dead = false;
                    self.agenda.plan(self.now, Due::Think(client));
                }
            }
        }
    }

    fn let_go_on(&mut self, client: usize) {
        self.clients[client].paused = self.clients[client].paused.saturating_sub(1);
        self.catch_up(client);
    }

    fn start_clock(&mut self, node: usize) {
        if let Some(since) = self.nodes[node].clock.go_on(self.now) {
            let stop = (since, self.now);
            self.recorder.all().for_each(|recorder| recorder.history.clocks.stops.push(stop));
        }
    }

    /// A fault that goes on by doing something again and again.
    pub(crate) fn repeat(&mut self, number: u64) {
        let Some(fault) = self.active.iter_mut().find(|fault| fault.number == number) else {
            return;
        };
        let pause_us = match &mut fault.undo {
            Undo::StopFlapping { cuts, is_cut } => {
                *is_cut = !*is_cut;
                if *is_cut {
                    self.network.cut(cuts)
                } else {
                    self.network.mend(cuts)
                }
                self.fault_rng.between(100_000, 4 * SECOND_US)
            }
            Undo::StopCrashing(node) => {
                let node = *node;
                self.crash_for_a_moment(node);
                self.fault_rng.between(50_000, 2 * SECOND_US)
            }
            Undo::StopTransfers => {
                self.transfer_leadership();
                self.fault_rng.between(200_000, 2 * SECOND_US)
            }
            Undo::StopRumours => {
                if let Some(leader) = self.any_leader() {
                    self.send_crash_reports(leader);
                }
                self.fault_rng.between(200_000, 4 * SECOND_US)
            }
            _ => return,
        };
        self.agenda.plan(RealTime(self.now.0 + pause_us), Due::Repeat(number));
    }

    /// Ends all that goes on, and starts every node that can start.
    pub(crate) fn heal(&mut self) {
        let numbers: Vec<u64> = self.active.iter().map(|fault| fault.number).collect();
        for number in numbers {
            self.end_fault(number);
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].crash_point = None;
            self.nodes[node].forgive_disk();
            self.restart(node);
        }
    }
}
