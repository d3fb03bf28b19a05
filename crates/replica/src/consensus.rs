//! Raft behind one module: no other module sees the types of the `raft` crate.
//!
//! Peculiarities of that crate, which this module handles:
//! * `propose` on a follower forwards silently, and peers may forward to us: both are dropped.
//! * `propose` returns no index: it is the last index right after.
//! * Entries surface as committed only once they are persisted locally.
//! * All messages of a follower wait for its disk, although an answer to a heartbeat promises nothing that is being
//!   written. [`Consensus::begin`] sends those answers early.
//! * It panics on some impossible messages; [`Consensus::step`] refuses those first.

mod convert;
mod leader_crash;
mod members;
mod message_checks;
mod store;

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};
use raft::{RawNode, Ready, SnapshotStatus, StateRole};
use thiserror::Error;

use self::convert::{
    NOTE_MARK, carried_leader_time, from_conf_state, from_raft_entry, from_raft_snapshot,
    from_raft_state, outgoing, to_conf_state,
};
pub(crate) use self::members::Step;
use self::store::Store;
use crate::config::ReplicaConfig;
use crate::effect::{Outgoing, Turn, Unavailable};
use crate::id::{GroupId, NodeId};
use crate::leader_time::LeaderTime;
use crate::log_store::{HardState, LogStore, SnapshotFile};
use crate::membership::Configuration;

const MESSAGE_BYTES_MAX: u64 = 1 << 20;
const MESSAGES_IN_FLIGHT_MAX: usize = 256;
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// A replica that catches up applies so many bytes per turn.
const COMMITTED_BYTES_PER_TURN_MAX: u64 = 1 << 20;

/// Why a message from a peer is refused.
#[derive(Debug, Error)]
pub enum MessageError {
    #[error("a consensus message cannot be decoded: {0}")]
    Undecodable(String),
    #[error("a consensus message for node {to} reached node {here}")]
    Misdirected { to: u64, here: NodeId },
    #[error("a consensus message from node {from}, which cannot be a member")]
    Stranger { from: u64 },
    #[error("a consensus message in the name of node {from} came from node {sender}")]
    WrongSender { from: NodeId, sender: NodeId },
    #[error("a consensus message of kind {kind} is not taken from peers")]
    Unwanted { kind: String },
    #[error("a consensus message contradicts what is committed here: {0}")]
    Contradiction(&'static str),
    #[error("a snapshot cannot be used: {0}")]
    Snapshot(#[from] crate::snapshot_body::SnapshotError),
    #[error("consensus refuses a message: {0}")]
    Refused(String),
}

/// A committed entry.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// A batch of commands; empty in a new leader's first entry.
    Commands(Bytes),
    /// A leader's note about members.
    Note(Bytes),
    /// The membership changed. Consensus uses the new one already.
    Change { configuration: Configuration, context: Bytes },
}

/// A committed membership change that no leader would have proposed.
#[derive(Debug)]
pub(crate) struct ImpossibleChange {
    pub(crate) index: u64,
    pub(crate) words: String,
}

/// A turn, and the reads that do not wait for its disk write.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) turn: Turn,
    /// Context and commit index of confirmed read rounds.
    pub(crate) reads: Vec<(u64, u64)>,
}

pub(crate) struct Consensus {
    raft: RawNode<Store>,
    group: GroupId,
    here: NodeId,
    /// The turn between its two halves.
    ready: Option<Ready>,
    /// Messages of the turn that promise what is being written.
    held_back: Vec<Outgoing>,
    /// Entries that are committed and durable here, but not applied.
    unapplied: VecDeque<Entry>,
    /// The commit index that the followers know, or are about to get.
    commit_announced: u64,
    /// A hard state that need not be durable at once, because only its commit index moved.
    unwritten: Option<HardState>,
    /// The members have changed, and the commit index must become durable soon. After a restart with the old members,
    /// the group could need the vote of a removed node that no longer exists.
    has_new_members: bool,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").field("here", &self.here).field("term", &self.term()).finish()
    }
}

