//! Who waits for an answer of this node: calls under way, and acquires that stand in a queue.

use std::collections::BTreeMap;

use holdfast_core::{Command, LockName, LogicalTime, Outcome, RequestId, SessionId};
use holdfast_replica::Ticket;

use crate::message::{Answer, Refusal, ReplyTo, Told};

/// An acquire, as the lock table names it.
type Wait = (SessionId, RequestId);

#[derive(Debug, Default)]
pub(super) struct Callers {
    last_ticket: u64,
    under_way: BTreeMap<Ticket, Caller>,
    parked: BTreeMap<Wait, ReplyTo>,
}

#[derive(Debug)]
enum Caller {
    Call {
        reply_to: ReplyTo,
        wait: Option<Wait>,
    },
    Read {
        reply_to: ReplyTo,
        name: LockName,
    },
    /// An operator's, under this number.
    Change(u64),
    /// Somebody who wants a backup.
    Backup,
}

/// Who is told that this node cannot say.
#[derive(Debug)]
pub(super) enum Failed {
    Call(Box<Answer>),
    Change(u64),
}

impl Callers {
    pub(super) fn call(&mut self, reply_to: ReplyTo, command: &Command) -> Ticket {
        let wait = match command {
            Command::Acquire(acquire) => Some((acquire.call.session, acquire.call.request)),
            Command::AcquireAll(acquire) => Some((acquire.call.session, acquire.call.request)),
            Command::Convert { call, .. } => Some((call.session, call.request)),
            _ => None,
        };
        self.ticket(Caller::Call { reply_to, wait })
    }

    pub(super) fn read(&mut self, reply_to: ReplyTo, name: LockName) -> Ticket {
        self.ticket(Caller::Read { reply_to, name })
    }

    pub(super) fn change(&mut self, number: u64) -> Ticket {
        self.ticket(Caller::Change(number))
    }

    pub(super) fn backup(&mut self) -> Ticket {
        self.ticket(Caller::Backup)
    }

    pub(super) fn is_backup(&self, ticket: Ticket) -> bool {
        matches!(self.under_way.get(&ticket), Some(Caller::Backup))
    }

    fn ticket(&mut self, caller: Caller) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.under_way.insert(ticket, caller);
        ticket
    }

    /// The command was applied. An acquire that was queued is parked until its wait ends; if the same
    /// acquire was parked before, the retry takes its place.
    pub(super) fn answer(
        &mut self,
        ticket: Ticket,
        at: LogicalTime,
        outcome: Outcome,
    ) -> Option<Box<Answer>> {
        let Some(Caller::Call { reply_to, wait }) = self.under_way.remove(&ticket) else {
            return None;
        };
        let what = match (outcome, wait) {
            (Outcome::Queued { .. }, Some(wait)) => {
                self.parked.insert(wait, reply_to);
                Told::Queued
            }
            (outcome, _) => Told::Outcome { at, outcome },
        };
        Some(Box::new(Answer { reply_to, what }))
    }

    /// A queued acquire has its answer.
    pub(super) fn wait_ended(
        &mut self,
        wait: Wait,
        at: LogicalTime,
        outcome: Outcome,
    ) -> Option<Box<Answer>> {
        let reply_to = self.parked.remove(&wait)?;
        Some(Box::new(Answer { reply_to, what: Told::Outcome { at, outcome } }))
    }

    pub(super) fn fail(&mut self, ticket: Ticket, refusal: Refusal) -> Option<Failed> {
        Some(match self.under_way.remove(&ticket)? {
            Caller::Call { reply_to, .. } | Caller::Read { reply_to, .. } => {
                let what = Told::Refused(refusal);
                Failed::Call(Box::new(Answer { reply_to, what }))
            }
            Caller::Change(number) => Failed::Change(number),
            Caller::Backup => return None,
        })
    }

    /// The number of a change that has ended.
    pub(super) fn take_change(&mut self, ticket: Ticket) -> Option<u64> {
        match self.under_way.remove(&ticket)? {
            Caller::Change(number) => Some(number),
            Caller::Call { .. } | Caller::Read { .. } | Caller::Backup => None,
        }
    }

    /// The table may be looked at for this read.
    pub(super) fn take_read(&mut self, ticket: Ticket) -> Option<(ReplyTo, LockName)> {
        match self.under_way.remove(&ticket)? {
            Caller::Read { reply_to, name } => Some((reply_to, name)),
            Caller::Call { .. } | Caller::Change(_) | Caller::Backup => None,
        }
    }

    /// Leadership is gone: the parked acquires find their place at the next leader.
    pub(super) fn fail_parked(&mut self, refusal: Refusal) -> Vec<Answer> {
        let parked = std::mem::take(&mut self.parked).into_values();
        parked.map(|reply_to| Answer { reply_to, what: Told::Refused(refusal) }).collect()
    }
}
