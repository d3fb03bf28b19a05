//! A stream at the leader: frames go to the driver as they come, except what is for the efficiency tier.

use std::pin::pin;
use std::sync::Arc;

use holdfast_core::{Command, LockName, RequestId, SessionId};
use holdfast_proto::decode::Scope;
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::{ClientFrame, Failure, Tier};
use holdfast_service::{Admitted, Caller};
use mio::net::TcpStream as WatchedSocket;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::super::Rpc;
use super::super::door::InMemory;
use super::super::failure::{overloaded, stopping};
use super::admit::{AdmittedOperation, admit};
use super::ear::{Ear, Lent, are_common};
use super::incoming::{FATE_TIMEOUT, Incoming, Next};
use super::looks::Looks;
use super::outgoing::{Served, Words};
use crate::driver::{Deferrable, ReplyTo, StreamKey};
use crate::traces::parent_of;
use holdfast_proto::decode::operation::Opening;

/// As [`super::speaker`] has for the driver's lists.
const MEMORY_LISTS_MAX: usize = 1_024;

/// Frames after which a session is taken to be busy with nothing but what the driver hears itself.
const COMMON_BEFORE_LENT: u32 = 16;

pub(super) async fn serve(
    rpc: &Rpc,
    caller: &Caller,
    opening: Admitted<Opening>,
    first: ClientFrame,
    incoming: &mut Incoming,
    words: &Words,
) -> Result<(), Failure> {
    let Opening { stream, session, request, resumed, .. } = *opening.get();
    let stream = StreamKey { session, stream };
    let looks = Looks::default();
    let (outbox, deliveries) = words.outbox(rpc, &looks);
    let (memory_outbox, from_memory) = mpsc::channel(MEMORY_LISTS_MAX);
    let served = Served {
        deliveries,
        from_memory,
        opening: request,
        resumed,
        open: false,
        looks: looks.clone(),
    };
    let deferrable = Deferrable::default();
    rpc.door.open_stream(stream, outbox, deferrable.clone(), memory_outbox)?;
    let serving = Serving { rpc, caller, stream, session, words, deferrable, looks };
    let end = serving.run(opening, first, incoming, served).await;
    // Said before the driver lets go of the stream, so that the client reads the true reason.
    let client_gone = match end {
        Ok(client_gone) => client_gone,
        Err(failure) => {
            words.end(failure).await;
            false
        }
    };
    rpc.door.close_stream(stream, client_gone).await;
    Ok(())
}

struct Serving<'a> {
    rpc: &'a Rpc,
    caller: &'a Caller,
    stream: StreamKey,
    session: SessionId,
    words: &'a Words,
    deferrable: Deferrable,
    looks: Looks,
}

