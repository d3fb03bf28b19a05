//! Holds that come, change and go, with their deadlines and bytes.

use alloc::vec::Vec;

use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::state::deadlines::Due;
use crate::state::hold::{Hold, HoldKey};
use crate::state::size;
use crate::state::table::LockTable;
use crate::state::usage::Used;

impl LockTable {
    /// Gives the name as the table has it: its own copy of the text.
    pub(crate) fn add_hold(&mut self, name: &LockName, hold: Hold) -> LockName {
        let ((id, request), token) = (hold.key(), hold.token);
        if let Some(deadline) = hold.deadline() {
            self.deadlines.insert(deadline, Due::Hold(id, request, token));
        }
        let bytes = size::of_hold(name, hold.metadata());
        let name = self.change_or_add_lock(name, |name, lock| {
            lock.add_hold(hold);
            name.clone()
        });
        if let Some(session) = self.sessions.get_mut(&id) {
            session.add_hold(request, name.clone());
            session.held_bytes += bytes;
            self.size += bytes;
            session.note_token(token);
        }
        self.count_taken(id, &name, Used::HOLD);
        name
    }

    pub(crate) fn remove_hold(&mut self, name: &LockName, key: HoldKey) -> Option<Hold> {
        let lock = self.locks.get_mut(name)?;
        let hold = lock.remove_hold(key)?;
        if lock.is_unused() {
            self.forget_lock(name);
        }
        if let Some(session) = self.sessions.get_mut(&key.0) {
            session.remove_hold(key.1, name);
            session.forget_conversion(hold.converted_by());
            let bytes = size::of_hold(name, hold.metadata());
            session.held_bytes = session.held_bytes.saturating_sub(bytes);
            self.size = self.size.saturating_sub(bytes);
        }
        self.count_given_back(key.0, name, Used::HOLD);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::HoldDeadlineLeftBehind.is_active() {
            return Some(hold);
        }
        if let Some(deadline) = hold.deadline() {
            self.deadlines.remove(deadline, Due::Hold(hold.session, hold.request, hold.token));
        }
        Some(hold)
    }

    /// The first so many holds of a session that is ending. The session has them no more; the caller removes each from
    /// its lock.
    pub(crate) fn take_first_holds(
        &mut self,
        id: SessionId,
        holds_max: usize,
    ) -> Vec<(RequestId, LockName)> {
        let session = self.sessions.get_mut(&id);
        session.map_or(Vec::new(), |session| session.take_first_holds(holds_max))
    }

    pub(crate) fn change_hold<R>(
        &mut self,
        name: &LockName,
        key: HoldKey,
        change: impl FnOnce(&mut Hold) -> R,
    ) -> Option<R> {
        let hold = self.locks.get_mut(name)?.hold_mut(key)?;
        let (deadline, token) = (hold.deadline(), hold.token);
        let bytes = size::of_hold(name, hold.metadata());
        let changed = change(hold);
        let (new_deadline, new_token) = (hold.deadline(), hold.token);
        let new_bytes = size::of_hold(name, hold.metadata());
        #[cfg(feature = "planted")]
        let new_deadline = new_deadline.map(|deadline| {
            let loses = crate::planted::Bug::UpgradeLosesDeadline.is_active() && token != new_token;
            if loses {
                deadline.after(crate::model::time::Span::from_secs(86_400))
            } else {
                deadline
            }
        });
        if (deadline, token) != (new_deadline, new_token) {
            if let Some(deadline) = deadline {
                self.deadlines.remove(deadline, Due::Hold(key.0, key.1, token));
            }
            if let Some(deadline) = new_deadline {
                self.deadlines.insert(deadline, Due::Hold(key.0, key.1, new_token));
            }
        }
        if bytes != new_bytes
            && let Some(session) = self.sessions.get_mut(&key.0)
        {
            session.held_bytes = (session.held_bytes + new_bytes).saturating_sub(bytes);
            self.size = (self.size + new_bytes).saturating_sub(bytes);
        }
        Some(changed)
    }
}
