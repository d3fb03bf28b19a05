//! The replica itself. It takes inputs, proposes and applies commands, and returns what the shard has to do.
//!
//! The order of calls: `handle_*` for all inputs of a turn, `handle_time`; then for each pass of
//! the turn: `begin_turn`; send its messages; `answer_committed`; write and sync; `acknowledge`,
//! send; `finish_turn`.

mod batching;
mod follow_members;
mod leadership;
mod members;
mod policy;
mod proposals;
mod rules;
mod snapshots;

use std::fmt;
use std::time::Duration;

use holdfast_core::{Batch, Command, DecodeError, Limits, LockTable, LogIndex, LogicalTime};
use thiserror::Error;

use self::leadership::LeaderTerm;
pub use self::members::HandOverRefusal;
use self::members::MembershipManager;
use self::policy::PolicyAdoption;
use self::proposals::QUEUED_COST_MAX;
use self::rules::RulesAdoption;
use crate::clock::Clock;
use crate::config::ReplicaConfig;
use crate::consensus::{Begun, Committed, Consensus, Content, IncomingMessage, MessageError};
use crate::effect::{Effect, Leadership, Outgoing, Ticket, Turn, Unavailable};
use crate::id::{GroupId, NodeId};
use crate::leader_time::LeaderTime;
use crate::log_store::{Durable, LogStore, SnapshotFile};
use crate::membership::{Membership, MembershipBytesError};
use crate::pending::{Call, Pending, Proposed};
use crate::reads::Reads;
use crate::snapshot_body::{self, SnapshotError};

/// Followers learn the commit index with the next entries. If there are none, the leader sends it
/// after this time.
const COMMIT_UNANNOUNCED_MAX: Duration = Duration::from_millis(1);

/// No replica idles for longer, whatever its tick is: a watchdog expects its loop to turn.
const IDLE_MAX: Duration = Duration::from_millis(500);

/// This node's member of one Raft group, with its state machine: the lock table.
#[derive(Debug)]
pub struct Replica {
    config: ReplicaConfig,
    consensus: Consensus,
    table: LockTable,
    membership: Membership,
    membership_manager: MembershipManager,
    rules_adoption: RulesAdoption,
    policy_adoption: PolicyAdoption,
    clock: Clock,
    /// The latest time of a leader, which may be this node.
    leader_time: LeaderTime,
    /// Commands for the next proposal.
    queued: Vec<Call>,
    /// What it costs to apply them.
    queued_cost: usize,
    /// What it costs to apply the commands proposed since the last `handle_time`.
    turn_cost: usize,
    /// Since when all queued commands are delayed; see `batching`.
    delayed_since: Option<Duration>,
    pending: Pending,
    reads: Reads,
    /// The leadership that was last reported to the shard.
    leadership: Leadership,
    /// The present leader, or the last one.
    last_leader: Option<LeaderTerm>,
    /// The leader before the present one led only for a short time.
    follows_short_leadership: bool,
    /// An input of this turn restarted the election timeout of this follower.
    leader_just_contacted: bool,
    /// Since when the followers do not know the latest commit index.
    commit_unannounced_since: Option<Duration>,
    /// A leader expires nothing before this time. After a stall, it first reads the inputs that waited.
    expire_not_before: LogicalTime,
    /// The command `Tick` is proposed, and not applied yet. (It has only its name in common with Raft's ticks.)
    tick_under_way: bool,
    /// This turn has proposed a `Tick`. A single voter commits it in the same turn, and more ticks would keep the turn from
    /// its end, and so the inputs from being read.
    ticked_in_turn: bool,
    applied_index: u64,
    applied_term: u64,
    /// The index of the last snapshot that was saved, or is being saved.
    snapshot_index: u64,
    /// The size of the last snapshot.
    snapshot_bytes: u64,
    snapshot_under_way: bool,
    snapshot_requested: bool,
    /// The index of the snapshot offered to a follower that lags. Whether it arrived is not known yet.
    snapshot_in_flight: Option<u64>,
    /// For how long the offered snapshot has not been sent.
    snapshot_unsent_ticks: u64,
    unfinished: Option<snapshots::UnfinishedSnapshot>,
    /// The latest time passed in.
    latest_time: Duration,
    /// When the last slice of a snapshot was written.
    sliced_last: Duration,
    /// Callers that want a backup. A snapshot under way is too old for them.
    backups_wanted: Vec<Ticket>,
    log_bytes_at_snapshot: u64,
    /// Snapshots received in this turn. If consensus installs one, it becomes the table.
    incoming: Vec<Incoming>,
    effects: Vec<Effect>,
}

