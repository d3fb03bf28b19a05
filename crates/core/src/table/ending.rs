//! How holds and sessions end. Each leaves every index it stands in, and notes what it frees.

use alloc::vec::Vec;

use super::LockTable;
use super::answers::Reply;
use super::deadlines::Due;
use super::ended::End;
use super::hold::{Hold, HoldKey};
use super::session::Session;
use super::size;
use crate::command::Mode;
use crate::event::{EndReason, Event};
use crate::id::{FenceToken, RequestId, SessionId};
use crate::name::LockName;
use crate::outcome::{Outcome, Rejection};
use crate::rules::RulesVersion;
use crate::time::LogicalTime;

impl LockTable {
    /// Takes a hold off its resource and out of every index. If it was to be converted, that wait ends.
    pub(crate) fn take_hold(
        &mut self,
        name: &LockName,
        key: HoldKey,
        events: &mut Vec<Event>,
    ) -> Option<Hold> {
        let resource = self.resources.get_mut(name)?;
        let hold = resource.remove_hold(key)?;
        let conversion = resource.queue().first().map(|(_, first)| (first.session, first.request));
        if resource.is_unused() {
            self.forget_resource(name);
        } else if resource.has_line() && !resource.readers_only_go_on() {
            self.freed.insert(name.clone());
        }
        if let Some(session) = self.sessions.get_mut(&key.0) {
            session.remove_hold(key.1, name);
            session.forget_conversion(hold.converted_by());
            let bytes = size::of_hold(name, hold.metadata());
            session.held_bytes = session.held_bytes.saturating_sub(bytes);
            self.size = self.size.saturating_sub(bytes);
        }
        self.forget_hold_deadline(&hold);
        if let Some((id, request)) = conversion
            && id == key.0
            && self.converts(id, request).is_some_and(|converts| converts.acquire == key.1)
        {
            self.end_wait(id, request, Reply::Rejected(Rejection::NotHeld), events);
        }
        Some(hold)
    }

