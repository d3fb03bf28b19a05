//! How holds and sessions end. Each is removed from every index, and the locks that it frees are noted.

use alloc::vec::Vec;

use crate::model::command::Mode;
use crate::model::event::{EndReason, Event};
use crate::model::id::{FenceToken, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Outcome, Rejection};
use crate::model::rules_version::RulesVersion;
use crate::state::answers::Reply;
use crate::state::ended_sessions::End;
use crate::state::hold::{Hold, HoldKey};
use crate::state::table::LockTable;

impl LockTable {
    /// Removes a hold from its lock and from every index. A pending conversion of it ends.
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
            self.end_wait(id, request, Reply::Rejected(Rejection::NotHeld), events);
        }
        Some(hold)
    }

    /// Ends a hold without a release. Its session remembers the loss, and a lock delay closes the lock for a while.
    pub(crate) fn end_hold(
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

    /// A lock delay is over.
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

    /// Ends a session with all its waits and holds.
    pub(crate) fn end_session(
        &mut self,
        id: SessionId,
        reason: EndReason,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.remove_session(id) else { return };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ExpiryKeepsBytes.is_active() && reason != EndReason::Closed {
            self.leak_bytes(session.size_bytes());
        }
        #[cfg(feature = "planted")]
        let session = session.with_parts_left_behind();
        let end = if reason == EndReason::Closed { End::Closed } else { End::Expired };
        self.remember_end(id, end);
        for (request, wait) in session.waits.iter() {
            self.leave_queues(id, request, wait);
            let names = wait.names();
            names.iter().for_each(|name| self.note_freed(name.clone()));
            let outcome = Outcome::Rejected(Rejection::UnknownSession);
            events.push(Event::WaitEnded { names, session: id, request, outcome });
        }
        let hold_reason = match reason {
            EndReason::Killed | EndReason::Disconnected => reason,
            _ => EndReason::SessionExpired,
        };
        for (request, name) in session.holds() {
            if reason == EndReason::Closed {
                self.give_back(name, (id, request), true, events);
            } else {
                self.end_hold(name, (id, request), hold_reason, events);
            }
        }
        events.push(Event::SessionEnded { session: id, public: session.public, reason });
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
}
