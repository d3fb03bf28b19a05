//! `Abandon`: a caller hung up before its acquire was answered.
//!
//! Without it the acquire would wait on, and be granted to a caller that is gone. The request is undone: a wait ends, a
//! grant is given back, and the answer is forgotten, so that a retry under the same id is carried out like a new
//! request. The leader sends this only of a call that no later copy of the request has superseded, and whose answer no
//! other call was given.
//!
//! A convert is undone only while it waits. Once it is granted the lock has another token, which its holder can learn
//! by sending the convert again. An answer without a grant stays: there is nothing to undo.

use alloc::vec::Vec;

use crate::model::event::Event;
use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::Outcome;
use crate::state::answers::{Question, Reply};
use crate::state::hold::Hold;
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn abandon(
        &mut self,
        id: SessionId,
        request: RequestId,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let Some(session) = self.session_map().get(&id) else { return Outcome::Done };
        if session.waits.contains(request) {
            self.end_wait(id, request, Reply::Cancelled, events);
            self.change_answers(id, |answers| answers.forget(request));
            return Outcome::Done;
        }
        let answer = session.answers.get(request).map(|answer| (&answer.question, &answer.reply));
        if let Some((Question::Acquire { name }, Reply::Reentered { acquire })) = answer {
            let (name, acquire) = (name.clone(), *acquire);
            self.change_hold(&name, (id, acquire), Hold::leave);
            self.change_answers(id, |answers| answers.forget(request));
            return Outcome::Done;
        }
        let held: Vec<LockName> = session.held_by(request).to_vec();
        if !held.is_empty() {
            for name in held {
                self.give_back(&name, (id, request), false, events);
            }
            self.change_answers(id, |answers| answers.forget(request));
        }
        Outcome::Done
    }
}