impl Serving<'_> {
    /// Tells whether the client went away, or why this node ends the stream.
    async fn run(
        &self,
        opening: Admitted<Opening>,
        first: ClientFrame,
        incoming: &mut Incoming,
        served: Served,
    ) -> Result<bool, Failure> {
        if self.words.serve(served).await.is_err() {
            return Ok(incoming.fate().await.means_client_gone());
        }
        let acked_through = RequestId(first.acked_through);
        let rest = first.operations.into_iter().skip(1).map(BorrowedOperation::Message).collect();
        let opening = vec![(opening.get().request, opening.map(|opening| opening.command))];
        self.pass_on(opening, rest, acked_through).await?;

        let mut stopping_begins = pin!(self.rpc.stopping.begun());
        let mut unheard = pin!(self.unheard_for_long());
        let mut common_in_a_row = 0;
        loop {
            let next = tokio::select! {
                // What has come is carried out also if nobody can be answered any more.
                biased;
                next = incoming.next() => next?,
                () = &mut unheard => return Ok(false),
                () = &mut stopping_begins => return Err(stopping()),
            };
            match next {
                _ if self.rpc.stopping.has_begun() => return Err(stopping()),
                _ if self.words.ended_here() => return Ok(false),
                Next::Frame(mut received) => {
                    let frame = received.open()?;
                    // A farewell: whoever sent it leaves this stream, and the client lives.
                    if frame.operations.is_empty() {
                        return Ok(false);
                    }
                    let acked_through = RequestId(frame.acked_through);
                    let is_common = are_common(&frame.operations);
                    // A frame that could not be queued has been answered so, operation by operation.
                    let _ = self.pass_on(Vec::new(), frame.operations, acked_through).await;
                    common_in_a_row = if is_common { common_in_a_row + 1 } else { 0 };
                    if common_in_a_row == COMMON_BEFORE_LENT {
                        common_in_a_row = 0;
                        self.lend_to_driver(incoming);
                    }
                }
                Next::End(_) if self.rpc.door.is_driver_gone() => return Err(stopping()),
                Next::End(ending) => return Ok(ending.means_client_gone()),
            }
        }
    }

    /// Whoever reads no answers any more has mostly gone, and the end of its frames, which tells how, follows at once. If it was
    /// this node that ended the stream, nothing that follows counts.
    async fn unheard_for_long(&self) {
        self.words.unheard().await;
        if !self.words.ended_here() {
            sleep(FATE_TIMEOUT).await;
        }
    }

    /// The driver hears a session that is busy without anybody in between. Spans begin here, so for those who want them nothing is lent.
    fn lend_to_driver(&self, incoming: &mut Incoming) {
        let place = Arc::clone(&self.rpc.ears).try_acquire_owned();
        let (Ok(place), None) = (place, &self.rpc.traces) else { return };
        incoming.lend(|Lent { socket, unread }, back| {
            let (session, caller, service) =
                (self.session, self.caller.clone(), self.rpc.door.service().clone());
            let looks = self.looks.clone();
            let ear =
                Box::new(Ear { unread, session, caller, service, looks, back, _place: place });
            let socket = WatchedSocket::from_std(socket);
            self.rpc.door.listen(self.stream, ear, socket);
        });
    }

    /// Queues what is right and answers what is wrong. Fails if nothing could be queued.
    async fn pass_on(
        &self,
        mut commands: Vec<(RequestId, Admitted<Command>)>,
        operations: Vec<BorrowedOperation<'_>>,
        acked_through: RequestId,
    ) -> Result<(), Failure> {
        let scope = Scope::Stream { session: self.session, acked_through };
        let (mut failures, mut in_memory, mut looks) = (Vec::new(), Vec::new(), Vec::new());
        commands.reserve_exact(operations.len());
        for operation in operations {
            let traces = self.rpc.traces.as_deref();
            let traced = traces.and_then(|traces| Some((traces, parent_of(&operation)?)));
            match admit(self.rpc.door.service(), self.caller, operation, scope) {
                (request, Ok(AdmittedOperation::Status(_))) if !self.looks.begin() => {
                    failures.push((request, overloaded()));
                }
                (request, Ok(AdmittedOperation::Status(name))) => looks.push((request, name)),
                (request, Ok(AdmittedOperation::Change(Tier::Efficiency, command))) => {
                    in_memory.push((command, ReplyTo::Stream { stream: self.stream, request }));
                }
                (request, Ok(AdmittedOperation::Change(_, command))) => {
                    if let Some((traces, parent)) = traced {
                        traces.received((self.session, request), command.get(), &parent);
                    }
                    commands.push((request, command));
                }
                (request, Err(failure)) => failures.push((request, failure)),
            }
        }
        let queued = self.queue(commands, &mut failures);
        self.look(looks, &mut failures);
        if !in_memory.is_empty() {
            self.carry_out_in_memory(in_memory, &mut failures).await;
        }
        // If nobody listens the end of the frames says why.
        let _ = self.words.refuse(failures).await;
        queued
    }

    async fn carry_out_in_memory(
        &self,
        operations: Vec<InMemory>,
        failures: &mut Vec<(RequestId, Failure)>,
    ) {
        let carried_out = self.rpc.door.carry_out_in_memory(self.session, operations).await;
        let Err((operations, failure)) = carried_out else { return };
        failures.extend(operations.into_iter().filter_map(|(_, reply)| match reply {
            ReplyTo::Stream { request, .. } => Some((request, failure.clone())),
            ReplyTo::Call(_) => None,
        }));
    }

    fn look(
        &self,
        looks: Vec<(RequestId, Admitted<LockName>)>,
        failures: &mut Vec<(RequestId, Failure)>,
    ) {
        if looks.is_empty() {
            return;
        }
        if let Err((requests, failure)) = self.rpc.door.reads_on_stream(self.stream, looks) {
            self.looks.end(requests.len());
            failures.extend(requests.into_iter().map(|request| (request, failure.clone())));
        }
    }

    fn queue(
        &self,
        operations: Vec<(RequestId, Admitted<Command>)>,
        failures: &mut Vec<(RequestId, Failure)>,
    ) -> Result<(), Failure> {
        if operations.is_empty() {
            return Ok(());
        }
        let queued = self.rpc.door.frame(self.stream, operations, self.deferrable.get());
        queued.map_err(|(requests, failure)| {
            if let Some(traces) = &self.rpc.traces {
                for request in &requests {
                    traces.failed((self.session, *request), &failure.message);
                }
            }
            failures.extend(requests.into_iter().map(|request| (request, failure.clone())));
            failure
        })
    }
}
