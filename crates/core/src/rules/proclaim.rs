//! `Proclaim`: other metadata for a hold, for those who look at it. The hold is otherwise as before.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::command::{Call, HoldRef};
use crate::model::event::Event;
use crate::model::outcome::Outcome;
use crate::state::answers::{Question, Reply};
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn proclaim(
        &mut self,
        call: Call,
        meant: HoldRef,
        metadata: Box<[u8]>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let question = Question::Proclaim { name: meant.name.clone(), token: meant.token };
        if let Some(outcome) = self.cached_outcome(&call, &question) {
            return outcome;
        }
        let hold = match self.find_meant(&call, &meant) {
            Ok(hold) => hold,
            Err(rejection) => return self.answer(&call, question, Reply::Rejected(rejection)),
        };
        let key = hold.key();
        let more = metadata.len().saturating_sub(hold.metadata().len()) as u64;
        if let Err(rejection) = self.room_for_answer(call.session, &question, more) {
            return Outcome::Rejected(rejection);
        }
        self.change_hold(&meant.name, key, |hold| hold.proclaim(metadata.clone()));
        let HoldRef { name, token, .. } = meant;
        events.push(Event::Proclaimed { name, session: call.session, token, metadata });
        self.answer(&call, question, Reply::Proclaimed)
    }
}
