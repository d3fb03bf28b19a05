//! A simulated node: the real engine, the real log on a simulated disk, and a thin host around them ([`turn`]).
//! What it wants done context comes out as [`Output`]s.
//!
//! A process is [`Running`]; the node around it (its disk, its clock, its place in the network) outlives
//! it. A paused process keeps its inbox; a crashed one loses it.

mod hidden_names;
mod host;
mod log;
mod publish;
mod tier;
mod turn;
mod without_root;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use holdfast_core::{
    Batch, Command, Event, Limits, LogIndex, LogicalTime, Publication, SearchCost, SessionId, Span,
};
use holdfast_engine::{BootTime, Effect, Engine, EngineConfig};
use holdfast_replica::{
    DirectoryId, GroupId, Leadership, Member, Membership, MembershipChange, NodeId, Outgoing,
    Replica, ReplicaConfig, SnapshotFile,
};
use holdfast_wal::{Operation, SimDisk};

use self::host::{CallLedger, PublishedMark, SimHost};
use self::log::Log;
use self::tier::Tier;
use self::without_root::WithoutRoot;
use crate::clock::LocalClock;
use crate::history::RealTime;
use crate::message::{Answer, ChangeAnswer, EndedStream, Notice, Request};
use crate::recorder::place;
use crate::rng::Rng;

/// What all nodes of a run share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How many there are at first.
    pub(crate) nodes: usize,
    /// How many groups each of them runs.
    pub(crate) groups: u32,
    pub(crate) tick: Duration,
    pub(crate) heartbeat_ticks: usize,
    pub(crate) election_ticks: (usize, usize),
    pub(crate) grace: Span,
    pub(crate) snapshot_every_entries: u64,
    pub(crate) keep_entries: u64,
    pub(crate) segment_bytes: u64,
    /// Whether events are published.
    pub(crate) publishes: bool,
    /// Whether sessions use the efficiency tier.
    pub(crate) uses_tier: bool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    settings: Settings,
    pub(crate) clock: LocalClock,
    rng: Rng,
    disk: SimDisk,
    running: Option<Box<Running>>,
    /// How many processes there were, this one included.
    pub(crate) starts: u64,
    /// It lost what it had promised to keep, or was removed, and never comes back.
    pub(crate) ruined: bool,
    paused: u32,
    inbox: VecDeque<Incoming>,
    /// The loop is at work until then.
    pub(crate) busy_until: RealTime,
    /// A disk this slow: each sync takes between these, in microseconds.
    pub(crate) slow_disk_us: Option<(u64, u64)>,
    pub(crate) crash_point: Option<CrashPoint>,
    /// A turn that took longer counts as this long; the longest of its groups.
    stall_max: Duration,
    /// The build that its processes run.
    pub(crate) build: Build,
}

/// What a node has installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// One that reads no log entry that adopts rules, nor what comes with them.
    Old,
    New,
}

impl Build {
    /// The newest format of log entries that it reads.
    pub(crate) fn log_version(self) -> u32 {
        match self {
            Build::Old => 2,
            Build::New => 10,
        }
    }
}

/// A process.
#[derive(Debug)]
struct Running {
    build: Build,
    engine: Engine<SimHost>,
    log: Log,
    /// In the order of their ids.
    groups: Vec<GroupState>,
    tier: Tier,
    without_root: WithoutRoot,
    /// When the present turn was handed to the disk.
    writes_since: Option<RealTime>,
    /// A turn that took longer counts as this long.
    stall_max: Duration,
    /// Empty between steps; kept for its room.
    effects: Vec<Effect<SimHost>>,
    publishes: bool,
    uses_tier: bool,
    /// Which nodes it has heard of, and the newest format of log entries that they said to read.
    met: BTreeMap<NodeId, u32>,
}

/// What the host of an engine knows of one group.
#[derive(Debug)]
struct GroupState {
    id: GroupId,
    ledger: CallLedger,
    leadership: Leadership,
    /// A snapshot is on disk, and not yet in the table.
    installed: Option<u64>,
    /// How far its replica was after the last step.
    seen: Seen,
    /// The last step applied something.
    has_applied: bool,
    digested_at: u64,
    /// Its table follows rules 2 or newer, and the recorder knows.
    rules_seen: bool,
    published_mark: PublishedMark,
    publisher_asked: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    applied: u64,
    publication: Option<Publication>,
    search_cost: SearchCost,
}

impl Seen {
    fn of(replica: &Replica) -> Seen {
        let table = replica.table();
        let (publication, search_cost) = (table.publication(), table.search_cost());
        Seen { applied: replica.applied_index(), publication, search_cost }
    }
}

