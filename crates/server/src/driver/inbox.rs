//! What the rest of the node says to the driver, and what it hears from it.
//!
//! Answers to a stream travel as one [`Delivery`] list per loop turn.

use holdfast_core::command::Owner;
use holdfast_core::{
    Command, EndReason, FenceToken, FreezeInfo, LockName, LockStatus, LockSummary, LockWhy,
    LogicalTime, Outcome, PublicSessionId, RequestId, RulesVersion, SessionId, SessionSummary,
    Span, StreamId, Survey, SurveyPart, TableLimits, TokenStanding,
};
use holdfast_replica::{
    ChangeRefusal, ClusterId, GroupId, HandOverRefusal, Member, MembershipChange, NodeId,
    SnapshotFile, SnapshotMessage,
};
use holdfast_wal::{DurableSnapshot, FileDisk, Spare, WriteError};
use mio::net::TcpStream as WireSocket;
use tokio::sync::oneshot;

use super::abandoned::{CallRef, LiveCall};
use super::ears::Ear;
use super::heartbeats::MayWait;
use super::outbox::Outbox;
use crate::boot_clock::BootTime;

/// The one group that runs while names are not yet spread over several.
pub(crate) const FIRST_GROUP: GroupId = GroupId(1);

/// What an answer shows takes more time to put together than what a command does.
pub(super) const OPERATIONS_PER_LOOK: usize = 4;

/// Holders, and waiters, that a look on a stream shows: one frame has the answers to many.
pub(crate) const SHOWN_ON_STREAM_MAX: usize = 10;

/// One thing for the driver to do.
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
    /// A stream begins to serve a session. Its `Opening` command is the stream's first operation.
    StreamOpened {
        stream: StreamKey,
        outbox: Box<dyn Outbox>,
        /// Told once the session's TTL is known.
        may_wait: MayWait,
    },
    /// The driver is to read the stream's frames itself.
    Listen { stream: StreamKey, ear: Box<dyn Ear>, socket: WireSocket },
    /// The operations of one client frame, each with the number under which it is answered.
    Frame { stream: StreamKey, group: GroupId, operations: Vec<(RequestId, Command)> },
    /// A stream ended. If it was the client who went away, its session begins to linger.
    StreamClosed { stream: StreamKey, client_gone: bool },
    /// The locks that one client frame asks about, each with the number under which it is answered.
    Looks { stream: StreamKey, group: GroupId, looks: Vec<(RequestId, LockName)> },
    /// A linearizable read.
    Read { group: GroupId, query: Query, reply: oneshot::Sender<Result<ReadAnswer, Unavailable>> },
    /// So much is published; see `Command::EventsPublished`. Without an answer if some member could not read it.
    EventsPublished { group: GroupId, command: Command, reply: oneshot::Sender<Answer> },
    /// This node's own view; needs no quorum.
    Inspect { with_digests: bool, reply: oneshot::Sender<Vec<GroupView>> },
    /// This node's own copy of the table, which may be old; needs no quorum. So many locks of it, by name.
    ReadOwnTable { group: GroupId, locks_max: usize, reply: oneshot::Sender<OwnTable> },
    /// A peer's wire was opened, with a pass of this number.
    PeerWire { from: NodeId, number: u64, socket: WireSocket },
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
    PeerIntroduced { node: NodeId, member: Member, log_version: u32 },
    /// A peer says that this node was removed from the cluster.
    RemovedBy(NodeId),
    /// The stream to a peer broke or refuses.
    PeerUnreachable(NodeId),
    /// The peer's port is shut: whoever dials it is refused.
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
    /// What clients ask for, and how their streams begin and end.
    pub(super) fn is_of_clients(&self) -> bool {
        let is_stream = matches!(self, Input::StreamOpened { .. } | Input::StreamClosed { .. });
        is_stream || self.operations_of_clients() > 0
    }

    /// What clients ask for, counted in operations; nothing for what the node itself has to say. To acquire many
    /// names takes as much memory, and time, as to acquire them one by one.
    pub(super) fn operations_of_clients(&self) -> usize {
        let names = |command: &Command| match command {
            Command::AcquireAll(acquire) => acquire.members.len().max(1),
            _ => 1,
        };
        match self {
            Input::Call { command, .. } => names(command),
            Input::Read { .. }
            | Input::Inspect { .. }
            | Input::ReadOwnTable { .. }
            | Input::ChangeMembership { .. }
            | Input::HandOver { .. } => 1,
            Input::Frame { operations, .. } => {
                operations.iter().map(|(_, command)| names(command)).sum()
            }
            Input::Looks { looks, .. } => looks.len() * OPERATIONS_PER_LOOK,
            Input::Touches { sessions, .. } => sessions.len(),
            _ => 0,
        }
    }
}

