//! Who waits for an answer: calls under way, and acquires that stand in a queue.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::command::Call;
use holdfast_core::{Command, LockName, LogicalTime, Outcome, Rejection, RequestId, SessionId};
use holdfast_replica::{ChangeRefusal, GroupId, Ticket};
use tokio::sync::oneshot;

use super::abandoned::{CallRef, LiveCall, RequestOwners};
use super::inbox::{
    Answer, ChangeAnswer, Delivery, Query, ReadAnswer, StreamKey, TouchesAnswer, Unavailable,
};
use super::streams::Streams;
use crate::metrics::{Kind, Metrics, Settled};
use crate::traces::Traces;

/// Looks on streams that wait to be confirmed.
const LOOKS_MAX: usize = 16_384;

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    Call(oneshot::Sender<Answer>),
    Stream { stream: StreamKey, request: RequestId },
}

impl ReplyTo {
    /// Of two copies of a request, is this the one to be answered in the end? A copy that comes on an older stream of
    /// the session was overtaken, and nobody reads there any more.
    pub(crate) fn supersedes(&self, parked: &ReplyTo) -> bool {
        match (self, parked) {
            (ReplyTo::Stream { stream: this, .. }, ReplyTo::Stream { stream: parked, .. }) => {
                this.stream >= parked.stream
            }
            _ => true,
        }
    }

    pub(crate) fn answer(self, answer: Answer, streams: &mut Streams) {
        match self {
            // A caller that is gone needs no answer.
            ReplyTo::Call(sender) => drop(sender.send(answer)),
            ReplyTo::Stream { stream, request } => {
                streams.tell(stream, Delivery::Answer { request, answer });
            }
        }
    }
}

/// Where what was read goes.
#[derive(Debug)]
pub(super) enum ReadReply {
    Call(oneshot::Sender<Result<ReadAnswer, Unavailable>>),
    Stream { stream: StreamKey, request: RequestId, name: LockName },
}

impl ReadReply {
    fn is_look(&self) -> bool {
        matches!(self, ReadReply::Stream { .. })
    }

    pub(super) fn answer(self, answer: Result<ReadAnswer, Unavailable>, streams: &mut Streams) {
        match self {
            // A caller that is gone needs no answer.
            ReadReply::Call(sender) => drop(sender.send(answer)),
            ReadReply::Stream { stream, request, name } => {
                let answer = answer.map(Box::new);
                streams.tell(stream, Delivery::Status { request, name, answer });
            }
        }
    }
}

/// A request that can wait, as the lock table names it.
pub(super) type Wait = (GroupId, SessionId, RequestId);

#[derive(Debug)]
pub(super) struct Callers {
    metrics: Arc<Metrics>,
    traces: Option<Arc<Traces>>,
    /// The time of the present half turn; one look at the clock serves all of it.
    now: Duration,
    /// Calls since the turn began.
    taken_in: u64,
    last_ticket: u64,
    under_way: HashMap<Ticket, Caller, BuildHasherDefault<TicketHasher>>,
    parked: HashMap<Wait, Parked>,
    owners: RequestOwners,
    /// Those under way that came on streams.
    looks: usize,
}

/// Tickets are numbers that are given here, one after the other: nobody can choose them so that many fall together.
#[derive(Debug, Default)]
struct TicketHasher(u64);

impl Hasher for TicketHasher {
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What was asked, and when.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: Kind,
    at: Duration,
}

#[derive(Debug)]
struct Parked {
    reply: ReplyTo,
    asked: Asked,
    call: Option<CallRef>,
}

#[derive(Debug)]
enum Caller {
    Call { reply: ReplyTo, wait: Option<Wait>, asked: Asked, call: Option<CallRef> },
    Read { query: Query, reply: ReadReply },
    Change(oneshot::Sender<ChangeAnswer>),
    Touches(Touches),
}

/// Heartbeats of many sessions.
#[derive(Debug)]
pub(super) struct Touches {
    pub(super) sessions: Vec<SessionId>,
    pub(super) reply: oneshot::Sender<TouchesAnswer>,
}

/// Whom the outcome of a command was for.
#[derive(Debug)]
pub(super) enum Answered {
    /// It was answered on this stream, or elsewhere.
    On(Option<StreamKey>),
    /// What became of the others is for the table to say.
    LastOf(Touches),
}

