//! `Convert`: another mode for a hold. Answered like an acquire: it may have to wait.

use std::time::Duration;

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{AcquireResponse, ConvertRequest, Failure, answer};
use holdfast_service::Method;

use super::unary::{CALL_TIMEOUT, Verb};

impl Verb for ConvertRequest {
    const METHOD: Method = Method::Convert;
    type Response = AcquireResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::convert(&self, Scope::Unary)
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.wait_ms).saturating_add(CALL_TIMEOUT)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn is_resumed_later(&self) -> bool {
        self.resume_later
    }

    fn response(result: answer::Result) -> Option<AcquireResponse> {
        match result {
            answer::Result::Acquire(response) => Some(response),
            _ => None,
        }
    }
}
