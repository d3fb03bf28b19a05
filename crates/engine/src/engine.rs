//! The engine, and the order of a turn:
//!
//! ```text
//! inputs -> time -> begin: propose, send what may go early, serve reads
//!        -> apply and answer what is committed (a leader) -> one list of answers per client stream
//!        -> one write and one sync for all groups
//!        -> acknowledge -> finish: apply (a follower; a leader what its own sync committed), serve reads, send
//! at the end of the turn: one list of answers per client stream
//! ```
//!
//! A pass is one way through these lines from `begin` on. A turn of the host's loop has one or more passes, each with
//! at most one write and one sync: the engine begins another pass as long as the last one found something to do in any
//! group, or a new policy. Then it returns `Step::Rest`.
//!
//! Batching needs no timer in general: while one sync is under way, the host's queue fills, and the next turn takes as
//! much of it as one turn may, as one proposal for each group. Exceptions: acquires that would only join a queue are
//! delayed by at most 1 ms (`replica/batching.rs`), and a frame with only a heartbeat waits for at most a tick
//! (`heartbeats.rs`).
//!
//! A turn touches only the groups that are ready (`groups.rs`). Each step above runs for all ready groups before the
//! next step begins. Write and sync are one for all groups.
//!
//! A full disk halts the turn in `Phase::Write`. Calls are refused, and the same turn is tried again until there is
//! room (`full_disk.rs`). `inputs.rs` handles the inputs, and `effects.rs` the effects of the replicas.

mod effects;
mod full_disk;
mod groups;
mod inputs;
mod members;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_core::{Event, LogIndex, LogicalTime};
use holdfast_replica::{Effect as ReplicaEffect, Fatal, GroupId, Member, NodeId, Replica, Turn};

use self::full_disk::{Halt, MissedInput};
use self::groups::{Group, Groups};
use crate::answer::Delivery;
use crate::boot_time::BootTime;
use crate::callers::{Outbound, ReadReply};
use crate::effect::{Effect, Step, StopCause, TierChange};
use crate::heartbeats::DeferredHeartbeats;
use crate::host::Host;
use crate::leader_lease::LeaderLease;
use crate::peer_registry::PeerRegistry;
use crate::planted::Bug;
use crate::query::Query;
use crate::streams::{CutOff, Streams};

/// The group whose leader serves the efficiency tier.
const ROOT: GroupId = GroupId::FIRST;

#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub node: NodeId,
    /// The same for all replicas.
    pub tick: Duration,
    pub election_timeout: Duration,
}

/// The host's clocks, read after the other inputs of the turn.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The clock that drives the replicas.
    pub monotonic: Duration,
    /// For the leader lease: it runs on while the machine sleeps (`CLOCK_BOOTTIME`).
    pub boot: BootTime,
    /// Whether sessions use the efficiency tier of this node. While none does, the leader lease is not renewed (how
    /// long this node can be sure that it leads: `leader_lease.rs`).
    pub is_tier_in_use: bool,
}

#[derive(Debug)]
pub struct Engine<H: Host> {
    config: EngineConfig,
    groups: Groups<H>,
    out: Outbound<H>,
    peers: PeerRegistry,
    heartbeats: DeferredHeartbeats,
    tier: Tier,
    turn: TurnState,
    /// The generation of the root group's policy on this node, which the other groups adopt.
    policy_generation: u64,
    /// Set while the disk is full.
    halt: Option<Halt>,
    /// Inputs that came while the disk was full and that the host does not repeat.
    missed_inputs: Vec<MissedInput>,
    /// The deadline of a requested stop: from then on the node stops even if it has not transferred leadership.
    stop_by: Option<Duration>,
    now: Now,
}

/// The leader lease and the term, as last reported to the efficiency tier.
#[derive(Debug)]
struct Tier {
    lease: LeaderLease,
    /// The term last reported to the tier, as long as this node leads in it.
    term: Option<u64>,
}

/// The progress of the present pass (not of the turn). Its buffers are kept for their capacity.
#[derive(Debug, Default)]
struct TurnState {
    phase: Phase,
    /// What each replica returned from `begin_turn` in this pass, by group: it must become durable.
    turns: Vec<(GroupId, Turn)>,
    /// When the host was first asked to write it.
    write_began: Option<Duration>,
    /// Messages collected until the next `send_outgoing`, one batch per peer.
    outgoing: BTreeMap<NodeId, Vec<(GroupId, Vec<u8>)>>,
    effects: Vec<ReplicaEffect>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Begin,
    Answer,
    Write,
    Acknowledge,
    Finish,
}

type ApplyStep = fn(&mut Replica, &mut Vec<ReplicaEffect>) -> Result<(), Fatal>;