/// A leader's snapshot, decoded.
#[derive(Debug)]
struct Incoming {
    index: u64,
    bytes: u64,
    membership: Membership,
    table: LockTable,
}

impl Incoming {
    fn read(
        message: &IncomingMessage,
        snapshot: &SnapshotFile,
        limits: Limits,
    ) -> Result<Incoming, MessageError> {
        let (membership, table) = snapshot_body::decode(&snapshot.data, limits)?;
        if membership.configuration != message.snapshot_members() {
            let words = "its snapshot disagrees with itself about the members";
            return Err(MessageError::Contradiction(words));
        }
        let (index, bytes) = (snapshot.index, snapshot.data.len() as u64);
        Ok(Incoming { index, bytes, membership, table })
    }
}

/// A leader's message with a snapshot, decoded. Decoding a large table takes long, so another thread than the replica's
/// does it.
pub struct SnapshotMessage {
    message: IncomingMessage,
    incoming: Incoming,
}

impl fmt::Debug for SnapshotMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotMessage")
            .field("index", &self.incoming.index)
            .finish_non_exhaustive()
    }
}

impl SnapshotMessage {
    /// `limits` must be those of the replica that will handle the message.
    pub fn decode(bytes: &[u8], limits: Limits) -> Result<SnapshotMessage, MessageError> {
        let message = IncomingMessage::parse(bytes)?;
        let Some(snapshot) = message.snapshot() else {
            return Err(MessageError::Contradiction("it carries no snapshot"));
        };
        let incoming = Incoming::read(&message, &snapshot, limits)?;
        Ok(SnapshotMessage { message, incoming })
    }
}

/// Why a replica cannot start from its disk.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("the snapshot of group {group} at index {index} cannot be used: {source}")]
    Snapshot { group: GroupId, index: u64, source: SnapshotError },
    #[error("the log of group {group} has a gap before index {index}")]
    Gap { group: GroupId, index: u64 },
    #[error("the log of group {group} ends at {last}, but entries up to {commit} are committed")]
    CommittedLost { group: GroupId, commit: u64, last: u64 },
    #[error("consensus of group {group} cannot start: {reason}")]
    Consensus { group: GroupId, reason: String },
}

/// A bug or corruption. The node has to stop, because going on could break a guarantee.
#[derive(Debug, Error)]
pub enum Fatal {
    #[error("group {group}: the committed entry {index} cannot be decoded: {source}")]
    UndecodableEntry { group: GroupId, index: u64, source: DecodeError },
    #[error("group {group}: the committed entry {index} has a wrong note about members: {source}")]
    UndecodableNote { group: GroupId, index: u64, source: MembershipBytesError },
    #[error("group {group}: the committed entry {index} cannot change the members: {words}")]
    ImpossibleChange { group: GroupId, index: u64, words: String },
    #[error("group {group}: consensus installed a snapshot at {index} that was not received")]
    SnapshotLost { group: GroupId, index: u64 },
}

/// The state of a replica, for display.
#[derive(Clone, Debug)]
pub struct Progress {
    pub leadership: Leadership,
    pub commit_index: u64,
    pub applied_index: u64,
    pub last_index: u64,
    /// How far each member's log is known to match; filled by the leader.
    pub matched: Vec<(NodeId, u64)>,
}

