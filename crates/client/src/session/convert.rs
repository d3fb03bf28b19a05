//! Conversions: another mode for a hold, and while that is under way nothing else with this hold.
//!
//! A conversion can change the token, and whoever drops it does not learn whether it did. So what is to
//! be done with the hold next, its release above all, waits for the answer to the conversion or to its
//! cancel: only then is it known under which token the hold is to be found.

use std::fmt;
use std::sync::Arc;

use holdfast_proto::v1;
use holdfast_proto::v1::acquire_response::Outcome;
use tokio::sync::oneshot;

use super::answers::unknown_outcome;
use super::request::Request;
use super::state::Session;
use super::{Command, Ticket};
use crate::error::{ConvertError, Cycle};
use crate::hold::Hold;
use crate::terms::Policy;

/// One call of `convert_to_shared` or `convert_to_exclusive`.
pub(crate) struct ConvertCall {
    pub(crate) hold: Arc<Hold>,
    pub(crate) mode: v1::Mode,
    pub(crate) wait_ms: u64,
    pub(crate) policy: Policy,
    pub(crate) ticket: Ticket,
    pub(crate) reply: oneshot::Sender<Result<(), ConvertError>>,
    pub(crate) is_abandoned: bool,
}

impl ConvertCall {
    pub(super) fn to_wire(&self, request_id: u64) -> v1::ConvertRequest {
        v1::ConvertRequest {
            request_id,
            name: self.hold.name.clone(),
            token: self.hold.token(),
            acquire_request_id: self.hold.key.acquire,
            mode: self.mode.into(),
            wait_ms: self.wait_ms,
            policy: self.policy.to_wire().into(),
            tier: self.hold.tier().to_wire().into(),
            ..Default::default()
        }
    }
}

impl Session {
    /// `None` if the command has to wait for a conversion of its hold.
    pub(super) fn unless_converting(&mut self, command: Command) -> Option<Command> {
        let waiting = command.hold().and_then(|hold| self.converting.get_mut(&hold.key));
        match waiting {
            Some(waiting) => {
                waiting.push(command);
                None
            }
            None => Some(command),
        }
    }

    pub(super) fn start_converting(&mut self, call: ConvertCall) {
        // It may have waited for another one until its caller left.
        if !call.reply.is_closed() {
            self.converting.insert(call.hold.key, Vec::new());
            self.stage(Request::Convert(call));
        }
    }

    pub(super) fn stop_converting(&mut self, hold: &Hold) {
        if let Some(waiting) = self.converting.remove(&hold.key) {
            self.ready.extend(waiting);
        }
    }

    pub(super) fn on_converted(&mut self, call: ConvertCall, response: v1::AcquireResponse) {
        let outcome = match response.outcome {
            Some(Outcome::Granted(grant)) => {
                call.hold.convert(&grant);
                Ok(())
            }
            Some(Outcome::Busy(_)) => Err(ConvertError::Busy),
            Some(Outcome::TimedOut(_) | Outcome::Cancelled(_)) => Err(ConvertError::TimedOut),
            Some(Outcome::Deadlock(deadlock)) => Err(ConvertError::Deadlock(Cycle::of(deadlock))),
            Some(Outcome::Died(_) | Outcome::AllGranted(_)) | None => {
                Err(ConvertError::Rejected(unknown_outcome()))
            }
        };
        self.stop_converting(&call.hold);
        let _ = call.reply.send(outcome);
    }
}

impl fmt::Debug for ConvertCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvertCall")
            .field("name", &self.hold.name)
            .field("mode", &self.mode)
            .field("is_abandoned", &self.is_abandoned)
            .finish_non_exhaustive()
    }
}