impl<H: Host> Engine<H> {
    /// `replicas` have loaded their state from disk. `known`: nodes and addresses from the configuration file, not the
    /// members.
    pub fn new(
        config: EngineConfig,
        replicas: impl IntoIterator<Item = (GroupId, Replica)>,
        known: impl IntoIterator<Item = (NodeId, Member)>,
        host: H,
    ) -> Engine<H> {
        let mut peers = PeerRegistry::default();
        for (node, member) in known {
            peers.configure(node, member);
        }
        let mut groups = Groups::new(replicas);
        for group in groups.inputs() {
            group.is_removed = group.replica.membership().was_removed(config.node);
        }
        groups.follow_root_members();
        Engine {
            groups,
            out: Outbound { host, streams: Streams::default(), effects: Vec::new() },
            peers,
            heartbeats: DeferredHeartbeats::default(),
            tier: Tier {
                lease: LeaderLease::new(config.tick, config.election_timeout),
                term: None,
            },
            turn: TurnState::default(),
            policy_generation: 0,
            halt: None,
            missed_inputs: Vec::new(),
            stop_by: None,
            now: Now {
                monotonic: Duration::ZERO,
                boot: BootTime::default(),
                is_tier_in_use: false,
            },
            config,
        }
    }

    /// Takes in the time. The host calls this once in a turn, after all other inputs.
    pub fn handle_time(&mut self, now: Now) {
        self.now = now;
        if self.heartbeats.is_due(now.monotonic) {
            self.carry_out_deferred();
        }
        let is_stopping = self.stop_by.is_some();
        let confirms_lease = |group: &Group<H>| group.id == ROOT && now.is_tier_in_use;
        self.groups.choose_ready(now.monotonic, |group| is_stopping || confirms_lease(group));
        for number in 0..self.groups.ready_count() {
            let Some(Group { id, replica, .. }) = self.groups.ready(number) else { continue };
            replica.handle_time(now.monotonic);
            if is_stopping {
                replica.transfer_leadership();
            }
            if *id == ROOT {
                self.renew_leader_lease();
            }
        }
    }

    /// The root group alone confirms the lease of the efficiency tier.
    fn renew_leader_lease(&mut self) {
        let Some(Group { replica, callers, .. }) = self.groups.get_mut(ROOT) else { return };
        if replica.is_handing_over() {
            self.tier.lease.invalidate(self.now.boot);
            self.out.effects.push(Effect::Tier(TierChange::Invalidate));
        }
        let is_wanted = self.now.is_tier_in_use && replica.leadership().is_here;
        if is_wanted && self.tier.lease.take_due(self.now.boot) {
            // A linearizable read proves that this node still leads.
            let query = Query::Confirm { asked: self.now.boot };
            replica.handle_read(callers.read(query, ReadReply::Lease));
        }
    }

    /// Advances the turn until the host has something to do.
    pub fn advance(&mut self, now: Duration) -> Result<Step, Fatal> {
        self.now.monotonic = now;
        loop {
            let step = self.next_step(now)?;
            if step != Step::GoOn || !self.out.effects.is_empty() {
                return Ok(step);
            }
        }
    }

    fn next_step(&mut self, now: Duration) -> Result<Step, Fatal> {
        match self.turn.phase {
            Phase::Begin => {
                self.begin_turns();
                self.turn.phase = Phase::Answer;
            }
            // Answers go out before the disk write, so clients do not wait for it.
            Phase::Answer => {
                self.apply(Replica::answer_committed)?;
                if Bug::AnswerBeforeSync.is_active() {
                    self.acknowledge();
                }
                self.out.deliver_lists();
                self.turn.write_began = None;
                let is_empty = self.turn.turns.is_empty();
                self.turn.phase = if is_empty { Phase::Acknowledge } else { Phase::Write };
            }
            Phase::Write if self.halt.is_some() && self.stop_by.is_some() => {
                return Ok(Step::Stop(StopCause::Requested));
            }
            Phase::Write => {
                self.turn.write_began.get_or_insert(now);
                return Ok(Step::Write);
            }
            // Peers wait for these acknowledgements, so they go first.
            Phase::Acknowledge => {
                self.acknowledge();
                self.turn.phase = Phase::Finish;
            }
            Phase::Finish => {
                self.apply(Replica::finish_turn)?;
                self.publish();
                self.send_outgoing();
                self.turn.phase = Phase::Begin;
                let has_new_policy = self.notice_policy();
                if self.turn.turns.is_empty() && !has_new_policy {
                    return Ok(self.end_turn());
                }
                self.turn.turns.clear();
            }
        }
        Ok(Step::GoOn)
    }

    fn begin_turns(&mut self) {
        self.groups.add_late();
        self.offer_policy();
        let mut reads = Vec::new();
        for number in 0..self.groups.ready_count() {
            let Some(Group { id, replica, .. }) = self.groups.ready(number) else { continue };
            if let Some(mut turn) = replica.begin_turn() {
                for message in std::mem::take(&mut turn.messages) {
                    effects::add_to_batch(&mut self.turn.outgoing, &mut self.out, *id, message);
                }
                reads.extend(turn.reads.drain(..).map(|ticket| (*id, ticket)));
                self.turn.turns.push((*id, turn));
            }
        }
        self.send_outgoing();
        for (group, ticket) in reads {
            self.serve_read(group, ticket);
        }
    }

