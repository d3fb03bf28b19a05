//! Everything that can go wrong with an operation, as the client is told.
//!
//! The three strata stay apart: a request that is wrong in itself ([`refused`]), a rejection by the
//! lock table, and a node that cannot serve. `retryable` means the same request under the same id;
//! `may_have_happened` is false only where it is certain that nothing was done.

use holdfast_engine::Unavailable;
use holdfast_proto::failure::{not_now, refused, unknown};
use holdfast_proto::v1::{Failure, Reason};
use holdfast_replica::NodeId;

use crate::membership::Membership;

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
pub(super) fn dropped_by_shard() -> Failure {
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
