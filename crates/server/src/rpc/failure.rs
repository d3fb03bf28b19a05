//! Everything that can go wrong with an operation, as the client is told.
//!
//! The three strata stay apart: a request that is wrong in itself ([`refused`]), a rejection by the
//! lock table, and a node that cannot serve. `retryable` means the same request under the same id;
//! `may_have_happened` is false only where it is certain that nothing was done.

use holdfast_core::Rejection;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_replica::NodeId;

use crate::driver::Unavailable;
use crate::membership::Membership;

/// The request is wrong, and nothing was done.
pub(super) fn refused(reason: Reason, words: impl Into<String>) -> Failure {
    Failure {
        reason: reason.into(),
        message: words.into(),
        retryable: false,
        may_have_happened: false,
        leader: String::new(),
    }
}

/// The node cannot serve now, and nothing was done.
fn not_now(reason: Reason, words: &str) -> Failure {
    Failure { retryable: true, ..refused(reason, words) }
}

/// It is not known what became of the request.
fn unknown(reason: Reason, words: &str) -> Failure {
    Failure { may_have_happened: true, ..not_now(reason, words) }
}

pub(super) fn rejected(rejection: Rejection) -> Failure {
    let reason = match rejection {
        Rejection::UnknownSession => Reason::UnknownSession,
        Rejection::SessionExists => Reason::SessionExists,
        Rejection::NotHeld => Reason::NotHeld,
        Rejection::AmbiguousHold => Reason::AmbiguousHold,
        Rejection::TooManySessions => Reason::TooManySessions,
        Rejection::TooManyHolds => Reason::TooManyHolds,
        Rejection::TooManyWaits => Reason::TooManyWaits,
        Rejection::QueueFull => Reason::QueueFull,
        Rejection::TooManyUnacknowledged => Reason::TooManyUnacknowledged,
        Rejection::AnswerDiscarded => Reason::AnswerDiscarded,
        Rejection::RequestIdReused => Reason::RequestIdReused,
        Rejection::GrantEnded => Reason::GrantEnded,
        Rejection::Frozen => Reason::Frozen,
        Rejection::AlreadyHeld => Reason::AlreadyHeld,
        Rejection::OtherPermits { .. } => Reason::OtherPermits,
        Rejection::NoPermitsSet => Reason::NoPermitsSet,
        Rejection::PermitsInUse => Reason::PermitsInUse,
        Rejection::TooManyPermitsSet => Reason::TooManyPermitsSet,
        Rejection::NoSuchWaiter => Reason::NoSuchWaiter,
        Rejection::NoSuchSession => Reason::NoSuchSession,
        Rejection::NotFrozen => Reason::NotFrozen,
        Rejection::NotClosed => Reason::NotClosed,
        Rejection::TooManyFreezes => Reason::TooManyFreezes,
        Rejection::TooManyReentries => Reason::TooManyReentries,
        Rejection::TooManyNames => Reason::TooManyNames,
        Rejection::DuplicateName => Reason::DuplicateName,
        Rejection::InvalidMode => Reason::InvalidMode,
        Rejection::InvalidPermits => Reason::InvalidPermits,
        Rejection::InvalidLockDelay => Reason::InvalidLockDelay,
        Rejection::InvalidFreeze => Reason::InvalidFreeze,
        Rejection::InvalidIntervention => Reason::InvalidIntervention,
        Rejection::InvalidRequestId => Reason::InvalidRequestId,
        Rejection::InvalidTtl => Reason::InvalidTtl,
        Rejection::InvalidWait => Reason::InvalidWait,
        Rejection::InvalidMetadata => Reason::InvalidMetadata,
        Rejection::InvalidOwner => Reason::InvalidOwner,
        Rejection::TooManyLocks { .. } => Reason::TooManyLocks,
        Rejection::TooManyBytes { .. } => Reason::TooManyBytes,
        Rejection::SessionTooLarge { .. } => Reason::SessionTooLarge,
        Rejection::InvalidLimits => Reason::InvalidLimits,
        Rejection::RulesNotAdopted => Reason::RulesNotAdopted,
    };
    // All other rejections are kept as the answer to their request id, except those of a full table: they are over when
    // somebody makes room, which takes longer than a client should repeat itself.
    let retryable = matches!(
        rejection,
        Rejection::TooManySessions | Rejection::TooManyUnacknowledged | Rejection::RulesNotAdopted
    );
    // The retry is refused now; what the first attempt did is another matter.
    let may_have_happened = matches!(rejection, Rejection::AnswerDiscarded | Rejection::GrantEnded);
    Failure { retryable, may_have_happened, ..refused(reason, rejection.to_string()) }
}

