//! The driver: ONE loop on one thread that owns the replicas, the log and everybody who waits for an
//! answer. It is the one place where order matters:
//!
//! ```text
//! take input -> tell the time -> begin turns -> send what may go early, read and answer what is committed
//!            -> one write and one sync for all groups
//!            -> acknowledge -> finish turns -> send, answer, read -> one list per stream
//! ```
//!
//! Batching is natural, not timed: while one sync is under way the inbox fills, and the next turn
//! takes all of it as one proposal.
//!
//! A full disk halts the loop between the two halves of a turn: nothing more is promised, callers are
//! told, and the same turn is tried again until there is room. A disk that fails ends the loop, and
//! with it the node.

mod abandoned;
mod bell;
mod callers;
mod carry_out;
mod ears;
mod full_disk;
mod heartbeats;
mod inbox;
mod log;
mod longest_queue;
mod measure;
mod members;
mod outbox;
mod queue;
mod start;
mod streams;
mod sureness;
mod take_in;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_core::{Event, LogIndex, LogicalTime, Publication};
use holdfast_replica::{Effect, Fatal, GroupId, Leadership, NodeId, Replica, Turn};
use thiserror::Error;
use tokio::sync::watch;

pub(crate) use self::abandoned::{CallRef, LiveCall};
pub(crate) use self::bell::{ROOM, SocketNews};
use self::callers::Callers;
pub(crate) use self::callers::ReplyTo;
use self::ears::Ears;
pub(crate) use self::ears::{AfterHearing, Ear, Heard};
pub(crate) use self::heartbeats::MayWait;
pub(crate) use self::inbox::{
    Answer, ChangeAnswer, Delivery, FIRST_GROUP, GroupView, Input, OwnTable, Query, ReadAnswer,
    ReadData, SHOWN_ON_STREAM_MAX, StreamKey, Touched, Unavailable, WholeState,
};
use self::log::{Log, LogError};
pub(crate) use self::log::{to_durable, to_wal_snapshot};
use self::longest_queue::LongestQueue;
use self::measure::{SkippedSearches, SnapshotTimes};
use self::members::Introductions;
pub(crate) use self::outbox::{CutOff, Outbox};
pub(crate) use self::queue::{DriverHandle, Inbox, inbox};
pub use self::start::DriverError;
pub(crate) use self::start::{Channels, replica_config, start};
pub(crate) use self::streams::Streams;
use self::sureness::Sureness;
use self::take_in::Digests;
use crate::boot_clock::BootTime;
use crate::events::EventRing;
use crate::membership::Membership;
use crate::memory_tier::MemoryTier;
use crate::metrics::Metrics;
use crate::peers::{PeerLinks, WiresIn};
use crate::pulse::Pulse;
use crate::traces::Traces;

/// Why the driver ended.
#[derive(Debug, Error)]
pub enum StopReason {
    #[error("it was told to")]
    Told,
    #[error("the disk failed: {0}")]
    Disk(String),
    #[error("{0}")]
    Broken(#[from] Fatal),
    #[error(
        "it was removed from the cluster: an id is used once, so it does not come back under this one; \
         `holdfast cluster add` brings in a new node, with an empty data directory"
    )]
    Removed,
    #[error("of a bug: the driver panicked")]
    Panicked,
}

struct Driver {
    inbox: Inbox,
    replicas: BTreeMap<GroupId, Replica>,
    log: Log,
    links: PeerLinks,
    wires: WiresIn,
    callers: Callers,
    streams: Streams,
    ears: Ears,
    membership: Arc<Membership>,
    introductions: Introductions,
    /// This node is no member any more.
    removed: bool,
    leadership: watch::Sender<Leadership>,
    /// This node leads, and so counts what happens.
    leads: bool,
    events: Arc<EventRing>,
    memory: Arc<MemoryTier>,
    sureness: Sureness,
    pulse: Arc<Pulse>,
    metrics: Arc<Metrics>,
    /// None: nobody wants spans.
    traces: Option<Arc<Traces>>,
    levels_due: Duration,
    longest_queue: LongestQueue,
    skipped_searches: SkippedSearches,
    /// Somebody wants to know who the sessions of a snapshot belong to.
    tells_owners: bool,
    snapshot_times: SnapshotTimes,
    /// What the present turn has done.
    happened: Vec<(LogIndex, LogicalTime, Event)>,
    /// Messages of this half turn, one batch per peer.
    outgoing: BTreeMap<NodeId, Vec<(GroupId, Vec<u8>)>>,
    /// What the log had counted when events were last recorded.
    publication: Option<Publication>,
    effects: Vec<Effect>,
    /// When heartbeats that came alone wait no longer.
    heartbeats_due: Duration,
    /// Inputs that came while the disk was full and that will not come again.
    deferred: Vec<Input>,
    /// A snapshot came from the leader in this turn.
    installed: bool,
    digests: Digests,
    started: Instant,
    tick: Duration,
    election_timeout: Duration,
    stop_by: Option<Instant>,
}

