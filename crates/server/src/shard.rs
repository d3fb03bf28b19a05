//! A shard: ONE loop on one thread that runs an engine and does its I/O, except slow disk work: a second thread writes
//! snapshots and prepares log segments (`shard/log.rs`). The engine decides what is done and in which order
//! (`holdfast-engine`); the shard reads its inbox and its sockets, writes the log, sends, answers and measures.
//!
//! A disk that fails ends the loop, and with it the node.

mod digests;
mod effects;
mod framed;
mod inputs;
mod log;
mod longest_queue;
mod measure;
mod observer;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_core::Access;
use holdfast_engine::{Effect, Engine, LogError, Now, Obstacle, Step, StopCause};
use holdfast_proto::plain::FrameWriter;
use holdfast_replica::{Fatal, GroupId, NodeId, Replica};
use holdfast_service::PolicyInForce;
use thiserror::Error;

use self::digests::Digests;
use self::framed::FramedConnections;
use self::log::Log;
use self::measure::{Levels, SnapshotTimes};
use self::observer::Observer;
pub use self::start::ShardError;
pub(crate) use self::start::{Channels, replica_config, start};
use crate::boot_clock;
use crate::efficiency_tier::EfficiencyTier;
use crate::events::EventRings;
use crate::inbox::{Inbox, Leaderships, PolicyGenerations, Poller};
use crate::loop_watchdog::LoopWatchdog;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::peers::{PeerLinks, WiresIn};
use crate::traces::Traces;

/// Why the shard ended.
#[derive(Debug, Error)]
pub enum StopReason {
    #[error("the node was asked to stop")]
    Requested,
    #[error("the disk failed: {0}")]
    Disk(String),
    #[error("{0}")]
    Broken(#[from] Fatal),
    #[error(
        "the node was removed from the cluster: an id is used once, so it does not come back under this one; \
         `holdfast cluster add` brings in a new node, with an empty data directory"
    )]
    Removed,
    #[error("the shard panicked, which is a bug")]
    Panicked,
}

/// Of one group.
#[derive(Debug, Default)]
struct LastElection {
    /// The last term in which this node was elected.
    won_term: u64,
    /// The last known leader, and its term.
    leader: (Option<NodeId>, u64),
}

struct Shard {
    engine: Engine<Observer>,
    /// Declared before `log`, so that it is dropped first: the log's background thread may block until the inbox has
    /// room.
    inbox: Inbox,
    log: Log,
    /// When the write is tried again, while the disk is full.
    write_again_at: Option<Instant>,
    /// To the other nodes.
    links: PeerLinks,
    /// From the other nodes.
    wires: WiresIn,
    framed: FramedConnections,
    membership: Arc<Membership>,
    leadership: Leaderships,
    elections: BTreeMap<GroupId, LastElection>,
    events: EventRings,
    /// Whether this node writes an audit file or sends to Kafka. Then, after a snapshot is installed, the owners of all
    /// sessions must be sent: the events that named them were skipped.
    tells_owners: bool,
    /// A snapshot was installed in these groups, and the owners were not sent yet.
    owners_unknown: BTreeSet<GroupId>,
    memory: Arc<EfficiencyTier>,
    watchdog: Arc<LoopWatchdog>,
    metrics: Arc<Metrics>,
    /// None if no spans are wanted.
    traces: Option<Arc<Traces>>,
    policy: Arc<PolicyInForce>,
    policy_generations: PolicyGenerations,
    /// As `policy_generations` has them, without a lock.
    published_generations: BTreeMap<GroupId, u64>,
    levels: Levels,
    snapshot_times: SnapshotTimes,
    digests: Digests,
    /// Empty between steps; kept for its capacity.
    effects: Vec<Effect<Observer>>,
    /// One for all framed connections.
    frame: FrameWriter,
    started: Instant,
    tick: Duration,
}

impl Shard {
    /// Returns the log, too: dropping it waits for its background thread.
    fn run(mut self) -> (StopReason, Log) {
        let reason = loop {
            match self.turn() {
                Ok(()) => {
                    self.publish_levels();
                }
                Err(StopReason::Requested) => break StopReason::Requested,
                Err(reason) => {
                    tracing::error!(%reason, "the node stops");
                    break reason;
                }
            }
        };
        let (framed, poller, log) = self.into_parts();
        framed.close_all(poller);
        (reason, log)
    }

