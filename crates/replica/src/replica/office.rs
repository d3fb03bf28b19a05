//! Coming into office and leaving it: what a replica does when somebody else leads than before.

use std::time::Duration;

use holdfast_core::{Batch, Command, LogicalTime};

use super::Replica;
use crate::effect::{Effect, Leadership, Unavailable};
use crate::id::NodeId;

const ORDINARY_ENTRY: u8 = 0;

/// One leader's time in one term.
#[derive(Clone, Copy, Debug)]
pub(super) struct Office {
    leader: NodeId,
    term: u64,
    /// By the time that counted here.
    began: Duration,
}

impl Replica {
    /// Compares who leads with what was last said, and acts on the difference.
    pub(super) fn note_leadership(&mut self) {
        let now = Leadership {
            leader: self.consensus.leader(),
            is_here: self.consensus.is_leader(),
            term: self.consensus.term(),
        };
        let before = std::mem::replace(&mut self.leadership, now);
        if before == now {
            return;
        }
        if before.is_here && !(now.is_here && now.term == before.term) {
            self.leave_office();
        }
        if let Some(leader) = now.leader {
            self.note_office(leader, now.term);
        }
        if now.is_here && !(before.is_here && now.term == before.term) {
            self.take_office();
        }
        self.effects.push(Effect::LeadershipChanged(now));
    }

    /// A leader that was lost from sight for a while is in the same office as before.
    fn note_office(&mut self, leader: NodeId, term: u64) {
        if self.office.is_some_and(|office| (office.leader, office.term) == (leader, term)) {
            return;
        }
        let began = self.clock.counted();
        let before = self.office.replace(Office { leader, term, began });
        self.follows_short_office =
            before.is_some_and(|before| began - before.began < self.config.office_min());
    }

    /// Everything that waits for this leader ends: whether it happened is for the next one to say.
    fn leave_office(&mut self) {
        self.clock.end_epoch();
        self.leave_membership_alone();
        let reason = Unavailable::LeadershipLost { leader: self.consensus.leader() };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AnswersOfAnotherTerm.is_active() {
            return self.refuse_waiting();
        }
        self.effects.extend(self.pending.drain().map(|ticket| Effect::Failed { ticket, reason }));
        self.refuse_waiting();
        self.withdraw_snapshot();
    }

    /// Nothing of this was proposed, so nothing of it happened.
    pub(super) fn refuse_waiting(&mut self) {
        if self.queued.is_empty() && self.reads.is_empty() && self.care.is_asked_nothing() {
            return;
        }
        let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
        self.queued_cost = 0;
        let unproposed = self.queued.drain(..).filter_map(|(ticket, _)| ticket);
        let unread = self.reads.drain();
        self.effects
            .extend(unproposed.chain(unread).map(|ticket| Effect::Failed { ticket, reason }));
        self.refuse_waiting_changes();
    }

    /// Continues the time of the leaders before, and gives the sessions a grace.
    fn take_office(&mut self) {
        let heard = self.heard.after_entry_of(self.consensus.last_term_of_others());
        let written = self.highest_stamp();
        self.clock.begin_epoch(heard.map_or(written, |heard| heard.max(written)));
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TimeRestartsAtZero.is_active() {
            self.clock.begin_epoch(LogicalTime::ZERO);
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TimeFromOwnClock.is_active() {
            self.clock.begin_epoch(self.clock.reading());
        }
        self.expire_not_before = LogicalTime::ZERO;
        self.tick_under_way = false;
        self.queued.insert(0, (None, Command::BeginTerm { grace: self.config.grace }));
    }

    /// The highest stamp in the log, the uncommitted tail included. Stamps rise along the log, so it
    /// is that of the newest entry that has one.
    fn highest_stamp(&self) -> LogicalTime {
        self.consensus
            .log()
            .newest_first()
            .filter(|entry| entry.kind == ORDINARY_ENTRY)
            .find_map(|entry| Batch::stamp(&entry.data).ok())
            .map_or(self.table.now(), |stamp| stamp.max(self.table.now()))
    }
}
