//! What a replica does when the leader changes: becoming leader, stepping down, and reporting the change.

use std::time::Duration;

use holdfast_core::{Batch, Command, LogicalTime};

use super::Replica;
use crate::effect::{Effect, Leadership, Unavailable};
use crate::id::NodeId;

/// The kind of an entry with commands (`kind::COMMANDS` in `consensus/convert.rs`). Only these have a stamp.
const ORDINARY_ENTRY: u8 = 0;

/// The leader of one term, and when this node first saw it lead.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaderTerm {
    leader: NodeId,
    term: u64,
    /// By `Clock::counted`: this node's time, in which a long stall counts only in part.
    began: Duration,
}

impl Replica {
    /// Compares the present leader with the last one reported, and acts on the difference.
    pub(super) fn update_leadership(&mut self) {
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
            self.step_down();
        }
        if let Some(leader) = now.leader {
            self.note_leader(leader, now.term);
        }
        if now.is_here && !(before.is_here && now.term == before.term) {
            self.become_leader();
        }
        self.effects.push(Effect::LeadershipChanged(now));
    }

    /// A leader that this node lost for a while and found again in the same term counts as the same leader.
    fn note_leader(&mut self, leader: NodeId, term: u64) {
        if self.last_leader.is_some_and(|last| (last.leader, last.term) == (leader, term)) {
            return;
        }
        let began = self.clock.counted();
        let before = self.last_leader.replace(LeaderTerm { leader, term, began });
        self.follows_short_leadership =
            before.is_some_and(|before| began - before.began < self.config.leadership_min());
    }

    /// This node was the leader. Proposed calls fail with `LeadershipLost`: they may have been committed. Queued ones
    /// fail with `NotLeader`.
    fn step_down(&mut self) {
        self.clock.end_epoch();
        self.abandon_membership_changes();
        let reason = Unavailable::LeadershipLost { leader: self.consensus.leader() };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AnswersOfAnotherTerm.is_active() {
            return self.refuse_unproposed();
        }
        self.effects.extend(self.pending.drain().map(|ticket| Effect::Failed { ticket, reason }));
        self.refuse_unproposed();
        self.withdraw_snapshot();
    }

    /// Refuses queued commands, reads and membership changes. None of them was proposed, so none happened.
    pub(super) fn refuse_unproposed(&mut self) {
        if self.queued.is_empty()
            && self.reads.is_empty()
            && self.membership_manager.has_no_queued_change()
        {
            return;
        }
        let reason = Unavailable::NotLeader { leader: self.consensus.leader() };
        self.queued_cost = 0;
        let unproposed = self.queued.drain(..).filter_map(|(ticket, _)| ticket);
        let unread = self.reads.drain();
        self.effects
            .extend(unproposed.chain(unread).map(|ticket| Effect::Failed { ticket, reason }));
        self.refuse_queued_changes();
    }

    /// Continues the logical time of the earlier leaders, and queues `BeginTerm` first, which gives the sessions a
    /// grace when it is applied.
    fn become_leader(&mut self) {
        let heard = self.leader_time.after_entry_of(self.consensus.last_term_of_others());
        let written = self.highest_stamp();
        // From here on `clock` stamps from this base.
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

    /// The highest stamp in the log, including the uncommitted tail. Stamps rise along the log, so the newest entry
    /// with a stamp has it.
    fn highest_stamp(&self) -> LogicalTime {
        self.consensus
            .log()
            .newest_first()
            .filter(|entry| entry.kind == ORDINARY_ENTRY)
            .find_map(|entry| Batch::stamp(&entry.data).ok())
            .map_or(self.table.now(), |stamp| stamp.max(self.table.now()))
    }
}
