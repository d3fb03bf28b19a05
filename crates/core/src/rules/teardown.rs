//! How holds and sessions end. Each is removed from every index, and the locks that it frees are noted.
//!
//! The end of a session is one decision, in one log entry. A session may have so many holds and waits that one entry
//! cannot end them all. Then later entries end the rest, a bounded number in each. Until then the session is *ending*.
//! The table keeps an ending session for its holds and waits. For an ending session these statements are true:
//!
//! * Its requests get the answers of an ended session ([`answer_of_ended`]). `kill-session` and transfers to the
//!   session do not find it.
//! * Each of its holds keeps its lock until an entry ends that hold. Before that entry the table grants the lock to no
//!   conflicting request. So at no entry are two conflicting holds of one lock held.
//! * The table grants none of its waits, and extends none of its deadlines.
//! * The deadlock search ignores its waits.
//! * Every entry goes on with the sessions that are ending, the earliest first. If there is no other entry, the leader
//!   writes a tick: see [`LockTable::next_deadline`].
//! * [`Event::SessionEnding`] tells of the decision. [`Event::SessionEnded`] is the last event of a session, after the
//!   ends of all its holds and waits.
//!
//! [`answer_of_ended`]: LockTable::answer_of_ended

use alloc::vec::Vec;

use crate::model::command::{Command, Mode};
use crate::model::event::{EndReason, Event};
use crate::model::id::{FenceToken, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Outcome, Rejection, ReleaseAnswer};
use crate::model::rules_version::RulesVersion;
use crate::state::answers::Reply;
use crate::state::ended_sessions::End;
use crate::state::hold::{Hold, HoldKey};
use crate::state::table::LockTable;

impl LockTable {
    /// Removes a hold from its lock and from every index. If its session waits to convert this hold to another mode,
    /// that wait ends too.
    pub(crate) fn take_hold(
        &mut self,
        name: &LockName,
        key: HoldKey,
        events: &mut Vec<Event>,
    ) -> Option<Hold> {
        let hold = self.remove_hold(name, key)?;
        let lock = self.lock_map().get(name);
        let first = lock.and_then(|lock| lock.queue().first());
        let conversion = first.map(|(_, first)| (first.session, first.request));
        if lock.is_some_and(|lock| lock.has_queue_state() && !lock.readers_only_go_on()) {
            self.note_freed(name.clone());
        }
        if let Some((id, request)) = conversion
            && id == key.0
            && self.converts(id, request).is_some_and(|converts| converts.acquire == key.1)
        {
            if self.ending_of(id).is_some() {
                self.end_wait_with_session(id, request, events);
            } else {
                self.end_wait(id, request, Reply::Rejected(Rejection::NotHeld), events);
            }
        }
        Some(hold)
    }

    /// Ends a hold without a release. If its session is ending, the hold ends as all holds of that session do.
    pub(crate) fn end_hold(
        &mut self,
        name: &LockName,
        key: HoldKey,
        reason: EndReason,
        events: &mut Vec<Event>,
    ) {
        match self.ending_of(key.0) {
            Some(ending) => self.end_hold_with_session(name, key, ending, events),
            None => self.lose_hold(name, key, reason, events),
        }
    }

    /// Ends a hold for this reason. Its session remembers the loss. If the hold has a lock delay, the lock is *closed*:
    /// the table grants it to no client until the delay is over.
    fn lose_hold(
        &mut self,
        name: &LockName,
        key: HoldKey,
        reason: EndReason,
        events: &mut Vec<Event>,
    ) {
        let Some(hold) = self.take_hold(name, key, events) else { return };
        let losses_max = self.limits().remembered_losses_max;
        let tells_shared = hold.mode == Mode::Shared && self.rules() >= RulesVersion::TWO;
        self.change_session(key.0, |session| {
            session.remember_loss(hold.token, losses_max);
            if tells_shared {
                session.remember_shared_loss(hold.token, key.1, losses_max);
            }
        });
        #[cfg(feature = "planted")]
        let forgets_delay = crate::planted::Bug::LockDelayForgottenOnExpiry.is_active()
            && matches!(reason, EndReason::SessionExpired | EndReason::Disconnected);
        #[cfg(not(feature = "planted"))]
        let forgets_delay = false;
        if let Some(delay) = hold.lock_delay().filter(|_| !forgets_delay) {
            self.close_lock(name, self.now().after(delay));
        }
        let (session, request) = key;
        let (name, token, granted_at) = (name.clone(), hold.token, hold.granted_at);
        events.push(Event::HoldEnded { name, session, request, token, granted_at, reason });
    }