/// One stream of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    pub(crate) session: SessionId,
    pub(crate) stream: StreamId,
}

/// How a command ended, and at which logical time.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) at: LogicalTime,
    pub(crate) result: Result<Outcome, Unavailable>,
}

/// How the heartbeats of many sessions ended.
pub(crate) type TouchesAnswer = Result<Touched, Unavailable>;

#[derive(Debug)]
pub(crate) struct Touched {
    pub(crate) at: LogicalTime,
    /// Of each session; none if it has ended, or never began.
    pub(crate) ttls: Vec<Option<Span>>,
}

/// How a change of the membership ended: done, refused, or not known.
pub(crate) type ChangeAnswer = Result<Result<(), ChangeRefusal>, Unavailable>;

/// What a stream is told.
#[derive(Debug)]
pub(crate) enum Delivery {
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// How a lock stood that was looked at.
    Status {
        request: RequestId,
        name: LockName,
        answer: Result<Box<ReadAnswer>, Unavailable>,
    },
    /// The acquire stands in the queue; its answer comes later.
    Queued {
        request: RequestId,
        position: u64,
    },
    HoldEnded {
        name: LockName,
        token: FenceToken,
        acquire: RequestId,
        reason: EndReason,
    },
    /// What the session has lost so far, though it may have been told already.
    Losses(Vec<(FenceToken, Option<RequestId>)>),
    SessionEnded {
        reason: EndReason,
    },
    /// Nodes were added, removed, or moved.
    MembersChanged,
    /// This node no longer leads; nothing more comes on this stream.
    LeaderMoved {
        leader: Option<NodeId>,
    },
}

/// Why a node could not carry an operation through. Not an answer of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// Nothing was done.
    NotLeader { leader: Option<NodeId> },
    /// Leadership was lost while the operation was under way: it may have happened.
    LeadershipLost { leader: Option<NodeId> },
    /// Nothing was done: this node is about to stop.
    ShuttingDown,
    /// Nothing was done: the disk is full.
    OutOfSpace,
    /// Nothing was done: too much is under way.
    Overloaded,
}

impl From<holdfast_replica::Unavailable> for Unavailable {
    fn from(reason: holdfast_replica::Unavailable) -> Unavailable {
        use holdfast_replica::Unavailable as Replica;
        match reason {
            Replica::NotLeader { leader } => Unavailable::NotLeader { leader },
            Replica::LeadershipLost { leader } => Unavailable::LeadershipLost { leader },
            Replica::Overloaded => Unavailable::Overloaded,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Query {
    Status {
        name: LockName,
        shown_max: usize,
    },
    List {
        prefix: String,
        after: Option<String>,
        limit: usize,
    },
    Sessions {
        after: Option<PublicSessionId>,
        limit: usize,
    },
    /// Whose sessions these are, as far as they are open.
    Owners(Vec<PublicSessionId>),
    Why {
        name: LockName,
        shown_max: usize,
    },
    Freezes,
    Token {
        name: LockName,
        token: FenceToken,
    },
    /// Whether this node leads, to be told to the memory tier as well. It was asked at this moment.
    Confirm {
        asked: BootTime,
    },
    /// As [`Query::Confirm`], and that the session be admitted to the memory tier.
    Admit {
        session: SessionId,
        asked: BootTime,
    },
    /// A part of the locks, for whoever looks for something among them.
    Survey {
        survey: Survey,
        after: Option<String>,
        above: Option<u64>,
        found_max: usize,
    },
    /// All of it, as bytes.
    Snapshot,
}

#[derive(Debug)]
pub(crate) struct ReadAnswer {
    pub(crate) at: LogicalTime,
    pub(crate) applied_index: u64,
    pub(crate) data: ReadData,
}

#[derive(Debug)]
pub(crate) enum ReadData {
    Status(LockStatus),
    Why(LockWhy),
    List(Vec<LockSummary>),
    Sessions(Vec<SessionSummary>),
    Owners(Vec<(PublicSessionId, Owner)>),
    Freezes(Vec<FreezeInfo>),
    Token(TokenStanding),
    Confirmed,
    /// Whether there is such a session.
    Admitted(bool),
    Survey(SurveyPart),
    Snapshot(WholeState),
}

/// A group's state at one moment.
#[derive(Debug)]
pub(crate) struct WholeState {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) logical_time: LogicalTime,
    pub(crate) file: SnapshotFile,
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
}
