//! Sessions that come, change and go.

use crate::model::event::EndReason;
use crate::model::id::{PublicSessionId, SessionId};
use crate::model::limits::Limits;
use crate::model::rules_version::RulesVersion;
use crate::model::time::LogicalTime;
use crate::state::answers::Answers;
use crate::state::deadlines::Due;
use crate::state::ended_sessions::End;
use crate::state::session::Session;
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn add_session(&mut self, id: SessionId, session: Session) {
        self.size += session.size_bytes();
        self.count_session(&session, true);
        self.identified_sessions += usize::from(session.identity.is_some());
        self.deadlines.insert(session.deadline, Due::Session(id));
        self.public_ids.insert((session.public, id));
        self.sessions.insert(id, session);
    }

    /// Its waits still stand in their queues, and its holds are still held.
    pub(crate) fn remove_session(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.count_session(&session, false);
        self.size = self.size.saturating_sub(session.size_bytes());
        self.identified_sessions -= usize::from(session.identity.is_some());
        if session.ending.is_some() {
            self.ending.remove(&(session.deadline, id));
        } else {
            self.deadlines.remove(session.deadline, Due::Session(id));
            self.public_ids.remove(&(session.public, id));
        }
        Some(session)
    }

    /// The session has ended now. It is kept for its holds and waits, which are left for later entries.
    pub(crate) fn set_ending(&mut self, id: SessionId, reason: EndReason) {
        self.count_session_out(id);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        self.deadlines.remove(session.deadline, Due::Session(id));
        self.public_ids.remove(&(session.public, id));
        session.ending = Some(reason);
        session.deadline = self.now;
        session.connected = false;
        self.ending.insert((self.now, id));
    }

    /// Changes how long a session lives, or by which stream it came: nothing that has a size. One that has ended stays
    /// as it is.
    pub(crate) fn change_lease<R>(
        &mut self,
        id: SessionId,
        change: impl FnOnce(&mut Session) -> R,
    ) -> Option<R> {
        self.live_session(id)?;
        let session = self.sessions.get_mut(&id)?;
        let before = session.deadline;
        let changed = change(session);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TouchNotIndexed.is_active() {
            return Some(changed);
        }
        self.deadlines.replace(before, session.deadline, Due::Session(id));
        Some(changed)
    }

    /// Changes what a session remembers, but for its deadline.
    pub(crate) fn change_session<R>(
        &mut self,
        id: SessionId,
        change: impl FnOnce(&mut Session) -> R,
    ) -> Option<R> {
        let session = self.sessions.get_mut(&id)?;
        let before = session.size_bytes();
        let changed = change(session);
        self.size = (self.size + session.size_bytes()).saturating_sub(before);
        Some(changed)
    }

    pub(crate) fn change_answers<R>(
        &mut self,
        id: SessionId,
        change: impl FnOnce(&mut Answers) -> R,
    ) -> Option<R> {
        let answers = &mut self.sessions.get_mut(&id)?.answers;
        let before = answers.bytes();
        let changed = change(answers);
        self.size = (self.size + answers.bytes()).saturating_sub(before);
        Some(changed)
    }

    /// A session has ended, and is remembered for a while.
    pub(crate) fn remember_end(&mut self, id: SessionId, end: End) {
        if self.rules >= RulesVersion::TWO {
            self.ended.remember(id, end, self.now);
            self.forget_old_ends();
        } else {
            self.ended.remember(id, end, LogicalTime::ZERO);
            self.ended.forget_beyond(self.limits.ended_sessions_max);
        }
    }

    pub(crate) fn forget_old_ends(&mut self) {
        let Limits { ended_sessions_max, ended_sessions_span, .. } = self.limits;
        self.ended.forget_older(self.now, ended_sessions_span, ended_sessions_max);
    }

    /// The sessions that are shown under this id. There is one, unless two ids are shown alike.
    pub(crate) fn sessions_shown_as(
        &self,
        public: PublicSessionId,
    ) -> impl Iterator<Item = SessionId> {
        let ids = (public, SessionId(0))..=(public, SessionId(u128::MAX));
        self.public_ids.range(ids).map(|(_, id)| *id)
    }
}
