//! Deduplication: a request is carried out once, and every retry gets its answer.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::command::{Call, Command};
use crate::model::event::Event;
use crate::model::id::{RequestId, SessionId};
use crate::model::name::{LockName, Names};
use crate::model::outcome::{Grant, Outcome, Rejection};
use crate::state::answers::{Question, Reply};
use crate::state::session::Session;
use crate::state::table::LockTable;
use crate::state::wait::Wait;

impl LockTable {
    /// The answer to a request that must not be carried out (again); none if it is new.
    ///
    /// A request that waits or holds is recognised by its wait or hold, even if the session has acknowledged a later
    /// request. So a session can acknowledge past a long wait and still find it again.
    pub(crate) fn cached_outcome(&mut self, call: &Call, question: &Question) -> Option<Outcome> {
        let answers_max = self.answers_max(question);
        self.change_answers(call.session, |answers| answers.acknowledge(call.acked_through));
        let Some(session) = self.session_map().get(&call.session) else {
            return Some(Outcome::Rejected(Rejection::UnknownSession));
        };
        if session.knows(call.request) {
            return self.known_answer(call, question);
        }
        if session.answers.len() >= answers_max {
            return Some(Outcome::Rejected(Rejection::TooManyUnacknowledged));
        }
        self.room_for_answer(call.session, question, 0).err().map(Outcome::Rejected)
    }

