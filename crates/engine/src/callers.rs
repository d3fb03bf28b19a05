//! The callers of one group that wait for an answer: calls under way, and acquires in a queue.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use holdfast_core::command::Call;
use holdfast_core::{Command, LockName, LogicalTime, Outcome, RequestId, SessionId};
use holdfast_replica::{ChangeRefusal, Ticket};

use crate::answer::{Answer, Delivery, ReplyTo, StreamKey, Unavailable, Wait};
use crate::effect::Effect;
use crate::host::Host;
use crate::planted::Bug;
use crate::query::{Query, ReadAnswer};
use crate::request_owners::{CallRef, LiveCall, RequestOwners};
use crate::streams::Streams;

/// The most reads of streams that may wait for a confirmation.
const STREAM_READS_MAX: usize = 16_384;

/// What leaves the engine: effects, and the answers collected for each stream.
#[derive(Debug)]
pub(crate) struct Outbound<H: Host> {
    pub(crate) host: H,
    pub(crate) streams: Streams<H::Stream>,
    pub(crate) effects: Vec<Effect<H>>,
}

impl<H: Host> Outbound<H> {
    pub(crate) fn deliver_lists(&mut self) {
        if self.streams.list_count() > 0 {
            self.effects.push(Effect::Deliver);
        }
    }

    pub(crate) fn answer(&mut self, to: ReplyTo<H::Call>, answer: Answer) {
        match to {
            ReplyTo::Call(to) => self.effects.push(Effect::Answer { to, answer }),
            ReplyTo::Stream { stream, request } => {
                self.streams.send(stream, Delivery::Answer { request, answer });
            }
        }
    }

    pub(crate) fn answer_read(
        &mut self,
        to: ReadReply<H::Read>,
        answer: Result<ReadAnswer, Unavailable>,
    ) {
        match to {
            ReadReply::Call(to) => self.effects.push(Effect::AnswerRead { to, answer }),
            ReadReply::Stream { stream, request, name } => {
                let answer = answer.map(Box::new);
                self.streams.send(stream, Delivery::Status { request, name, answer });
            }
            ReadReply::Lease => {}
        }
    }
}

/// The receiver of a read's answer.
#[derive(Debug)]
pub(crate) enum ReadReply<R> {
    Call(R),
    Stream {
        stream: StreamKey,
        request: RequestId,
        name: LockName,
    },
    /// A read of the engine itself, which confirms that this node still leads.
    Lease,
}

impl<R> ReadReply<R> {
    fn is_of_stream(&self) -> bool {
        matches!(self, ReadReply::Stream { .. })
    }
}

#[derive(Debug)]
pub(crate) struct Callers<H: Host> {
    last_ticket: u64,
    under_way: HashMap<Ticket, Caller<H>, BuildHasherDefault<TicketHasher>>,
    parked: HashMap<Wait, Parked<H>>,
    owners: RequestOwners,
    /// Reads under way that came on streams.
    stream_reads: usize,
}

/// Tickets are consecutive numbers of the engine's own, so a client cannot choose them to collide.
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

/// The caller of an acquire that waits in a queue.
#[derive(Debug)]
struct Parked<H: Host> {
    reply: ReplyTo<H::Call>,
    /// What the host noted when the request came, for its measurements.
    mark: H::Mark,
    /// Set for a unary call that is undone if its caller hangs up.
    call: Option<CallRef>,
}

#[derive(Debug)]
enum Caller<H: Host> {
    /// A command. `wait` identifies it by session and request, if it can be queued; for the rest see [`Parked`].
    Call {
        reply: ReplyTo<H::Call>,
        wait: Option<Wait>,
        mark: H::Mark,
        call: Option<CallRef>,
    },
    Read {
        query: Query,
        reply: ReadReply<H::Read>,
    },
    /// A change of the cluster's members.
    Change(H::Change),
    Touches(Touches<H>),
}

/// Heartbeats of many sessions, with one answer.
#[derive(Debug)]
pub(crate) struct Touches<H: Host> {
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) reply: H::Touches,
}

/// The caller of an applied command.
#[derive(Debug)]
pub(crate) enum Answered<H: Host> {
    /// The caller was answered: on this stream, or by a unary call.
    On(Option<StreamKey>),
    /// The last of several heartbeats of one call. The table has the outcome of the others.
    LastOf(Touches<H>),
}

impl<H: Host> Default for Callers<H> {
    fn default() -> Callers<H> {
        Callers {
            last_ticket: 0,
            under_way: HashMap::default(),
            parked: HashMap::new(),
            owners: RequestOwners::default(),
            stream_reads: 0,
        }
    }
}

impl<H: Host> Callers<H> {
    /// The caller of a unary call has hung up. Returns whether its request must be undone.
    pub(crate) fn abandoned(&mut self, wait: Wait, call: &LiveCall) -> bool {
        self.owners.abandoned(wait, call)
    }

    /// Registers the caller of a command. `has_answer` says whether the table has answered the request already.
    pub(crate) fn call(
        &mut self,
        host: &mut H,
        command: &Command,
        reply: ReplyTo<H::Call>,
        call: Option<CallRef>,
        has_answer: impl Fn(Call) -> bool,
    ) -> Ticket {
        let wait = command.wait().map(|call| (call.session, call.request));
        if let (Some(request), Some(wait)) = (command.wait(), wait) {
            self.owners.note_copy(wait, call.as_ref(), call.is_some() && has_answer(request));
        }
        let mark = host.asked(command, wait);
        self.ticket(Caller::Call { reply, wait, mark, call })
    }

    /// Limits the reads of streams. Other limits apply to unary reads.
    pub(crate) fn has_room_for(&self, reply: &ReadReply<H::Read>) -> bool {
        !reply.is_of_stream() || self.stream_reads < STREAM_READS_MAX
    }

