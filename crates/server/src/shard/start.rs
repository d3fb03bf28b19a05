//! From what is on disk to a running loop.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_core::{Limits, Span};
use holdfast_engine::{Engine, EngineConfig, LogError, TurnLog, to_durable};
use holdfast_proto::plain::FrameWriter;
use holdfast_replica::{
    DirectoryId, Durable, GroupId, Member, NodeId, Replica, ReplicaConfig, Turn,
};
use holdfast_service::PolicyInForce;
use holdfast_wal::{DirectoryError, FileDisk, GroupLog, OpenError, Options};
use thiserror::Error;
use tokio::sync::oneshot;

use super::digests::Digests;
use super::framed::FramedConnections;
use super::log::Log;
use super::measure::{Levels, SnapshotTimes};
use super::observer::Observer;
use super::{Shard, StopReason};
use crate::config::NodeConfig;
use crate::efficiency_tier::EfficiencyTier;
use crate::events::EventRings;
use crate::groups::Groups;
use crate::identity;
use crate::inbox::{Inbox, InboxSender, Leaderships, PolicyGenerations, ROOM};
use crate::loop_watchdog::LoopWatchdog;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::peers::{LOG_VERSION, PeerLinks, WiresIn};
use crate::traces::Traces;

/// What a turn can bear beside its own work: a fifth of a millisecond.
const SNAPSHOT_SLICE_ENTRIES: usize = 500;
/// So a snapshot takes at most a fifth of the shard's time, and a second for half a million locks.
const SNAPSHOT_SLICE_PAUSE: Duration = Duration::from_millis(1);
const KEEP_ENTRIES: u64 = 10_000;
const KEEP_BYTES: u64 = 8 << 20;

/// Why the shard could not start.
#[derive(Debug, Error)]
pub enum ShardError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("the log cannot be opened: {0}")]
    Log(#[from] OpenError),
    #[error(
        "the log in {} has what group {group} has promised, and {} says that there are {groups} groups; restore that file \
         from a backup of the directory, or start the version of holdfast that wrote the log",
        data_dir.display(),
        identity::FILE
    )]
    UnknownGroup { data_dir: PathBuf, group: GroupId, groups: usize },
    #[error("the groups cannot be written to the log: {0}")]
    Founding(#[from] LogError),
    #[error(transparent)]
    Replica(#[from] holdfast_replica::StartError),
    #[error("there is no way to wait for sockets: {0}")]
    Inbox(std::io::Error),
    #[error("no thread can be started: {0}")]
    Thread(std::io::Error),
}

/// The node's ends of the shard's channels.
pub(crate) struct Channels {
    pub(crate) inbox: Inbox,
    /// For the shard's own background work.
    pub(crate) inbox_sender: InboxSender,
    pub(crate) leadership: Leaderships,
    pub(crate) events: EventRings,
    pub(crate) memory: Arc<EfficiencyTier>,
    pub(crate) watchdog: Arc<LoopWatchdog>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Option<Arc<Traces>>,
    /// Where the shard publishes who may do what.
    pub(crate) policy: Arc<PolicyInForce>,
    /// Where it publishes which policy each group has.
    pub(crate) policy_generations: PolicyGenerations,
    /// Where the shard publishes who the members are.
    pub(crate) membership: Arc<Membership>,
    /// The first members.
    pub(crate) initial_members: Vec<NodeId>,
    /// Of this node.
    pub(crate) data_dir: DirectoryId,
}

/// Opens the log and starts the loop on a thread of its own. The receiver hears why it ended.
pub(crate) fn start(
    config: &NodeConfig,
    channels: Channels,
    links: PeerLinks,
) -> Result<oneshot::Receiver<StopReason>, ShardError> {
    let shard = Shard::open(config, channels, links)?;
    let (ended, ending) = oneshot::channel();
    thread::Builder::new()
        .name("holdfast-shard".into())
        .spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| shard.run());
            let (reason, log) = match std::panic::catch_unwind(run) {
                Ok((reason, log)) => (reason, Some(log)),
                Err(_) => (StopReason::Panicked, None),
            };
            // A node that was told to stop leaves a directory that another can use. Of a failure the node hears at once:
            // the disk may hang.
            let log = log.filter(|_| !matches!(reason, StopReason::Requested));
            // The receiver is gone only if the node is.
            let _ = ended.send(reason);
            drop(log);
        })
        .map_err(ShardError::Thread)?;
    Ok(ending)
}