impl GroupState {
    fn new(id: GroupId, replica: &Replica) -> GroupState {
        GroupState {
            id,
            ledger: CallLedger::default(),
            leadership: Leadership::default(),
            installed: None,
            seen: Seen::of(replica),
            has_applied: false,
            digested_at: 0,
            rules_seen: false,
            published_mark: PublishedMark::default(),
            publisher_asked: Duration::ZERO,
        }
    }
}

/// In which work of the disk a machine is to crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// While a turn is written.
    Turn,
    /// While a snapshot is written.
    Snapshot,
}

/// One thing for the loop to take in.
#[derive(Debug)]
pub(crate) enum Incoming {
    Consensus {
        from: NodeId,
        group: GroupId,
        /// Which format of log entries the sender reads; real nodes say it when they connect.
        log_version: u32,
        bytes: Vec<u8>,
    },
    PeerUnreachable(NodeId),
    /// Whether it is true or not.
    PeerCrashed(NodeId),
    SnapshotSent {
        group: GroupId,
        to: NodeId,
        delivered: bool,
    },
    Request(Box<Request>),
    /// The background work on a snapshot gets its turn.
    SnapshotDue {
        group: GroupId,
        file: SnapshotFile,
    },
    StreamEnded(EndedStream),
    /// To this voter, or to the best one.
    TransferLeadership {
        group: GroupId,
        to: Option<NodeId>,
    },
    /// What an operator asks, and under which number.
    Change {
        group: GroupId,
        number: u64,
        change: MembershipChange,
    },
    /// An administrator changes who may do what, or a controller which slots the group owns. Neither waits for the
    /// answer.
    Administer {
        group: GroupId,
        command: Box<Command>,
    },
    /// An operator wants a backup.
    Backup,
    /// A peer says that this node is no member any more.
    Removed,
}

/// What a node wants done, or what it did.
#[derive(Debug)]
pub(crate) enum Output {
    Send {
        group: GroupId,
        outgoing: Outgoing,
    },
    Answer(Box<Answer>),
    Forward {
        to: NodeId,
        request: Box<Request>,
    },
    Notice {
        client: usize,
        session: SessionId,
        notice: Notice,
    },
    SnapshotToSave {
        group: GroupId,
        file: SnapshotFile,
    },
    Happened {
        group: GroupId,
        index: LogIndex,
        at: LogicalTime,
        event: Event,
    },
    /// The table was replaced.
    Restored {
        group: GroupId,
        index: LogIndex,
        at: LogicalTime,
    },
    Digest {
        group: GroupId,
        index: LogIndex,
        at: LogicalTime,
        digest: u64,
    },
    /// A leader's disk is done with what it was given at this time.
    Written {
        group: GroupId,
        since: RealTime,
    },
    /// A leader committed something.
    Committed {
        group: GroupId,
        term: u64,
    },
    /// A node that has just started, or has just adopted them, follows rules 2 or newer.
    FollowsRulesTwo {
        group: GroupId,
        at: LogicalTime,
    },
    /// One of these entries used up the steps of its searches for deadlocks.
    SearchesCut {
        group: GroupId,
        entries: RangeInclusive<LogIndex>,
    },
    /// The leader proposed this.
    Proposed {
        group: GroupId,
        batch: Box<Batch>,
    },
    Leadership {
        group: GroupId,
        leadership: Leadership,
    },
    /// Who the members are since this index.
    Members {
        group: GroupId,
        index: LogIndex,
        members: Box<Membership>,
    },
    ChangeEnded {
        number: u64,
        answer: ChangeAnswer,
    },
    Backup {
        at: LogicalTime,
        file: SnapshotFile,
    },
    /// A message came from a node that all groups have removed.
    FromRemoved {
        node: NodeId,
    },
    /// It learned that it is no member any more, and ended.
    Removed,
    Stopped {
        why: String,
    },
    /// The machine went down at a crash point.
    Crashed,
    /// Something that must never happen.
    Broken {
        checker: &'static str,
        what: String,
    },
}

/// Why a node did not start.
#[derive(Debug)]
pub(crate) enum StartFailure {
    /// The log refuses: it is damaged.
    Log(String),
    Replica(String),
}

impl Node {
    pub(crate) fn new(index: usize, settings: Settings, clock: LocalClock, rng: Rng) -> Node {
        Node {
            id: NodeId(index as u64 + 1),
            settings,
            clock,
            rng,
            disk: SimDisk::new(),
            running: None,
            starts: 0,
            ruined: false,
            paused: 0,
            inbox: VecDeque::new(),
            busy_until: RealTime(0),
            slow_disk_us: None,
            crash_point: None,
            stall_max: Duration::ZERO,
            build: Build::New,
        }
    }

