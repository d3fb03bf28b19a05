//! What a leader proposes: the commands that wait, stamped with its time, and a tick where something is due. And how its
//! followers hear that they are committed.

#[cfg(feature = "planted")]
use holdfast_core::LogIndex;
use holdfast_core::{BatchWriter, Command, LogicalTime};

use super::{COMMIT_UNTOLD_MAX, Replica};
use crate::effect::{Effect, Ticket, Unavailable};

/// So many commands go into one log entry, and no more once it has so many bytes: far fewer than the log, or a message
/// to a peer, takes. The rest goes into more entries of the same turn.
const COMMANDS_PER_ENTRY_MAX: usize = 1_024;
const ENTRY_BYTES_TARGET: usize = 1 << 20;

impl Replica {
    pub(super) fn propose_queued(&mut self) {
        let Some(at) = self.clock.stamp() else {
            return;
        };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ExpiryOutsideTheLog.is_active() && self.is_expiry_due(at) {
            let (index, mut events) = (LogIndex(self.applied_index), Vec::new());
            self.table.apply(index, at, Command::Tick, &mut events);
            let happened = events.into_iter().map(|event| Effect::Happened { index, at, event });
            self.effects.extend(happened);
        }
        if self.is_expiry_due(at) {
            // Last of the turn: whoever was heard of in it stays alive.
            self.queued.push((None, Command::Tick));
            self.tick_under_way = true;
        }
        if self.awaits_company() {
            return;
        }
        let mut queued = std::mem::take(&mut self.queued).into_iter();
        let mut refused = None;
        while queued.len() > 0 {
            let room = queued.len().min(COMMANDS_PER_ENTRY_MAX);
            let mut entry = BatchWriter::default();
            let (mut tickets, mut commands) = (Vec::with_capacity(room), Vec::with_capacity(room));
            for (ticket, command) in queued.by_ref().take(COMMANDS_PER_ENTRY_MAX) {
                entry.push(&command);
                tickets.push(ticket);
                commands.push(command);
                if entry.bytes() >= ENTRY_BYTES_TARGET {
                    break;
                }
            }
            #[cfg(feature = "planted")]
            let tickets = self.answer_too_early(at, &commands, tickets);
            // Where one finds no room, what came after it must not: who is told that a command was applied relies on
            // those that were handed in before it.
            let proposed = match refused {
                None => self.consensus.propose(entry.finish(at)),
                Some(reason) => Err(reason),
            };
            match proposed {
                Ok((index, term)) => self.pending.push(index, term, tickets),
                Err(reason) => {
                    refused = Some(reason);
                    self.not_proposed(tickets, commands, reason);
                }
            }
        }
    }

    /// Answers with what the table would say now. Gives the tickets that are left.
    #[cfg(feature = "planted")]
    fn answer_too_early(
        &mut self,
        at: LogicalTime,
        commands: &[Command],
        tickets: Vec<Option<Ticket>>,
    ) -> Vec<Option<Ticket>> {
        let mut table = self.table.clone();
        let mut left = Vec::new();
        for (ticket, command) in tickets.into_iter().zip(commands.iter().cloned()) {
            let is_early = crate::planted::Bug::AnswerBeforeCommit.is_active()
                || (crate::planted::Bug::HeartbeatBeforeCommit.is_active()
                    && matches!(command, Command::Touch { .. }));
            let outcome = table.apply(LogIndex(0), at, command, &mut Vec::new());
            match ticket {
                Some(ticket) if is_early => {
                    self.effects.push(Effect::Answer { ticket, at, outcome });
                    left.push(None);
                }
                ticket => left.push(ticket),
            }
        }
        left
    }

    /// Callers are told; what the leader wants for itself, nobody would ask for again.
    fn not_proposed(
        &mut self,
        tickets: Vec<Option<Ticket>>,
        commands: Vec<Command>,
        reason: Unavailable,
    ) {
        for (ticket, command) in tickets.into_iter().zip(commands) {
            match (ticket, command) {
                (Some(ticket), _) => self.effects.push(Effect::Failed { ticket, reason }),
                (None, Command::Tick) => self.tick_under_way = false,
                // One of many, whose caller has a ticket with the last of them, and asks again.
                (None, Command::Touch { .. }) => {}
                (None, command) => self.queued.push((None, command)),
            }
        }
    }

    /// Whether this leader may and should end something now. A stall postpones it, but nobody is kept
    /// for longer than one grace by stalls that follow each other.
    fn is_expiry_due(&self, at: LogicalTime) -> bool {
        let Some(deadline) = self.table.next_deadline().filter(|deadline| *deadline <= at) else {
            return false;
        };
        let postponed = at < self.expire_not_before && at < deadline.after(self.config.grace);
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