impl Driver {
    fn run(mut self) -> StopReason {
        loop {
            self.pulse.beat();
            self.take_input();
            let now = self.started.elapsed();
            self.callers.measure_batch();
            for replica in self.replicas.values_mut() {
                replica.handle_time(now);
                if self.stop_by.is_some() {
                    replica.transfer_leadership();
                }
                if replica.is_handing_over() {
                    self.sureness.doubt(&self.memory, BootTime::now());
                }
            }
            self.keep_memory_tier_sure();
            if let Err(reason) = self.turn() {
                tracing::error!(%reason, "the node stops");
                return reason;
            }
            self.streams.flush();
            self.publish_levels(now);
            if self.removed {
                tracing::error!("this node was removed from the cluster, and stops");
                self.streams.end_all(|| Delivery::LeaderMoved { leader: None });
                return StopReason::Removed;
            }
            if self.may_stop() {
                self.streams.end_all(|| Delivery::LeaderMoved { leader: None });
                return StopReason::Told;
            }
        }
    }

    /// Waits for something to do, at most for as long as all replicas may rest, and takes in all there is.
    fn take_input(&mut self) {
        for input in std::mem::take(&mut self.deferred) {
            self.handle(input);
        }
        let next_turn = self.replicas.values().filter_map(Replica::next_turn_within).min();
        let has_more = self.wires.have_more() || self.ears.have_more();
        let rest = self.replicas.values().map(Replica::rests_for).min().unwrap_or(self.tick);
        let patience = if has_more { Duration::ZERO } else { rest };
        let patience = next_turn.unwrap_or(patience).min(patience);
        self.inbox.wait(patience);
        self.callers.set_time(self.started.elapsed());
        if self.inbox.is_closed() {
            self.stop_by = Some(Instant::now());
        }
        self.look_at_sockets();
        self.read_wires();
        let inputs = self.inbox.take_turn();
        let now = self.started.elapsed();
        let clients_speak = self.ears.have_more() || inputs.iter().any(Input::is_of_clients);
        if now >= self.heartbeats_due || clients_speak {
            self.heartbeats_due = now + self.tick;
            for heartbeat in self.inbox.take_held_back() {
                self.handle(heartbeat);
            }
        }
        for input in inputs {
            self.handle(input);
        }
        self.hear_clients();
    }

    /// A node that is told to stop does so once it leads nothing, or cannot get rid of it in time.
    fn may_stop(&self) -> bool {
        self.stop_by.is_some_and(|stop_by| {
            let leads = self.replicas.values().any(|replica| {
                let voters = &replica.membership().configuration.voters;
                replica.leadership().is_here && voters.len() > 1
            });
            !leads || Instant::now() >= stop_by
        })
    }

    /// Both halves, again and again until there is nothing left to do.
    fn turn(&mut self) -> Result<(), StopReason> {
        loop {
            let mut turns: Vec<(GroupId, Turn)> = Vec::new();
            let mut reads = Vec::new();
            for (group, replica) in &mut self.replicas {
                if let Some(mut turn) = replica.begin_turn() {
                    reads.extend(turn.reads.drain(..).map(|ticket| (*group, ticket)));
                    for message in std::mem::take(&mut turn.messages) {
                        let (times, links) = (&mut self.snapshot_times, &self.links);
                        carry_out::post(&mut self.outgoing, times, links, *group, message);
                    }
                    turns.push((*group, turn));
                }
            }
            self.send_outgoing();
            for (group, ticket) in reads {
                self.carry_out(group, Effect::Read { ticket });
            }
            self.answer_committed()?;
            self.persist(&turns)?;
            self.acknowledge();
            self.finish_turns()?;
            self.send_outgoing();
            if turns.is_empty() {
                return Ok(());
            }
        }
    }

