//! `Cancel`: end a wait that is no longer wanted.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::cancel_response::Outcome;
use holdfast_proto::v1::{CancelRequest, CancelResponse, Failure, Reason, answer};
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

    /// The session may be open in some groups only.
    const NOTHING_TO_DO: Option<Reason> = Some(Reason::UnknownSession);

    /// What was granted counts before all else, even before a group that failed: the client has to release it.
    fn settles(part: &CancelResponse) -> bool {
        matches!(part.outcome, Some(Outcome::AlreadyGranted(_) | Outcome::AllAlreadyGranted(_)))
    }

    /// The groups that never had the acquire say that it is cancelled, or that it had ended.
    fn merge_groups(parts: Vec<CancelResponse>) -> Option<CancelResponse> {
        let had_ended =
            |part: &CancelResponse| matches!(part.outcome, Some(Outcome::AlreadyEnded(_)));
        parts.into_iter().max_by_key(had_ended)
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
