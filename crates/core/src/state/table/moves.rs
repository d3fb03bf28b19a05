//! What moves of slots change beside locks and sessions, with its bytes.

use crate::model::id::{RequestId, SessionId};
use crate::model::slot::MapEpoch;
use crate::state::moves::Moves;
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn change_moves<R>(&mut self, change: impl FnOnce(&mut Moves) -> R) -> R {
        let before = self.moves.bytes();
        let changed = change(&mut self.moves);
        self.size = (self.size + self.moves.bytes()).saturating_sub(before);
        changed
    }

    /// Tokens go on above this one.
    pub(crate) fn raise_last_token(&mut self, token: u64) {
        self.last_token = self.last_token.max(token);
    }

    /// A hold or a wait of the session has left: what this request asked for.
    pub(crate) fn note_departure(&mut self, id: SessionId, request: RequestId, epoch: MapEpoch) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.note_departure(request, epoch);
        }
    }
}
