//! The operations of a stream pass the service one by one: what is wrong with one does not touch the others of its frame.

use holdfast_core::{Command, LockName, RequestId, SessionId};
use holdfast_engine::StreamKey;
use holdfast_proto::decode::Scope;
use holdfast_proto::decode::operation::{self, StreamOperation};
use holdfast_proto::failure::refused;
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::{Failure, Reason, Tier};
use holdfast_replica::GroupId;
use holdfast_service::{About, Admitted, Caller, Method, Service};

use super::super::Rpc;
use super::super::door::InMemory;
use super::super::failure::{bug, overloaded};
use super::read_quota::ReadQuota;
use crate::outbox::ReplyTo;
use crate::traces::parent_of;

/// A [`StreamOperation`] that its caller may do.
#[derive(Debug)]
pub(super) enum AdmittedOperation {
    Change(Tier, Admitted<Command>),
    Status(Admitted<LockName>),
}

/// The request id is that under which the operation is answered.
pub(super) fn admit(
    service: &Service,
    caller: &Caller,
    operation: BorrowedOperation<'_>,
    scope: Scope,
) -> (RequestId, Result<AdmittedOperation, Failure>) {
    let method = Method::of_operation(&operation);
    let (request, decoded) = operation::decode(operation, scope);
    let admitted = decoded.and_then(|decoded| {
        let method = method.ok_or_else(|| bug("an operation without a method was decoded"))?;
        Ok(match decoded {
            StreamOperation::Change(tier, command) => {
                let about = match tier {
                    Tier::Efficiency => About::InMemory(&command),
                    Tier::Unspecified | Tier::Correctness => About::Command(&command),
                };
                let authorised = service.authorise(caller, method, about)?;
                AdmittedOperation::Change(tier, authorised.admit(command))
            }
            StreamOperation::Status(name) => {
                let authorised = service.authorise(caller, method, About::Name(&name))?;
                AdmittedOperation::Status(authorised.admit(name))
            }
        })
    });
    (request, admitted)
}

/// The tier follows the root group, and knows the sessions of that group.
fn efficiency_tier_elsewhere() -> Failure {
    let words = "the efficiency tier belongs to group 1; use a stream of that group";
    refused(Reason::WrongGroup, words)
}

/// Who sends the frames of a stream that this node serves, and on behalf of which session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'a> {
    pub(super) caller: &'a Caller,
    /// With the session as the lock table knows it.
    pub(super) stream: StreamKey,
    /// As the client names it.
    pub(super) session: SessionId,
    pub(super) reads: &'a ReadQuota,
}

/// The operations of a frame, by where they are carried out.
#[derive(Debug, Default)]
pub(super) struct AdmittedFrame {
    pub(super) commands: Vec<(RequestId, Admitted<Command>)>,
    pub(super) reads: Vec<(RequestId, Admitted<LockName>)>,
    pub(super) in_memory: Vec<InMemory>,
    /// Those that are wrong, or too many.
    pub(super) failures: Vec<(RequestId, Failure)>,
}

impl AdmittedFrame {
    /// Adds the operations of a frame.
    pub(super) fn add(
        &mut self,
        rpc: &Rpc,
        sender: Sender<'_>,
        operations: Vec<BorrowedOperation<'_>>,
        acked_through: RequestId,
    ) {
        let Sender { caller, stream, session: named, reads } = sender;
        let session = stream.session;
        let scope = Scope::Stream { session: named, acked_through };
        let own = |command: Admitted<Command>| {
            if named == session {
                return command;
            }
            command.map(|mut command| {
                command.session_mut().into_iter().for_each(|named| *named = session);
                command
            })
        };
        self.commands.reserve(operations.len());
        for operation in operations {
            let traces = rpc.traces.as_deref();
            let traced = traces.and_then(|traces| Some((traces, parent_of(&operation)?)));
            match admit(rpc.door.service(), caller, operation, scope) {
                (request, Ok(AdmittedOperation::Status(_))) if !reads.begin() => {
                    self.failures.push((request, overloaded()));
                }
                (request, Ok(AdmittedOperation::Status(name))) => self.reads.push((request, name)),
                (request, Ok(AdmittedOperation::Change(Tier::Efficiency, _)))
                    if stream.group != GroupId::FIRST =>
                {
                    self.failures.push((request, efficiency_tier_elsewhere()));
                }
                (request, Ok(AdmittedOperation::Change(Tier::Efficiency, command))) => {
                    self.in_memory.push((own(command), ReplyTo::Stream { stream, request }));
                }
                (request, Ok(AdmittedOperation::Change(_, command))) => {
                    let command = own(command);
                    if let Some((traces, parent)) = traced {
                        traces.received((session, request), command.get(), &parent);
                    }
                    self.commands.push((request, command));
                }
                (request, Err(failure)) => self.failures.push((request, failure)),
            }
        }
    }

    /// None of these was carried out.
    pub(super) fn refuse_in_memory(&mut self, operations: Vec<InMemory>, failure: &Failure) {
        self.failures.extend(operations.into_iter().filter_map(|(_, reply)| match reply {
            ReplyTo::Stream { request, .. } => Some((request, failure.clone())),
            ReplyTo::Call(_) => None,
        }));
    }
}
