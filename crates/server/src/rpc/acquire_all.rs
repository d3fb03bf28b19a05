//! `AcquireAll`: several locks at one moment, or none.

use std::time::Duration;

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{AcquireAllRequest, AcquireResponse, Failure, answer};
use holdfast_service::Method;

use super::unary::{CALL_TIMEOUT, Verb};

impl Verb for AcquireAllRequest {
    const METHOD: Method = Method::AcquireAll;
    type Response = AcquireResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::acquire_all(self, Scope::Unary)
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.wait_ms).saturating_add(CALL_TIMEOUT)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn traceparent(&self) -> &str {
        &self.traceparent
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
