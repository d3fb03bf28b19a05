//! What an engine asks its host to do, as data. The host carries it out in order.

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
    /// Send a message with a snapshot on a separate connection. Then call `snapshot_sent`.
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
    /// Whether the host may pass heartbeats of this stream to `defer`.
    StreamServed {
        stream: StreamKey,
        is_deferrable: bool,
    },
    /// A snapshot of the leader has replaced the table of this group.
    Installed {
        group: GroupId,
        index: u64,
    },
    /// `Engine::events` has the group's events since the last time, for watches, audit file and Kafka. `publication` is
    /// how far the Kafka publisher is, by the log.
    Publish {
        group: GroupId,
        publication: Option<Publication>,
    },
    LeadershipChanged {
        group: GroupId,
        leadership: Leadership,
    },
    /// The members of the group from this log entry on.
    MembershipChanged {
        group: GroupId,
        index: u64,
        members: Membership,
    },
    /// Make this durable beside the log, then call `snapshot_saved`.
    SaveSnapshot {
        group: GroupId,
        file: SnapshotFile,
    },
    Tier(TierChange),
}

/// A change that concerns the efficiency tier. The tier follows the root group: its leadership and its sessions.
#[derive(Debug)]
pub enum TierChange {
    /// This node leads the root group from now on. Nothing is held, and it grants from `opens` on.
    BeginTerm { term: u64, opens: BootTime },
    /// This node leads no longer, and all holds of the tier are lost.
    EndTerm { reason: Unavailable },
    /// A quorum confirmed the leadership of this term. No later leader grants anything before `until`.
    Confirm { term: u64, until: BootTime },
    /// Nothing more is granted until a quorum has confirmed the leadership again.
    Invalidate,
    /// The session is open in the replicated table, and wants to use the tier.
    Admit { session: SessionId, public: PublicSessionId, owner: Owner },
    /// The session has ended in the replicated table. Of a large session the tier may be told twice.
    SessionEnded(SessionId),
}

/// What the host does next, after it has carried out the effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    GoOn,
    Write,
    Rest,
    Stop(StopCause),
}

/// Why an engine has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    Requested,
    Removed,
}
