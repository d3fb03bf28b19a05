//! Who waits for an answer: calls under way, and acquires that stand in a queue.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_core::{Command, LogicalTime, Outcome, RequestId, SessionId};
use holdfast_replica::{ChangeRefusal, GroupId, Ticket};
use tokio::sync::oneshot;

use super::activity::Activity;
use super::inbox::{Answer, ChangeAnswer, Delivery, Query, ReadAnswer, StreamKey, Unavailable};
use super::streams::Streams;

/// Where an answer goes.
#[derive(Debug)]
pub(super) enum ReplyTo {
    Call(oneshot::Sender<Answer>),
    Stream { stream: StreamKey, request: RequestId },
}

impl ReplyTo {
    pub(super) fn answer(self, answer: Answer, streams: &mut Streams) {
        match self {
            // A caller that is gone needs no answer.
            ReplyTo::Call(sender) => drop(sender.send(answer)),
            ReplyTo::Stream { stream, request } => {
                streams.tell(stream, Delivery::Answer { request, answer });
            }
        }
    }
}

/// A request that can wait, as the lock table names it.
type Wait = (GroupId, SessionId, RequestId);

#[derive(Debug, Default)]
pub(super) struct Callers {
    last_ticket: u64,
    under_way: HashMap<Ticket, Caller>,
    parked: HashMap<Wait, Parked>,
    /// The driver's time, as of this half turn.
    pub(super) now: Duration,
    pub(super) activity: Activity,
}

#[derive(Debug)]
struct Parked {
    reply: ReplyTo,
    asked: Duration,
}

#[derive(Debug)]
enum Caller {
    Call { reply: ReplyTo, wait: Option<Wait>, asked: Duration },
    Read { query: Query, reply: oneshot::Sender<Result<ReadAnswer, Unavailable>> },
    Change(oneshot::Sender<ChangeAnswer>),
}

impl Callers {
    pub(super) fn call(&mut self, group: GroupId, command: &Command, reply: ReplyTo) -> Ticket {
        let wait = match command {
            Command::Acquire(acquire) => Some(acquire.call),
            Command::AcquireAll(acquire) => Some(acquire.call),
            Command::Convert { call, .. } => Some(*call),
            _ => None,
        };
        let wait = wait.map(|call| (group, call.session, call.request));
        self.ticket(Caller::Call { reply, wait, asked: self.now })
    }

    pub(super) fn read(
        &mut self,
        query: Query,
        reply: oneshot::Sender<Result<ReadAnswer, Unavailable>>,
    ) -> Ticket {
        self.ticket(Caller::Read { query, reply })
    }

    pub(super) fn change(&mut self, reply: oneshot::Sender<ChangeAnswer>) -> Ticket {
        self.ticket(Caller::Change(reply))
    }

    pub(super) fn change_ended(&mut self, ticket: Ticket, result: Result<(), ChangeRefusal>) {
        if let Some(Caller::Change(reply)) = self.under_way.remove(&ticket) {
            let _ = reply.send(Ok(result));
        }
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
        streams: &mut Streams,
    ) {
        let Some(Caller::Call { reply, wait, asked }) = self.under_way.remove(&ticket) else {
            return;
        };
        match (outcome, wait) {
            (Outcome::Queued { position }, Some(wait)) => {
                if let ReplyTo::Stream { stream, request } = reply {
                    streams.tell(stream, Delivery::Queued { request, position });
                }
                self.parked.insert(wait, Parked { reply, asked });
            }
            (outcome, wait) => {
                if wait.is_some() {
                    self.note(&outcome, asked);
                }
                reply.answer(Answer { at, result: Ok(outcome) }, streams);
            }
        }
    }

    /// A queued acquire has its answer.
    pub(super) fn wait_ended(
        &mut self,
        wait: Wait,
        at: LogicalTime,
        outcome: &Outcome,
        streams: &mut Streams,
    ) {
        if let Some(Parked { reply, asked }) = self.parked.remove(&wait) {
            self.note(outcome, asked);
            reply.answer(Answer { at, result: Ok(outcome.clone()) }, streams);
        }
    }

    pub(super) fn fail(&mut self, ticket: Ticket, reason: Unavailable, streams: &mut Streams) {
        match self.under_way.remove(&ticket) {
            Some(Caller::Call { reply, .. }) => reply.answer(failed(reason), streams),
            Some(Caller::Read { reply, .. }) => drop(reply.send(Err(reason))),
            Some(Caller::Change(reply)) => drop(reply.send(Err(reason))),
            None => {}
        }
    }

    /// This read wants all of the table, which takes more than one look.
    pub(super) fn reads_everything(&self, ticket: Ticket) -> bool {
        let caller = self.under_way.get(&ticket);
        matches!(caller, Some(Caller::Read { query: Query::Snapshot, .. }))
    }

    /// The table may be looked at for this read.
    pub(super) fn take_read(
        &mut self,
        ticket: Ticket,
    ) -> Option<(Query, oneshot::Sender<Result<ReadAnswer, Unavailable>>)> {
        match self.under_way.remove(&ticket)? {
            Caller::Read { query, reply } => Some((query, reply)),
            Caller::Call { .. } | Caller::Change(_) => None,
        }
    }

    /// Leadership of a group is gone: its parked acquires find their place at the next leader.
    pub(super) fn fail_parked(
        &mut self,
        group: GroupId,
        reason: Unavailable,
        streams: &mut Streams,
    ) {
        for (_, parked) in self.parked.extract_if(|wait, _| wait.0 == group) {
            parked.reply.answer(failed(reason), streams);
        }
    }

    fn note(&mut self, outcome: &Outcome, asked: Duration) {
        if matches!(outcome, Outcome::Granted(_) | Outcome::GrantedAll(_)) {
            self.activity.acquired(self.now.saturating_sub(asked));
        }
    }
}

pub(super) fn failed(reason: Unavailable) -> Answer {
    Answer { at: LogicalTime::ZERO, result: Err(reason) }
}