    fn known_answer(&self, call: &Call, question: &Question) -> Option<Outcome> {
        let session = self.session_map().get(&call.session)?;
        let request = call.request;
        if let Some(wait) = session.waits.get(request) {
            return Some(if question.repeats(&wait.question) {
                Outcome::Queued { position: self.position(wait) }
            } else {
                Outcome::Rejected(Rejection::RequestIdReused)
            });
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AcquireNotOnce.is_active()
            && matches!(question, Question::Acquire { .. })
        {
            return None;
        }
        if request <= session.answers.acked_through() {
            let acquire = if is_acquire_of(question, session.held_by(request)) {
                Some(request)
            } else {
                self.converted_by(call, question)
            };
            return Some(match acquire {
                Some(acquire) => self.outcome_of_grant(call, question, acquire),
                None => Outcome::Rejected(Rejection::AnswerDiscarded),
            });
        }
        let answer = session.answers.get(request)?;
        Some(if question.repeats(&answer.question) {
            self.outcome_of(call, question, &answer.reply)
        } else {
            Outcome::Rejected(Rejection::RequestIdReused)
        })
    }

    /// The acquire of the hold that this request has converted.
    fn converted_by(&self, call: &Call, question: &Question) -> Option<RequestId> {
        let Question::Convert { name, .. } = question else { return None };
        let acquire = self.session_map().get(&call.session)?.converted_by(call.request)?;
        let hold = self.lock_map().get(name)?.hold((call.session, acquire))?;
        (hold.converted_by() == Some(call.request)).then_some(acquire)
    }

    /// How many answers may be kept before a request of this kind is refused. Releases must be possible when there is
    /// no room for other requests, so they have the same room again.
    pub(crate) fn answers_max(&self, question: &Question) -> usize {
        let answers_max = self.limits().unacknowledged_answers_max;
        match question {
            Question::Release { .. } | Question::Cancel { .. } => answers_max.saturating_mul(2),
            _ => answers_max,
        }
    }

    /// Acknowledges the oldest answers of a session in the name of a caller that never does so itself, before its
    /// command enters the log. Otherwise the session could send no more requests after a while.
    ///
    /// It is done only when the room is nearly used up, and only by a request whose id is above those of all kept
    /// answers. So the ids of such a caller may have gaps, as timestamps have; but they have to rise. A caller that
    /// draws them at random is refused when the room is used up: its retries could not be told from new requests.
    pub fn acknowledge_for_silent_caller(&self, command: &mut Command) {
        let Some(call) = command.call_mut() else { return };
        let Some(session) = self.session_map().get(&call.session) else { return };
        let answers_max = self.limits().unacknowledged_answers_max;
        let nearly_full = answers_max - answers_max / 16;
        if call.acked_through > RequestId(0) || session.answers.len() < nearly_full {
            return;
        }
        let kept = self.limits().silent_answers_kept;
        if let Some(mark) = session.answers.mark_of_newest(kept, call.request) {
            call.acked_through = mark;
        }
    }

    /// Stores the answer to a request and returns it.
    pub(crate) fn answer(&mut self, call: &Call, question: Question, reply: Reply) -> Outcome {
        let outcome = self.outcome_of(call, &question, &reply);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RefusalNotOnce.is_active() && reply == Reply::Busy {
            return outcome;
        }
        self.change_answers(call.session, |answers| answers.keep(call.request, question, reply));
        outcome
    }

    /// As [`answer`](LockTable::answer), for a refusal that watches should show.
    pub(crate) fn refuse(
        &mut self,
        call: &Call,
        question: Question,
        names: Names,
        reply: Reply,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let outcome = self.answer(call, question, reply);
        events.push(Event::Refused {
            names,
            session: call.session,
            request: call.request,
            outcome: outcome.clone(),
        });
        outcome
    }

    /// An answer in full, with deadlines as they are now.
    fn outcome_of(&self, call: &Call, question: &Question, reply: &Reply) -> Outcome {
        match reply {
            Reply::Granted => self.outcome_of_grant(call, question, call.request),
            Reply::Reentered { acquire } | Reply::Converted { acquire } => {
                self.outcome_of_grant(call, question, *acquire)
            }
            Reply::CancelTooLate => {
                let grants = match question {
                    Question::Cancel { target } => self.grants_by(call.session, *target),
                    _ => [].into(),
                };
                // On a retry the hold may have ended. For the sender it only matters that nothing is held.
                if grants.is_empty() {
                    Outcome::CancelNothing
                } else {
                    Outcome::CancelTooLate(grants)
                }
            }
            Reply::Renewed { deadline } => match self.session_map().get(&call.session) {
                Some(session) => {
                    Outcome::Renewed { deadline: *deadline, session_deadline: session.deadline }
                }
                None => Outcome::Rejected(Rejection::UnknownSession),
            },
            Reply::Busy => Outcome::Busy,
            Reply::TimedOut => Outcome::TimedOut,
            Reply::Cancelled => Outcome::Cancelled,
            Reply::Deadlock(cycle) => Outcome::Deadlock(cycle.clone()),
            Reply::Died { since } => Outcome::Died { since: *since },
            Reply::CancelDone => Outcome::CancelDone,
            Reply::CancelNothing => Outcome::CancelNothing,
            Reply::Release(answer) => Outcome::Release(*answer),
            Reply::Proclaimed => Outcome::Proclaimed,
            Reply::Transferred { token } => Outcome::Transferred { token: *token },
            Reply::Rejected(rejection) => Outcome::Rejected(*rejection),
            Reply::Divided { epoch } => {
                Outcome::Rejected(Rejection::SeveralGroups { epoch: *epoch })
            }
            Reply::Moved { epoch } => Outcome::Rejected(Rejection::WrongGroup { epoch: *epoch }),
        }
    }

    /// The grants of a request that are still held. The convert of one lock of an acquire-all returns only that lock.
    fn outcome_of_grant(&self, call: &Call, question: &Question, acquire: RequestId) -> Outcome {
        let mut grants = self.grants_of(call.session, acquire);
        if matches!(question, Question::AcquireAll { .. }) && !grants.is_empty() {
            return Outcome::GrantedAll(grants);
        }
        let meant = match question {
            Question::Acquire { name } | Question::Convert { name, .. } => Some(name),
            _ => None,
        };
        match grants.iter_mut().find(|grant| meant.is_none_or(|name| grant.name == *name)) {
            Some(grant) => Outcome::Granted(grant.clone()),
            None => Outcome::Rejected(Rejection::GrantEnded),
        }
    }

    /// What a session holds by that request: an acquire, a re-entry or a convert. A re-entry is recognised by its
    /// stored answer, which stays until the session acknowledges it.
    fn grants_by(&self, id: SessionId, request: RequestId) -> Box<[Grant]> {
        let session = self.session_map().get(&id);
        let answer = session.and_then(|session| session.answers.get(request));
        let (acquire, name) = match answer.map(|answer| (&answer.question, &answer.reply)) {
            Some((
                Question::Acquire { name } | Question::Convert { name, .. },
                Reply::Reentered { acquire } | Reply::Converted { acquire },
            )) => (*acquire, name),
            _ => match session.and_then(|session| session.converted_by(request)) {
                Some(acquire) => return self.grants_converted_by(id, acquire, request),
                None => return self.grants_of(id, request),
            },
        };
        let grants = self.grants_of(id, acquire).into_iter();
        grants.filter(|grant| grant.name == *name).collect()
    }

    /// The holds of that acquire that a convert has made exclusive.
    fn grants_converted_by(
        &self,
        id: SessionId,
        acquire: RequestId,
        convert: RequestId,
    ) -> Box<[Grant]> {
        let is_meant = |grant: &Grant| {
            let lock = self.lock_map().get(&grant.name);
            let hold = lock.and_then(|lock| lock.hold((id, acquire)));
            hold.is_some_and(|hold| hold.converted_by() == Some(convert))
        };
        self.grants_of(id, acquire).into_iter().filter(is_meant).collect()
    }

    /// What a session holds by that acquire.
    pub(crate) fn grants_of(&self, id: SessionId, acquire: RequestId) -> Box<[Grant]> {
        let Some(session) = self.session_map().get(&id) else { return [].into() };
        let names = session.held_by(acquire).iter();
        names.filter_map(|name| self.grant_of(id, session, acquire, name)).collect()
    }

    fn grant_of(
        &self,
        id: SessionId,
        session: &Session,
        acquire: RequestId,
        name: &LockName,
    ) -> Option<Grant> {
        let hold = self.lock_map().get(name)?.hold((id, acquire))?;
        Some(Grant {
            name: name.clone(),
            acquire,
            token: hold.token,
            mode: hold.mode,
            deadline: hold.deadline(),
            session_deadline: session.deadline,
        })
    }

    /// The worst of its positions.
    pub(crate) fn position(&self, wait: &Wait) -> u64 {
        let places = wait.places.as_slice().iter();
        let positions = places.filter_map(|place| {
            Some(self.lock_map().get(&place.name)?.queue().position(place.ticket))
        });
        positions.max().unwrap_or(1)
    }
}

/// Whether the question is the acquire of these holds. Some locks of an acquire-all may have been released.
fn is_acquire_of(question: &Question, held: &[LockName]) -> bool {
    match question {
        Question::Acquire { name } => held == core::slice::from_ref(name),
        Question::AcquireAll { .. } => !held.is_empty(),
        _ => false,
    }
}
