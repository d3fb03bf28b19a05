//! `Release`: give a lock back.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{Failure, ReleaseRequest, ReleaseResponse, answer};
use holdfast_service::Method;

use super::unary::Verb;

impl Verb for ReleaseRequest {
    const METHOD: Method = Method::Release;
    type Response = ReleaseResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::release(&self, Scope::Unary)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn response(result: answer::Result) -> Option<ReleaseResponse> {
        match result {
            answer::Result::Release(response) => Some(response),
            _ => None,
        }
    }
}
