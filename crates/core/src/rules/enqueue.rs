//! How waits begin, and how they end without a grant.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::command::{Mode, Terms};
use crate::model::event::Event;
use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Outcome, Rejection};
use crate::state::answers::{Question, Reply};
use crate::state::hold::Holder;
use crate::state::queue::Waiter;
use crate::state::table::LockTable;
use crate::state::wait::{Converts, QueuePlace, QueuePlaces, Wait};

impl LockTable {
    /// Takes a place in each of these queues. A conversion goes to the front: it holds what all other waiters wait for.
    pub(crate) fn enter_queues<'a>(
        &mut self,
        holder: Holder,
        wanted: impl Iterator<Item = (&'a LockName, Mode)>,
        terms: Terms,
        question: Question,
        converts: Option<Converts>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let Holder { session, request, actor } = holder;
        let waiter = |mode| Waiter { session, request, actor, mode, policy: terms.policy };
        let mut places = Vec::new();
        let mut position = 1;
        for (name, mode) in wanted {
            let (name, ticket, ahead) = self.enqueue(name, waiter(mode), converts.is_some());
            if converts.is_none() {
                position = position.max(ahead as u64 + 1);
            }
            events.push(Event::Queued { name: name.clone(), session, request, actor, mode });
            places.push(QueuePlace { name, ticket, mode });
        }
        let deadline = self.now().after(terms.wait);
        let places: QueuePlaces = places.into_iter().collect();
        let terms = Box::new(terms);
        let queued_at = self.now();
        let wait = Wait { actor, places, queued_at, deadline, terms, question, converts };
        self.add_wait(session, request, wait);
        Outcome::Queued { position }
    }

    /// Ends a wait with an answer.
    pub(crate) fn end_wait(
        &mut self,
        session_id: SessionId,
        request: RequestId,
        reply: Reply,
        events: &mut Vec<Event>,
    ) {
        let Some(wait) = self.remove_wait(session_id, request) else { return };
        let outcome = match &reply {
            Reply::TimedOut => Outcome::TimedOut,
            Reply::Cancelled => Outcome::Cancelled,
            Reply::Deadlock(cycle) => Outcome::Deadlock(cycle.clone()),
            Reply::Rejected(rejection) => Outcome::Rejected(*rejection),
            _ => Outcome::Rejected(Rejection::NotHeld),
        };
        let question = wait.question.clone();
        self.change_answers(session_id, |answers| answers.keep(request, question, reply));
        let names = wait.names();
        names.iter().for_each(|name| self.note_freed(name.clone()));
        events.push(Event::WaitEnded { names, session: session_id, request, outcome });
    }
}