    /// Gives the applied policy to the service. It compares one number for each group if nothing has changed.
    /// Several groups may have several generations. All of them are generations of the root group's policy, and the
    /// service gets the newest one that any group has here. What it allows and a group does not allow yet, the table of
    /// that group refuses.
    fn publish_policy(&mut self) {
        let mut newest = None;
        for (group, replica) in self.engine.replicas() {
            let access = replica.table().access();
            let generation = access.generation();
            if self.published_generations.insert(group, generation) != Some(generation) {
                self.policy_generations.set(group, generation);
            }
            if newest.is_none_or(|newest: &Access| newest.generation() < access.generation()) {
                newest = Some(access);
            }
        }
        newest.inspect(|newest| self.policy.publish(newest));
    }

    /// All else is dropped, so that callers learn that the shard has ended.
    fn into_parts(self) -> (FramedConnections, Poller, Log) {
        (self.framed, self.inbox.into_poller(), self.log)
    }

    /// Takes in what there is, and does what the engine says until it rests.
    fn turn(&mut self) -> Result<(), StopReason> {
        self.watchdog.record_turn();
        self.take_input(self.engine.idle_for_at_most());
        self.engine.host().measure_batch();
        self.engine.handle_time(Now {
            monotonic: self.started.elapsed(),
            boot: boot_clock::now(),
            is_tier_in_use: self.memory.is_in_use(),
        });
        loop {
            match self.advance()? {
                Step::GoOn => {}
                Step::Write => self.write()?,
                Step::Rest => {
                    self.send_owners();
                    return Ok(());
                }
                Step::Stop(StopCause::Requested) => return Err(StopReason::Requested),
                Step::Stop(StopCause::Removed) => return Err(StopReason::Removed),
            }
        }
    }

    fn advance(&mut self) -> Result<Step, StopReason> {
        let (begun, before) = (self.started.elapsed(), self.applied());
        self.engine.host().forget_time();
        let step = self.engine.advance(begun)?;
        if self.applied() > before {
            self.metrics.apply_time.record_time(self.started.elapsed().saturating_sub(begun));
        }
        self.carry_out_effects();
        Ok(step)
    }

    fn applied(&self) -> u64 {
        self.engine.replicas().map(|(_, replica)| Replica::applied_index(replica)).sum()
    }

    /// Makes durable what the engine wants. While the disk is full, callers are told so and the same is tried again.
    fn write(&mut self) -> Result<(), StopReason> {
        if let Some(again_at) = self.write_again_at
            && let Some(left) = again_at.checked_duration_since(Instant::now())
        {
            self.watchdog.record_turn();
            self.take_input(left);
            self.carry_out_effects();
            return Ok(());
        }
        let begun = Instant::now();
        match self.log.persist(self.engine.turns()) {
            Ok(()) => self.disk_done(begun.elapsed()),
            Err(error) => match error.obstacle() {
                Some(obstacle) => self.disk_full(obstacle, &error),
                None => return Err(StopReason::Disk(error.to_string())),
            },
        }
        self.carry_out_effects();
        Ok(())
    }

    fn disk_done(&mut self, took: Duration) {
        self.measure_writing(took);
        if self.write_again_at.take().is_some() {
            self.metrics.disk_full.set(0);
            tracing::info!("the disk takes the log again");
        }
        self.engine.disk_done(self.started.elapsed(), &self.log.groups_pinning_log());
    }

    fn disk_full(&mut self, obstacle: Obstacle, error: &LogError) {
        if !self.engine.is_halted() {
            match obstacle {
                Obstacle::NoSpace => {
                    tracing::error!(%error, "the disk is full");
                    self.metrics.disk_full.set(1);
                }
                Obstacle::NotNow => tracing::error!(%error, "the log gets no new file"),
            }
        }
        self.write_again_at = Some(Instant::now() + self.tick);
        self.engine.disk_full(self.started.elapsed(), obstacle);
    }
}

/// Milliseconds of the wall clock: for times shown to people, for the expiry of credentials, and for the token floor of
/// a restore. No lock depends on it.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
