//! A request is carried out once: has it an answer already, and how is an answer told.

use super::LockTable;
use super::answers::{Question, Reply};
use super::session::Wait;
use crate::command::Call;
use crate::id::RequestId;
use crate::outcome::{Grant, Outcome, Rejection};

impl LockTable {
    /// The answer to a request that must not be carried out (again); none if it is new.
    ///
    /// An acquire that waits or holds is known by that, wherever the mark stands: a session can
    /// acknowledge past a long wait without losing its way back to it.
    pub(crate) fn recall(&mut self, call: &Call, question: &Question) -> Option<Outcome> {
        let answers_max = self.answers_max(question);
        let session = match self.session_mut(call.session) {
            Ok(session) => session,
            Err(rejection) => return Some(Outcome::Rejected(rejection)),
        };
        session.answers.acknowledge(call.acked_through);

        let session = &*session;
        let request = call.request;
        if let Some(wait) = session.waits.get(&request) {
            let wait = wait.clone();
            let waiting = Question::Acquire { name: wait.name.clone() };
            return Some(if question.repeats(&waiting) {
                Outcome::Queued { position: self.position(&wait) }
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
            let held = match question {
                Question::Acquire { name } => session.holds.get(&request) == Some(name),
                _ => false,
            };
            let grant = if held { self.grant_of(call, request) } else { None };
            return Some(match grant {
                Some(grant) => Outcome::Granted(grant),
                None => Outcome::Rejected(Rejection::AnswerDiscarded),
            });
        }
        if let Some(answer) = session.answers.get(request) {
            let (is_retry, reply) = (question.repeats(&answer.question), answer.reply);
            return Some(if is_retry {
                self.tell(call, question, reply)
            } else {
                Outcome::Rejected(Rejection::RequestIdReused)
            });
        }
        if session.answers.len() >= answers_max {
            return Some(Outcome::Rejected(Rejection::TooManyUnacknowledged));
        }
        None
    }

    /// How many answers may be kept before a request of this kind is refused. To give something back
    /// must be possible when there is no room for more: there is as much again for that.
    pub(crate) fn answers_max(&self, question: &Question) -> usize {
        let answers_max = self.limits.unacknowledged_answers_max;
        match question {
            Question::Release { .. } | Question::Cancel { .. } => answers_max.saturating_mul(2),
            _ => answers_max,
        }
    }

    /// Keeps the answer to a request and tells it.
    pub(crate) fn answer(&mut self, call: &Call, question: Question, reply: Reply) -> Outcome {
        let outcome = self.tell(call, &question, reply);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RefusalNotOnce.is_active() && reply == Reply::Busy {
            return outcome;
        }
        if let Some(session) = self.sessions.get_mut(&call.session) {
            session.answers.keep(call.request, question, reply);
        }
        outcome
    }

    /// An answer in full, with deadlines as they are now.
    fn tell(&self, call: &Call, question: &Question, reply: Reply) -> Outcome {
        match reply {
            Reply::Granted => match self.grant_of(call, call.request) {
                Some(grant) => Outcome::Granted(grant),
                None => Outcome::Rejected(Rejection::GrantEnded),
            },
            Reply::CancelTooLate => {
                let grant = match question {
                    Question::Cancel { target } => self.grant_of(call, *target),
                    _ => None,
                };
                // On a retry the hold may be gone. What counts for the sender is that nothing is held.
                grant.map_or(Outcome::CancelNothing, Outcome::CancelTooLate)
            }
            Reply::Renewed { deadline } => match self.sessions.get(&call.session) {
                Some(session) => Outcome::Renewed { deadline, session_deadline: session.deadline },
                None => Outcome::Rejected(Rejection::UnknownSession),
            },
            Reply::Busy => Outcome::Busy,
            Reply::TimedOut => Outcome::TimedOut,
            Reply::Cancelled => Outcome::Cancelled,
            Reply::CancelDone => Outcome::CancelDone,
            Reply::CancelNothing => Outcome::CancelNothing,
            Reply::Release(answer) => Outcome::Release(answer),
            Reply::NotHeld => Outcome::Rejected(Rejection::NotHeld),
            Reply::TooManyHolds => Outcome::Rejected(Rejection::TooManyHolds),
            Reply::TooManyWaits => Outcome::Rejected(Rejection::TooManyWaits),
            Reply::QueueFull => Outcome::Rejected(Rejection::QueueFull),
        }
    }

    /// What the caller's session holds by that acquire.
    pub(crate) fn grant_of(&self, call: &Call, acquire: RequestId) -> Option<Grant> {
        let session = self.sessions.get(&call.session)?;
        let name = session.holds.get(&acquire)?;
        let hold = self.resources.get(name)?.hold.as_ref()?;
        Some(Grant {
            name: name.clone(),
            token: hold.token,
            deadline: hold.deadline(),
            session_deadline: session.deadline,
        })
    }

    fn position(&self, wait: &Wait) -> u64 {
        let queue = self.resources.get(&wait.name).and_then(|resource| resource.queue.as_ref());
        queue.map_or(1, |queue| queue.position(wait.ticket))
    }
}