    /// A new process starts from what the disk has.
    pub(crate) fn start(&mut self, outputs: &mut Vec<Output>) -> Result<(), StartFailure> {
        self.disk.clear_faults();
        let (log, mut recovered) = Log::open(&self.disk, self.settings.segment_bytes)
            .map_err(|error| StartFailure::Log(error.to_string()))?;
        self.stall_max = Duration::ZERO;
        let mut replicas = Vec::new();
        let mut groups = Vec::new();
        for group in (1..=self.settings.groups).map(GroupId) {
            let config = self.replica_config(group);
            let durable = recovered.remove(&group).unwrap_or_default();
            let replica = Replica::new(config, durable)
                .map_err(|error| StartFailure::Replica(error.to_string()))?;
            let (index, at) = (LogIndex(replica.applied_index()), replica.table().now());
            outputs.push(Output::Restored { group, index, at });
            groups.push(GroupState::new(group, &replica));
            replicas.push((group, replica));
        }
        self.inbox.clear();
        self.starts += 1;
        let engine_config = EngineConfig {
            node: self.id,
            tick: self.settings.tick,
            election_timeout: self.settings.tick * self.settings.election_ticks.0 as u32,
        };
        let mut engine = Engine::new(engine_config, replicas, [], SimHost);
        engine.peer_identified(self.id, member(self.id), self.build.log_version());
        self.running = Some(Box::new(Running {
            build: self.build,
            engine,
            log,
            groups,
            tier: Tier::default(),
            without_root: WithoutRoot::default(),
            writes_since: None,
            stall_max: self.stall_max,
            effects: Vec::new(),
            publishes: self.settings.publishes,
            uses_tier: self.settings.uses_tier,
            met: BTreeMap::new(),
        }));
        Ok(())
    }

    /// Each group draws its own election timeout.
    fn replica_config(&mut self, group: GroupId) -> ReplicaConfig {
        let (low, high) = self.settings.election_ticks;
        let election = self.rng.between(low as u64, high as u64) as usize;
        let config = ReplicaConfig {
            group,
            node: self.id,
            voters: self.initial_members(),
            tick: self.settings.tick,
            heartbeat_ticks: self.settings.heartbeat_ticks,
            election_ticks: (election, election + 1),
            grace: self.settings.grace,
            snapshot_every_entries: self.settings.snapshot_every_entries,
            snapshot_every_bytes: u64::MAX,
            snapshot_slice_entries: 2,
            snapshot_slice_pause: Duration::ZERO,
            keep_entries: self.settings.keep_entries,
            keep_bytes: u64::MAX,
            // So few that promotions, and the ends of holds and waits of sessions that end, are often left for later.
            limits: Limits {
                promotion_walk_max: 4,
                ended_parts_per_entry_max: 1,
                ..Limits::default()
            },
        };
        self.stall_max = self.stall_max.max(config.stall_max());
        config
    }

    /// The first members, if it is one of them: a node that joins knows no other.
    fn initial_members(&self) -> Vec<NodeId> {
        let initial_members = (1..=self.settings.nodes as u64).map(NodeId);
        initial_members.filter(|_| self.id.0 <= self.settings.nodes as u64).collect()
    }

    /// Puts the state of groups that are founded, or of a cluster that begins again, onto the disk.
    pub(crate) fn init_data_dir(
        &mut self,
        states: &[(GroupId, SnapshotFile)],
    ) -> Result<(), String> {
        log::init_data_dir(&self.disk, self.settings.segment_bytes, states)
    }

    /// The machine loses power: of what was not synced, chance decides what is left.
    pub(crate) fn crash(&mut self) {
        let rng = &mut self.rng;
        let keep_percent = rng.below(101);
        self.disk = self.disk.crashed(|_| rng.percent(keep_percent));
        self.stop();
    }

    /// The machine is gone, and all that it knew.
    pub(crate) fn wipe(&mut self) {
        self.disk = SimDisk::new();
        self.stop();
    }

    /// The process ends; the disk stays as the operating system sees it.
    pub(crate) fn stop(&mut self) {
        self.running = None;
        self.inbox.clear();
        self.crash_point = None;
        self.disk.set_capacity_bytes(None);
    }

    /// Inverts one bit of what was synced, and stops. Gives the file; none if there is nothing yet.
    pub(crate) fn corrupt(&mut self) -> Option<String> {
        let (disk, file) = self.corrupted()?;
        self.disk = disk;
        self.stop();
        Some(file)
    }

    /// Would the log open if a bit had flipped that it must miss? Then which file's. Nothing is changed.
    pub(crate) fn overlooks_corruption(&mut self) -> Option<String> {
        let (disk, file) = self.corrupted()?;
        Log::open(&disk, self.settings.segment_bytes).is_ok().then_some(file)
    }

