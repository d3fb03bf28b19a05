//! `Proclaim`: other metadata for a hold.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{Failure, ProclaimRequest, ProclaimResponse, answer};
use holdfast_service::Method;

use super::unary::Verb;

impl Verb for ProclaimRequest {
    const METHOD: Method = Method::Proclaim;
    type Response = ProclaimResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::proclaim(self, Scope::Unary)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn response(result: answer::Result) -> Option<ProclaimResponse> {
        match result {
            answer::Result::Proclaim(response) => Some(response),
            _ => None,
        }
    }
}