impl Callers {
    pub(super) fn new(metrics: Arc<Metrics>, traces: Option<Arc<Traces>>) -> Callers {
        Callers {
            metrics,
            traces,
            now: Duration::ZERO,
            taken_in: 0,
            last_ticket: 0,
            under_way: HashMap::default(),
            parked: HashMap::new(),
            owners: RequestOwners::default(),
            looks: 0,
        }
    }

    pub(super) fn set_time(&mut self, now: Duration) {
        self.now = now;
    }

    /// The caller of a unary call has hung up. Tells whether its request is to be undone.
    pub(super) fn abandoned(&mut self, wait: Wait, call: &LiveCall) -> bool {
        self.owners.abandoned(wait, call)
    }

    /// All input of a turn is taken in.
    pub(super) fn measure_batch(&mut self) {
        if self.taken_in > 0 {
            self.metrics.batch.record(std::mem::take(&mut self.taken_in));
        }
    }

    fn settled(&self, asked: Asked, outcome: &Outcome, stood_in_queue: bool) {
        if matches!(
            outcome,
            Outcome::Rejected(
                Rejection::TooManyLocks { .. }
                    | Rejection::TooManyBytes { .. }
                    | Rejection::SessionTooLarge { .. }
            )
        ) {
            self.metrics.full_refusals.add(1);
        }
        let Some(settled) = Settled::of(outcome) else { return };
        self.metrics.operations.add(asked.kind, settled);
        if settled == Settled::Granted {
            let waits = if stood_in_queue {
                &self.metrics.granted_after_wait
            } else {
                &self.metrics.granted_at_once
            };
            waits.record_time(self.now.saturating_sub(asked.at));
        }
    }

    /// `has_answer` tells whether the table has answered a request already.
    pub(super) fn call(
        &mut self,
        group: GroupId,
        command: &Command,
        reply: ReplyTo,
        call: Option<CallRef>,
        has_answer: impl Fn(Call) -> bool,
    ) -> Ticket {
        let wait = command.wait().map(|call| (group, call.session, call.request));
        if let (Some(request), Some(wait)) = (command.wait(), wait) {
            self.owners.copy_came(wait, call.as_ref(), call.is_some() && has_answer(request));
        }
        let asked = Asked { kind: Kind::of(command), at: self.now };
        self.taken_in += 1;
        if let (Some(traces), Some((_, session, request))) = (&self.traces, wait) {
            traces.proposed((session, request));
        }
        self.ticket(Caller::Call { reply, wait, asked, call })
    }

    /// Calls have places of their own; those who look on streams have this.
    pub(super) fn has_room_for(&self, reply: &ReadReply) -> bool {
        matches!(reply, ReadReply::Call(_)) || self.looks < LOOKS_MAX
    }

    pub(super) fn read(&mut self, query: Query, reply: ReadReply) -> Ticket {
        self.looks += usize::from(reply.is_look());
        self.ticket(Caller::Read { query, reply })
    }

    pub(super) fn touches(
        &mut self,
        sessions: Vec<SessionId>,
        reply: oneshot::Sender<TouchesAnswer>,
    ) -> Ticket {
        self.taken_in += sessions.len() as u64;
        self.ticket(Caller::Touches(Touches { sessions, reply }))
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
    ) -> Answered {
        let (reply, wait, asked, call) = match self.under_way.remove(&ticket) {
            Some(Caller::Call { reply, wait, asked, call }) => (reply, wait, asked, call),
            Some(Caller::Touches(touches)) => return Answered::LastOf(touches),
            _ => return Answered::On(None),
        };
        let stream = match &reply {
            ReplyTo::Stream { stream, .. } => Some(*stream),
            ReplyTo::Call(_) => None,
        };
        self.settled(asked, &outcome, false);
        if let (Some(traces), Some((_, session, request))) = (&self.traces, wait) {
            traces.answered((session, request), &outcome);
        }
        match (outcome, wait) {
            (Outcome::Queued { position }, Some(wait)) => {
                if let ReplyTo::Stream { stream, request } = reply {
                    streams.tell(stream, Delivery::Queued { request, position });
                }
                self.metrics.queue_position.record(position);
                if self.parked.get(&wait).is_none_or(|parked| reply.supersedes(&parked.reply)) {
                    self.parked.insert(wait, Parked { reply, asked, call });
                }
            }
            (outcome, wait) => {
                if let Some(wait) = wait {
                    self.owners.answered(wait, call.as_ref());
                }
                reply.answer(Answer { at, result: Ok(outcome) }, streams);
            }
        }
        Answered::On(stream)
    }