    /// What a crash leaves, with one bit inverted; and the file in which it is.
    fn corrupted(&mut self) -> Option<(SimDisk, String)> {
        let disk = self.disk.crashed(|_| false);
        let names = holdfast_wal::Disk::list(&disk).unwrap_or_default();
        // Snapshots come in the order of their index, and the last one replaces those before.
        let (logs, snapshots): (Vec<_>, Vec<_>) = names
            .into_iter()
            .filter(|name| name.starts_with("log-") || name.starts_with("snap-"))
            .partition(|name| name.starts_with("log-"));
        let file = match snapshots.last() {
            Some(newest) if self.rng.percent(40) => newest.clone(),
            _ => self.rng.pick(&logs)?.clone(),
        };
        // Only blocks that were written: what lies behind them is not the log's yet.
        let content = disk.content(&file).unwrap_or_default();
        let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let bit = self.rng.below(written as u64 * 8);
        (written > 0 && disk.flip_bit(&file, bit)).then_some((disk, file))
    }

    pub(crate) fn pause(&mut self) {
        self.paused += 1;
    }

    pub(crate) fn resume(&mut self) {
        self.paused = self.paused.saturating_sub(1);
    }

    /// The next sync but so many fails.
    pub(crate) fn fail_sync_after(&mut self, successes: u64) {
        self.disk.fail_after(Operation::SyncData, successes, io::ErrorKind::Other);
    }

    /// No file grows any more, until there is room again.
    pub(crate) fn fill_disk(&mut self, full: bool) {
        self.disk.set_capacity_bytes(full.then_some(0));
        self.disk.clear_faults();
        if full {
            // What is preallocated has room; a write refused there is what a thin volume does.
            for successes in 0..self.rng.between(1, 12) {
                self.disk.fail_after(Operation::Write, successes, io::ErrorKind::StorageFull);
            }
        }
    }

    /// Faults of the disk that have not struck are called off.
    pub(crate) fn forgive_disk(&mut self) {
        self.disk.clear_faults();
    }

    pub(crate) fn receive(&mut self, incoming: Incoming) {
        if self.running.is_some() {
            self.inbox.push_back(incoming);
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused > 0
    }

    /// It runs, and is not stuck between the halves of a turn because its disk is full or slow.
    pub(crate) fn can_write(&self) -> bool {
        let is_free = |running: &Running| !running.engine.is_in_turn();
        !self.is_paused() && self.running.as_deref().is_some_and(is_free)
    }

    pub(crate) fn has_input(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// It takes input soon: it runs, is not paused, and its loop is not stuck in the disk.
    pub(crate) fn listens(&self, now: RealTime) -> bool {
        self.is_up() && !self.is_paused() && self.busy_until.0 <= now.0 + 1_000_000
    }

    pub(crate) fn leads(&self, group: GroupId) -> bool {
        let state = self.running.as_ref().and_then(|running| running.groups.get(place(group)));
        state.is_some_and(|state| state.leadership.is_here)
    }

    pub(crate) fn replica(&self, group: GroupId) -> Option<&Replica> {
        self.running.as_ref().and_then(|running| running.engine.replica(group))
    }

    /// Its efficiency tier would grant a lock now.
    pub(crate) fn tier_grants(&self, now: RealTime) -> bool {
        let local = BootTime(self.clock.at(now));
        let running = self.running.as_ref().filter(|_| !self.is_paused());
        running.is_some_and(|running| running.tier.grants(local))
    }

    /// Its clock is ahead all at once. Gives for how much that can count here: a leader cuts what is longer, and
    /// a process that is not running does not notice.
    pub(crate) fn leap_clock(&mut self, ahead_us: u64) -> u64 {
        self.clock.leap(ahead_us);
        let stall_max = self.running.as_ref().map_or(Duration::ZERO, |running| running.stall_max);
        ahead_us.min(stall_max.as_micros() as u64)
    }

    /// When the loop turns at the latest, from now on: as long as the engine may rest, like the server's.
    pub(crate) fn rest_us(&self) -> u64 {
        let running = self.running.as_ref();
        let rest = running.map_or(self.settings.tick, |running| running.engine.idle_for_at_most());
        self.clock.real_us_of(rest)
    }

    pub(crate) fn tick_us(&self) -> u64 {
        self.clock.real_us_of(self.settings.tick)
    }
}

/// What a node says of itself. No directory comes back under another id, nor another one under this.
pub(crate) fn member(node: NodeId) -> Member {
    Member {
        peer_address: format!("host-{node}:7421"),
        client_address: format!("host-{node}:7420"),
        directory: Some(DirectoryId(u128::from(node.0).to_be_bytes())),
        ..Member::default()
    }
}
