//! A stream of gRPC at the leader: frames go to the shard as they come, except what is for the efficiency tier.

use std::pin::pin;

use holdfast_core::{Command, RequestId, SessionId};
use holdfast_engine::StreamKey;
use holdfast_proto::decode::operation::Opening;
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::{ClientFrame, Failure};
use holdfast_replica::GroupId;
use holdfast_service::{Admitted, Caller};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::super::Rpc;
use super::super::failure::stopping;
use super::admit::{AdmittedFrame, Sender};
use super::answers::AnswerEncoder;
use super::incoming::{FATE_TIMEOUT, Incoming, Next};
use super::outgoing::{OutgoingSender, SessionDeliveries};
use super::read_quota::ReadQuota;
use crate::inbox::Deferrable;

/// Lists of deliveries that wait for a slow reader, of each tier. When it is full the tier lets the stream go.
pub(super) const LISTS_MAX: usize = 1_024;

pub(super) async fn serve(
    rpc: &Rpc,
    caller: &Caller,
    (named, opening): (SessionId, Admitted<Opening>),
    first: ClientFrame,
    incoming: &mut Incoming,
    outgoing: &OutgoingSender,
) -> Result<(), Failure> {
    let Opening { stream, session, group, .. } = *opening.get();
    let stream = StreamKey { group: GroupId(group), session, stream };
    let reads = ReadQuota::default();
    let (outbox, deliveries) = mpsc::channel(LISTS_MAX);
    let (memory_outbox, from_memory) = mpsc::channel(LISTS_MAX);
    let answers = AnswerEncoder::new(rpc, caller, opening.get(), reads.clone());
    let served = SessionDeliveries { deliveries, from_memory, answers };
    let deferrable = Deferrable::default();
    let in_memory = rpc.door.open_stream(stream, outbox, deferrable.clone(), memory_outbox)?;
    let serving = Serving { rpc, caller, named, stream, outgoing, deferrable, reads };
    let end = serving.run(opening, first, incoming, served).await;
    // Said before the shard lets go of the stream, so that the client reads the true reason.
    let client_gone = match end {
        Ok(client_gone) => client_gone,
        Err(failure) => {
            outgoing.end(failure).await;
            false
        }
    };
    drop(in_memory);
    rpc.door.close_stream(stream, client_gone).await;
    Ok(())
}

struct Serving<'a> {
    rpc: &'a Rpc,
    caller: &'a Caller,
    /// The session, as the client names it.
    named: SessionId,
    stream: StreamKey,
    outgoing: &'a OutgoingSender,
    deferrable: Deferrable,
    reads: ReadQuota,
}

impl Serving<'_> {
    /// Tells whether the client went away, or why this node ends the stream.
    async fn run(
        &self,
        opening: Admitted<Opening>,
        first: ClientFrame,
        incoming: &mut Incoming,
        served: SessionDeliveries,
    ) -> Result<bool, Failure> {
        if self.outgoing.serve(served).await.is_err() {
            return Ok(incoming.fate().await.means_client_gone());
        }
        let acked_through = RequestId(first.acked_through);
        let rest = first.operations.into_iter().skip(1).map(BorrowedOperation::Message).collect();
        let opening = vec![(opening.get().request, opening.map(|opening| opening.command))];
        self.pass_on(opening, rest, acked_through).await?;

        let mut stopping_begins = pin!(self.rpc.stopping.begun());
        let mut unheard = pin!(self.client_stopped_reading());
        let mut credential_end = pin!(self.rpc.credential_end(self.caller));
        loop {
            let next = tokio::select! {
                // What has come is carried out also if no answer can be given any more.
                biased;
                next = incoming.next() => next?,
                () = &mut unheard => return Ok(false),
                () = &mut stopping_begins => return Err(stopping()),
                failure = &mut credential_end => return Err(failure),
            };
            match next {
                _ if self.rpc.stopping.has_begun() => return Err(stopping()),
                _ if self.outgoing.ended_here() => return Ok(false),
                Next::Frame(mut received) => {
                    let frame = received.open()?;
                    // A farewell: the client leaves this stream, and lives.
                    if frame.operations.is_empty() {
                        return Ok(false);
                    }
                    let acked_through = RequestId(frame.acked_through);
                    // A frame that could not be queued has been answered so, operation by operation.
                    let _ = self.pass_on(Vec::new(), frame.operations, acked_through).await;
                }
                Next::End(_) if self.rpc.door.is_shard_gone() => return Err(stopping()),
                Next::End(ending) => return Ok(ending.means_client_gone()),
            }
        }
    }

    /// A client that reads no answers any more has mostly gone, and the end of its frames, which tells how, follows at once. If it was
    /// this node that ended the stream, nothing that follows counts.
    async fn client_stopped_reading(&self) {
        self.outgoing.unheard().await;
        if !self.outgoing.ended_here() {
            sleep(FATE_TIMEOUT).await;
        }
    }

    /// Queues what is right and answers what is wrong. Fails if nothing could be queued.
    async fn pass_on(
        &self,
        commands: Vec<(RequestId, Admitted<Command>)>,
        operations: Vec<BorrowedOperation<'_>>,
        acked_through: RequestId,
    ) -> Result<(), Failure> {
        let mut frame = AdmittedFrame { commands, ..AdmittedFrame::default() };
        let Serving { caller, stream, named: session, reads, .. } = self;
        let sender = Sender { caller, stream: *stream, session: *session, reads };
        frame.add(self.rpc, sender, operations, acked_through);
        // Before the rest is queued: the answer to a `Close` ends the stream.
        let _ = self.outgoing.refuse(std::mem::take(&mut frame.failures)).await;
        let queued = self.queue(&mut frame);
        self.read(&mut frame);
        let in_memory = std::mem::take(&mut frame.in_memory);
        if !in_memory.is_empty()
            && let Err((operations, failure)) =
                self.rpc.door.carry_out_in_memory(self.stream.session, in_memory).await
        {
            frame.refuse_in_memory(operations, &failure);
        }
        // If the client does not listen the end of the frames says why.
        let _ = self.outgoing.refuse(frame.failures).await;
        queued
    }

    fn read(&self, frame: &mut AdmittedFrame) {
        let reads = std::mem::take(&mut frame.reads);
        if reads.is_empty() {
            return;
        }
        if let Err((requests, failure)) = self.rpc.door.reads_on_stream(self.stream, reads) {
            self.reads.end(requests.len());
            frame.failures.extend(requests.into_iter().map(|request| (request, failure.clone())));
        }
    }

    fn queue(&self, frame: &mut AdmittedFrame) -> Result<(), Failure> {
        let commands = std::mem::take(&mut frame.commands);
        if commands.is_empty() {
            return Ok(());
        }
        let queued = self.rpc.door.frame(self.stream, commands, self.deferrable.get());
        queued.map_err(|(requests, failure)| {
            if let Some(traces) = &self.rpc.traces {
                for request in &requests {
                    traces.failed((self.stream.session, *request), &failure.message);
                }
            }
            frame.failures.extend(requests.into_iter().map(|request| (request, failure.clone())));
            failure
        })
    }
}
