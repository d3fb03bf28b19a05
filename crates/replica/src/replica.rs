//! The replica itself: takes in, proposes, applies, and says what is to be done.

mod company;
mod members;
mod office;
mod proposals;
mod rules;
mod snapshots;

use std::fmt;
use std::time::Duration;

use holdfast_core::{Batch, Command, DecodeError, Limits, LockTable, LogIndex, LogicalTime};
use thiserror::Error;

use self::members::Care;
pub use self::members::HandOverRefusal;
use self::office::Office;
use self::proposals::QUEUED_COST_MAX;
use self::rules::RulesAdoption;
use crate::clock::Clock;
use crate::config::ReplicaConfig;
use crate::consensus::{Begun, Committed, Consensus, Content, IncomingMessage, MessageError};
use crate::effect::{Effect, Leadership, Outgoing, Ticket, Turn, Unavailable};
use crate::heard_time::HeardTime;
use crate::id::{GroupId, NodeId};
use crate::log_store::{Durable, LogStore, SnapshotFile};
use crate::membership::{Membership, MembershipBytesError};
use crate::pending::{Call, Pending, Proposed};
use crate::reads::Reads;
use crate::snapshot_body::{self, SnapshotError};

/// Followers hear of what is committed with the next entries, and if none follow after this time.
const COMMIT_UNTOLD_MAX: Duration = Duration::from_millis(1);

/// No replica rests for longer, whatever its ticks are: others look whether its loop turns.
const REST_MAX: Duration = Duration::from_millis(500);

/// One group's share of the lock table on this node.
#[derive(Debug)]
pub struct Replica {
    config: ReplicaConfig,
    consensus: Consensus,
    table: LockTable,
    membership: Membership,
    care: Care,
    rules_adoption: RulesAdoption,
    clock: Clock,
    /// What leaders say about the time, this one included.
    heard: HeardTime,
    /// Commands for the next proposal.
    queued: Vec<Call>,
    /// What it costs to apply them.
    queued_cost: usize,
    /// What it costs to apply that which was proposed since time was last told.
    turn_cost: usize,
    /// Since when all of them wait for company.
    alone_since: Option<Duration>,
    pending: Pending,
    reads: Reads,
    /// What was last said to the shard.
    leadership: Leadership,
    /// Who leads, or did last.
    office: Option<Office>,
    /// The one before this replica's was short.
    follows_short_office: bool,
    /// In the input of this turn: what makes a follower wait anew for an election timeout.
    leader_just_heard: bool,
    /// Since when this leader has not told its followers all that is committed.
    commit_untold_since: Option<Duration>,
    /// A leader ends nothing before this time: after a stall its input is read first.
    expire_not_before: LogicalTime,
    /// One tick is proposed at a time.
    tick_under_way: bool,
    applied_index: u64,
    applied_term: u64,
    /// A snapshot is being saved, or was.
    snapshot_index: u64,
    /// How large the last one is.
    snapshot_bytes: u64,
    snapshot_under_way: bool,
    snapshot_requested: bool,
    /// Offered to a follower that lags; it has not been said yet whether it arrived.
    snapshot_in_flight: Option<u64>,
    /// For how long the one that is offered has not been sent.
    snapshot_unsent_ticks: u64,
    unfinished: Option<snapshots::Unfinished>,
    /// The last time that was told, and when the last slice of a snapshot was written.
    told_time: Duration,
    sliced_last: Duration,
    /// Who wants a backup, for which one that is under way is too old.
    backups_wanted: Vec<Ticket>,
    log_bytes_at_snapshot: u64,
    /// Snapshots that came in this turn. If consensus installs one, it becomes the table.
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

/// A message of a leader that carries a snapshot, decoded. That takes long for a large table, so it is done on another
/// thread than the one that owns the replica.
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
    /// `limits` are those of the replica that will take it.
    pub fn decode(bytes: &[u8], limits: Limits) -> Result<SnapshotMessage, MessageError> {
        let message = IncomingMessage::parse(bytes)?;
        let Some(snapshot) = message.snapshot() else {
            return Err(MessageError::Contradiction("it carries no snapshot"));
        };
        let incoming = Incoming::read(&message, &snapshot, limits)?;
        Ok(SnapshotMessage { message, incoming })
    }
}

