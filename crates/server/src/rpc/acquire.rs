//! `Acquire`: answered when the lock is granted, refused, timed out or cancelled.
//!
//! If the caller hangs up, the acquire is undone (`hang_up`), unless the request has `resume_later`: then the caller
//! comes back with the same request id.

use std::time::Duration;

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{AcquireRequest, AcquireResponse, Failure, answer};
use holdfast_service::Method;

use super::unary::{CALL_TIMEOUT, Verb};

impl Verb for AcquireRequest {
    const METHOD: Method = Method::Acquire;
    type Response = AcquireResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::acquire(&self, Scope::Unary)
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
