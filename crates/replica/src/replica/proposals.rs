//! What a leader proposes: the queued commands, stamped with its time, and a tick when a deadline has passed. Also how
//! its followers learn the commit index.

#[cfg(feature = "planted")]
use holdfast_core::LogIndex;
use holdfast_core::{BatchWriter, Command, LogicalTime};

use super::{COMMIT_UNANNOUNCED_MAX, Replica};
use crate::effect::{Effect, Unavailable};
use crate::pending::Call;

/// The most commands in one log entry, and the size after which no command is added. Both are far below what the log or
/// a message takes. The rest goes into more entries of the same turn.
const COMMANDS_PER_ENTRY_MAX: usize = 1_024;
const ENTRY_BYTES_TARGET: usize = 1 << 20;
/// The most [cost](Command::cost) of one log entry, and of all entries of one turn, rounded up to a whole command. The
/// rest waits for the next turn. In between, the leader handles messages of its peers and sends heartbeats.
const ENTRY_COST_TARGET: usize = 4_096;
const TURN_COST_TARGET: usize = 8_192;
/// When the queued commands cost so much, further calls are refused as an overload.
pub(super) const QUEUED_COST_MAX: usize = 32 * TURN_COST_TARGET;

impl Replica {
    pub(super) fn propose_queued(&mut self) {
        let Some(at) = self.clock.stamp() else {
            return;
        };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ExpiryOutsideTheLog.is_active() && self.is_expiry_due(at, false) {
            let (index, mut events) = (LogIndex(self.applied_index), Vec::new());
            self.table.apply(index, at, Command::Tick, &mut events);
            let happened = events.into_iter().map(|event| Effect::Happened { index, at, event });
            self.effects.extend(happened);
        }
        let mut taken = self.count_within_turn_cost();
        if self.is_expiry_due(at, taken < self.queued.len()) {
            // The tick is last in the turn: sessions with a heartbeat in this turn stay alive.
            self.queued.insert(taken, (None, Command::Tick));
            self.tick_under_way = true;
            self.ticked_in_turn = true;
            taken += 1;
        }
        if self.should_delay_proposal() || taken == 0 {
            return;
        }
        let later = self.queued.split_off(taken);
        self.turn_cost += cost_of(&self.queued);
        // The next turn probably has about as many commands.
        let room = Vec::with_capacity(self.queued.len());
        let mut queued = std::mem::replace(&mut self.queued, room);
        let mut refused = None;
        while !queued.is_empty() {
            let (entry, written) = write_entry(&queued);
            let rest = queued.split_off(written);
            let calls = std::mem::replace(&mut queued, rest);
            #[cfg(feature = "planted")]
            let calls = self.answer_too_early(at, calls);
            // After an entry that finds no room, no later one may be proposed: a caller whose command was applied
            // relies on the commands that it sent before.
            let proposed = match refused {
                None => self.consensus.propose(entry.finish(at)),
                Some(reason) => Err(reason),
            };
            match proposed {
                Ok((index, term)) => self.pending.push(index, term, calls),
                Err(reason) => {
                    refused = Some(reason);
                    self.not_proposed(calls, reason);
                }
            }
        }
        match refused {
            None => self.queued.extend(later),
            Some(reason) => self.not_proposed(later, reason),
        }
        self.queued_cost = cost_of(&self.queued);
    }

    /// How many of the queued commands this turn may still take.
    fn count_within_turn_cost(&self) -> usize {
        let mut cost = self.turn_cost;
        let fits = |(_, command): &&Call| {
            let fits = cost < TURN_COST_TARGET;
            cost += command.cost();
            fits
        };
        self.queued.iter().take_while(fits).count()
    }

    /// This turn has proposed as much as it may, and more is queued.
    pub(super) fn has_more_to_propose(&self) -> bool {
        self.turn_cost >= TURN_COST_TARGET && !self.queued.is_empty()
    }

    /// Planted bug: answers with the outcome that the present table would give.
    #[cfg(feature = "planted")]
    fn answer_too_early(&mut self, at: LogicalTime, mut calls: Vec<Call>) -> Vec<Call> {
        let is_all_early = crate::planted::Bug::AnswerBeforeCommit.is_active();
        if !is_all_early && !crate::planted::Bug::HeartbeatBeforeCommit.is_active() {
            return calls;
        }
        let mut table = self.table.clone();
        for (ticket, command) in &mut calls {
            let is_early = is_all_early || matches!(command, Command::Touch { .. });
            let outcome = table.apply(LogIndex(0), at, command.clone(), &mut Vec::new());
            if let Some(ticket) = ticket.take_if(|_| is_early) {
                self.effects.push(Effect::Answer { ticket, at, outcome });
            }
        }
        calls
    }

    /// Refuses the calls that have a caller. Commands of the leader itself stay queued, because nothing else would
    /// retry them.
    fn not_proposed(&mut self, calls: Vec<Call>, reason: Unavailable) {
        for call in calls {
            match call {
                (Some(ticket), _) => self.effects.push(Effect::Failed { ticket, reason }),
                (None, Command::Tick) => {
                    self.tick_under_way = false;
                    // A turn that could propose none need not be followed by the next at once.
                    self.ticked_in_turn = false;
                }
                // One of several: the caller's ticket belongs to the last of them, and the caller retries all.
                (None, Command::Touch { .. }) => {}
                (None, command) => self.queued.push((None, command)),
            }
        }
    }

    /// Whether this leader may and should expire something now. A stall postpones it, and so do commands that this turn
    /// leaves to the next (`has_more`), but for at most one grace.
    fn is_expiry_due(&self, at: LogicalTime, has_more: bool) -> bool {
        let Some(deadline) = self.table.next_deadline().filter(|deadline| *deadline <= at) else {
            return false;
        };
        let has_unread_input = at < self.expire_not_before || has_more;
        let postponed = has_unread_input && at < deadline.after(self.config.grace);
        let may_tick = !self.tick_under_way && !self.ticked_in_turn;
        self.consensus.has_committed_in_own_term() && may_tick && !postponed
    }

    /// Whether the tick of this turn has left something that is due, such as the rest of a large session.
    pub(super) fn has_more_to_expire(&self) -> bool {
        let is_due = |deadline| self.clock.stamp().is_some_and(|at| deadline <= at);
        self.ticked_in_turn
            && !self.tick_under_way
            && self.table.next_deadline().is_some_and(is_due)
    }

    pub(super) fn announce_commit_if_due(&mut self) {
        let now = self.clock.counted();
        if !self.consensus.has_unannounced_commit() {
            self.commit_unannounced_since = None;
        } else if now - *self.commit_unannounced_since.get_or_insert(now) >= COMMIT_UNANNOUNCED_MAX
        {
            self.consensus.announce_commit();
            self.commit_unannounced_since = None;
        }
    }
}

fn cost_of(calls: &[Call]) -> usize {
    calls.iter().map(|(_, command)| command.cost()).sum()
}

/// Writes as many commands as one entry takes, and returns how many they are.
fn write_entry(queued: &[Call]) -> (BatchWriter, usize) {
    let mut entry = BatchWriter::default();
    let (mut written, mut cost) = (0, 0);
    for (_, command) in queued.iter().take(COMMANDS_PER_ENTRY_MAX) {
        entry.push(command);
        written += 1;
        cost += command.cost();
        if entry.bytes() >= ENTRY_BYTES_TARGET || cost >= ENTRY_COST_TARGET {
            break;
        }
    }
    (entry, written)
}