/// Why a replica cannot start from what is on disk.
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

/// A bug or corruption. The node has to stop: going on could break a promise.
#[derive(Debug, Error)]
pub enum Fatal {
    #[error("group {group}: the committed entry {index} cannot be decoded: {source}")]
    UndecodableEntry { group: GroupId, index: u64, source: DecodeError },
    #[error("group {group}: what the committed entry {index} says of members is wrong: {source}")]
    UndecodableNote { group: GroupId, index: u64, source: MembershipBytesError },
    #[error("group {group}: the committed entry {index} cannot change the members: {words}")]
    ImpossibleChange { group: GroupId, index: u64, words: String },
    #[error("group {group}: consensus installed a snapshot at {index} that was not received")]
    SnapshotLost { group: GroupId, index: u64 },
}

/// Where a replica stands, for people.
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
    /// Starts from what the disk has.
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
        // The snapshot is committed, whether or not the last hard state on disk knew it.
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
            care: Care::default(),
            rules_adoption: RulesAdoption::default(),
            heard: HeardTime::default(),
            queued: Vec::new(),
            queued_cost: 0,
            turn_cost: 0,
            alone_since: None,
            pending: Pending::default(),
            reads: Reads::default(),
            leadership: Leadership::default(),
            office: None,
            follows_short_office: false,
            leader_just_heard: false,
            commit_untold_since: None,
            expire_not_before: LogicalTime::ZERO,
            tick_under_way: false,
            applied_index,
            applied_term,
            snapshot_index: applied_index,
            snapshot_bytes,
            snapshot_under_way: false,
            snapshot_requested: false,
            snapshot_in_flight: None,
            snapshot_unsent_ticks: 0,
            unfinished: None,
            told_time: Duration::ZERO,
            sliced_last: Duration::ZERO,
            backups_wanted: Vec::new(),
            log_bytes_at_snapshot: 0,
            incoming: Vec::new(),
            effects: Vec::new(),
            config,
        })
    }

    /// Bytes from the node at the other end of a connection. A message in the name of another node is refused.
    pub fn handle_message_of(&mut self, sender: NodeId, bytes: &[u8]) -> Result<(), MessageError> {
        let message = self.consensus.decode(bytes)?;
        check_sender(&message, sender)?;
        self.handle_incoming(message)
    }

    /// Bytes from a peer, on a network on which no node can pass for another.
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
        let (from, said) = (message.from(), message.said_time());
        // The vote that makes it a leader makes it write an entry of its own, too.
        let last_term = self.consensus.last_term();
        // One that is not known may have been added by entries that are yet to come.
        if self.membership.was_removed(from) {
            return Err(MessageError::Stranger { from: from.0 });
        }
        // Only one that consensus took can be the one that it installs.
        self.consensus.step(message)?;
        self.incoming.extend(carried);
        self.heard.hear(said, last_term);
        self.heard_of(from);
        self.leader_just_heard |= self.consensus.ticks_without_leader() == Some(0);
        Ok(())
    }

    /// A command to commit. Its answer, or the reason why there is none, comes as an effect.
    pub fn handle_call(&mut self, ticket: Option<Ticket>, command: Command) {
        if self.consensus.is_leader() {
            if let Some(ticket) = ticket.filter(|_| self.queued_cost >= QUEUED_COST_MAX) {
                let reason = Unavailable::Overloaded;
                self.effects.push(Effect::Failed { ticket, reason });
            } else if self.may_enter_the_log(ticket, &command) {
                self.queued_cost += command.cost();
                self.queued.push((ticket, command));
            }
        } else if let Some(ticket) = ticket {
            let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
            self.effects.push(Effect::Failed { ticket, reason });
        }
    }

    /// A linearizable read. `Effect::Read` says when the table may be looked at.
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

    /// The time, from any monotonic clock of this node. Call it after the other inputs of the turn,
    /// so that what they say counts before anything is found to be due.
    pub fn handle_time(&mut self, now: Duration) {
        self.told_time = self.told_time.max(now);
        self.turn_cost = 0;
        let elapsed = self.clock.advance(now);
        // What a follower has rested for lies before what it has just heard of its leader.
        let is_just_heard = std::mem::take(&mut self.leader_just_heard);
        let ticks = if is_just_heard { elapsed.ticks.min(1) } else { elapsed.ticks };
        for _ in 0..ticks {
            self.consensus.tick();
        }
        self.reads.age(elapsed.ticks);
        self.count_ticks(elapsed.ticks);
        self.withdraw_unsent_snapshot(elapsed.ticks);
        if let (true, Some(stamp)) = (elapsed.stalled, self.clock.stamp()) {
            // What waits in the sockets is heard first.
            self.expire_not_before = stamp.after(self.config.grace);
            if self.clock.keeps_stalling() && self.may_leave_for_another() {
                // Nobody deposes a leader that is slow within an election timeout, and all time runs late under
                // it. Without anybody better it is better than none.
                let _ = self.hand_over(None);
            }
        }
        if self.clock.keeps_writing_slowly()
            && self.another_writes_faster()
            && self.may_leave_for_another()
        {
            let _ = self.hand_over(None);
        }
    }

    /// One write of a turn, with its sync, took so long. Call it before the time of the next turn.
    pub fn handle_write_time(&mut self, took: Duration) {
        self.clock.note_write(took);
    }

    /// Another voter has on its disk all that this leader has: it began to write later, and was done first.
    fn another_writes_faster(&self) -> bool {
        self.best_successor().is_some_and(|node| self.lag_of(node) == 0)
    }

    /// Where every disk is slow the office must not go round faster than anything can be done in it.
    fn may_leave_for_another(&self) -> bool {
        let is_settled = self.clock.in_office_for() >= self.config.office_min();
        self.consensus.leads_surely() && (is_settled || !self.follows_short_office)
    }

    /// This leader is about to be another's follower: whoever it told to lead need not wait until it could be
    /// elected.
    pub fn is_handing_over(&self) -> bool {
        self.consensus.is_leader() && self.consensus.is_handing_over()
    }

    pub fn handle_peer_unreachable(&mut self, node: NodeId) {
        self.consensus.report_unreachable(node);
    }

    /// The peer's process has ended, as far as this node can tell. If it leads, another is elected without waiting
    /// for it. It may be wrong: a leader that lives is followed again when it says something.
    pub fn handle_peer_gone(&mut self, node: NodeId) {
        self.consensus.forget_leader(node);
    }

    pub fn handle_snapshot_sent(&mut self, to: NodeId, delivered: bool) {
        self.consensus.report_snapshot(to, delivered);
        self.withdraw_snapshot();
    }

    /// The snapshot of `Effect::SaveSnapshot` is durable: the log below it can go.
    pub fn handle_snapshot_saved(&mut self, index: u64) {
        self.snapshot_under_way = false;
        // If it is still in the way, that is said again.
        self.snapshot_requested = false;
        self.snapshot_index = self.snapshot_index.max(index);
        // A follower that is being sent a snapshot needs what comes after it.
        let needed = self.snapshot_in_flight.unwrap_or(index).min(index);
        let through = needed.min(index.saturating_sub(self.config.keep_entries));
        self.consensus.compact(through, index, self.config.keep_bytes);
        self.log_bytes_at_snapshot = self.consensus.log().bytes();
    }

    /// Saving failed; it is tried again after as many entries as before the first time.
    pub fn handle_snapshot_failed(&mut self) {
        self.snapshot_under_way = false;
        self.snapshot_index = self.applied_index;
        self.log_bytes_at_snapshot = self.consensus.log().bytes();
    }

    /// Its entries keep an old part of the log on disk: the next turn takes a snapshot, if anything
    /// was applied since the last one.
    pub fn request_snapshot(&mut self) {
        self.snapshot_requested = true;
    }

    /// The first half of a turn: proposes what is queued, and says what to send and to write.
    pub fn begin_turn(&mut self) -> Option<Turn> {
        self.note_leadership();
        if !self.consensus.is_leader() {
            // Office may have been won and lost within the inputs of one turn.
            self.refuse_waiting();
        }
        self.adopt_rules_if_all_read();
        self.propose_queued();
        self.look_after_membership();
        self.tell_commit_if_due();
        self.begin_read_round();
        self.offer_snapshot_if_wanted();
        if let Some(time) = self.clock.stamp() {
            let said = HeardTime { term: self.consensus.term(), time };
            self.heard.hear(said, self.consensus.last_term());
        }
        let Begun { mut turn, reads } = self.consensus.begin(self.heard)?;
        for (context, index) in reads {
            self.reads.confirm(context, index);
        }
        turn.reads = self.reads.take_served(self.applied_index).collect();
        Some(turn)
    }

    /// Between the halves, before the disk works: a leader answers what was committed before this turn. A follower has
    /// nobody to answer, and its leader waits for its disk.
    pub fn answer_committed(&mut self, effects: &mut Vec<Effect>) -> Result<(), Fatal> {
        if !self.consensus.is_leader() {
            return Ok(());
        }
        // What was noted before these, such as a change of office, waits for the disk.
        std::mem::swap(effects, &mut self.effects);
        while let Some(entry) = self.consensus.next_committed_commands() {
            self.apply(entry)?;
        }
        let served = self.reads.take_served(self.applied_index);
        self.effects.extend(served.map(|ticket| Effect::Read { ticket }));
        std::mem::swap(effects, &mut self.effects);
        Ok(())
    }

    /// What `begin_turn` gave is durable: these messages say so. They go before anything is applied, because
    /// others wait for them.
    pub fn acknowledge(&mut self) -> Vec<Outgoing> {
        self.consensus.finish()
    }

    /// The second half: what `begin_turn` gave is durable. Also gives what was refused meanwhile.
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
        self.consensus.all_is_applied();
        self.note_leadership();
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

    /// Logical time as of now: a leader's clock goes on between entries, a follower's table stands
    /// still.
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

    /// The latest moment for the next turn, from now, whether or not there is input.
    pub fn next_turn_within(&self) -> Option<Duration> {
        let slice = self.is_writing_snapshot().then_some(self.config.snapshot_slice_pause);
        let commit = self.consensus.has_untold_commit().then_some(COMMIT_UNTOLD_MAX);
        let proposal = self.has_more_to_propose().then_some(Duration::ZERO);
        [slice, commit, proposal, self.company_within()].into_iter().flatten().min()
    }

    /// How long it may rest if nothing comes: a leader for a tick, and a follower until it would have to do something by
    /// itself, if that is soon enough not to be taken for a stall. Its leader is heard of before, mostly.
    pub fn rests_for(&self) -> Duration {
        let tick = self.config.tick;
        let ticks = self.consensus.ticks_to_election().unwrap_or(1);
        let ticks = u32::try_from(ticks.min(self.config.heartbeat_ticks + 1)).unwrap_or(1);
        let rest_max = REST_MAX.min(self.config.stall_max() / 2);
        tick.saturating_mul(ticks).min(rest_max).max(tick)
    }

    fn begin_read_round(&mut self) {
        if !self.consensus.leads_surely() {
            // Asked earlier it would be dropped without a word.
            return;
        }
        let patience_ticks = self.config.election_ticks.0 as u64;
        if let Some(context) = self.reads.begin_round(patience_ticks) {
            self.consensus.request_read(context);
        }
    }

    fn apply(&mut self, entry: Committed) -> Result<(), Fatal> {
        let (group, index) = (self.config.group, entry.index);
        self.applied_index = index;
        self.applied_term = entry.term;
        let data = match entry.content {
            // A new leader's first entry.
            Content::Commands(data) if data.is_empty() => return Ok(()),
            Content::Commands(data) => data,
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
            // The answer goes first: whoever is queued learns it before being promoted.
            if let Some(ticket) = ticket {
                self.effects.push(Effect::Answer { ticket, at, outcome });
            }
            for event in events.drain(..) {
                self.effects.push(Effect::Happened { index, at, event });
            }
        }
    }

    /// If consensus has moved to a leader's snapshot, so does the table.
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
                // What was being written of the old one is of no use.
                self.give_up_snapshot();
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

/// A message in the name of another node than its sender is refused.
fn check_sender(message: &IncomingMessage, sender: NodeId) -> Result<(), MessageError> {
    let from = message.from();
    if from == sender { Ok(()) } else { Err(MessageError::WrongSender { from, sender }) }
}

/// Are these the commands of that entry?
fn is_written(entry: &[u8], calls: &[Call]) -> bool {
    let commands = calls.iter().map(|(_, command)| command);
    Batch::decode(entry).is_ok_and(|batch| batch.commands.iter().eq(commands))
}