    /// Nobody holds it, nobody waits for it, and nothing keeps it closed: it costs nothing.
    pub(crate) fn forget_resource(&mut self, name: &LockName) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::FreeNameKept.is_active() {
            return;
        }
        if self.resources.remove(name).is_some() {
            self.size = self.size.saturating_sub(size::of_lock(name));
        }
    }

    /// Counts the lock if it came to the others, of which there were so many.
    pub(crate) fn count_new_lock(&mut self, locks_before: usize, name: &LockName) {
        if self.resources.len() > locks_before {
            self.size += size::of_lock(name);
        }
    }

    fn forget_hold_deadline(&mut self, hold: &Hold) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::HoldDeadlineLeftBehind.is_active() {
            return;
        }
        if let Some(deadline) = hold.deadline() {
            self.deadlines.remove(deadline, Due::Hold(hold.session, hold.request, hold.token));
        }
    }

    /// Ends a hold against its holder's will. Its session remembers that, and where a lock delay was
    /// asked for, the door stays closed for a while.
    pub(crate) fn end_hold(
        &mut self,
        name: &LockName,
        key: HoldKey,
        reason: EndReason,
        events: &mut Vec<Event>,
    ) {
        let Some(hold) = self.take_hold(name, key, events) else { return };
        let losses_max = self.limits.remembered_losses_max;
        if let Some(session) = self.sessions.get_mut(&key.0) {
            let before = session.size_bytes();
            session.remember_loss(hold.token, losses_max);
            if hold.mode == Mode::Shared && self.rules >= RulesVersion::TWO {
                session.remember_shared_loss(hold.token, key.1, losses_max);
            }
            LockTable::resize(&mut self.size, before, session.size_bytes());
        }
        #[cfg(feature = "planted")]
        let forgets_delay = crate::planted::Bug::LockDelayForgottenOnExpiry.is_active()
            && matches!(reason, EndReason::SessionExpired | EndReason::Disconnected);
        #[cfg(not(feature = "planted"))]
        let forgets_delay = false;
        if !forgets_delay {
            self.close_after(name, &hold);
        }
        let (session, request) = key;
        let (name, token, granted_at) = (name.clone(), hold.token, hold.granted_at);
        events.push(Event::HoldEnded { name, session, request, token, granted_at, reason });
    }

    fn close_after(&mut self, name: &LockName, hold: &Hold) {
        let Some(delay) = hold.lock_delay() else { return };
        let end = self.now.after(delay);
        let locks = self.resources.len();
        let (before, until) = self.resources.change_or_add(name, |_, resource| {
            let before = resource.closed_until();
            let until = before.map_or(end, |before| before.max(end));
            resource.close_until(Some(until));
            (before, until)
        });
        self.count_new_lock(locks, name);
        if let Some(before) = before {
            self.closed.remove(&(before, name.clone()));
        }
        self.closed.insert((until, name.clone()));
    }

    /// A lock delay is over.
    pub(crate) fn reopen(&mut self, name: &LockName, events: &mut Vec<Event>) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        if let Some(until) = resource.closed_until() {
            resource.close_until(None);
            self.closed.remove(&(until, name.clone()));
            self.freed.insert(name.clone());
            events.push(Event::Reopened { name: name.clone() });
        }
    }

    /// Ends a session whose time is up.
    pub(crate) fn expire_session(&mut self, id: SessionId, events: &mut Vec<Event>) {
        if let Some(session) = self.sessions.get(&id) {
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
        let Some(session) = self.sessions.remove(&id) else { return };
        self.give_back_bytes(&session, reason);
        #[cfg(feature = "planted")]
        let session = session.with_parts_left_behind();
        self.deadlines.remove(session.deadline, Due::Session(id));
        self.public_ids.remove(&(session.public, id));
        let end = if reason == EndReason::Closed { End::Closed } else { End::Expired };
        self.remember_end(id, end);
        for (request, wait) in session.waits.iter() {
            self.leave_queues(id, request, wait);
            let names = wait.names();
            self.freed.extend(names.iter().cloned());
            let outcome = Outcome::Rejected(Rejection::UnknownSession);
            events.push(Event::WaitEnded { names, session: id, request, outcome });
        }
        let hold_reason = match reason {
            EndReason::Killed | EndReason::Disconnected => reason,
            _ => EndReason::SessionExpired,
        };
        for (request, name) in session.holds() {
            if reason == EndReason::Closed {
                self.give_back(name, (id, request), events);
            } else {
                self.end_hold(name, (id, request), hold_reason, events);
            }
        }
        events.push(Event::SessionEnded { session: id, public: session.public, reason });
    }

    fn give_back_bytes(&mut self, session: &Session, reason: EndReason) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ExpiryKeepsBytes.is_active() && reason != EndReason::Closed {
            return;
        }
        #[cfg(not(feature = "planted"))]
        let _ = reason;
        self.size = self.size.saturating_sub(session.size_bytes());
    }

    fn remember_end(&mut self, id: SessionId, end: End) {
        let kept_min = self.limits.ended_sessions_max;
        if self.rules >= RulesVersion::TWO {
            self.ended.remember(id, end, self.now);
            self.ended.forget_older(self.now, self.limits.ended_sessions_span, kept_min);
        } else {
            self.ended.remember(id, end, LogicalTime::ZERO);
            self.ended.forget_beyond(kept_min);
        }
    }

    /// Ends a hold by its holder's will.
    pub(crate) fn give_back(
        &mut self,
        name: &LockName,
        key: HoldKey,
        events: &mut Vec<Event>,
    ) -> Option<Hold> {
        let hold = self.take_hold(name, key, events)?;
        let ((session, request), token, granted_at) = (key, hold.token, hold.granted_at);
        events.push(Event::Released { name: name.clone(), session, request, token, granted_at });
        Some(hold)
    }

    /// The hold whose time is up.
    pub(crate) fn expire_hold(
        &mut self,
        id: SessionId,
        request: RequestId,
        token: FenceToken,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.sessions.get(&id) else { return };
        let key = (id, request);
        let due = session.held_by(request).iter().find_map(|name| {
            let hold = self.resources.get(name)?.hold(key)?;
            (hold.token == token).then(|| (name.clone(), hold.ends_by_max_hold()))
        });
        if let Some((name, by_max_hold)) = due {
            let reason = if by_max_hold { EndReason::MaxHold } else { EndReason::Ttl };
            self.end_hold(&name, key, reason, events);
        }
    }
}
