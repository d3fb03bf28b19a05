//! `Cancel`: end the wait of an acquire or a convert.
//!
//! The cancellation may overtake the acquire. Then it is remembered, and the acquire finds itself
//! cancelled when it arrives: it leaves no waiter behind whom nobody waits for.

use alloc::vec::Vec;

use super::Call;
use crate::event::Event;
use crate::id::RequestId;
use crate::outcome::{Outcome, Rejection};
use crate::table::LockTable;
use crate::table::answers::{Question, Reply};

impl LockTable {
    pub(crate) fn cancel(
        &mut self,
        call: Call,
        target: RequestId,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let question = Question::Cancel { target };
        if let Some(outcome) = self.recall(&call, &question) {
            return outcome;
        }
        let answers_max = self.answers_max(&question);
        let session = match self.session_mut(call.session) {
            Ok(session) => session,
            Err(rejection) => return Outcome::Rejected(rejection),
        };
        let reply = if session.waits.contains(target) {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::CancelLeavesWaiter.is_active() {
                return self.answer(&call, question, Reply::CancelDone);
            }
            self.end_wait(call.session, target, Reply::Cancelled, events);
            Reply::CancelDone
        } else if session.has_by(target) {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::CancelOfHoldSaysDone.is_active() {
                return self.answer(&call, question, Reply::CancelDone);
            }
            Reply::CancelTooLate
        } else if session.answers.get(target).is_some() || target <= session.answers.acked_through()
        {
            Reply::CancelNothing
        } else if session.answers.len() + 2 > answers_max {
            return Outcome::Rejected(Rejection::TooManyUnacknowledged);
        } else {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::EarlyCancelForgotten.is_active() {
                return self.answer(&call, question, Reply::CancelDone);
            }
            let before = session.answers.bytes();
            session.answers.keep(target, Question::AcquireToCome, Reply::Cancelled);
            let after = session.answers.bytes();
            LockTable::resize(&mut self.size, before, after);
            Reply::CancelDone
        };
        self.answer(&call, question, reply)
    }
}