    /// A queued acquire has its answer.
    pub(super) fn wait_ended(
        &mut self,
        wait: Wait,
        at: LogicalTime,
        outcome: &Outcome,
        streams: &mut Streams,
    ) {
        // As on every node that does not lead.
        if self.parked.is_empty() {
            return;
        }
        if let Some(Parked { reply, asked, call }) = self.parked.remove(&wait) {
            // A wait that was undone has no answer, and a retry may be behind it.
            if *outcome != Outcome::Cancelled {
                self.owners.answered(wait, call.as_ref());
            }
            self.settled(asked, outcome, true);
            if let Some(traces) = &self.traces {
                traces.answered((wait.1, wait.2), outcome);
            }
            reply.answer(Answer { at, result: Ok(outcome.clone()) }, streams);
        }
    }

    pub(super) fn fail(&mut self, ticket: Ticket, reason: Unavailable, streams: &mut Streams) {
        match self.under_way.remove(&ticket) {
            Some(Caller::Call { reply, asked, wait, .. }) => {
                if let (Some(traces), Some((_, session, request))) = (&self.traces, wait) {
                    traces.failed((session, request), "unavailable");
                }
                self.metrics.operations.add(asked.kind, Settled::Unavailable);
                reply.answer(failed(reason), streams);
            }
            Some(Caller::Read { reply, .. }) => {
                self.looks -= usize::from(reply.is_look());
                self.metrics.operations.add(Kind::Read, Settled::Unavailable);
                reply.answer(Err(reason), streams);
            }
            Some(Caller::Change(reply)) => drop(reply.send(Err(reason))),
            Some(Caller::Touches(Touches { sessions, reply })) => {
                let count = sessions.len() as u64;
                self.metrics.operations.add_many(Kind::Touch, Settled::Unavailable, count);
                drop(reply.send(Err(reason)));
            }
            None => {}
        }
    }

    /// This read wants all of the table, which takes more than one look.
    pub(super) fn reads_everything(&self, ticket: Ticket) -> bool {
        let caller = self.under_way.get(&ticket);
        matches!(caller, Some(Caller::Read { query: Query::Snapshot, .. }))
    }

    /// The table may be looked at for this read.
    pub(super) fn take_read(&mut self, ticket: Ticket) -> Option<(Query, ReadReply)> {
        match self.under_way.remove(&ticket)? {
            Caller::Read { query, reply } => {
                self.looks -= usize::from(reply.is_look());
                self.metrics.operations.add(Kind::Read, Settled::Done);
                Some((query, reply))
            }
            Caller::Call { .. } | Caller::Change(_) | Caller::Touches(_) => None,
        }
    }

    /// Leadership of a group is gone: its parked acquires find their place at the next leader.
    pub(super) fn fail_parked(
        &mut self,
        group: GroupId,
        reason: Unavailable,
        streams: &mut Streams,
    ) {
        self.owners.forget_group(group);
        for (_, Parked { reply, asked, .. }) in self.parked.extract_if(|wait, _| wait.0 == group) {
            self.metrics.operations.add(asked.kind, Settled::Unavailable);
            reply.answer(failed(reason), streams);
        }
    }
}

pub(super) fn failed(reason: Unavailable) -> Answer {
    Answer { at: LogicalTime::ZERO, result: Err(reason) }
}

#[cfg(test)]
mod tests {
    use holdfast_core::StreamId;

    use super::*;

    #[test]
    fn a_copy_that_comes_late_on_an_older_stream_takes_nobody_elses_answer() {
        let on = |stream| ReplyTo::Stream {
            stream: StreamKey { session: SessionId(1), stream: StreamId(stream) },
            request: RequestId(5),
        };
        assert!(on(9).supersedes(&on(8)) && on(9).supersedes(&on(9)));
        assert!(!on(8).supersedes(&on(9)));
        let call = ReplyTo::Call(oneshot::channel().0);
        assert!(call.supersedes(&on(9)) && on(8).supersedes(&call));
    }
}
