//! The answers and notices for callers and streams.

use holdfast_core::{
    EndReason, FenceToken, LockName, LogicalTime, Outcome, RequestId, SessionId, Span, StreamId,
};
use holdfast_replica::{ChangeRefusal, GroupId, NodeId};

use crate::query::ReadAnswer;

/// One stream of one session in one group. A session may have the same id in several groups: these are different
/// streams, even if one connection carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    pub group: GroupId,
    pub session: SessionId,
    pub stream: StreamId,
}

/// A request that can wait, as the lock table of its group names it.
pub type Wait = (SessionId, RequestId);

/// Where the answer to a command goes.
#[derive(Debug)]
pub enum ReplyTo<C> {
    Call(C),
    Stream { stream: StreamKey, request: RequestId },
}

impl<C> ReplyTo<C> {
    /// Whether this copy of a request is answered instead of the parked one. The client no longer reads an older stream
    /// of its session, so a copy that arrives late on an older stream does not count.
    pub fn supersedes(&self, parked: &ReplyTo<C>) -> bool {
        match (self, parked) {
            (ReplyTo::Stream { stream: this, .. }, ReplyTo::Stream { stream: parked, .. }) => {
                this.stream >= parked.stream
            }
            _ => true,
        }
    }
}

/// How a command ended, and at which logical time.
#[derive(Debug)]
pub struct Answer {
    pub at: LogicalTime,
    pub result: Result<Outcome, Unavailable>,
}

impl Answer {
    pub fn failed(reason: Unavailable) -> Answer {
        Answer { at: LogicalTime::ZERO, result: Err(reason) }
    }
}

/// How the heartbeats of many sessions ended.
pub type TouchesAnswer = Result<Touched, Unavailable>;

#[derive(Debug)]
pub struct Touched {
    pub at: LogicalTime,
    /// Of each session; none if it has ended, or never began.
    pub ttls: Vec<Option<Span>>,
}

/// How a change of the membership ended: done, refused, or not known.
pub type ChangeAnswer = Result<Result<(), ChangeRefusal>, Unavailable>;

/// One item of a stream's list.
#[derive(Debug)]
pub enum Delivery {
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// The status of a lock, as a stream's read found it.
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
    /// The holds that the session has lost so far. The client may know of them already.
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

impl Delivery {
    /// How many names, tokens and the like it can list: its size in a frame is bounded by this number of them.
    pub fn weight(&self) -> usize {
        let listed = match self {
            Delivery::Answer { answer, .. } => match &answer.result {
                Ok(Outcome::GrantedAll(all) | Outcome::CancelTooLate(all)) => all.len(),
                Ok(Outcome::Deadlock(cycle)) => cycle.len(),
                _ => 1,
            },
            Delivery::Losses(losses) => losses.len(),
            _ => 1,
        };
        listed.max(1)
    }
}

/// Why a node could not complete an operation. This is not an answer of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Nothing was done.
    NotLeader { leader: Option<NodeId> },
    /// Leadership was lost while the operation was under way. It may have been committed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_copy_on_an_older_stream_does_not_take_the_answer_of_a_newer_one() {
        let on = |stream| ReplyTo::Stream {
            stream: StreamKey {
                group: GroupId::FIRST,
                session: SessionId(1),
                stream: StreamId(stream),
            },
            request: RequestId(5),
        };
        assert!(on(9).supersedes(&on(8)) && on(9).supersedes(&on(9)));
        assert!(!on(8).supersedes(&on(9)));
        let call = ReplyTo::Call(());
        assert!(call.supersedes(&on(9)) && on(8).supersedes(&call));
    }
}
