//! A framed connection whose session this node serves: what its frames ask of the engine and of the efficiency tier.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use holdfast_core::{RequestId, SessionId};
use holdfast_engine::{Delivery, ReadAnswer, StreamKey, Unavailable};
use holdfast_proto::decode::operation::Opening;
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::Failure;
use holdfast_replica::GroupId;
use holdfast_service::Caller;
use tokio::sync::{mpsc, oneshot};

use super::super::super::Rpc;
use super::super::super::door::{ADMISSION_TIMEOUT, InMemory, MemoryStep};
use super::super::super::failure::{dropped_by_shard, unavailable, unsure};
use super::super::admit::{AdmittedFrame, Sender};
use super::super::answers::{AnswerEncoder, WEIGHT_PER_FRAME_TARGET, weight};
use super::super::read_quota::ReadQuota;
use super::super::serving::LISTS_MAX;
use crate::efficiency_tier::TierStream;
use crate::inbox::{Asked, Deferrable};

#[derive(Debug)]
pub(super) struct Served {
    pub(super) stream: StreamKey,
    /// The session, as the client names it.
    named: SessionId,
    pub(super) answers: AnswerEncoder,
    pub(super) deferrable: Deferrable,
    pub(super) from_memory: mpsc::Receiver<Vec<Delivery>>,
    reads: ReadQuota,
    admission: Option<Admission>,
    /// The efficiency tier tells nothing more once this is dropped.
    _in_memory: TierStream,
}

/// The session is new in the efficiency tier, or this node is not sure that it leads. The quorum is asked.
#[derive(Debug)]
struct Admission {
    operations: Vec<InMemory>,
    answer: oneshot::Receiver<Result<ReadAnswer, Unavailable>>,
    until: Instant,
}

type Failures = Vec<(RequestId, Failure)>;

impl Served {
    /// Both tiers tell the stream what happens to its session. The shard opens it in the engine.
    pub(super) fn open(rpc: &Rpc, caller: &Caller, named: SessionId, opening: &Opening) -> Served {
        let Opening { session, stream, group, .. } = *opening;
        let stream = StreamKey { group: GroupId(group), session, stream };
        let (memory_outbox, from_memory) = mpsc::channel(LISTS_MAX);
        let in_memory = rpc.door.memory().open_stream(stream, memory_outbox);
        let reads = ReadQuota::default();
        Served {
            stream,
            named,
            answers: AnswerEncoder::new(rpc, caller, opening, reads.clone()),
            deferrable: Deferrable::default(),
            from_memory,
            reads,
            admission: None,
            _in_memory: in_memory,
        }
    }

    /// Asks for what is right. Gives what is not.
    pub(super) fn carry_out(
        &mut self,
        rpc: &Rpc,
        caller: &Caller,
        operations: Vec<BorrowedOperation<'_>>,
        acked_through: RequestId,
        asked: &mut Asked,
    ) -> Failures {
        let mut frame = AdmittedFrame {
            commands: std::mem::take(&mut asked.operations),
            reads: std::mem::take(&mut asked.statuses),
            ..AdmittedFrame::default()
        };
        let (stream, session) = (self.stream, self.named);
        let sender = Sender { caller, stream, session, reads: &self.reads };
        frame.add(rpc, sender, operations, acked_through);
        let in_memory = std::mem::take(&mut frame.in_memory);
        asked.done_here += frame.failures.len();
        asked.done_here += in_memory.iter().map(|(it, _)| it.get().cost()).sum::<usize>();
        if !in_memory.is_empty() {
            match rpc.door.begin_in_memory(self.stream.session, in_memory) {
                MemoryStep::Done => {}
                MemoryStep::Refused(operations, failure) => {
                    frame.refuse_in_memory(operations, &failure);
                }
                MemoryStep::Admit(operations, query) => {
                    let (reply, answer) = oneshot::channel();
                    let until = Instant::now() + ADMISSION_TIMEOUT;
                    self.admission = Some(Admission { operations, answer, until });
                    asked.read = Some((query, reply));
                }
            }
        }
        asked.operations = frame.commands;
        asked.statuses = frame.reads;
        frame.failures
    }

    /// What else the efficiency tier has delivered, so that it takes one frame and one write.
    pub(super) fn gather_from_memory(&mut self, told: &mut Vec<Delivery>) {
        let mut gathered = weight(told);
        while gathered < WEIGHT_PER_FRAME_TARGET
            && let Ok(more) = self.from_memory.try_recv()
        {
            gathered += weight(&more);
            told.extend(more);
        }
    }

    pub(super) fn is_awaiting_admission(&self) -> bool {
        self.admission.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.admission.as_ref().map(|admission| admission.until)
    }

    /// Carries out what waited for the quorum, once it has answered. Gives what is refused.
    pub(super) fn poll_admission(&mut self, cx: &mut Context<'_>, rpc: &Rpc) -> Option<Failures> {
        let admission = self.admission.as_mut()?;
        let Poll::Ready(answer) = Pin::new(&mut admission.answer).poll(cx) else { return None };
        let Admission { operations, .. } = self.admission.take()?;
        let answer = match answer {
            Ok(answer) => answer.map_err(|reason| unavailable(reason, &rpc.membership)),
            Err(_) => Err(dropped_by_shard()),
        };
        let finished = rpc.door.finish_in_memory(self.stream.session, operations, answer);
        Some(finished.err().map_or_else(Vec::new, |(operations, why)| refused(operations, &why)))
    }

    /// A leader that its quorum does not confirm in time has none.
    pub(super) fn admission_timed_out(&mut self) -> Failures {
        let waiting = self.admission.take().map(|admission| admission.operations);
        refused(waiting.unwrap_or_default(), &unsure())
    }
}

fn refused(operations: Vec<InMemory>, failure: &Failure) -> Failures {
    let mut frame = AdmittedFrame::default();
    frame.refuse_in_memory(operations, failure);
    frame.failures
}