    fn acknowledge(&mut self) {
        for number in 0..self.groups.ready_count() {
            let Some(Group { id, replica, .. }) = self.groups.ready(number) else { continue };
            for message in replica.acknowledge() {
                effects::add_to_batch(&mut self.turn.outgoing, &mut self.out, *id, message);
            }
        }
        self.send_outgoing();
    }

    fn apply(&mut self, step: ApplyStep) -> Result<(), Fatal> {
        let mut effects = std::mem::take(&mut self.turn.effects);
        for number in 0..self.groups.ready_count() {
            let Some(Group { id, replica, .. }) = self.groups.ready(number) else { continue };
            let id = *id;
            step(replica, &mut effects)?;
            for effect in effects.drain(..) {
                self.carry_out(id, effect);
            }
        }
        self.turn.effects = effects;
        Ok(())
    }

    fn publish(&mut self) {
        for number in 0..self.groups.ready_count() {
            let Some(group) = self.groups.ready(number) else { continue };
            let publication = group.replica.table().publication();
            if !group.events.is_empty() || publication != group.publication {
                group.publication = publication;
                self.out.effects.push(Effect::Publish { group: group.id, publication });
            }
        }
    }

    fn send_outgoing(&mut self) {
        while let Some((to, messages)) = self.turn.outgoing.pop_first() {
            self.out.effects.push(Effect::Send { to, messages });
        }
    }

    /// The last pass of the turn had nothing to do. The turn's last answers are delivered here.
    fn end_turn(&mut self) -> Step {
        self.groups.end_turn(self.now.monotonic);
        self.replay_missed_inputs();
        let step = match (self.is_removed(), self.stop_by) {
            (true, _) => Step::Stop(StopCause::Removed),
            (false, Some(stop_by)) if self.now.monotonic >= stop_by || !self.leads_others() => {
                Step::Stop(StopCause::Requested)
            }
            _ => Step::Rest,
        };
        if step != Step::Rest {
            self.out.streams.end_all(|| Delivery::LeaderMoved { leader: None });
        }
        self.out.deliver_lists();
        step
    }

    /// Whether all groups have removed this node. As long as one has not, that group may need its vote.
    fn is_removed(&self) -> bool {
        if Bug::StopsWhenOneGroupRemovedIt.is_active() {
            return self.groups.iter().any(|group| group.is_removed);
        }
        self.groups.iter().next().is_some() && self.groups.iter().all(|group| group.is_removed)
    }

    /// Whether this node leads a group with other voters. A node that was asked to stop first transfers that
    /// leadership.
    fn leads_others(&self) -> bool {
        self.groups.iter().any(|Group { replica, .. }| {
            let voters = &replica.membership().configuration.voters;
            replica.leadership().is_here && voters.len() > 1
        })
    }

    /// What must be durable before the next step.
    pub fn turns(&self) -> &[(GroupId, Turn)] {
        &self.turn.turns
    }

    /// Moves the effects since the last call, in order, into `buffer`, which must be empty.
    pub fn take_effects(&mut self, buffer: &mut Vec<Effect<H>>) {
        std::mem::swap(buffer, &mut self.out.effects);
    }

    /// Hands each stream its list. A stream whose client does not read is closed.
    pub fn deliver(
        &mut self,
        send: impl FnMut(&mut H::Stream, Vec<Delivery>) -> Result<(), CutOff>,
    ) {
        self.out.streams.deliver(send);
    }

    /// The group's events since the last time, for the host to take.
    pub fn events(&mut self, group: GroupId) -> Option<&mut Vec<(LogIndex, LogicalTime, Event)>> {
        self.groups.get_mut(group).map(|group| &mut group.events)
    }

    pub fn streams(&self) -> &Streams<H::Stream> {
        &self.out.streams
    }

    pub fn replicas(&self) -> impl Iterator<Item = (GroupId, &Replica)> {
        self.groups.iter().map(|group| (group.id, &group.replica))
    }

    pub fn replica(&self, group: GroupId) -> Option<&Replica> {
        self.groups.get(group).map(|group| &group.replica)
    }

    pub fn host(&mut self) -> &mut H {
        &mut self.out.host
    }

    /// How long the host may wait for input. Deferred heartbeats need no earlier wake-up: a leader wakes up at every
    /// tick.
    pub fn idle_for_at_most(&self) -> Duration {
        self.groups.idle_for_at_most(self.now.monotonic).unwrap_or(self.config.tick)
    }

    /// The disk is full, and the same turn is tried again.
    pub fn is_halted(&self) -> bool {
        self.halt.is_some()
    }

    /// Within a pass. The host must hand in no input now, except while the disk is full.
    pub fn is_in_turn(&self) -> bool {
        self.turn.phase != Phase::Begin
    }
}