impl Shard {
    pub(super) fn open(
        config: &NodeConfig,
        channels: Channels,
        links: PeerLinks,
    ) -> Result<Shard, ShardError> {
        let membership = channels.membership;
        let disk = FileDisk::open(config.data_dir.join("log"))?;
        let options = Options { segment_bytes: config.segment_bytes };
        let (mut log, recovered) = TurnLog::open(disk, options)?;
        check_groups(&config.data_dir, &membership.groups, &recovered)?;
        let durable =
            recover_groups(&mut log, &membership.groups, recovered, &channels.initial_members)?;
        let mut replicas = Vec::new();
        for (group, durable) in durable {
            let config = replica_config(config, group, channels.initial_members.clone());
            let replica = Replica::new(config, durable)?;
            // What the log holds beyond the snapshot is applied again, and recorded again.
            channels.events.of(group).restart_after(replica.applied_index());
            if group == GroupId::FIRST {
                membership.elects(replica.applied_index(), &replica.membership().configuration);
            }
            membership.publish(group, replica.membership().clone());
            replicas.push((group, replica));
        }
        let election_ticks = u32::try_from(config.election_ticks).unwrap_or(u32::MAX);
        let engine_config = EngineConfig {
            node: membership.me,
            tick: config.tick(),
            election_timeout: config.tick().saturating_mul(election_ticks),
        };
        let started = Instant::now();
        let observer =
            Observer::new(Arc::clone(&channels.metrics), channels.traces.clone(), started);
        let known = membership.announced().map(|(node, member)| (node, member.clone()));
        let mut engine = Engine::new(engine_config, replicas, known, observer);
        let own = Member { directory: Some(channels.data_dir), ..membership.own() };
        engine.peer_identified(membership.me, own, LOG_VERSION);
        let framed = FramedConnections::new(channels.inbox.woken());
        let owners_unknown = membership.groups.all().collect();
        let mut shard = Shard {
            engine,
            inbox: channels.inbox,
            log: Log::new(log, channels.inbox_sender).map_err(ShardError::Thread)?,
            write_again_at: None,
            links,
            wires: WiresIn::new(ROOM),
            framed,
            membership,
            leadership: channels.leadership,
            elections: BTreeMap::new(),
            events: channels.events,
            tells_owners: config.audit.is_some() || config.kafka.is_some(),
            owners_unknown,
            memory: channels.memory,
            watchdog: channels.watchdog,
            metrics: channels.metrics,
            traces: channels.traces,
            policy: channels.policy,
            policy_generations: channels.policy_generations,
            published_generations: BTreeMap::new(),
            levels: Levels::default(),
            snapshot_times: SnapshotTimes::default(),
            digests: Digests::default(),
            effects: Vec::new(),
            frame: FrameWriter::default(),
            started,
            tick: config.tick(),
        };
        shard.send_owners();
        shard.publish_policy();
        Ok(shard)
    }
}

/// A group that this build did not start would be forgotten with its votes. So the start is refused, before anything is
/// added to the log.
fn check_groups(
    data_dir: &Path,
    groups: &Groups,
    recovered: &[GroupLog],
) -> Result<(), ShardError> {
    let mut logs = recovered.iter().map(|log| GroupId(log.group));
    let unknown = logs.find(|group| !groups.all().any(|known| known == *group));
    match unknown {
        None => Ok(()),
        Some(group) => {
            let (data_dir, groups) = (data_dir.to_owned(), groups.all().len());
            Err(ShardError::UnknownGroup { data_dir, group, groups })
        }
    }
}

/// What the log has of each group. A group that is new, and owns only some of the slots, is founded: its first state is
/// durable before the group does anything.
fn recover_groups(
    log: &mut TurnLog<FileDisk>,
    groups: &Groups,
    mut recovered: Vec<GroupLog>,
    initial_members: &[NodeId],
) -> Result<Vec<(GroupId, Durable)>, ShardError> {
    let mut found = Vec::new();
    let mut turns = Vec::new();
    for group in groups.all() {
        let place = recovered.iter().position(|log| log.group == group.0);
        let mut durable = place.map(|place| to_durable(recovered.swap_remove(place)));
        // A group that was founded has a term. If its founding was interrupted, its snapshot may be there already.
        let has_term = durable.as_ref().is_some_and(|durable| durable.hard_state.term > 0);
        if let (Some(state), false) = (groups.founding_state(group, initial_members), has_term) {
            let has_snapshot = durable.is_some_and(|durable| durable.snapshot.is_some());
            let snapshot = (!has_snapshot).then(|| state.clone());
            let founded = Durable::of_snapshot(state);
            let hard_state = Some(founded.hard_state);
            turns.push((group, Turn { snapshot, hard_state, ..Turn::default() }));
            durable = Some(founded);
        }
        found.push((group, durable.unwrap_or_default()));
    }
    if !turns.is_empty() {
        log.persist(&turns)?;
    }
    Ok(found)
}

pub(crate) fn replica_config(
    config: &NodeConfig,
    group: GroupId,
    initial_members: Vec<NodeId>,
) -> ReplicaConfig {
    let election_ticks = usize::try_from(config.election_ticks).unwrap_or(usize::MAX);
    ReplicaConfig {
        group,
        node: NodeId(config.node),
        voters: initial_members,
        tick: config.tick(),
        heartbeat_ticks: usize::try_from(config.heartbeat_ticks).unwrap_or(usize::MAX),
        election_ticks: (election_ticks, election_ticks.saturating_mul(2)),
        grace: Span::from_ms(config.grace_ms),
        snapshot_every_entries: config.snapshot_every_entries,
        snapshot_every_bytes: config.snapshot_every_bytes,
        snapshot_slice_entries: SNAPSHOT_SLICE_ENTRIES,
        snapshot_slice_pause: SNAPSHOT_SLICE_PAUSE,
        keep_bytes: KEEP_BYTES,
        keep_entries: KEEP_ENTRIES.min(config.snapshot_every_entries),
        limits: Limits::default(),
    }
}