    /// Everything that a turn promises is durable when this returns.
    fn persist(&mut self, turns: &[(GroupId, Turn)]) -> Result<(), StopReason> {
        for (group, turn) in turns {
            if let Some(snapshot) = &turn.snapshot {
                let begun = Instant::now();
                self.insist(|log| log.install(*group, snapshot))?;
                self.metrics.snapshots_installed.record_time(begun.elapsed());
                self.events.restart_after(snapshot.index);
                self.publication = None;
                self.installed = true;
                tracing::info!(%group, index = snapshot.index, "the leader's snapshot is installed");
            }
            self.log.buffer(*group, turn).map_err(disk_failed)?;
            let replica = self.replicas.get(group);
            self.measure_writing(turn, replica.is_some_and(|replica| replica.leadership().is_here));
        }
        if turns.iter().any(|(_, turn)| turn.needs_disk()) {
            let begun = Instant::now();
            self.insist(Log::commit)?;
            let took = begun.elapsed();
            self.metrics.sync_time.record_time(took);
            for (group, _) in turns.iter().filter(|(_, turn)| turn.needs_disk()) {
                if let Some(replica) = self.replicas.get_mut(group) {
                    replica.handle_write_time(took);
                }
            }
        } else {
            self.insist(Log::commit)?;
        }
        for group in self.log.groups_in_the_way() {
            if let Some(replica) = self.replicas.get_mut(&group) {
                replica.request_snapshot();
            }
        }
        Ok(())
    }

    /// Clients take their answers while the disk works.
    fn answer_committed(&mut self) -> Result<(), StopReason> {
        self.apply(Replica::answer_committed)?;
        self.streams.flush();
        Ok(())
    }

    /// Peers hear at once that what they wait for is durable.
    fn acknowledge(&mut self) {
        for (group, replica) in &mut self.replicas {
            for message in replica.acknowledge() {
                let (times, links) = (&mut self.snapshot_times, &self.links);
                carry_out::post(&mut self.outgoing, times, links, *group, message);
            }
        }
        self.send_outgoing();
    }

    fn apply(
        &mut self,
        step: fn(&mut Replica, &mut Vec<Effect>) -> Result<(), Fatal>,
    ) -> Result<(), StopReason> {
        for group in self.replicas.keys().copied().collect::<Vec<_>>() {
            let mut effects = std::mem::take(&mut self.effects);
            if let Some(replica) = self.replicas.get_mut(&group) {
                let (begun, before) = (self.started.elapsed(), replica.applied_index());
                step(replica, &mut effects)?;
                let ended = self.started.elapsed();
                if replica.applied_index() > before {
                    self.metrics.apply_time.record_time(ended.saturating_sub(begun));
                }
                self.callers.set_time(ended);
            }
            for effect in effects.drain(..) {
                self.carry_out(group, effect);
            }
            self.effects = effects;
        }
        Ok(())
    }

    fn finish_turns(&mut self) -> Result<(), StopReason> {
        let installed = std::mem::take(&mut self.installed);
        self.apply(Replica::finish_turn)?;
        if installed {
            self.tell_owners();
        }
        let first = self.replicas.get(&FIRST_GROUP);
        let publication = first.and_then(|replica| replica.table().publication());
        if !self.happened.is_empty() || publication != self.publication {
            self.metrics.events.add(self.happened.len() as u64);
            self.events.record(&mut self.happened, unix_ms(), publication);
            self.publication = publication;
        }
        Ok(())
    }

    fn tell_owners(&self) {
        if self.tells_owners {
            let tables = self.replicas.values().map(Replica::table);
            let sessions = tables.flat_map(|table| table.sessions(None, usize::MAX));
            let owners = sessions.map(|session| (session.public, session.owner));
            self.events.set_sessions(owners.collect());
        }
    }

    fn send_outgoing(&mut self) {
        while let Some((to, messages)) = self.outgoing.pop_first() {
            self.links.send(to, messages);
        }
    }
}

/// For people who look at events. Nothing is decided by it.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn disk_failed(error: LogError) -> StopReason {
    StopReason::Disk(error.to_string())
}
