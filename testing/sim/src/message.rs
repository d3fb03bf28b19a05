//! What travels over the simulated network. Between nodes: the real bytes of consensus. Between clients
//! and nodes: plain values, since the wire format is not what is simulated here.

use holdfast_core::{
    Command, FenceToken, LockName, LogicalTime, Outcome, PublicSessionId, RequestId, SessionId,
    StreamId,
};
use holdfast_replica::{ChangeRefusal, GroupId, NodeId};

use crate::history::RealTime;
use crate::rng::mix;

/// A participant, by its place in the list of nodes or of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Endpoint {
    Node(usize),
    Client(usize),
}

/// Most messages are those of consensus, so the larger ones are boxed.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Consensus {
        group: GroupId,
        /// Which format of log entries the sender reads.
        log_version: u32,
        bytes: Vec<u8>,
        is_snapshot: bool,
    },
    Request(Box<Request>),
    Answer(Box<Answer>),
    /// What the leader tells a session that it did not ask for.
    Notice {
        session: SessionId,
        notice: Notice,
    },
}

impl Message {
    /// The network may deliver it twice. An intervention has no number by which the nodes would know it again.
    pub(crate) fn may_come_twice(&self) -> bool {
        !matches!(self, Message::Request(request) if matches!(request.body, Body::Command(Command::Intervene(_))))
    }

    /// It goes over a stream, perhaps by a node that passes it on.
    pub(crate) fn is_on_stream(&self) -> bool {
        match self {
            Message::Request(request) => request.reply_to.stream.is_some(),
            Message::Answer(answer) => answer.reply_to.stream.is_some(),
            Message::Notice { .. } => true,
            Message::Consensus { .. } => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) reply_to: ReplyTo,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Command(Command),
    Status(LockName),
}

/// Whose request, and which sending of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) client: usize,
    pub(crate) group: GroupId,
    pub(crate) session: SessionId,
    /// The stream on which it is sent; none if it is a call of its own.
    pub(crate) stream: Option<StreamId>,
    pub(crate) request: RequestId,
    pub(crate) sent: RealTime,
    /// The follower that passed it on, and through which the answer goes back.
    pub(crate) via: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) reply_to: ReplyTo,
    pub(crate) what: AnswerBody,
}

#[derive(Clone, Debug)]
pub(crate) enum AnswerBody {
    Outcome {
        at: LogicalTime,
        outcome: Outcome,
        /// What a session that is resumed has lost meanwhile.
        losses: Vec<(FenceToken, Option<RequestId>)>,
    },
    Status {
        holder: Option<(SessionId, FenceToken)>,
        waiters: u64,
        /// One of those.
        waiter: Option<PublicSessionId>,
    },
    /// It stands in the queue; its answer comes later.
    Queued,
    Refused(Refusal),
}

/// What an operator is told; none if this node cannot say.
pub(crate) type ChangeAnswer = Option<Result<(), ChangeRefusal>>;

/// Not an answer of the lock table: the client asks again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    Elsewhere { leader: Option<NodeId> },
    OutOfSpace,
    Overloaded,
}

#[derive(Clone, Debug)]
pub(crate) enum Notice {
    HoldEnded { name: LockName, acquire: RequestId },
    SessionEnded,
    LeaderMoved { leader: Option<NodeId> },
}

/// A stream of a client that broke, or that the client left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedStream {
    pub(crate) group: GroupId,
    pub(crate) session: SessionId,
    pub(crate) stream: StreamId,
    /// It did not say that its session goes on.
    pub(crate) is_client_gone: bool,
}

/// The secret id behind a public one. In the simulation it is no secret: reads tell public ids, and
/// checkers want to know whose they are.
pub(crate) fn session_of(public: PublicSessionId) -> SessionId {
    SessionId(u128::from(mix(public.0)) << 64 | u128::from(public.0))
}
