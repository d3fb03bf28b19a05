//! `Cancel`: end the wait of an acquire or a convert.
//!
//! The cancellation may overtake the acquire. Then it is remembered, and the acquire finds itself
//! cancelled when it arrives: it leaves no waiter without a caller.
//!
//! If the acquire has left with its slot, the sender has to cancel it in its guest's session.

use alloc::vec::Vec;

use crate::model::command::Call;
use crate::model::event::Event;
use crate::model::id::RequestId;
use crate::model::outcome::{Outcome, Rejection};
use crate::state::answers::{Question, Reply};
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn cancel(
        &mut self,
        call: Call,
        target: RequestId,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let question = Question::Cancel { target };
        if let Some(outcome) = self.cached_outcome(&call, &question) {
            return outcome;
        }
        let answers_max = self.answers_max(&question);
        let Some(session) = self.session_map().get(&call.session) else {
            return Outcome::Rejected(Rejection::UnknownSession);
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
        } else if let Some(answer) = session.answers.get(target) {
            if let Reply::Moved { epoch } = answer.reply {
                return Outcome::Rejected(Rejection::WrongGroup { epoch });
            }
            Reply::CancelNothing
        } else if target <= session.answers.acked_through() {
            // It may have left below the mark, where nothing is kept of it.
            if let Some(departed) = session.departed().filter(|it| target <= it.through) {
                let epoch = departed.departures.epoch;
                return Outcome::Rejected(Rejection::WrongGroup { epoch });
            }
            Reply::CancelNothing
        } else if session.answers.len() + 2 > answers_max {
            return Outcome::Rejected(Rejection::TooManyUnacknowledged);
        } else {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::EarlyCancelForgotten.is_active() {
                return self.answer(&call, question, Reply::CancelDone);
            }
            self.change_answers(call.session, |answers| {
                answers.keep(target, Question::CancelledBeforeArrival, Reply::Cancelled);
            });
            Reply::CancelDone
        };
        self.answer(&call, question, reply)
    }
}
