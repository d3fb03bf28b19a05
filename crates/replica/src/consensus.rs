//! Raft, behind one file: the types of the `raft` crate are seen here and nowhere else.
//!
//! What is particular about this crate, and handled here:
//! * `propose` on a follower forwards silently, and peers may forward to us: both are dropped.
//! * `propose` returns no index: it is the last index right after.
//! * Entries surface as committed only once they are persisted locally.
//! * It panics on some impossible messages; [`Consensus::step`] refuses those first.

use std::cell::Cell;

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{
    ConfState, Entry, EntryType, HardState as RaftHardState, Message, MessageType, Snapshot,
};
use raft::{GetEntriesContext, RaftState, RawNode, Ready, SnapshotStatus, StateRole, StorageError};
use thiserror::Error;

use crate::config::ReplicaConfig;
use crate::effect::{Outgoing, Turn, Unavailable};
use crate::id::NodeId;
use crate::log_store::{HardState, LogEntry, LogStore, Missing, SnapshotFile};

const MESSAGE_BYTES_MAX: u64 = 1 << 20;
const MESSAGES_IN_FLIGHT_MAX: usize = 256;
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
const COMMITTED_BYTES_PER_TURN_MAX: u64 = 16 << 20;

/// No term, index or commit gets here in the life of a cluster; and one can be added to it.
const NUMBER_MAX: u64 = 1 << 62;

/// Why a message from a peer is not taken in.
#[derive(Debug, Error)]
pub enum MessageError {
    #[error("a consensus message cannot be decoded: {0}")]
    Undecodable(String),
    #[error("a consensus message for node {to} reached node {here}")]
    Misdirected { to: u64, here: NodeId },
    #[error("a consensus message from node {from}, which is not a member")]
    Stranger { from: u64 },
    #[error("a consensus message of kind {kind} is not taken from peers")]
    Unwanted { kind: String },
    #[error("a consensus message contradicts what is committed here: {0}")]
    Contradiction(&'static str),
    #[error("a snapshot cannot be used: {0}")]
    Snapshot(#[from] crate::snapshot_body::SnapshotError),
    #[error("consensus refuses a message: {0}")]
    Refused(String),
}

/// An entry that is committed, in log order.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) kind: u8,
    pub(crate) data: Bytes,
}

/// What came of a turn once it was durable.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) messages: Vec<Outgoing>,
    pub(crate) committed: Vec<Committed>,
    /// Context and commit index of confirmed read rounds.
    pub(crate) reads: Vec<(u64, u64)>,
}

pub(crate) struct Consensus {
    raft: RawNode<Store>,
    here: NodeId,
    /// The turn between its two halves.
    ready: Option<Ready>,
    /// A hard state that need not be durable at once (only its commit index moved).
    unwritten: Option<HardState>,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").field("here", &self.here).field("term", &self.term()).finish()
    }
}

