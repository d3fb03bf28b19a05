//! `Release`: give a resource back.
//!
//! It matches session *and* token, so a late copy of a release can never free a newer hold. One that
//! comes after its session was closed is told that everything has been given back. After one that
//! expired nobody knows whether an earlier copy had done it: that is an unknown session.
//!
//! Caveat: the table does not remember every token. A token that was another session's, was granted
//! after this session opened, and is not held any more, is told `AlreadyReleased` instead of
//! `NotOwner`. Nothing is freed either way.

use alloc::vec::Vec;

use super::{Call, HoldRef, Mode};
use crate::event::Event;
use crate::outcome::{Outcome, ReleaseAnswer};
use crate::table::LockTable;
use crate::table::answers::{Question, Reply};
use crate::table::ended::End;
use crate::table::hold::HoldKey;

impl LockTable {
    pub(crate) fn release(
        &mut self,
        call: Call,
        meant: HoldRef,
        events: &mut Vec<Event>,
    ) -> Outcome {
        if self.ended.get(call.session) == Some(End::Closed) {
            return Outcome::Release(ReleaseAnswer::AlreadyReleased);
        }
        let question = Question::Release { name: meant.name.clone(), token: meant.token };
        if let Some(outcome) = self.recall(&call, &question) {
            return outcome;
        }
        let Some(key) = self.hold_to_release(&call, &meant) else {
            let answer = self.release_of_nothing(&call, &meant);
            return self.answer(&call, question, Reply::Release(answer));
        };
        let hold = self.resources.get_mut(&meant.name).and_then(|held| held.hold_mut(key));
        let left = hold.and_then(|hold| hold.leave());
        #[cfg(feature = "planted")]
        let left = left.filter(|_| !crate::planted::Bug::ReentryNotCounted.is_active());
        let answer = match left {
            Some(remaining) => ReleaseAnswer::StillHeld { remaining },
            None => {
                self.give_back(&meant.name, key, events);
                ReleaseAnswer::Released
            }
        };
        self.answer(&call, question, Reply::Release(answer))
    }

    fn hold_to_release(&self, call: &Call, meant: &HoldRef) -> Option<HoldKey> {
        let resource = self.resources.get(&meant.name)?;
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ReleaseIgnoresToken.is_active()
            && let Some(hold) = resource.holds().find(|hold| hold.session == call.session)
        {
            return Some(hold.key());
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ReleaseIgnoresSession.is_active() {
            return resource.holds().next().map(|hold| hold.key());
        }
        resource.meant_by(call.session, meant).map(|hold| hold.key())
    }

    /// The session does not hold that: why not?
    fn release_of_nothing(&self, call: &Call, meant: &HoldRef) -> ReleaseAnswer {
        let Some(session) = self.sessions.get(&call.session) else {
            return ReleaseAnswer::NotOwner;
        };
        let token = meant.token;
        let resource = self.resources.get(&meant.name);
        let first = resource.and_then(|resource| resource.holds().next());
        let was_granted = 0 < token.0 && token.0 <= self.last_token;
        // Readers have one token, so of a run that this session has left others can hold it still.
        let held_by_another =
            first.is_some_and(|hold| hold.token == token && hold.mode != Mode::Shared);
        if held_by_another {
            ReleaseAnswer::NotOwner
        } else if session.lost(token) {
            ReleaseAnswer::Expired
        } else if !was_granted || token.0 <= session.opened_at_token {
            ReleaseAnswer::NotOwner
        } else {
            ReleaseAnswer::AlreadyReleased
        }
    }
}