impl Consensus {
    pub(crate) fn new(
        config: &ReplicaConfig,
        members: &Configuration,
        log: LogStore,
        applied: u64,
    ) -> Result<Consensus, String> {
        let (election_min, election_max) = config.election_ticks;
        let raft_config = raft::Config {
            id: config.node.0,
            election_tick: election_min,
            min_election_tick: election_min,
            max_election_tick: election_max,
            heartbeat_tick: config.heartbeat_ticks,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: COMMITTED_BYTES_PER_TURN_MAX,
            check_quorum: true,
            pre_vote: true,
            // The next entries carry the commit index as well, and mostly follow at once; see `announce_commit`.
            skip_bcast_commit: true,
            ..raft::Config::default()
        };
        #[cfg(feature = "planted")]
        let raft_config = match raft_config {
            config if crate::planted::Bug::ReadByLease.is_active() => {
                raft::Config { read_only_option: raft::ReadOnlyOption::LeaseBased, ..config }
            }
            config => config,
        };
        raft_config.validate().map_err(|error| error.to_string())?;
        let members = to_conf_state(members);
        let store = Store {
            log,
            members,
            offered: None,
            is_fetched: Cell::new(false),
            snapshot_wanted: Cell::new(false),
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&raft_config, store, &logger).map_err(|error| error.to_string())?;
        Ok(Consensus {
            raft,
            group: config.group,
            here: config.node,
            ready: None,
            held_back: Vec::new(),
            unapplied: VecDeque::new(),
            commit_announced: 0,
            unwritten: None,
            has_new_members: false,
        })
    }

    pub(crate) fn tick(&mut self) {
        self.raft.tick();
    }

    /// Handles a message from a peer. It does not panic, whatever the bytes are.
    pub(crate) fn step(&mut self, message: IncomingMessage) -> Result<(), MessageError> {
        let message = message.0;
        self.check_message(&message)?;
        self.raft.step(message).map_err(|error| MessageError::Refused(error.to_string()))
    }

