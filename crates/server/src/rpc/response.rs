//! What the lock table or this node answered, as it travels.

use holdfast_core::Outcome;
use holdfast_engine::Answer;
use holdfast_proto::Guarantee;
use holdfast_proto::encode::{self, OpenContext};
use holdfast_proto::v1::{GroupMap, answer};

use super::failure::{bug, unavailable};
use crate::membership::Membership;

/// What an answer tells beyond the outcome itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseContext<'a> {
    pub(super) membership: &'a Membership,
    /// For the answer that opens or resumes a session.
    pub(super) map: Option<&'a GroupMap>,
    pub(super) resumed: bool,
    /// In which this node leads.
    pub(super) term: u64,
    /// Of the tier that answers.
    pub(super) guarantee: Guarantee,
}

pub(super) fn result(answer: &Answer, context: ResponseContext<'_>) -> answer::Result {
    let ResponseContext { membership, map, resumed, term, guarantee } = context;
    match &answer.result {
        Ok(Outcome::SessionOpen { public, ttl, linger, .. }) => {
            let open = OpenContext {
                map: map.cloned(),
                endpoints: membership.client_addresses(),
                // Only a leader answers.
                leader: membership.client_address(Some(membership.me)),
                term,
                resumed,
            };
            encode::session_open(answer.at, *public, *ttl, *linger, open)
        }
        Ok(outcome) => encode::outcome(answer.at, outcome, guarantee).unwrap_or_else(|| {
            answer::Result::Failure(bug(
                "the lock table answered with an outcome that is no answer",
            ))
        }),
        Err(reason) => answer::Result::Failure(unavailable(*reason, membership)),
    }
}
