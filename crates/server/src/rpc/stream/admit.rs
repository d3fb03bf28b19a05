//! The operations of a stream pass the service one by one: what is wrong with one does not touch the others of its frame.

use holdfast_core::{Command, LockName, RequestId};
use holdfast_proto::decode::Scope;
use holdfast_proto::decode::operation::{self, StreamOperation};
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::{Failure, Tier};
use holdfast_service::{Admitted, Caller, Method, Service};

use super::super::failure::bug;

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
                AdmittedOperation::Change(tier, service.admit(caller, method, command)?)
            }
            StreamOperation::Status(name) => {
                AdmittedOperation::Status(service.admit(caller, method, name)?)
            }
        })
    });
    (request, admitted)
}