    /// Decodes a message, and checks that it is for this node and of a kind that peers may send.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<IncomingMessage, MessageError> {
        self.admit(IncomingMessage::parse(bytes)?)
    }

    /// Checks that a message is for this node and of a kind that peers may send.
    pub(crate) fn admit(&self, message: IncomingMessage) -> Result<IncomingMessage, MessageError> {
        let IncomingMessage(message) = message;
        if message.to != self.here.0 {
            return Err(MessageError::Misdirected { to: message.to, here: self.here });
        }
        if message.from == self.here.0 || message.from == raft::INVALID_ID {
            return Err(MessageError::Stranger { from: message.from });
        }
        match message.get_msg_type() {
            MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgSnapshot
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgTimeoutNow => Ok(IncomingMessage(message)),
            // Only the leader proposes and reads, and it does so itself. Forwarded requests are dropped.
            kind => Err(MessageError::Unwanted { kind: format!("{kind:?}") }),
        }
    }

    /// Appends to the leader's log. Returns the index and the term of the entry.
    pub(crate) fn propose(&mut self, data: Vec<u8>) -> Result<(u64, u64), Unavailable> {
        self.append(Vec::new(), data)
    }

    /// As [`Consensus::propose`], for a note about members.
    pub(crate) fn propose_note(&mut self, data: Vec<u8>) -> Result<(u64, u64), Unavailable> {
        self.append(NOTE_MARK.to_vec(), data)
    }

    fn append(&mut self, mark: Vec<u8>, data: Vec<u8>) -> Result<(u64, u64), Unavailable> {
        if !self.is_leader() || self.is_handing_over() {
            return Err(Unavailable::NotLeader { leader: None });
        }
        self.raft.propose(mark, data).map_err(|_| Unavailable::Overloaded)?;
        self.commit_announced = self.commit_index();
        Ok((self.last_index(), self.term()))
    }

    /// The commit index is above the one that the followers know.
    pub(crate) fn has_unannounced_commit(&self) -> bool {
        self.is_leader() && self.commit_index() > self.commit_announced
    }

    /// Sends the commit index without entries.
    pub(crate) fn announce_commit(&mut self) {
        self.raft.raft.bcast_append();
        self.commit_announced = self.commit_index();
    }

    pub(crate) fn request_read(&mut self, context: u64) {
        self.raft.read_index(context.to_le_bytes().to_vec());
    }

    pub(crate) fn report_unreachable(&mut self, node: NodeId) {
        self.raft.report_unreachable(node.0);
    }

    pub(crate) fn report_snapshot(&mut self, node: NodeId, delivered: bool) {
        let status = if delivered { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.raft.report_snapshot(node.0, status);
    }

    /// Begins a turn, if there is anything to do. Its heartbeats and votes carry `leader_time`.
    pub(crate) fn begin(&mut self, leader_time: LeaderTime) -> Option<Begun> {
        if self.ready.is_some() || !self.raft.has_ready() {
            return None;
        }
        let mut ready = self.raft.ready();
        if let Some(state) = ready.hs() {
            self.unwritten = Some(from_raft_state(state));
        }
        // The library returns only entries that were durable here before.
        self.unapplied.extend(ready.take_committed_entries());
        let (messages, late) = self.split_by_promise(&mut ready);
        self.held_back = outgoing(late, leader_time);
        let mut turn = Turn {
            messages: outgoing(messages, leader_time),
            reads: Vec::new(),
            snapshot: from_raft_snapshot(ready.snapshot()),
            entries: ready.entries().iter().map(from_raft_entry).collect(),
            hard_state: None,
        };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::SentBeforeDurable.is_active() {
            turn.messages.append(&mut self.held_back);
        }
        if ready.must_sync() || std::mem::take(&mut self.has_new_members) {
            turn.hard_state = self.unwritten.take();
        }
        let states = ready.take_read_states();
        let reads = states.iter().filter_map(|state| {
            let context = <[u8; 8]>::try_from(state.request_ctx.as_slice()).ok()?;
            Some((u64::from_le_bytes(context), state.index))
        });
        let reads = reads.collect();
        self.ready = Some(ready);
        Some(Begun { turn, reads })
    }

    /// The messages that may be sent before the disk write, and those that wait for it.
    ///
    /// A leader's messages go early. So do a follower's answers to heartbeats, which promise nothing but its term. In a
    /// turn that changes the term or the vote, all messages wait: a node that crashed before the write would use the
    /// same term twice. That concerns a leader, too: a single voter elects itself and leads within one such turn.
    fn split_by_promise(&self, ready: &mut Ready) -> (Vec<Message>, Vec<Message>) {
        let durable = self.raft.store().log.hard_state;
        let is_durable = |state: &raft::eraftpb::HardState| {
            (state.term, state.vote) == (durable.term, durable.vote)
        };
        let of_leader = ready.take_messages();
        let of_follower = ready.take_persisted_messages();
        let is_old_term = ready.hs().is_none_or(is_durable);
        if !is_old_term {
            return (Vec::new(), of_leader.into_iter().chain(of_follower).collect());
        }
        let promises_nothing =
            |message: &Message| message.get_msg_type() == MessageType::MsgHeartbeatResponse;
        let (answers, late) = of_follower.into_iter().partition::<Vec<_>, _>(promises_nothing);
        (of_leader.into_iter().chain(answers).collect(), late)
    }

    /// Ends the turn: everything that `begin` returned is durable. Returns the messages that may be sent now.
    pub(crate) fn finish(&mut self) -> Vec<Outgoing> {
        let Some(ready) = self.ready.take() else {
            return Vec::new();
        };
        self.remember(&ready);
        let mut messages = std::mem::take(&mut self.held_back);
        let mut light = self.raft.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            let log = &mut self.raft.mut_store().log;
            log.hard_state.commit = commit;
            self.unwritten = Some(log.hard_state);
        }
        messages.extend(outgoing(light.take_messages(), LeaderTime::default()));
        self.unapplied.extend(light.take_committed_entries());
        messages
    }

    /// The next entry to apply. A membership change counts from here on. An impossible one is an error.
    pub(crate) fn next_committed(&mut self) -> Result<Option<Committed>, ImpossibleChange> {
        if self.unapplied.front().is_some_and(|entry| self.is_early_own_removal(entry)) {
            return Ok(None);
        }
        self.unapplied.pop_front().map(|entry| self.committed(entry)).transpose()
    }

    /// As [`Consensus::next_committed`], if the entry contains only commands.
    pub(crate) fn next_committed_commands(&mut self) -> Option<Committed> {
        let entry = self.unapplied.front()?;
        let is_plain =
            entry.get_entry_type() == EntryType::EntryNormal && entry.context != NOTE_MARK;
        // Such an entry changes no member, so it cannot fail.
        is_plain.then(|| self.next_committed().ok().flatten()).flatten()
    }

    /// Tells the library that all committed entries are applied, if they are.
    pub(crate) fn finish_applying(&mut self) {
        if self.unapplied.is_empty() {
            self.raft.advance_apply();
        }
    }

    /// Copies the durable entries and state into the log that consensus reads.
    fn remember(&mut self, ready: &Ready) {
        let store = self.raft.mut_store();
        if let Some(state) = ready.hs() {
            store.log.hard_state = from_raft_state(state);
        }
        let snapshot = ready.snapshot();
        if !snapshot.is_empty() {
            let metadata = snapshot.get_metadata();
            store.log.reset(metadata.index, metadata.term);
            store.members = metadata.get_conf_state().clone();
            self.unapplied.retain(|entry| entry.index > metadata.index);
        }
        for entry in ready.entries() {
            store.log.append(from_raft_entry(entry));
        }
    }

    /// Drops entries up to `through`. If there are still too many bytes, drops more entries that the snapshot at
    /// `snapshot` covers.
    pub(crate) fn compact(&mut self, through: u64, snapshot: u64, bytes_max: u64) {
        let log = &mut self.raft.mut_store().log;
        log.compact(through);
        log.compact_to_bytes(snapshot, bytes_max);
    }

    /// A follower lags behind the compacted log, and there is no snapshot for it.
    pub(crate) fn snapshot_wanted(&self) -> bool {
        self.raft.store().snapshot_wanted.take()
    }

    /// Gives consensus a snapshot to send.
    pub(crate) fn offer_snapshot(&mut self, file: SnapshotFile, members: &Configuration) {
        let store = self.raft.mut_store();
        let mut snapshot = Snapshot { data: file.data, ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        metadata.index = file.index;
        metadata.term = file.term;
        metadata.set_conf_state(to_conf_state(members));
        store.offered = Some(snapshot);
        store.is_fetched.set(false);
    }

    /// Consensus has a snapshot for a follower and has not sent it.
    pub(crate) fn has_unsent_snapshot(&self) -> bool {
        let store = self.raft.store();
        store.offered.is_some() && !store.is_fetched.get()
    }

    pub(crate) fn withdraw_snapshot(&mut self) {
        self.raft.mut_store().offered = None;
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// This leader has committed an entry of its own term, so it knows all that was committed before.
    pub(crate) fn has_committed_in_own_term(&self) -> bool {
        self.is_leader() && self.raft.raft.commit_to_current_term()
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        let id = self.raft.raft.leader_id;
        (id != raft::INVALID_ID).then_some(NodeId(id))
    }

    /// Ticks since a follower's last contact with a leader; none for a leader or a candidate.
    pub(crate) fn ticks_without_leader(&self) -> Option<usize> {
        let raft = &self.raft.raft;
        (raft.state == StateRole::Follower).then_some(raft.election_elapsed)
    }

    /// Ticks until a follower without a message from its leader campaigns.
    pub(crate) fn ticks_to_election(&self) -> Option<usize> {
        let timeout = self.raft.raft.randomized_election_timeout();
        self.ticks_without_leader().map(|ticks| timeout.saturating_sub(ticks).max(1))
    }

    pub(crate) fn term(&self) -> u64 {
        self.raft.raft.term
    }

    pub(crate) fn commit_index(&self) -> u64 {
        self.raft.raft.raft_log.committed
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.raft.raft.raft_log.last_index()
    }

    /// The term of the last entry.
    pub(crate) fn last_term(&self) -> u64 {
        self.raft.raft.raft_log.last_term()
    }

    /// The term of the last entry from before the present term. A new leader calls it, so the loop reads about two
    /// entries.
    pub(crate) fn last_term_of_others(&self) -> u64 {
        let log = &self.raft.raft.raft_log;
        let mut terms =
            (0..=log.last_index()).rev().map(|index| log.term(index).unwrap_or_default());
        terms.find(|term| *term < self.term()).unwrap_or_default()
    }

    pub(crate) fn log(&self) -> &LogStore {
        &self.raft.store().log
    }

    /// The index up to which each member's log is known to match; empty unless this replica leads.
    pub(crate) fn matched(&self) -> Vec<(NodeId, u64)> {
        if !self.is_leader() {
            return Vec::new();
        }
        let mut matched: Vec<_> = self
            .raft
            .raft
            .prs()
            .iter()
            .map(|(id, progress)| (NodeId(*id), progress.matched))
            .collect();
        matched.sort_unstable();
        matched
    }
}

/// A message that was decoded.
pub(crate) struct IncomingMessage(Message);

impl IncomingMessage {
    pub(crate) fn parse(bytes: &[u8]) -> Result<IncomingMessage, MessageError> {
        Message::parse_from_bytes(bytes)
            .map(IncomingMessage)
            .map_err(|error| MessageError::Undecodable(error.to_string()))
    }

    pub(crate) fn from(&self) -> NodeId {
        NodeId(self.0.from)
    }

    /// The leader time that the message carries.
    pub(crate) fn carried_leader_time(&self) -> LeaderTime {
        carried_leader_time(&self.0)
    }

    /// The members in the snapshot that the message carries.
    pub(crate) fn snapshot_members(&self) -> Configuration {
        from_conf_state(self.0.get_snapshot().get_metadata().get_conf_state())
    }

    /// The snapshot that the message carries.
    pub(crate) fn snapshot(&self) -> Option<SnapshotFile> {
        (self.0.get_msg_type() == MessageType::MsgSnapshot)
            .then(|| from_raft_snapshot(self.0.get_snapshot()))
            .flatten()
    }
}