    /// Opens a closed lock again, because its lock delay is over.
    pub(crate) fn reopen(&mut self, name: &LockName, events: &mut Vec<Event>) {
        if self.open_lock(name) {
            self.note_freed(name.clone());
            events.push(Event::Reopened { name: name.clone() });
        }
    }

    /// Ends a session whose deadline has passed.
    pub(crate) fn expire_session(&mut self, id: SessionId, events: &mut Vec<Event>) {
        if let Some(session) = self.session_map().get(&id) {
            let reason = session.expiry_reason();
            self.end_session(id, reason, events);
        }
    }

    /// Ends a session. Its waits and holds end with it if this entry may end so many. Otherwise it is ending.
    pub(crate) fn end_session(
        &mut self,
        id: SessionId,
        reason: EndReason,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.live_session(id) else { return };
        let parts = session.part_count();
        let public = session.public;
        if self.rules() >= RulesVersion::EIGHT && !self.may_end_at_once(parts) {
            self.remember_end(id, end_of(reason));
            self.set_ending(id, reason);
            events.push(Event::SessionEnding { session: id, public, reason });
        } else {
            self.end_session_at_once(id, reason, events);
        }
    }

    /// Ends a session with all its waits and holds, however many they are.
    pub(crate) fn end_session_at_once(
        &mut self,
        id: SessionId,
        reason: EndReason,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.remove_session(id) else { return };
        let reason = session.ending.unwrap_or(reason);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ExpiryKeepsBytes.is_active() && reason != EndReason::Closed {
            self.leak_bytes(session.size_bytes());
        }
        #[cfg(feature = "planted")]
        let session = session.with_parts_left_behind();
        self.remember_end(id, end_of(reason));
        for (request, wait) in session.waits.iter() {
            self.leave_queues(id, request, wait);
            let names = wait.names();
            names.iter().for_each(|name| self.note_freed(name.clone()));
            let outcome = Outcome::Rejected(Rejection::UnknownSession);
            events.push(Event::WaitEnded { names, session: id, request, outcome });
        }
        for (request, name) in session.holds() {
            self.end_hold_with_session(name, (id, request), reason, events);
        }
        events.push(Event::SessionEnded { session: id, public: session.public, reason });
    }

    /// Goes on with the sessions that are ending, as far as this entry may.
    pub(crate) fn continue_endings(&mut self, events: &mut Vec<Event>) {
        while let Some((_, id)) = self.ending_index().first().copied()
            && self.ending_parts_left() > 0
        {
            self.end_parts(id, events);
            self.finish_ending(events);
        }
    }

    /// Ends the first parts of a session that is ending: its waits, then its holds.
    fn end_parts(&mut self, id: SessionId, events: &mut Vec<Event>) {
        while self.ending_parts_left() > 0
            && let Some((request, wait)) =
                self.session_map().get(&id).and_then(|it| it.waits.first())
        {
            let places = wait.places.as_slice().len();
            self.spend_ending_parts(places);
            self.end_wait_with_session(id, request, events);
        }
        let Some(reason) = self.ending_of(id) else { return };
        let first = self.take_first_holds(id, self.ending_parts_left());
        self.spend_ending_parts(first.len());
        for (request, name) in first {
            self.end_hold_with_session(&name, (id, request), reason, events);
        }
    }