impl Replica {
    /// Starts from the log and the snapshot on disk.
    pub fn new(config: ReplicaConfig, durable: Durable) -> Result<Replica, StartError> {
        let group = config.group;
        let mut membership = Membership::founded_by(&config.voters);
        let mut table = LockTable::new(config.limits.clone());
        let (mut applied_index, mut applied_term, mut snapshot_bytes) = (0, 0, 0);
        if let Some(snapshot) = &durable.snapshot {
            snapshot_bytes = snapshot.data.len() as u64;
            (membership, table) = snapshot_body::decode(&snapshot.data, config.limits.clone())
                .map_err(|source| StartError::Snapshot { group, index: snapshot.index, source })?;
            (applied_index, applied_term) = (snapshot.index, snapshot.term);
            #[cfg(feature = "planted")]
            if crate::planted::Bug::MembersOfTheFile.is_active() && !config.voters.is_empty() {
                membership = Membership::founded_by(&config.voters);
            }
        }
        let mut log = LogStore::new(durable.hard_state, applied_index, applied_term);
        // The snapshot is committed, even if the last hard state on disk has a lower commit index.
        // If the term rises here, the vote of the older term stays, and counts as this node's vote
        // in the newer term. At worst, the node refuses a vote that it could give.
        log.hard_state.commit = log.hard_state.commit.max(applied_index);
        log.hard_state.term = log.hard_state.term.max(applied_term);
        for entry in durable.entries {
            let index = entry.index;
            if index > applied_index && !log.append(entry) {
                return Err(StartError::Gap { group, index });
            }
        }
        let (commit, last) = (log.hard_state.commit, log.last_index());
        if commit > last {
            return Err(StartError::CommittedLost { group, commit, last });
        }
        let consensus = Consensus::new(&config, &membership.configuration, log, applied_index)
            .map_err(|reason| StartError::Consensus { group, reason })?;
        Ok(Replica {
            clock: Clock::new(config.tick, config.stall_max()),
            consensus,
            table,
            membership,
            membership_manager: MembershipManager::default(),
            rules_adoption: RulesAdoption::default(),
            policy_adoption: PolicyAdoption::default(),
            leader_time: LeaderTime::default(),
            queued: Vec::new(),
            queued_cost: 0,
            turn_cost: 0,
            delayed_since: None,
            pending: Pending::default(),
            reads: Reads::default(),
            leadership: Leadership::default(),
            last_leader: None,
            follows_short_leadership: false,
            leader_just_contacted: false,
            commit_unannounced_since: None,
            expire_not_before: LogicalTime::ZERO,
            tick_under_way: false,
            ticked_in_turn: false,
            applied_index,
            applied_term,
            snapshot_index: applied_index,
            snapshot_bytes,
            snapshot_under_way: false,
            snapshot_requested: false,
            snapshot_in_flight: None,
            snapshot_unsent_ticks: 0,
            unfinished: None,
            latest_time: Duration::ZERO,
            sliced_last: Duration::ZERO,
            backups_wanted: Vec::new(),
            log_bytes_at_snapshot: 0,
            incoming: Vec::new(),
            effects: Vec::new(),
            config,
        })
    }

    /// Handles bytes from the node at the other end of a connection. A message that names another sender is refused.
    pub fn handle_message_of(&mut self, sender: NodeId, bytes: &[u8]) -> Result<(), MessageError> {
        let message = self.consensus.decode(bytes)?;
        check_sender(&message, sender)?;
        self.handle_incoming(message)
    }

