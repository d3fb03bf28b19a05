//! Unary calls that may be abandoned: the caller hangs up before it has its answer, and does not retry.
//!
//! The engine undoes such a call, unless another call relies on the same request. Several copies of a request can be
//! under way: a client may retry on a new connection before the old one has ended. So each request without an answer
//! has one owner: the newest copy. The engine undoes the request only when the owner is abandoned. If the answer goes
//! to another copy, or a copy arrives after the answer, more than one caller may have the answer. From then on the
//! request has no owner, and is not undone.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::answer::Wait;

/// Entries of calls that have ended are removed when there are twice as many entries as there were live calls, and at
/// least so many.
const SWEEP_AT_LEAST: usize = 1_024;

/// One unary call, as long as it is served. Its server keeps it, and hands it to the engine if the caller hangs up.
#[derive(Clone, Debug)]
pub struct LiveCall(Arc<()>);

/// The engine's reference to a [`LiveCall`].
#[derive(Clone, Debug)]
pub struct CallRef(Weak<()>);

impl LiveCall {
    #[expect(clippy::new_without_default, reason = "each call is another one")]
    pub fn new() -> LiveCall {
        LiveCall(Arc::new(()))
    }

    pub fn to_ref(&self) -> CallRef {
        CallRef(Arc::downgrade(&self.0))
    }
}

impl CallRef {
    fn is(&self, other: &CallRef) -> bool {
        self.0.ptr_eq(&other.0)
    }

    fn is_live(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct RequestOwners {
    owners: HashMap<Wait, Owner>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Owner {
    call: CallRef,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unanswered,
    Answered,
    /// The command that undoes the request is under way.
    Undone,
}

impl RequestOwners {
    /// A copy of the request has arrived. `call` is none if that copy cannot be abandoned. `has_answer` says whether
    /// the table has answered the request already.
    pub(crate) fn note_copy(&mut self, wait: Wait, call: Option<&CallRef>, has_answer: bool) {
        let Some(call) = call else {
            if !self.owners.is_empty() {
                self.owners.remove(&wait);
            }
            return;
        };
        let is_undone = self.owners.get(&wait).is_some_and(|owner| owner.state == State::Undone);
        if has_answer && !is_undone {
            self.owners.remove(&wait);
            return;
        }
        self.sweep();
        self.owners.insert(wait, Owner { call: call.clone(), state: State::Unanswered });
    }

    /// The answer goes to this copy. `call` is none if that copy cannot be abandoned.
    pub(crate) fn answered(&mut self, wait: Wait, call: Option<&CallRef>) {
        if self.owners.is_empty() {
            return;
        }
        let Some(owner) = self.owners.get_mut(&wait) else { return };
        match call {
            Some(call) if owner.call.is(call) => {
                if owner.state == State::Unanswered {
                    owner.state = State::Answered;
                }
            }
            _ => drop(self.owners.remove(&wait)),
        }
    }

    /// The caller has hung up. Returns whether its request must be undone.
    pub(crate) fn abandoned(&mut self, wait: Wait, call: &LiveCall) -> bool {
        let Some(owner) = self.owners.get_mut(&wait) else { return false };
        if owner.state == State::Undone || !owner.call.is(&call.to_ref()) {
            return false;
        }
        owner.state = State::Undone;
        true
    }

    /// Another node leads the group now. The clients retry there.
    pub(crate) fn clear(&mut self) {
        self.owners.clear();
    }

    fn sweep(&mut self) {
        if self.owners.len() >= self.sweep_at.max(SWEEP_AT_LEAST) {
            self.owners.retain(|_, owner| owner.call.is_live());
            self.sweep_at = 2 * self.owners.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::{RequestId, SessionId};

    use super::*;

    const WAIT: Wait = (SessionId(1), RequestId(5));

    #[test]
    fn a_request_is_undone_when_its_only_call_is_abandoned_and_only_once() {
        let mut owners = RequestOwners::default();
        let call = LiveCall::new();
        owners.note_copy(WAIT, Some(&call.to_ref()), false);
        assert!(owners.abandoned(WAIT, &call));
        assert!(!owners.abandoned(WAIT, &call));
    }

    #[test]
    fn a_retry_that_came_before_the_old_call_ended_keeps_the_request() {
        let mut owners = RequestOwners::default();
        let (old, retry) = (LiveCall::new(), LiveCall::new());
        owners.note_copy(WAIT, Some(&old.to_ref()), false);
        owners.note_copy(WAIT, Some(&retry.to_ref()), false);
        assert!(!owners.abandoned(WAIT, &old));
        assert!(owners.abandoned(WAIT, &retry));
    }

    #[test]
    fn two_copies_that_share_an_answer_do_not_undo_it_for_each_other() {
        let (first, second) = (LiveCall::new(), LiveCall::new());
        for abandoned in [&first, &second] {
            let mut owners = RequestOwners::default();
            owners.note_copy(WAIT, Some(&first.to_ref()), false);
            owners.note_copy(WAIT, Some(&second.to_ref()), false);
            owners.answered(WAIT, Some(&first.to_ref()));
            assert!(!owners.abandoned(WAIT, abandoned));
        }
    }

    #[test]
    fn a_retry_that_finds_the_answer_keeps_it_when_the_old_call_ends_later() {
        let mut owners = RequestOwners::default();
        let (old, retry) = (LiveCall::new(), LiveCall::new());
        owners.note_copy(WAIT, Some(&old.to_ref()), false);
        owners.answered(WAIT, Some(&old.to_ref()));
        owners.note_copy(WAIT, Some(&retry.to_ref()), true);
        assert!(!owners.abandoned(WAIT, &old));
        assert!(!owners.abandoned(WAIT, &retry));
    }

    #[test]
    fn a_copy_after_the_answer_was_taken_undoes_nothing() {
        let mut owners = RequestOwners::default();
        let late = LiveCall::new();
        owners.note_copy(WAIT, Some(&late.to_ref()), true);
        assert!(!owners.abandoned(WAIT, &late));
    }

    #[test]
    fn a_copy_that_will_be_resumed_takes_the_request_over() {
        let mut owners = RequestOwners::default();
        let call = LiveCall::new();
        owners.note_copy(WAIT, Some(&call.to_ref()), false);
        owners.note_copy(WAIT, None, false);
        assert!(!owners.abandoned(WAIT, &call));
    }

    #[test]
    fn a_retry_after_the_undo_can_be_abandoned_as_well() {
        let mut owners = RequestOwners::default();
        let (old, retry) = (LiveCall::new(), LiveCall::new());
        owners.note_copy(WAIT, Some(&old.to_ref()), false);
        owners.answered(WAIT, Some(&old.to_ref()));
        assert!(owners.abandoned(WAIT, &old));
        // The table has not applied the undoing yet.
        owners.note_copy(WAIT, Some(&retry.to_ref()), true);
        assert!(owners.abandoned(WAIT, &retry));
    }

    #[test]
    fn calls_that_have_ended_are_forgotten() {
        let mut owners = RequestOwners::default();
        for request in 0..100_000 {
            let wait = (SessionId(1), RequestId(request));
            owners.note_copy(wait, Some(&LiveCall::new().to_ref()), false);
        }
        assert!(owners.owners.len() <= SWEEP_AT_LEAST, "{}", owners.owners.len());
    }
}