    /// Removes the session that is first in line if nothing is left of it, and those behind it likewise.
    pub(crate) fn finish_ending(&mut self, events: &mut Vec<Event>) {
        while let Some((_, id)) = self.ending_index().first().copied()
            && let Some(session) = self.session_map().get(&id).filter(|it| it.part_count() == 0)
            && let (Some(reason), public) = (session.ending, session.public)
        {
            self.remove_session(id);
            events.push(Event::SessionEnded { session: id, public, reason });
        }
    }

    /// Ends a wait of a session that is ending.
    pub(crate) fn end_wait_with_session(
        &mut self,
        id: SessionId,
        request: RequestId,
        events: &mut Vec<Event>,
    ) {
        let Some(wait) = self.remove_wait(id, request) else { return };
        let names = wait.names();
        names.iter().for_each(|name| self.note_freed(name.clone()));
        let outcome = Outcome::Rejected(Rejection::UnknownSession);
        events.push(Event::WaitEnded { names, session: id, request, outcome });
    }

    /// Ends a hold of a session that has ended for this reason.
    fn end_hold_with_session(
        &mut self,
        name: &LockName,
        key: HoldKey,
        reason: EndReason,
        events: &mut Vec<Event>,
    ) {
        match reason {
            EndReason::Closed => drop(self.give_back(name, key, true, events)),
            EndReason::Killed | EndReason::Disconnected => {
                self.lose_hold(name, key, reason, events);
            }
            _ => self.lose_hold(name, key, EndReason::SessionExpired, events),
        }
    }

    /// The answer to a request of a session that is ending: as if the session had already ended.
    pub(crate) fn answer_of_ended(command: &Command, reason: EndReason) -> Outcome {
        match command {
            Command::OpenSession(_) => Outcome::Rejected(Rejection::SessionExists),
            Command::DetachStream { .. } | Command::Abandon { .. } => Outcome::Done,
            Command::Release { .. } if end_of(reason) == End::Closed => {
                Outcome::Release(ReleaseAnswer::AlreadyReleased)
            }
            _ => Outcome::Rejected(Rejection::UnknownSession),
        }
    }

    /// Ends a hold by a release, or by the close of its session.
    pub(crate) fn give_back(
        &mut self,
        name: &LockName,
        key: HoldKey,
        by_close: bool,
        events: &mut Vec<Event>,
    ) -> Option<Hold> {
        let hold = self.take_hold(name, key, events)?;
        let ((session, request), token, granted_at) = (key, hold.token, hold.granted_at);
        let name = name.clone();
        events.push(Event::Released { name, session, request, token, granted_at, by_close });
        Some(hold)
    }

    /// Ends a hold whose deadline has passed.
    pub(crate) fn expire_hold(
        &mut self,
        id: SessionId,
        request: RequestId,
        token: FenceToken,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.session_map().get(&id) else { return };
        let key = (id, request);
        let due = session.held_by(request).iter().find_map(|name| {
            let hold = self.lock_map().get(name)?.hold(key)?;
            (hold.token == token).then(|| (name.clone(), hold.ends_by_max_hold()))
        });
        if let Some((name, by_max_hold)) = due {
            let reason = if by_max_hold { EndReason::MaxHold } else { EndReason::Ttl };
            self.end_hold(&name, key, reason, events);
        }
    }

    /// Ends a wait whose deadline has passed.
    pub(crate) fn expire_wait(
        &mut self,
        id: SessionId,
        request: RequestId,
        events: &mut Vec<Event>,
    ) {
        if self.ending_of(id).is_some() {
            self.end_wait_with_session(id, request, events);
        } else {
            self.end_wait(id, request, Reply::TimedOut, events);
        }
    }
}

fn end_of(reason: EndReason) -> End {
    if reason == EndReason::Closed { End::Closed } else { End::Expired }
}