impl Consensus {
    pub(crate) fn new(
        config: &ReplicaConfig,
        voters: &[NodeId],
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
            ..raft::Config::default()
        };
        raft_config.validate().map_err(|error| error.to_string())?;
        let members = ConfState {
            voters: voters.iter().map(|voter| voter.0).collect(),
            ..ConfState::default()
        };
        let store = Store { log, members, offered: None, snapshot_wanted: Cell::new(false) };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&raft_config, store, &logger).map_err(|error| error.to_string())?;
        Ok(Consensus { raft, here: config.node, ready: None, unwritten: None })
    }

    pub(crate) fn tick(&mut self) {
        self.raft.tick();
    }

    /// Takes in a message from a peer. Whatever the bytes are, this does not panic.
    pub(crate) fn step(&mut self, message: IncomingMessage) -> Result<(), MessageError> {
        let message = message.0;
        self.refuse_contradictions(&message)?;
        self.raft.step(message).map_err(|error| MessageError::Refused(error.to_string()))
    }

    /// Decodes a message and checks that it is meant for us and of a kind that peers may send.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<IncomingMessage, MessageError> {
        let message = Message::parse_from_bytes(bytes)
            .map_err(|error| MessageError::Undecodable(error.to_string()))?;
        if message.to != self.here.0 {
            return Err(MessageError::Misdirected { to: message.to, here: self.here });
        }
        if message.from == self.here.0 || !self.is_member(NodeId(message.from)) {
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
            // Only a leader proposes, and it reads for itself: what peers forward is dropped.
            kind => Err(MessageError::Unwanted { kind: format!("{kind:?}") }),
        }
    }

    /// What an honest member of this group never sends, and what the library would panic on, or follow to
    /// where it cannot come back from.
    fn refuse_contradictions(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        if message.term == 0 {
            // The library would take it for its own.
            return Err(Contradiction("it has no term"));
        }
        if numbers(message).any(|number| number > NUMBER_MAX) {
            return Err(Contradiction("a number in it is beyond all that can be reached"));
        }
        if message.request_snapshot != 0 {
            return Err(Contradiction("it asks for a snapshot, which leaders send by themselves"));
        }
        if message.term < self.term() {
            return Ok(());
        }
        let last_index = self.last_index();
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if message.commit > last_index => {
                Err(Contradiction("it commits entries that are not in the log"))
            }
            MessageType::MsgAppend => self.refuse_false_entries(message),
            // A follower does not care: what it sent as a leader it may have lost in a crash since.
            MessageType::MsgAppendResponse
                if self.is_leader() && !message.reject && message.index > last_index =>
            {
                Err(Contradiction("it acknowledges entries that are not in the log"))
            }
            MessageType::MsgSnapshot => self.refuse_false_snapshot(message),
            _ => Ok(()),
        }
    }

    fn refuse_false_entries(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        let log = &self.raft.raft.raft_log;
        // An index that is not in the log has term 0 for the library, and would match.
        if message.log_term == 0 && message.index > 0 {
            return Err(Contradiction("the entry before its entries has no term"));
        }
        let (mut previous, mut previous_term) = (message.index, message.log_term);
        for entry in &message.entries {
            if entry.index != previous + 1 {
                return Err(Contradiction("its entries are not contiguous"));
            }
            if entry.term == 0 || entry.term < previous_term || entry.term > message.term {
                return Err(Contradiction("the terms of its entries are not in order"));
            }
            if entry.get_entry_type() != EntryType::EntryNormal {
                return Err(Contradiction("it changes the membership, which never changes"));
            }
            (previous, previous_term) = (entry.index, entry.term);
            let known = log.term(entry.index);
            if entry.index <= log.committed
                && known.is_ok_and(|known| known != 0 && known != entry.term)
            {
                return Err(Contradiction("it replaces a committed entry"));
            }
        }
        Ok(())
    }

    fn refuse_false_snapshot(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        let log = &self.raft.raft.raft_log;
        let metadata = message.get_snapshot().get_metadata();
        if metadata.index == 0 || metadata.term == 0 || metadata.term > message.term {
            return Err(Contradiction("its snapshot is of no entry, or of a later term"));
        }
        if !is_same_membership(metadata.get_conf_state(), &self.raft.store().members) {
            return Err(Contradiction("its snapshot is of a group with other members"));
        }
        let known = log.term(metadata.index);
        if metadata.index == log.committed && known.is_ok_and(|known| known != metadata.term) {
            return Err(Contradiction("its snapshot replaces a committed entry"));
        }
        Ok(())
    }

    /// Appends to the log of a leader. Gives the entry's index and term.
    pub(crate) fn propose(&mut self, data: Vec<u8>) -> Result<(u64, u64), Unavailable> {
        if !self.is_leader() || self.raft.raft.lead_transferee.is_some() {
            return Err(Unavailable::NotLeader { leader: None });
        }
        self.raft.propose(Vec::new(), data).map_err(|_| Unavailable::Overloaded)?;
        Ok((self.last_index(), self.term()))
    }

    pub(crate) fn request_read(&mut self, context: u64) {
        self.raft.read_index(context.to_le_bytes().to_vec());
    }

    /// Hands leadership to the member with the longest log of those that were heard of lately, unless
    /// that is under way already.
    pub(crate) fn transfer_leadership(&mut self) {
        let raft = &self.raft.raft;
        if raft.lead_transferee.is_some() {
            return;
        }
        let others = raft.prs().iter().filter(|(id, _)| **id != self.here.0);
        let heard_of = others.filter(|(_, progress)| progress.recent_active);
        let best = heard_of.map(|(id, progress)| (progress.matched, *id)).max();
        if let Some((_, successor)) = best {
            self.raft.transfer_leader(successor);
        }
    }

    pub(crate) fn report_unreachable(&mut self, node: NodeId) {
        self.raft.report_unreachable(node.0);
    }

    pub(crate) fn report_snapshot(&mut self, node: NodeId, delivered: bool) {
        let status = if delivered { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.raft.report_snapshot(node.0, status);
    }

    /// Opens a turn, if there is anything to do.
    pub(crate) fn begin(&mut self) -> Option<Turn> {
        if self.ready.is_some() || !self.raft.has_ready() {
            return None;
        }
        let mut ready = self.raft.ready();
        if let Some(state) = ready.hs() {
            self.unwritten = Some(from_raft_state(state));
        }
        let mut turn = Turn {
            messages: outgoing(ready.take_messages()),
            snapshot: from_raft_snapshot(ready.snapshot()),
            entries: ready.entries().iter().map(from_raft_entry).collect(),
            hard_state: None,
        };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::SentBeforeDurable.is_active() {
            turn.messages.extend(outgoing(ready.take_persisted_messages()));
        }
        if ready.must_sync() {
            turn.hard_state = self.unwritten.take();
        }
        self.ready = Some(ready);
        Some(turn)
    }

    /// Closes the turn: everything that `begin` gave is durable.
    pub(crate) fn finish(&mut self) -> Finished {
        let mut finished = Finished::default();
        let Some(mut ready) = self.ready.take() else {
            return finished;
        };
        self.remember(&ready);
        finished.messages = outgoing(ready.take_persisted_messages());
        finished.reads = ready
            .take_read_states()
            .iter()
            .filter_map(|state| {
                let context = <[u8; 8]>::try_from(state.request_ctx.as_slice()).ok()?;
                Some((u64::from_le_bytes(context), state.index))
            })
            .collect();
        finished.committed.extend(ready.take_committed_entries().into_iter().map(committed));

        let mut light = self.raft.advance(ready);
        if let Some(commit) = light.commit_index() {
            let log = &mut self.raft.mut_store().log;
            log.hard_state.commit = commit;
            self.unwritten = Some(log.hard_state);
        }
        finished.messages.extend(outgoing(light.take_messages()));
        finished.committed.extend(light.take_committed_entries().into_iter().map(committed));
        self.raft.advance_apply();
        finished
    }

    /// Copies what is durable into the log that consensus reads.
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
        }
        for entry in ready.entries() {
            store.log.append(from_raft_entry(entry));
        }
    }

    /// Drops entries up to `through`, and more of those that the snapshot at `snapshot` covers if
    /// there are still too many bytes.
    pub(crate) fn compact(&mut self, through: u64, snapshot: u64, bytes_max: u64) {
        let log = &mut self.raft.mut_store().log;
        log.compact(through);
        log.compact_to_bytes(snapshot, bytes_max);
    }

    /// A follower lags behind the log and there is no snapshot to send it.
    pub(crate) fn snapshot_wanted(&self) -> bool {
        self.raft.store().snapshot_wanted.take()
    }

    /// Puts a snapshot where consensus finds it when it wants to send one.
    pub(crate) fn offer_snapshot(&mut self, file: SnapshotFile) {
        let store = self.raft.mut_store();
        let mut snapshot = Snapshot { data: file.data, ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        metadata.index = file.index;
        metadata.term = file.term;
        metadata.set_conf_state(store.members.clone());
        store.offered = Some(snapshot);
    }

    pub(crate) fn withdraw_snapshot(&mut self) {
        self.raft.mut_store().offered = None;
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// This leader has committed in its own term, so it knows all that was committed before.
    pub(crate) fn leads_surely(&self) -> bool {
        self.is_leader() && self.raft.raft.commit_to_current_term()
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        let id = self.raft.raft.leader_id;
        (id != raft::INVALID_ID).then_some(NodeId(id))
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

    pub(crate) fn log(&self) -> &LogStore {
        &self.raft.store().log
    }

    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.raft.store().members.voters.iter().map(|id| NodeId(*id)).collect()
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.raft.store().members.voters.contains(&node.0)
    }

    /// How far the log of each member is known to match; empty unless this replica leads.
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

/// A message that was decoded and is meant for us.
pub(crate) struct IncomingMessage(Message);

impl IncomingMessage {
    /// The snapshot that it carries.
    pub(crate) fn snapshot(&self) -> Option<SnapshotFile> {
        (self.0.get_msg_type() == MessageType::MsgSnapshot)
            .then(|| from_raft_snapshot(self.0.get_snapshot()))
            .flatten()
    }
}

/// All that is counted with.
fn numbers(message: &Message) -> impl Iterator<Item = u64> {
    let metadata = message.get_snapshot().get_metadata();
    let fields = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
        metadata.index,
        metadata.term,
    ];
    fields.into_iter().chain(message.entries.iter().flat_map(|entry| [entry.term, entry.index]))
}

/// Whether both have the same voters, in any order, and nobody else.
fn is_same_membership(claimed: &ConfState, known: &ConfState) -> bool {
    let sorted = |voters: &[u64]| {
        let mut voters = voters.to_vec();
        voters.sort_unstable();
        voters
    };
    sorted(&claimed.voters) == sorted(&known.voters)
        && claimed.learners.is_empty()
        && claimed.voters_outgoing.is_empty()
        && claimed.learners_next.is_empty()
        && !claimed.auto_leave
}

/// Our log, as the library wants to see it.
struct Store {
    log: LogStore,
    members: ConfState,
    offered: Option<Snapshot>,
    snapshot_wanted: Cell<bool>,
}

impl raft::Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(to_raft_state(self.log.hard_state), self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        Ok(self.log.slice(low, high, bytes_max).map_err(missing)?.map(to_raft_entry).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        self.log.term(index).map_err(missing)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.log.first_index())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.log.last_index())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let usable = |offered: &&Snapshot| {
            let index = offered.get_metadata().index;
            index >= request_index && index + 1 >= self.log.first_index()
        };
        match self.offered.as_ref().filter(usable) {
            Some(snapshot) => Ok(snapshot.clone()),
            None => {
                self.snapshot_wanted.set(true);
                Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

fn missing(missing: Missing) -> raft::Error {
    raft::Error::Store(match missing {
        Missing::Compacted => StorageError::Compacted,
        Missing::Unavailable => StorageError::Unavailable,
    })
}

fn outgoing(messages: Vec<Message>) -> Vec<Outgoing> {
    messages
        .into_iter()
        .filter_map(|message| {
            let is_snapshot = message.get_msg_type() == MessageType::MsgSnapshot;
            // It fails only if a required field is missing, and proto3 has none.
            let bytes = message.write_to_bytes().ok()?;
            Some(Outgoing { to: NodeId(message.to), message: bytes, is_snapshot })
        })
        .collect()
}

fn committed(entry: Entry) -> Committed {
    let kind = kind_number(entry.get_entry_type());
    Committed { index: entry.index, term: entry.term, kind, data: entry.data }
}

fn from_raft_entry(entry: &Entry) -> LogEntry {
    LogEntry {
        index: entry.index,
        term: entry.term,
        kind: kind_number(entry.get_entry_type()),
        data: entry.data.clone(),
    }
}

fn to_raft_entry(entry: &LogEntry) -> Entry {
    Entry {
        entry_type: match entry.kind {
            1 => EntryType::EntryConfChange,
            2 => EntryType::EntryConfChangeV2,
            _ => EntryType::EntryNormal,
        },
        index: entry.index,
        term: entry.term,
        data: entry.data.clone(),
        ..Entry::default()
    }
}

fn kind_number(kind: EntryType) -> u8 {
    match kind {
        EntryType::EntryNormal => 0,
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
    }
}

fn from_raft_state(state: &RaftHardState) -> HardState {
    HardState { term: state.term, vote: state.vote, commit: state.commit }
}

fn to_raft_state(state: HardState) -> RaftHardState {
    RaftHardState {
        term: state.term,
        vote: state.vote,
        commit: state.commit,
        ..RaftHardState::default()
    }
}

fn from_raft_snapshot(snapshot: &Snapshot) -> Option<SnapshotFile> {
    (!snapshot.is_empty()).then(|| {
        let metadata = snapshot.get_metadata();
        SnapshotFile { index: metadata.index, term: metadata.term, data: snapshot.data.clone() }
    })
}
