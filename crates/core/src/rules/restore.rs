//! A table that goes on where its cluster could not: restored from a backup, or taken from the one node that
//! is left. What happened after the table was written is not known, so nothing in it is believed to be held.
//!
//! * Tokens go on from a number above all that can have been granted meanwhile; see [`RestoreOptions`].
//! * All sessions end. A holder of the table may have released long ago, and another one may hold by a
//!   grant that is not in it: to keep either would be a lie to the other. Whoever comes back is told that its
//!   session is gone, and that is the truth about its locks.
//! * For a while nothing is granted, so that those who believe to hold something have noticed.
//! * Log indexes leap ahead, so that none is used for a second time with another meaning: a watch that is
//!   resumed is told that it cannot be.
//! * What was published of its events is forgotten, and counted anew from the first that is published.
//! * What operators have set stays: freezes, and numbers of permits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::event::EndReason;
use crate::model::id::{LogIndex, SessionId};
use crate::model::time::Span;
use crate::state::freezes::Freeze;
use crate::state::table::LockTable;

/// On what terms a table begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreOptions {
    /// All new tokens are higher than this, and than those in the table.
    pub token_floor: u64,
    /// The index at which the new log begins.
    pub index: LogIndex,
    /// For how long nothing is granted; longer, if everything is frozen for longer already: by an operator, or by a
    /// beginning before this one whose time is not over.
    pub closed_for: Span,
    /// Shown to those who wait meanwhile.
    pub by: Box<str>,
    pub reason: Box<str>,
}

/// What came to an end.
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
            self.end_session(id, EndReason::Ttl, &mut events);
            events.clear();
        }
        // Nobody is left to be promoted; what is not used any more goes.
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

    /// The longest that a client of this table can believe to hold something without being answered.
    pub fn longest_ttl(&self) -> Option<Span> {
        self.session_map().values().map(|session| session.ttl).max()
    }
}