    /// Handles bytes from a peer, on a network on which no node can impersonate another.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<(), MessageError> {
        let message = self.consensus.decode(bytes)?;
        self.handle_incoming(message)
    }

    fn handle_incoming(&mut self, message: IncomingMessage) -> Result<(), MessageError> {
        let carried = message.snapshot().map(|snapshot| self.read_snapshot(&message, &snapshot));
        self.handle_decoded(message, carried.transpose()?)
    }

    fn read_snapshot(
        &self,
        message: &IncomingMessage,
        snapshot: &SnapshotFile,
    ) -> Result<Incoming, MessageError> {
        Incoming::read(message, snapshot, self.config.limits.clone())
    }

    /// As [`Replica::handle_message_of`], for a snapshot that was decoded elsewhere.
    pub fn handle_snapshot_message(
        &mut self,
        sender: NodeId,
        carried: SnapshotMessage,
    ) -> Result<(), MessageError> {
        let SnapshotMessage { message, incoming } = carried;
        let message = self.consensus.admit(message)?;
        check_sender(&message, sender)?;
        self.handle_decoded(message, Some(incoming))
    }

    fn handle_decoded(
        &mut self,
        message: IncomingMessage,
        carried: Option<Incoming>,
    ) -> Result<(), MessageError> {
        let (from, leader_time) = (message.from(), message.carried_leader_time());
        // Read before `step`: a vote that makes this node leader also appends an entry of its own term.
        let last_term = self.consensus.last_term();
        // Only removed nodes are refused. A node that is merely unknown may have been added by
        // entries that this replica does not have yet.
        if self.membership.was_removed(from) {
            return Err(MessageError::Stranger { from: from.0 });
        }
        // Consensus installs only a snapshot that it accepted.
        self.consensus.step(message)?;
        self.incoming.extend(carried);
        self.leader_time.observe(leader_time, last_term);
        self.note_contact(from);
        self.leader_just_contacted |= self.consensus.ticks_without_leader() == Some(0);
        Ok(())
    }

    /// Queues a command to commit. An effect brings its answer, or the reason why there is none.
    pub fn handle_call(&mut self, ticket: Option<Ticket>, mut command: Command) {
        if self.consensus.is_leader() {
            command.fit_rules(self.table.rules());
            if let Some(ticket) = ticket.filter(|_| self.queued_cost >= QUEUED_COST_MAX) {
                let reason = Unavailable::Overloaded;
                self.effects.push(Effect::Failed { ticket, reason });
            } else if self.admit_by_rules(ticket, &command) {
                self.queued_cost += command.cost();
                self.queued.push((ticket, command));
            }
        } else if let Some(ticket) = ticket {
            let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
            self.effects.push(Effect::Failed { ticket, reason });
        }
    }

    /// Begins a linearizable read. `Effect::Read` says when the caller may read the table.
    pub fn handle_read(&mut self, ticket: Ticket) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ReadWithoutQuorum.is_active() && self.consensus.is_leader() {
            return self.effects.push(Effect::Read { ticket });
        }
        if self.consensus.is_leader() {
            self.reads.push(ticket);
        } else {
            let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
            self.effects.push(Effect::Failed { ticket, reason });
        }
    }

    /// The time, from any monotonic clock of this node. Call it after the other inputs of the turn, so that they count
    /// before the table expires anything.
    pub fn handle_time(&mut self, now: Duration) {
        self.latest_time = self.latest_time.max(now);
        self.turn_cost = 0;
        self.ticked_in_turn = false;
        let elapsed = self.clock.advance(now);
        // A follower sleeps until input comes. If a message of the leader ended the sleep, it also
        // restarted the election timeout, and the time slept before must not count toward the new
        // timeout: so at most one tick is given.
        let was_contacted = std::mem::take(&mut self.leader_just_contacted);
        let ticks = if was_contacted { elapsed.ticks.min(1) } else { elapsed.ticks };
        for _ in 0..ticks {
            self.consensus.tick();
        }
        self.reads.age(elapsed.ticks);
        self.count_ticks(elapsed.ticks);
        self.withdraw_unsent_snapshot(elapsed.ticks);
        if let (true, Some(stamp)) = (elapsed.stalled, self.clock.stamp()) {
            // Inputs that wait in the sockets are handled first.
            self.expire_not_before = stamp.after(self.config.grace);
            if self.clock.keeps_stalling() && self.may_transfer_leadership() {
                // Stalls shorter than an election timeout make no follower campaign, but logical
                // time falls behind with each of them. So the leader hands over by itself, unless
                // no other voter can lead.
                let _ = self.hand_over(None);
            }
        }
        if self.clock.keeps_writing_slowly()
            && self.another_writes_faster()
            && self.may_transfer_leadership()
        {
            let _ = self.hand_over(None);
        }
    }

    /// How long the write and sync of a pass took. Call it before `handle_time` of the next turn.
    pub fn handle_write_time(&mut self, took: Duration) {
        self.clock.note_write(took);
    }

    /// Another voter has this leader's whole log on its disk, although it began to write later than
    /// the leader. So that voter's disk is not slower.
    fn another_writes_faster(&self) -> bool {
        self.best_successor().is_some_and(|node| self.lag_of(node) == 0)
    }

    /// Prevents that leadership moves from node to node without progress, where every disk is slow.
    fn may_transfer_leadership(&self) -> bool {
        let is_settled = self.clock.led_for() >= self.config.leadership_min();
        self.consensus.has_committed_in_own_term() && (is_settled || !self.follows_short_leadership)
    }

    /// This leader is transferring its leadership. The next leader need not wait for an election timeout.
    pub fn is_handing_over(&self) -> bool {
        self.consensus.is_leader() && self.consensus.is_handing_over()
    }

    pub fn handle_peer_unreachable(&mut self, node: NodeId) {
        self.consensus.report_unreachable(node);
    }

    /// The peer's process has ended, as far as this node can tell. If it leads, this node campaigns without waiting for
    /// an election timeout. The report may be wrong: this node follows a live leader again at its next message.
    pub fn handle_peer_crash(&mut self, node: NodeId) {
        self.consensus.forget_leader(node);
    }

    pub fn handle_snapshot_sent(&mut self, to: NodeId, delivered: bool) {
        self.consensus.report_snapshot(to, delivered);
        self.withdraw_snapshot();
    }

    /// The snapshot of `Effect::SaveSnapshot` is durable: the log below it can go.
    pub fn handle_snapshot_saved(&mut self, index: u64) {
        self.snapshot_under_way = false;
        // If this group's entries still keep an old log segment from being deleted, the shard
        // requests a snapshot again.
        self.snapshot_requested = false;
        self.snapshot_index = self.snapshot_index.max(index);
        // A follower that is being sent a snapshot needs what comes after it.
        let needed = self.snapshot_in_flight.unwrap_or(index).min(index);
        let through = needed.min(index.saturating_sub(self.config.keep_entries));
        self.consensus.compact(through, index, self.config.keep_bytes);
        self.log_bytes_at_snapshot = self.consensus.log().bytes();
    }

    /// Saving failed; it is tried again after another full snapshot interval.
    pub fn handle_snapshot_failed(&mut self) {
        self.snapshot_under_way = false;
        self.snapshot_index = self.applied_index;
        self.log_bytes_at_snapshot = self.consensus.log().bytes();
    }

    /// The entries of this group keep an old part of the log on disk. The next turn takes a snapshot, if anything was
    /// applied since the last one.
    pub fn request_snapshot(&mut self) {
        self.snapshot_requested = true;
    }

    /// The first half of a pass: proposes queued commands, and returns what to send and to write.
    pub fn begin_turn(&mut self) -> Option<Turn> {
        self.update_leadership();
        if !self.consensus.is_leader() {
            // This node may have won and lost leadership within the inputs of one turn.
            self.refuse_unproposed();
        }
        self.adopt_rules_if_all_support();
        self.propose_queued();
        self.advance_membership();
        self.announce_commit_if_due();
        self.begin_read_round();
        self.offer_snapshot_if_wanted();
        if let Some(time) = self.clock.stamp() {
            let own_time = LeaderTime { term: self.consensus.term(), time };
            self.leader_time.observe(own_time, self.consensus.last_term());
        }
        let Begun { mut turn, reads } = self.consensus.begin(self.leader_time)?;
        for (context, index) in reads {
            self.reads.confirm(context, index);
        }
        turn.reads = self.reads.take_served(self.applied_index).collect();
        Some(turn)
    }

    /// Between the halves, before the disk write: a leader answers what was committed before this
    /// pass. A follower skips this: it has no callers, and its leader waits for its disk.
    pub fn answer_committed(&mut self, effects: &mut Vec<Effect>) -> Result<(), Fatal> {
        if !self.consensus.is_leader() {
            return Ok(());
        }
        // Effects from before this call, such as a leadership change, must wait for the disk.
        // `effects` is empty here: the first swap parks them in it, and the second one puts them
        // back into `self` until `finish_turn`.
        std::mem::swap(effects, &mut self.effects);
        while let Some(entry) = self.consensus.next_committed_commands() {
            self.apply(entry)?;
        }
        let served = self.reads.take_served(self.applied_index);
        self.effects.extend(served.map(|ticket| Effect::Read { ticket }));
        std::mem::swap(effects, &mut self.effects);
        Ok(())
    }

    /// Call it when everything that `begin_turn` returned is durable. Returns the messages that acknowledge it. Send
    /// them before anything is applied, because peers wait for them.
    pub fn acknowledge(&mut self) -> Vec<Outgoing> {
        self.consensus.finish()
    }

    /// The second half of a pass: everything that `begin_turn` returned is durable. Also returns
    /// the effects that had to wait for the disk, and the refusals of calls and reads.
    pub fn finish_turn(&mut self, effects: &mut Vec<Effect>) -> Result<(), Fatal> {
        let messages = self.acknowledge();
        self.effects.extend(messages.into_iter().map(Effect::Send));
        self.install_snapshot()?;
        let group = self.config.group;
        while let Some(entry) = self.consensus.next_committed().map_err(|impossible| {
            let (index, words) = (impossible.index, impossible.words);
            Fatal::ImpossibleChange { group, index, words }
        })? {
            self.apply(entry)?;
        }
        self.consensus.finish_applying();
        self.update_leadership();
        let served = self.reads.take_served(self.applied_index);
        self.effects.extend(served.map(|ticket| Effect::Read { ticket }));
        self.save_snapshot_if_due();
        self.write_snapshot();
        if effects.is_empty() {
            std::mem::swap(effects, &mut self.effects);
        } else {
            effects.append(&mut self.effects);
        }
        Ok(())
    }

    /// The lock table, as far as it is applied here.
    pub fn table(&self) -> &LockTable {
        &self.table
    }

    /// The present logical time. A leader's time advances between entries, a follower's only with them.
    pub fn now(&self) -> LogicalTime {
        self.clock.stamp().map_or(self.table.now(), |stamp| stamp.max(self.table.now()))
    }

    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    pub fn leadership(&self) -> Leadership {
        self.leadership
    }

    pub fn progress(&self) -> Progress {
        Progress {
            leadership: self.leadership,
            commit_index: self.consensus.commit_index(),
            applied_index: self.applied_index,
            last_index: self.consensus.last_index(),
            matched: self.consensus.matched(),
        }
    }

    /// After how long the next turn must begin at the latest, even without input.
    pub fn next_turn_within(&self) -> Option<Duration> {
        let slice = self.is_writing_snapshot().then_some(self.config.snapshot_slice_pause);
        let commit = self.consensus.has_unannounced_commit().then_some(COMMIT_UNANNOUNCED_MAX);
        let has_more = self.has_more_to_propose() || self.has_more_to_expire();
        let proposal = has_more.then_some(Duration::ZERO);
        [slice, commit, proposal, self.proposal_delay_left()].into_iter().flatten().min()
    }

    /// How long the shard may wait if no input comes. For a leader that is one tick. For a follower it is the time
    /// until its election timeout, bounded so that the pause does not count as a stall.
    pub fn idle_for_at_most(&self) -> Duration {
        let tick = self.config.tick;
        let ticks = self.consensus.ticks_to_election().unwrap_or(1);
        let ticks = u32::try_from(ticks.min(self.config.heartbeat_ticks + 1)).unwrap_or(1);
        let idle_max = IDLE_MAX.min(self.config.stall_max() / 2);
        tick.saturating_mul(ticks).min(idle_max).max(tick)
    }

    fn begin_read_round(&mut self) {
        if !self.consensus.has_committed_in_own_term() {
            // The `raft` crate silently drops a ReadIndex request before the leader has committed
            // in its own term.
            return;
        }
        let timeout_ticks = self.config.election_ticks.0 as u64;
        if let Some(context) = self.reads.begin_round(timeout_ticks) {
            self.consensus.request_read(context);
        }
    }

    fn apply(&mut self, entry: Committed) -> Result<(), Fatal> {
        let (group, index) = (self.config.group, entry.index);
        self.applied_index = index;
        self.applied_term = entry.term;
        let data = match entry.content {
            // Raft's own first entry of a new leader. `BeginTerm` follows it.
            Content::Commands(data) if data.is_empty() => return Ok(()),
            Content::Commands(data) => data,
            // What is known of members: their addresses and versions.
            Content::Note(data) => return self.apply_note(index, entry.term, &data),
            Content::Change { configuration, context } => {
                return self.apply_change(index, configuration, &context);
            }
        };
        let undecodable = |source| Fatal::UndecodableEntry { group, index, source };
        match self.pending.take(index, entry.term) {
            Proposed::Calls(calls) => {
                debug_assert!(is_written(&data, &calls), "entry {index} is not what was proposed");
                let at = Batch::stamp(&data).map_err(undecodable)?;
                self.apply_calls(index, at, calls.into_iter());
            }
            Proposed::Tickets(tickets) => {
                let Batch { at, commands } = Batch::decode(&data).map_err(undecodable)?;
                let tickets = tickets.into_iter().chain(std::iter::repeat(None));
                self.apply_calls(index, at, tickets.zip(commands));
            }
        }
        Ok(())
    }

    fn apply_calls(&mut self, index: u64, at: LogicalTime, calls: impl Iterator<Item = Call>) {
        let index = LogIndex(index);
        let mut events = Vec::new();
        for (ticket, command) in calls {
            if command == Command::Tick {
                self.tick_under_way = false;
            }
            let outcome = self.table.apply(index, at, command, &mut events);
            let at = self.table.now();
            // The answer goes first: a caller learns that it is queued before it learns of its grant.
            if let Some(ticket) = ticket {
                self.effects.push(Effect::Answer { ticket, at, outcome });
            }
            for event in events.drain(..) {
                self.effects.push(Effect::Happened { index, at, event });
            }
        }
    }

    /// If consensus installed a leader's snapshot, the table of that snapshot replaces this replica's table.
    fn install_snapshot(&mut self) -> Result<(), Fatal> {
        let incoming = std::mem::take(&mut self.incoming);
        let installed = self.consensus.log().first_index() - 1;
        if installed <= self.applied_index {
            return Ok(());
        }
        match incoming.into_iter().find(|incoming| incoming.index == installed) {
            Some(Incoming { index, bytes, membership, table }) => {
                #[cfg(feature = "planted")]
                let table = match table {
                    _ if crate::planted::Bug::InstalledSnapshotIgnored.is_active() => {
                        self.table.clone()
                    }
                    table => table,
                };
                self.table = table;
                // An unfinished snapshot of the old table is of no use.
                self.abandon_snapshot();
                self.membership = membership;
                self.applied_index = index;
                self.membership_changed();
                self.applied_term = self.consensus.log().term(index).unwrap_or_default();
                self.snapshot_index = index;
                self.snapshot_bytes = bytes;
                self.log_bytes_at_snapshot = 0;
                Ok(())
            }
            None => Err(Fatal::SnapshotLost { group: self.config.group, index: installed }),
        }
    }
}

/// Refuses a message that names another node than its sender.
fn check_sender(message: &IncomingMessage, sender: NodeId) -> Result<(), MessageError> {
    let from = message.from();
    if from == sender { Ok(()) } else { Err(MessageError::WrongSender { from, sender }) }
}

/// Whether the entry contains exactly these commands.
fn is_written(entry: &[u8], calls: &[Call]) -> bool {
    let commands = calls.iter().map(|(_, command)| command);
    Batch::decode(entry).is_ok_and(|batch| batch.commands.iter().eq(commands))
}
