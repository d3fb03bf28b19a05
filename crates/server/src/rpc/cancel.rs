//! `Cancel`: end a wait that is no longer wanted.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::cancel_response::Outcome;
use holdfast_proto::v1::{CancelRequest, CancelResponse, Failure, answer};
use holdfast_service::Method;

use super::unary::Verb;

impl Verb for CancelRequest {
    const METHOD: Method = Method::Cancel;
    type Response = CancelResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::cancel(&self, Scope::Unary)
    }

    fn session_group(&self) -> Option<u32> {
        Some(self.group)
    }

    /// The group that had the acquire says what became of it. The others say that it will not be granted.
    fn merge_groups(parts: Vec<CancelResponse>) -> Option<CancelResponse> {
        let is_known = |part: &CancelResponse| !matches!(part.outcome, Some(Outcome::Cancelled(_)));
        parts.into_iter().max_by_key(is_known)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn response(result: answer::Result) -> Option<CancelResponse> {
        match result {
            answer::Result::Cancel(response) => Some(response),
            _ => None,
        }
    }
}
