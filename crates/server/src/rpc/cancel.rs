//! `Cancel`: end a wait that is no longer wanted.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{CancelRequest, CancelResponse, Failure, answer};
use holdfast_service::Method;

use super::unary::Verb;

impl Verb for CancelRequest {
    const METHOD: Method = Method::Cancel;
    type Response = CancelResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::cancel(&self, Scope::Unary)
    }

    fn group(&self) -> u32 {
        self.group
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
