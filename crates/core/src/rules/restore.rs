//! Resets a table after a restore: from a backup, or from the only surviving node. It is unknown what happened after
//! the table was written, so no hold in it is kept.
//!
//! * Tokens continue from a number above all that can have been granted meanwhile; see [`RestoreOptions`].
//! * All sessions end. A holder in the table may have released long ago, and another client may hold by a grant that is
//!   not in the table. A client that comes back learns that its session has ended, and with it its locks.
//! * For a while nothing is granted, so that clients that believe to hold something notice the loss.
//! * Log indexes leap ahead, so that no index is used twice. A watch cannot be resumed over a restore.
//! * The count of published events is reset.
//! * The settings of operators stay: freezes, and numbers of permits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::event::EndReason;
use crate::model::id::{LogIndex, SessionId};
use crate::model::time::Span;
use crate::state::freezes::Freeze;
use crate::state::table::LockTable;

/// How to reset a restored table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreOptions {
    /// All new tokens are higher than this, and than those in the table.
    pub token_floor: u64,
    /// The index at which the new log begins.
    pub index: LogIndex,
    /// For how long nothing is granted. A longer freeze of everything stays: by an operator, or by an earlier restore.
    pub closed_for: Span,
    /// Shown to clients that wait meanwhile.
    pub by: Box<str>,
    pub reason: Box<str>,
}

/// What the restore ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreSummary {
    pub sessions: usize,
    pub holds: usize,
    pub waits: usize,
}

impl LockTable {
    pub fn reset_for_restore(&mut self, options: RestoreOptions) -> RestoreSummary {
        let RestoreOptions { token_floor, index, closed_for, by, reason } = options;
        let mut ended = RestoreSummary { waits: self.waiter_count(), ..Default::default() };
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut sessions: Vec<SessionId> = self.session_map().keys().copied().collect();
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RestoreKeepsSessions.is_active() {
            sessions.clear();
        }
        let mut events = Vec::new();
        for id in sessions {
            ended.sessions += 1;
            ended.holds += self.session_map().get(&id).map_or(0, |session| session.hold_count());
            self.end_session_at_once(id, EndReason::Ttl, &mut events);
            events.clear();
        }
        // No waiter is left to be promoted. This only drops unused locks.
        self.promote_freed(true, &mut events);
        self.leap_to(token_floor, index);
        if closed_for > self.closed_for() {
            let until = self.now().after(closed_for);
            self.add_freeze(Box::from(""), Freeze { until, by, reason });
        }
        ended
    }

    /// For how long everything is frozen.
    pub fn closed_for(&self) -> Span {
        self.freezes_in_force()
            .over("")
            .map_or(Span::ZERO, |(_, freeze)| freeze.until.since(self.now()))
    }

    /// The longest time for which a client of this table can believe to hold a lock without an answer.
    pub fn longest_ttl(&self) -> Option<Span> {
        self.session_map().values().map(|session| session.ttl).max()
    }
}
