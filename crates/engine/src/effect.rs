//! What an engine wants done: data, carried out by its host in order.

use holdfast_core::command::Owner;
use holdfast_core::{PublicSessionId, Publication, SessionId};
use holdfast_replica::{GroupId, HandOverRefusal, Leadership, Membership, NodeId, SnapshotFile};

use crate::answer::{Answer, ChangeAnswer, StreamKey, TouchesAnswer, Unavailable};
use crate::boot_time::BootTime;
use crate::host::Host;
use crate::query::ReadAnswer;

#[derive(Debug)]
pub enum Effect<H: Host> {
    /// All messages of a step for one peer.
    Send {
        to: NodeId,
        messages: Vec<(GroupId, Vec<u8>)>,
    },
    /// A message that carries a snapshot, on a connection of its own. Then say `snapshot_sent`.
    SendSnapshot {
        to: NodeId,
        group: GroupId,
        message: Vec<u8>,
    },
    Answer {
        to: H::Call,
        answer: Answer,
    },
    AnswerRead {
        to: H::Read,
        answer: Result<ReadAnswer, Unavailable>,
    },
    AnswerTouches {
        to: H::Touches,
        answer: TouchesAnswer,
    },
    AnswerChange {
        to: H::Change,
        answer: ChangeAnswer,
    },
    AnswerHandOver {
        to: H::HandOver,
        answer: Result<NodeId, HandOverRefusal>,
    },
    /// `Engine::deliver` has a list for some streams.
    Deliver,
    /// The heartbeats of this stream may be handed in by `defer`, or must not be.
    StreamServed {
        stream: StreamKey,
        is_deferrable: bool,
    },
    /// The table of this group is that of a snapshot from the leader.
    Installed {
        group: GroupId,
        index: u64,
    },
    /// `Engine::events` has what happened since the last time. The log has counted so much.
    Publish {
        publication: Option<Publication>,
    },
    LeadershipChanged {
        group: GroupId,
        leadership: Leadership,
    },
    /// Who the members are from this entry of the log on.
    MembershipChanged {
        index: u64,
        members: Membership,
    },
    /// Make this durable beside the log, then say `snapshot_saved`.
    SaveSnapshot {
        group: GroupId,
        file: SnapshotFile,
    },
    Tier(TierChange),
}

/// What the efficiency tier has to know.
#[derive(Debug)]
pub enum TierChange {
    /// This node leads from now on, with nothing held, and grants from `opens` on.
    BeginTerm { term: u64, opens: BootTime },
    /// This node leads no longer, and what was held is gone.
    EndTerm { reason: Unavailable },
    /// A quorum confirmed the leadership of this term, and no later leader grants anything before `until`.
    Confirm { term: u64, until: BootTime },
    /// Nothing more is granted until a quorum has confirmed the leadership again.
    Invalidate,
    /// The session is open in the replicated table, and wants to use the tier.
    Admit { session: SessionId, public: PublicSessionId, owner: Owner },
    /// The session has ended in the replicated table.
    SessionEnded(SessionId),
}

/// What the host does next, after it has carried out the effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    GoOn,
    Write,
    Rest,
    Stop(Ending),
}

/// Why an engine has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Told,
    Removed,
}
