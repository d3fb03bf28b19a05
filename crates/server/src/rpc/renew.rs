//! `Renew`: a new TTL for one hold.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{Failure, RenewRequest, RenewResponse, answer};
use holdfast_service::Method;

use super::unary::Verb;

impl Verb for RenewRequest {
    const METHOD: Method = Method::Renew;
    type Response = RenewResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::renew(&self, Scope::Unary)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn response(result: answer::Result) -> Option<RenewResponse> {
        match result {
            answer::Result::Renew(response) => Some(response),
            _ => None,
        }
    }
}
