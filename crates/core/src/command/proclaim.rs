//! `Proclaim`: other metadata for a hold, for those who look at it. The hold is otherwise as before.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Call, HoldRef};
use crate::event::Event;
use crate::outcome::Outcome;
use crate::table::LockTable;
use crate::table::answers::{Question, Reply};

impl LockTable {
    pub(crate) fn proclaim(
        &mut self,
        call: Call,
        meant: HoldRef,
        metadata: Box<[u8]>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let question = Question::Proclaim { name: meant.name.clone(), token: meant.token };
        if let Some(outcome) = self.recall(&call, &question) {
            return outcome;
        }
        let hold = match self.meant_by(&call, &meant) {
            Ok(hold) => hold,
            Err(rejection) => return self.answer(&call, question, Reply::Rejected(rejection)),
        };
        hold.proclaim(metadata.clone());
        let HoldRef { name, token, .. } = meant;
        events.push(Event::Proclaimed { name, session: call.session, token, metadata });
        self.answer(&call, question, Reply::Proclaimed)
    }
}
