//! Conversions: another mode for a hold, and while that is under way nothing else with this hold.
//!
//! A conversion can change the token, and a caller that drops it does not learn whether it did. So what is to
//! be done with the hold next, its release above all, waits for the answer to the conversion or to its
//! cancel: only then is it known under which token the hold is to be found.

use std::sync::Arc;

use holdfast_proto::v1;
use holdfast_proto::v1::acquire_response::Outcome as Answered;

use super::request::{Outcome, Request, Success};
use super::state::State;
use crate::error::{Cycle, Rejection, RequestError};
use crate::hold::Hold;

impl<C> State<C> {
    /// Sends a parked request that is about a hold, or lets it wait for the answer to the hold's conversion.
    pub(super) fn start(&mut self, id: u64) {
        let request = self.requests.get(id).and_then(|entry| entry.operation.request());
        let Some((request, hold)) = request.and_then(|it| Some((it, Arc::clone(it.hold()?))))
        else {
            return;
        };
        if let Some(waiting) = self.converting.get_mut(&hold.lease) {
            return waiting.push(id);
        }
        if !self.holds.contains_key(&hold.key) || hold.has_ended() {
            let outcome = request.outcome_if_lost(hold.loss_or_closed());
            self.forget_hold(&hold);
            return self.settle(id, outcome);
        }
        match request {
            Request::Release { .. } => self.begin_release(&hold),
            Request::Transfer { .. } => hold.set_leaving(true),
            Request::Convert { .. } => {
                self.converting.insert(hold.lease, Vec::new());
            }
            _ => {}
        }
        self.requests.unpark(id);
    }

    /// What waited for the conversion goes on, up to the next conversion.
    pub(super) fn stop_converting(&mut self, hold: &Hold) {
        for id in self.converting.remove(&hold.lease).unwrap_or_default() {
            self.start(id);
        }
    }
}

pub(super) fn converted(hold: &Hold, response: v1::AcquireResponse) -> Outcome {
    match response.outcome {
        Some(Answered::Granted(grant)) => {
            hold.convert(&grant);
            Ok(Success::Converted)
        }
        Some(Answered::Busy(_)) => Err(RequestError::Busy),
        Some(Answered::TimedOut(_) | Answered::Cancelled(_)) => Err(RequestError::TimedOut),
        Some(Answered::Deadlock(deadlock)) => Err(RequestError::Deadlock(Cycle::of(deadlock))),
        Some(Answered::Died(_) | Answered::AllGranted(_)) | None => {
            Err(RequestError::Rejected(Rejection::unknown_outcome()))
        }
    }
}