    pub(crate) fn read(&mut self, query: Query, reply: ReadReply<H::Read>) -> Ticket {
        self.stream_reads += usize::from(reply.is_of_stream());
        self.ticket(Caller::Read { query, reply })
    }

    pub(crate) fn touches(&mut self, sessions: Vec<SessionId>, reply: H::Touches) -> Ticket {
        self.ticket(Caller::Touches(Touches { sessions, reply }))
    }

    pub(crate) fn change(&mut self, reply: H::Change) -> Ticket {
        self.ticket(Caller::Change(reply))
    }

    fn ticket(&mut self, caller: Caller<H>) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.under_way.insert(ticket, caller);
        ticket
    }

    /// The command was applied. An acquire that was queued is parked until its wait ends; if the same
    /// acquire was parked before, the retry takes its place.
    pub(crate) fn answer(
        &mut self,
        ticket: Ticket,
        at: LogicalTime,
        outcome: Outcome,
        out: &mut Outbound<H>,
    ) -> Answered<H> {
        let (reply, wait, mark, call) = match self.under_way.remove(&ticket) {
            Some(Caller::Call { reply, wait, mark, call }) => (reply, wait, mark, call),
            Some(Caller::Touches(touches)) => return Answered::LastOf(touches),
            _ => return Answered::On(None),
        };
        let stream = match &reply {
            ReplyTo::Stream { stream, .. } => Some(*stream),
            ReplyTo::Call(_) => None,
        };
        out.host.settled(mark, wait, &outcome, false);
        match (outcome, wait) {
            (Outcome::Queued { position }, Some(wait)) => {
                if let ReplyTo::Stream { stream, request } = reply {
                    out.streams.send(stream, Delivery::Queued { request, position });
                }
                if self.parked.get(&wait).is_none_or(|parked| reply.supersedes(&parked.reply)) {
                    self.parked.insert(wait, Parked { reply, mark, call });
                }
            }
            (outcome, wait) => {
                if let Some(wait) = wait {
                    self.owners.answered(wait, call.as_ref());
                }
                out.answer(reply, Answer { at, result: Ok(outcome) });
            }
        }
        Answered::On(stream)
    }

    /// A queued acquire has its answer.
    pub(crate) fn wait_ended(
        &mut self,
        wait: Wait,
        at: LogicalTime,
        outcome: &Outcome,
        out: &mut Outbound<H>,
    ) {
        // Nodes that do not lead have no such caller.
        if self.parked.is_empty() {
            return;
        }
        if let Some(Parked { reply, mark, call }) = self.parked.remove(&wait) {
            // After an undo no answer is recorded for the request, so a retry is executed like a first try.
            if *outcome != Outcome::Cancelled {
                self.owners.answered(wait, call.as_ref());
            }
            out.host.settled(mark, Some(wait), outcome, true);
            out.answer(reply, Answer { at, result: Ok(outcome.clone()) });
        }
    }

    pub(crate) fn change_ended(
        &mut self,
        ticket: Ticket,
        result: Result<(), ChangeRefusal>,
        out: &mut Outbound<H>,
    ) {
        if let Some(Caller::Change(to)) = self.under_way.remove(&ticket) {
            out.effects.push(Effect::AnswerChange { to, answer: Ok(result) });
        }
    }

    pub(crate) fn fail(&mut self, ticket: Ticket, reason: Unavailable, out: &mut Outbound<H>) {
        match self.under_way.remove(&ticket) {
            Some(Caller::Call { reply, mark, wait, .. }) => {
                out.host.failed(mark, wait);
                out.answer(reply, Answer::failed(reason));
            }
            Some(Caller::Read { reply, .. }) => {
                self.stream_reads -= usize::from(reply.is_of_stream());
                out.host.read_settled(false);
                out.answer_read(reply, Err(reason));
            }
            Some(Caller::Change(to)) => {
                out.effects.push(Effect::AnswerChange { to, answer: Err(reason) });
            }
            Some(Caller::Touches(Touches { sessions, reply: to })) => {
                out.host.touches_failed(sessions.len());
                out.effects.push(Effect::AnswerTouches { to, answer: Err(reason) });
            }
            None => {}
        }
    }

    /// This read wants a snapshot of the whole table, which takes several turns.
    pub(crate) fn reads_everything(&self, ticket: Ticket) -> bool {
        let caller = self.under_way.get(&ticket);
        matches!(caller, Some(Caller::Read { query: Query::Snapshot, .. }))
    }

    /// Takes a read for which the table is recent enough.
    pub(crate) fn take_read(
        &mut self,
        ticket: Ticket,
        host: &mut H,
    ) -> Option<(Query, ReadReply<H::Read>)> {
        match self.under_way.remove(&ticket)? {
            Caller::Read { query, reply } => {
                self.stream_reads -= usize::from(reply.is_of_stream());
                host.read_settled(true);
                Some((query, reply))
            }
            Caller::Call { .. } | Caller::Change(_) | Caller::Touches(_) => None,
        }
    }

    /// Leadership is lost. The clients of parked acquires resume them at the next leader.
    pub(crate) fn fail_parked(&mut self, reason: Unavailable, out: &mut Outbound<H>) {
        self.owners.clear();
        if Bug::ParkedCallerForgotten.is_active() {
            return;
        }
        let mut parked: Vec<_> = self.parked.drain().collect();
        parked.sort_unstable_by_key(|(wait, _)| *wait);
        for (wait, Parked { reply, mark, .. }) in parked {
            out.host.failed(mark, Some(wait));
            out.answer(reply, Answer::failed(reason));
        }
    }

    /// What a planted bug does: the callers are never answered.
    pub(crate) fn forget_parked(&mut self) {
        self.parked.clear();
    }
}
