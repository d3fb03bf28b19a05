//! `Release`: gives a lock back.
//!
//! It matches session *and* token, so a late copy of a release can never free a newer hold. A release after its session
//! was closed gets the answer that everything is released. After the session expired it is unknown whether an earlier
//! copy released the hold: the answer is an unknown session.
//!
//! Caveat: the table does not remember every token. A token of another session that was granted after this session
//! opened, and is no longer held, gets `AlreadyReleased` instead of `NotOwner`. Nothing is freed either way.

use alloc::vec::Vec;

use crate::model::command::{Call, HoldRef, Mode};
use crate::model::event::Event;
use crate::model::name::{LockName, Names};
use crate::model::outcome::{Outcome, Rejection, ReleaseAnswer};
use crate::state::answers::{Question, Reply};
use crate::state::ended_sessions::End;
use crate::state::hold::{Hold, HoldKey};
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn release(
        &mut self,
        call: Call,
        meant: HoldRef,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let question = Question::Release { name: meant.name.clone(), token: meant.token };
        match self.cached_outcome(&call, &question) {
            Some(Outcome::Rejected(Rejection::UnknownSession))
                if self.ended_sessions().get(call.session) == Some(End::Closed) =>
            {
                return Outcome::Release(ReleaseAnswer::AlreadyReleased);
            }
            Some(outcome) => return outcome,
            None => {}
        }
        let (key, is_entered_again) = match self.hold_to_release(&call, &meant) {
            Ok(hold) => (hold.key(), hold.reentries() > 0),
            Err(Rejection::NotHeld) => {
                let answer = self.answer_for_missing_hold(&call, &meant);
                return self.answer(&call, question, Reply::Release(answer));
            }
            Err(rejection) => {
                let reply = Reply::Rejected(rejection);
                return self.refuse(&call, question, Names::One(meant.name), reply, events);
            }
        };
        let left = if is_entered_again { self.leave(&meant.name, key) } else { None };
        #[cfg(feature = "planted")]
        let left = left.filter(|_| !crate::planted::Bug::ReentryNotCounted.is_active());
        let answer = match left {
            Some(remaining) => ReleaseAnswer::StillHeld { remaining },
            None => {
                self.give_back(&meant.name, key, false, events);
                ReleaseAnswer::Released
            }
        };
        self.answer(&call, question, Reply::Release(answer))
    }

    /// Counts a re-entered hold once less.
    fn leave(&mut self, name: &LockName, key: HoldKey) -> Option<u32> {
        self.change_hold(name, key, Hold::leave)?
    }

    fn hold_to_release(&self, call: &Call, meant: &HoldRef) -> Result<&Hold, Rejection> {
        let lock = self.lock_map().get(&meant.name).ok_or(Rejection::NotHeld)?;
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ReleaseIgnoresToken.is_active()
            && let Some(hold) = lock.holds().find(|hold| hold.session == call.session)
        {
            return Ok(hold);
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ReleaseIgnoresSession.is_active() {
            return lock.holds().next().ok_or(Rejection::NotHeld);
        }
        lock.find_meant(call.session, meant)
    }

    /// Why the session does not hold it.
    fn answer_for_missing_hold(&self, call: &Call, meant: &HoldRef) -> ReleaseAnswer {
        let Some(session) = self.session_map().get(&call.session) else {
            return ReleaseAnswer::NotOwner;
        };
        let token = meant.token;
        let lock = self.lock_map().get(&meant.name);
        let first = lock.and_then(|lock| lock.holds().next());
        let was_granted = 0 < token.0 && token.0 <= self.last_token();
        // Shared holders have one token, so others may still hold it after this session has released.
        let held_by_another =
            first.is_some_and(|hold| hold.token == token && hold.mode != Mode::Shared);
        if held_by_another {
            ReleaseAnswer::NotOwner
        } else if session.lost(token) {
            ReleaseAnswer::Expired
        } else if !was_granted || token.0 <= session.below_own_tokens {
            ReleaseAnswer::NotOwner
        } else {
            ReleaseAnswer::AlreadyReleased
        }
    }
}
