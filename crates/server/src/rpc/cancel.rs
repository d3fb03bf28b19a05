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

    /// What was granted counts before all else: the client has to release it. The groups that never had the acquire say
    /// that it is cancelled, or that it had ended.
    fn merge_groups(parts: Vec<CancelResponse>) -> Option<CancelResponse> {
        let weight = |part: &CancelResponse| match part.outcome {
            Some(Outcome::AlreadyGranted(_) | Outcome::AllAlreadyGranted(_)) => 2,
            Some(Outcome::AlreadyEnded(_)) => 1,
            Some(Outcome::Cancelled(_)) | None => 0,
        };
        parts.into_iter().max_by_key(weight)
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

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::{AlreadyEnded, Cancelled, Grant};

    use super::*;

    #[test]
    fn a_grant_in_one_group_is_told_whatever_the_others_say() {
        let outcomes = [
            Outcome::AlreadyGranted(Grant::default()),
            Outcome::AlreadyEnded(AlreadyEnded {}),
            Outcome::Cancelled(Cancelled {}),
        ];
        for first in 0..outcomes.len() {
            let mut parts: Vec<CancelResponse> = outcomes
                .iter()
                .map(|outcome| CancelResponse {
                    outcome: Some(outcome.clone()),
                    ..Default::default()
                })
                .collect();
            parts.rotate_left(first);
            let merged = CancelRequest::merge_groups(parts).unwrap();
            assert!(matches!(merged.outcome, Some(Outcome::AlreadyGranted(_))), "{merged:?}");
        }
    }
}
