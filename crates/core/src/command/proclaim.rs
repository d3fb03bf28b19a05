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
        let before = hold.metadata().len() as u64;
        let after = metadata.len() as u64;
        let more = after.saturating_sub(before);
        if let Err(rejection) = self.room_for_answer(call.session, &question, more) {
            return Outcome::Rejected(rejection);
        }
        if let Ok(hold) = self.meant_by(&call, &meant) {
            hold.proclaim(metadata.clone());
        }
        if let Some(session) = self.sessions.get_mut(&call.session) {
            LockTable::resize(&mut session.held_bytes, before, after);
            LockTable::resize(&mut self.size, before, after);
        }
        let HoldRef { name, token, .. } = meant;
        events.push(Event::Proclaimed { name, session: call.session, token, metadata });
        self.answer(&call, question, Reply::Proclaimed)
    }
}
