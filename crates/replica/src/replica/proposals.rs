//! What a leader proposes: the commands that wait, stamped with its time, and a tick where something is due. And how its
//! followers hear that they are committed.

#[cfg(feature = "planted")]
use holdfast_core::LogIndex;
use holdfast_core::{BatchWriter, Command, LogicalTime};

use super::{COMMIT_UNTOLD_MAX, Replica};
use crate::effect::{Effect, Unavailable};
use crate::pending::Call;

/// So many commands go into one log entry, and no more once it has so many bytes: far fewer than the log, or a message
/// to a peer, takes. The rest goes into more entries of the same turn.
const COMMANDS_PER_ENTRY_MAX: usize = 1_024;
const ENTRY_BYTES_TARGET: usize = 1 << 20;
/// So much [cost](Command::cost) goes into one log entry, and so much into all entries of one turn, rounded up to a whole
/// command. What is left waits for the next turn: in between the leader hears its peers and tells them that it leads.
const ENTRY_COST_TARGET: usize = 4_096;
const TURN_COST_TARGET: usize = 8_192;
/// Where so much cost waits for its turn, calls are refused as an overload.
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
            // Last of the turn: whoever was heard of in it stays alive.
            self.queued.insert(taken, (None, Command::Tick));
            self.tick_under_way = true;
            taken += 1;
        }
        if self.awaits_company() || taken == 0 {
            return;
        }
        let later = self.queued.split_off(taken);
        self.turn_cost += cost_of(&self.queued);
        // The next turn brings about as many.
        let room = Vec::with_capacity(self.queued.len());
        let mut queued = std::mem::replace(&mut self.queued, room);
        let mut refused = None;
        while !queued.is_empty() {
            let (entry, written) = write_entry(&queued);
            let rest = queued.split_off(written);
            let calls = std::mem::replace(&mut queued, rest);
            #[cfg(feature = "planted")]
            let calls = self.answer_too_early(at, calls);
            // Where one finds no room, what came after it must not: who is told that a command was applied relies on
            // those that were handed in before it.
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

    /// How many of those that are queued this turn may still take.
    fn count_within_turn_cost(&self) -> usize {
        let mut cost = self.turn_cost;
        let fits = |(_, command): &&Call| {
            let fits = cost < TURN_COST_TARGET;
            cost += command.cost();
            fits
        };
        self.queued.iter().take_while(fits).count()
    }

    /// This turn has taken as much as one may, and there is more.
    pub(super) fn has_more_to_propose(&self) -> bool {
        self.turn_cost >= TURN_COST_TARGET && !self.queued.is_empty()
    }

    /// Answers with what the table would say now.
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

    /// Callers are told; what the leader wants for itself, nobody would ask for again.
    fn not_proposed(&mut self, calls: Vec<Call>, reason: Unavailable) {
        for call in calls {
            match call {
                (Some(ticket), _) => self.effects.push(Effect::Failed { ticket, reason }),
                (None, Command::Tick) => self.tick_under_way = false,
                // One of many, whose caller has a ticket with the last of them, and asks again.
                (None, Command::Touch { .. }) => {}
                (None, command) => self.queued.push((None, command)),
            }
        }
    }

    /// Whether this leader may and should end something now. A stall postpones it, and so do commands that this turn
    /// leaves to the next (`has_more`), but for no longer than one grace.
    fn is_expiry_due(&self, at: LogicalTime, has_more: bool) -> bool {
        let Some(deadline) = self.table.next_deadline().filter(|deadline| *deadline <= at) else {
            return false;
        };
        let has_unheard = at < self.expire_not_before || has_more;
        let postponed = has_unheard && at < deadline.after(self.config.grace);
        self.consensus.leads_surely() && !self.tick_under_way && !postponed
    }

    pub(super) fn tell_commit_if_due(&mut self) {
        let now = self.clock.counted();
        if !self.consensus.has_untold_commit() {
            self.commit_untold_since = None;
        } else if now - *self.commit_untold_since.get_or_insert(now) >= COMMIT_UNTOLD_MAX {
            self.consensus.tell_commit();
            self.commit_untold_since = None;
        }
    }
}

fn cost_of(calls: &[Call]) -> usize {
    calls.iter().map(|(_, command)| command.cost()).sum()
}

/// Writes as many as one entry takes, and says how many that are.
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
