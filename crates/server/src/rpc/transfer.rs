//! `Transfer`: the holder hands its lock to a chosen waiter.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{Failure, TransferRequest, TransferResponse, answer};
use holdfast_service::Method;

use super::unary::Verb;

impl Verb for TransferRequest {
    const METHOD: Method = Method::Transfer;
    type Response = TransferResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::transfer(&self, Scope::Unary)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn response(result: answer::Result) -> Option<TransferResponse> {
        match result {
            answer::Result::Transfer(response) => Some(response),
            _ => None,
        }
    }
}
