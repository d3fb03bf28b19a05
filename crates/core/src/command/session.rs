//! The life of a session: `OpenSession`, `AttachStream`, `DetachStream`, `Touch`, `CloseSession`.
//!
//! That a session lives is recorded before any of these runs: whatever it sends counts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::OpenSession;
use crate::event::{EndReason, Event};
use crate::id::{RequestId, SessionId, StreamId};
use crate::limits::Limits;
use crate::outcome::{Outcome, Rejection};
use crate::rules::RulesVersion;
use crate::table::LockTable;
use crate::table::deadlines::Due;
use crate::table::session::Session;

impl LockTable {
    /// The same again is a retry. The same id with other settings is somebody else's mistake, and one
    /// that has ended stays so.
    pub(crate) fn open_session(&mut self, open: OpenSession, events: &mut Vec<Event>) -> Outcome {
        let id = open.session;
        if let Some(session) = self.sessions.get_mut(&id) {
            if !session.has_settings_of(&open) {
                return Outcome::Rejected(Rejection::SessionExists);
            }
            if let Some(stream) = open.stream {
                session.attach(stream);
            }
            return session.opened();
        }
        if self.ended.get(id).is_some() {
            return Outcome::Rejected(Rejection::SessionExists);
        }
        if self.sessions.len() >= self.limits.sessions_max {
            return Outcome::Rejected(Rejection::TooManySessions);
        }
        if let Err(rejection) = self.room_for_session(&open.owner) {
            return Outcome::Rejected(rejection);
        }
        if self.rules >= RulesVersion::TWO {
            let Limits { ended_sessions_max, ended_sessions_span, .. } = self.limits;
            self.ended.forget_older(self.now, ended_sessions_span, ended_sessions_max);
            if self.ended.len() >= self.limits.ended_sessions_in_span_max {
                return Outcome::Rejected(Rejection::TooManySessions);
            }
        }
        let session = Session::new(open, self.now, self.last_token);
        self.size += session.size_bytes();
        let outcome = session.opened();
        self.deadlines.insert(session.deadline, Due::Session(id));
        self.public_ids.insert((session.public, id));
        events.push(Event::SessionOpened {
            session: id,
            public: session.public,
            owner: Box::new(session.owner.clone()),
        });
        self.sessions.insert(id, session);
        outcome
    }

    pub(crate) fn attach_stream(&mut self, id: SessionId, stream: StreamId) -> Outcome {
        match self.session_mut(id) {
            Ok(session) => {
                session.attach(stream);
                session.opened()
            }
            Err(rejection) => Outcome::Rejected(rejection),
        }
    }

    /// The session ends after its linger time, or after its TTL if that is sooner, unless it is heard
    /// of before.
    pub(crate) fn detach_stream(&mut self, id: SessionId, stream: StreamId) -> Outcome {
        let now = self.now;
        if let Some(session) = self.sessions.get_mut(&id)
            && session.connected
            && session.stream == stream
        {
            let deadline = session.deadline.min(now.after(session.linger));
            self.deadlines.replace(session.deadline, deadline, Due::Session(id));
            session.deadline = deadline;
            session.connected = false;
            session.lingering = true;
        }
        Outcome::Done
    }

    pub(crate) fn heartbeat(&mut self, id: SessionId, acked_through: RequestId) -> Outcome {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Outcome::Rejected(Rejection::UnknownSession);
        };
        // One call that keeps many alive acknowledges nothing, and leaves the rest of them alone.
        if acked_through > RequestId(0) {
            let before = session.answers.bytes();
            session.answers.acknowledge(acked_through);
            LockTable::resize(&mut self.size, before, session.answers.bytes());
        }
        Outcome::Touched { ttl: session.ttl }
    }

    pub(crate) fn close_session(&mut self, id: SessionId, events: &mut Vec<Event>) -> Outcome {
        if let Err(rejection) = self.session_mut(id) {
            return Outcome::Rejected(rejection);
        }
        self.end_session(id, EndReason::Closed, events);
        Outcome::SessionClosed
    }
}
