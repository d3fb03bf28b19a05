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

use super::Call;
use crate::event::Event;
use crate::id::FenceToken;
use crate::name::LockName;
use crate::outcome::{Outcome, ReleaseAnswer};
use crate::table::answers::{Question, Reply};
use crate::table::ended::End;
use crate::table::resource::Hold;
use crate::table::{Left, LockTable};

impl LockTable {
    pub(crate) fn release(
        &mut self,
        call: Call,
        name: LockName,
        token: FenceToken,
        events: &mut Vec<Event>,
    ) -> Outcome {
        if self.ended.get(call.session) == Some(End::Closed) {
            return Outcome::Release(ReleaseAnswer::AlreadyReleased);
        }
        let question = Question::Release { name: name.clone(), token };
        if let Some(outcome) = self.recall(&call, &question) {
            return outcome;
        }
        let is_meant = |hold: &Hold| hold.is(call.session, token);
        #[cfg(feature = "planted")]
        let is_meant = |hold: &Hold| {
            is_meant(hold)
                || crate::planted::Bug::ReleaseIgnoresToken.is_active()
                    && hold.session == call.session
                || crate::planted::Bug::ReleaseIgnoresSession.is_active()
        };
        let Some((hold, left)) = self.take_hold(&name, is_meant) else {
            let answer = self.release_of_nothing(&call, &name, token);
            return self.answer(&call, question, Reply::Release(answer));
        };
        if let Ok(session) = self.session_mut(call.session) {
            session.holds.remove(&hold.request);
        }
        events.push(Event::Released { name: name.clone(), session: call.session, token });
        if left == Left::Waiters {
            self.promote(&name, events);
        }
        self.answer(&call, question, Reply::Release(ReleaseAnswer::Released))
    }

    /// The session does not hold that: why not?
    fn release_of_nothing(&self, call: &Call, name: &LockName, token: FenceToken) -> ReleaseAnswer {
        let Some(session) = self.sessions.get(&call.session) else {
            return ReleaseAnswer::NotOwner;
        };
        let holder = self.resources.get(name).and_then(|resource| resource.hold.as_ref());
        let was_granted = 0 < token.0 && token.0 <= self.last_token;
        if holder.is_some_and(|hold| hold.token == token) {
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
