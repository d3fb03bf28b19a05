//! The life of a session: `OpenSession`, `AttachStream`, `DetachStream`, `Touch`, `CloseSession`.
//!
//! That a session lives is recorded before any of these runs: whatever it sends counts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::access::identity::Identity;
use crate::model::command::OpenSession;
use crate::model::event::{EndReason, Event};
use crate::model::id::{RequestId, SessionId, StreamId};
use crate::model::outcome::{Outcome, Rejection};
use crate::model::rules_version::RulesVersion;
use crate::state::session::Session;
use crate::state::table::LockTable;

impl LockTable {
    /// The session was heard of. One that has ended stays so.
    pub(crate) fn touch(&mut self, id: SessionId) {
        let now = self.now();
        let was_due = self.change_lease(id, |session| {
            let was_due = session.deadline <= now;
            session.deadline = now.after(session.ttl);
            session.graced = false;
            session.lingering = false;
            was_due
        });
        if was_due == Some(true) {
            self.resume_promotions_of(id);
        }
    }

    /// The same command again is a retry. The same id with other settings is refused. A session that has ended stays
    /// ended.
    pub(crate) fn open_session(&mut self, open: OpenSession, events: &mut Vec<Event>) -> Outcome {
        let id = open.session;
        if let Some(session) = self.session_map().get(&id) {
            if !session.has_settings_of(&open) {
                return Outcome::Rejected(Rejection::SessionExists);
            }
            let opened = session.opened();
            if let Some(stream) = open.stream {
                self.change_lease(id, |session| session.attach(stream));
            }
            self.set_identity(id, open.identity);
            return opened;
        }
        if self.ended_sessions().get(id).is_some() {
            return Outcome::Rejected(Rejection::SessionExists);
        }
        if self.session_count() >= self.limits().sessions_max {
            return Outcome::Rejected(Rejection::TooManySessions);
        }
        if let Err(rejection) = self.room_for_session(&open) {
            return Outcome::Rejected(rejection);
        }
        if self.rules() >= RulesVersion::TWO {
            self.forget_old_ends();
            if self.ended_sessions().len() >= self.limits().ended_sessions_in_span_max {
                return Outcome::Rejected(Rejection::TooManySessions);
            }
        }
        let session = Session::new(open, self.now(), self.last_token());
        let outcome = session.opened();
        events.push(Event::SessionOpened {
            session: id,
            public: session.public,
            owner: Box::new(session.owner.clone()),
            principal: session.identity.as_ref().map(|identity| identity.principal.clone()),
        });
        self.add_session(id, session);
        outcome
    }

    /// From now on the session is checked as this identity: that of the credential by which it came this time.
    pub(crate) fn attach_stream(
        &mut self,
        id: SessionId,
        stream: StreamId,
        identity: Option<Box<Identity>>,
    ) -> Outcome {
        self.set_identity(id, identity);
        let opened = self.change_lease(id, |session| {
            session.attach(stream);
            session.opened()
        });
        opened.unwrap_or(Outcome::Rejected(Rejection::UnknownSession))
    }

    /// The session ends after its linger time, or after its TTL if that is sooner, unless it is heard
    /// of before.
    pub(crate) fn detach_stream(&mut self, id: SessionId, stream: StreamId) -> Outcome {
        let now = self.now();
        self.change_lease(id, |session| {
            if session.connected && session.stream == stream {
                session.deadline = session.deadline.min(now.after(session.linger));
                session.connected = false;
                session.lingering = true;
            }
        });
        Outcome::Done
    }

    pub(crate) fn heartbeat(&mut self, id: SessionId, acked_through: RequestId) -> Outcome {
        let Some(session) = self.session_map().get(&id) else {
            return Outcome::Rejected(Rejection::UnknownSession);
        };
        let ttl = session.ttl;
        #[cfg(not(feature = "planted"))]
        let departures = session.departures();
        #[cfg(feature = "planted")]
        let departures = crate::planted::Bug::DeparturesNotTold.hide(session.departures());
        // One call that keeps many alive acknowledges nothing, and leaves the rest of them alone.
        if acked_through > RequestId(0) {
            self.change_answers(id, |answers| answers.acknowledge(acked_through));
        }
        Outcome::Touched { ttl, departures }
    }

    pub(crate) fn close_session(&mut self, id: SessionId, events: &mut Vec<Event>) -> Outcome {
        if !self.has_session(id) {
            return Outcome::Rejected(Rejection::UnknownSession);
        }
        self.end_session(id, EndReason::Closed, events);
        Outcome::SessionClosed
    }
}
