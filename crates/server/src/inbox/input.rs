//! What the rest of the node says to the shard.

use holdfast_core::{
    Command, FreezeInfo, LockName, LockSummary, LogicalTime, RequestId, RulesVersion, SessionId,
    TableLimits,
};
use holdfast_engine::{
    Answer, CallRef, ChangeAnswer, LiveCall, Query, ReadAnswer, StreamKey, TouchesAnswer,
    Unavailable,
};
use holdfast_replica::{
    GroupId, HandOverRefusal, Member, MembershipChange, NodeId, Replica, Role, SnapshotMessage,
};
use holdfast_wal::{DurableSnapshot, FileDisk, Spare, WriteError};
use tokio::sync::oneshot;

use super::connection::{Connection, Deferrable, OPERATIONS_PER_READ};
use crate::outbox::TaskOutbox;
use crate::transport::ByteStream;

/// One thing for the shard to do.
#[derive(Debug)]
pub(crate) enum Input {
    /// One command, answered once.
    Call {
        group: GroupId,
        command: Command,
        reply: oneshot::Sender<Answer>,
        /// None if it is not undone when its caller hangs up.
        call: Option<CallRef>,
    },
    /// The caller hung up before it had its answer.
    Abandoned { group: GroupId, session: SessionId, request: RequestId, call: LiveCall },
    /// Heartbeats of many sessions, at least one, answered at once.
    Touches { group: GroupId, sessions: Vec<SessionId>, reply: oneshot::Sender<TouchesAnswer> },
    /// A stream that a task serves begins. Its `Opening` command is the stream's first operation.
    StreamOpened {
        stream: StreamKey,
        outbox: TaskOutbox,
        /// Told once the session's TTL is known.
        deferrable: Deferrable,
    },
    /// A framed connection of a client. The shard owns it from now on.
    Connection(Box<dyn Connection>),
    /// The operations of one client frame, each with the number under which it is answered.
    Frame {
        stream: StreamKey,
        operations: Vec<(RequestId, Command)>,
        /// If they are a heartbeat alone, it may wait.
        is_deferrable: bool,
    },
    /// A stream ended. If it was the client who went away, its session begins to linger.
    StreamClosed { stream: StreamKey, client_gone: bool },
    /// The locks that one client frame asks about, each with the number under which it is answered.
    Reads { stream: StreamKey, reads: Vec<(RequestId, LockName)> },
    /// A linearizable read.
    Read { group: GroupId, query: Query, reply: oneshot::Sender<Result<ReadAnswer, Unavailable>> },
    /// So much is published; see `Command::EventsPublished`. Without an answer if some member could not read it.
    EventsPublished { group: GroupId, command: Command, reply: oneshot::Sender<Answer> },
    /// This node's own view; needs no quorum.
    Inspect { with_digests: bool, reply: oneshot::Sender<Vec<GroupView>> },
    /// This node's own copy of the table, which may be old; needs no quorum. So many locks of it, by name.
    ReadOwnTable { group: GroupId, locks_max: usize, reply: oneshot::Sender<OwnTable> },
    /// A peer's wire was opened, with a ticket of this number.
    PeerWire { from: NodeId, number: u64, stream: Box<dyn ByteStream> },
    /// A leader's snapshot, decoded already.
    PeerSnapshot { from: NodeId, group: GroupId, message: Box<SnapshotMessage> },
    /// An operator changes the membership; answered when it is done, or refused.
    ChangeMembership {
        group: GroupId,
        change: MembershipChange,
        reply: oneshot::Sender<ChangeAnswer>,
    },
    /// An operator wants another node to lead; answered when it was told to.
    HandOver {
        group: GroupId,
        to: Option<NodeId>,
        reply: oneshot::Sender<Result<NodeId, HandOverRefusal>>,
    },
    /// A peer says who it is.
    PeerIdentified { node: NodeId, member: Member, log_version: u32 },
    /// A peer says that this node was removed from the cluster.
    RemovedBy(NodeId),
    /// The stream to a peer broke or refuses.
    PeerUnreachable(NodeId),
    /// The peer's port is shut: each connection to it is refused.
    PeerRefuses(NodeId),
    /// A snapshot was handed to the peer, or could not be.
    SnapshotSent { group: GroupId, to: NodeId, delivered: bool },
    /// A snapshot of this node's own was written beside the log.
    SnapshotSaved { group: GroupId, result: Result<DurableSnapshot, WriteError> },
    /// A segment was prepared ahead of use.
    SegmentPrepared(Result<Spare<FileDisk>, WriteError>),
    /// Hand leadership over, answer what can be answered, and stop.
    Shutdown,
}

impl Input {
    /// What clients ask for, counted in operations; nothing for what the node itself has to say. To acquire many
    /// names takes as much memory, and time, as to acquire them one by one.
    pub(crate) fn operations_of_clients(&self) -> usize {
        let names = |command: &Command| match command {
            Command::AcquireAll(acquire) => acquire.members.len().max(1),
            _ => 1,
        };
        match self {
            Input::Call { command, .. } => names(command),
            Input::Connection(_)
            | Input::Read { .. }
            | Input::Inspect { .. }
            | Input::ReadOwnTable { .. }
            | Input::ChangeMembership { .. }
            | Input::HandOver { .. } => 1,
            Input::Frame { operations, .. } => {
                operations.iter().map(|(_, command)| names(command)).sum()
            }
            Input::Reads { reads, .. } => reads.len() * OPERATIONS_PER_READ,
            Input::Touches { sessions, .. } => sessions.len(),
            _ => 0,
        }
    }
}

/// The lock table as far as this node has applied the log.
#[derive(Debug)]
pub(crate) struct OwnTable {
    pub(crate) at: LogicalTime,
    pub(crate) locks: Vec<LockSummary>,
    pub(crate) freezes: Vec<FreezeInfo>,
}

/// One group as this node sees it.
#[derive(Clone, Debug)]
pub(crate) struct GroupView {
    pub(crate) group: GroupId,
    pub(crate) leader: Option<NodeId>,
    pub(crate) term: u64,
    pub(crate) commit_index: u64,
    pub(crate) applied_index: u64,
    pub(crate) logical_time: LogicalTime,
    pub(crate) locks: usize,
    pub(crate) waiters: usize,
    pub(crate) sessions: usize,
    pub(crate) last_token: u64,
    pub(crate) rules: RulesVersion,
    pub(crate) table_bytes: u64,
    pub(crate) table_limits: TableLimits,
    pub(crate) digest: Option<String>,
    /// Filled by the leader: node and the index up to which its log is known to match.
    pub(crate) matched: Vec<(NodeId, u64)>,
    pub(crate) last_index: u64,
    pub(crate) roles: Vec<(NodeId, Role)>,
}

impl GroupView {
    pub(crate) fn of(group: GroupId, replica: &Replica, digest: Option<String>) -> GroupView {
        let (progress, table) = (replica.progress(), replica.table());
        let members = replica.membership();
        let roles = members.members.keys().filter_map(|node| Some((*node, members.role(*node)?)));
        GroupView {
            group,
            leader: progress.leadership.leader,
            term: progress.leadership.term,
            commit_index: progress.commit_index,
            applied_index: progress.applied_index,
            logical_time: replica.now(),
            locks: table.lock_count(),
            waiters: table.waiter_count(),
            sessions: table.session_count(),
            last_token: table.last_token(),
            rules: table.rules(),
            table_bytes: table.size_bytes(),
            table_limits: table.table_limits(),
            digest,
            matched: progress.matched,
            last_index: progress.last_index,
            roles: roles.collect(),
        }
    }
}