pub(super) fn unavailable(reason: Unavailable, membership: &Membership) -> Failure {
    match reason {
        Unavailable::NotLeader { leader } => {
            let words = "this node does not lead; ask the leader, or any node in a moment";
            let leader = membership.client_address(leader);
            Failure { leader, ..not_now(Reason::NotLeader, words) }
        }
        Unavailable::LeadershipLost { leader } => {
            let words = "this node lost the leadership while the request was under way; send the \
                         same request id again to learn what became of it";
            let leader = membership.client_address(leader);
            Failure { leader, ..unknown(Reason::NotLeader, words) }
        }
        Unavailable::ShuttingDown => stopping(),
        Unavailable::OutOfSpace => {
            not_now(Reason::OutOfSpace, "the disk of the leader is full; make room on it")
        }
        Unavailable::Overloaded => overloaded(),
    }
}

pub(super) fn overloaded() -> Failure {
    not_now(Reason::Overloaded, "too much is under way on this node; try again in a moment")
}

/// Of what there are `too_many`, in words.
pub(super) fn no_place(too_many: &str) -> Failure {
    not_now(Reason::Overloaded, &format!("{too_many}; try another one, or this one in a moment"))
}

pub(super) fn stopping() -> Failure {
    not_now(Reason::ShuttingDown, "this node is stopping; ask another one")
}

pub(super) fn no_leader() -> Failure {
    not_now(
        Reason::NoQuorum,
        "there is no leader: a majority of the nodes is down or cannot reach each other, or an \
         election is under way",
    )
}

/// Another member follows a leader, and this node does not hear from it.
pub(super) fn cut_off_from_leader(leader: NodeId, by: NodeId) -> Failure {
    let source = if leader == by { String::new() } else { format!(", as node {by} says") };
    let words = format!(
        "this node is cut off from the leader: node {leader} leads{source}, but this node does not hear from it; ask \
         the leader or another node"
    );
    not_now(Reason::NotLeader, &words)
}

/// No leader can be elected while the disks of these nodes are full.
pub(super) fn disks_full(nodes: &[NodeId]) -> Failure {
    let names: Vec<String> = nodes.iter().map(|node| format!("node {node}")).collect();
    let disks = if nodes.len() == 1 { "the disk of" } else { "the disks of" };
    let words = format!(
        "{disks} {} {}; make room on {}",
        names.join(" and "),
        if nodes.len() == 1 { "is full" } else { "are full" },
        if nodes.len() == 1 { "it" } else { "them" }
    );
    not_now(Reason::OutOfSpace, &words)
}

/// Of the efficiency tier, which grants nothing then.
pub(super) fn unsure() -> Failure {
    not_now(
        Reason::NoQuorum,
        "this node is not sure that it still leads: no majority has confirmed it lately; ask another \
         one, or this one in a moment",
    )
}

/// The answer did not come, and never will.
pub(super) fn dropped_by_driver() -> Failure {
    unknown(Reason::ShuttingDown, "this node stopped while the request was under way")
}

pub(super) fn took_too_long() -> Failure {
    unknown(
        Reason::NoQuorum,
        "no answer in time: the leader may have lost its majority; send the same request id again \
         to learn what became of it",
    )
}

pub(super) fn slow_reader() -> Failure {
    unknown(
        Reason::Overloaded,
        "the stream was cut off because its answers were not read; resume the session and read \
         faster",
    )
}

/// The leader could not be asked. It had the request unless `never_sent`.
pub(super) fn leader_did_not_answer(leader: String, never_sent: bool, why: &str) -> Failure {
    let words =
        format!("this node does not lead, and the leader at {leader} did not answer: {why}");
    let failure = if never_sent {
        not_now(Reason::NotLeader, &words)
    } else {
        unknown(Reason::NotLeader, &words)
    };
    Failure { leader, ..failure }
}

/// The caller's deadline passed first.
pub(super) fn deadline_exceeded() -> Failure {
    unknown(
        Reason::DeadlineExceeded,
        "the deadline of the call passed before it was answered; send the same request id again, with \
         more time, to learn what became of it",
    )
}

pub(super) fn message_too_large(words: &str) -> Failure {
    refused(
        Reason::MessageTooLarge,
        format!("the message is too large, and nothing was done; send less at once ({words})"),
    )
}

/// A mistake of ours, told rather than hidden.
pub(super) fn bug(words: &str) -> Failure {
    tracing::error!("a bug: {words}");
    Failure {
        may_have_happened: true,
        ..refused(Reason::Unspecified, format!("a bug in holdfast: {words}"))
    }
}
