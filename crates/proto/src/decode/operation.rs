//! The operations of a session's stream, decoded one by one: a wrong operation does not touch the others of its frame.

use holdfast_core::{Command, LockName, RequestId, SessionId, StreamId};

use super::Scope;
use crate::decode;
use crate::failure::refused;
use crate::plain::BorrowedOperation;
use crate::v1::{ClientFrame, Failure, Operation, Reason, Tier, operation};

/// The first operation of a stream.
#[derive(Debug)]
pub struct Opening {
    pub stream: StreamId,
    pub session: SessionId,
    pub request: RequestId,
    /// The number of the group that all operations of the stream are for.
    pub group: u32,
    pub resumed: bool,
    pub command: Command,
}

impl Opening {
    pub fn decode(frame: &ClientFrame) -> Result<Opening, Failure> {
        let first = frame.operations.first().and_then(|operation| operation.kind.as_ref());
        match first {
            Some(operation::Kind::Open(open)) => {
                let stream = stream_id(open.request_id)?;
                let command = decode::open(open.clone(), Some(stream))?;
                let (session, _) = decode::session_id(&open.session_id)?;
                let request = RequestId(open.request_id);
                let group = decode::group(open.group);
                Ok(Opening { stream, session, request, group, resumed: false, command })
            }
            Some(operation::Kind::Resume(resume)) => {
                let (session, _) = decode::session_id(&resume.session_id)?;
                let stream = stream_id(resume.request_id)?;
                let command = Command::AttachStream { session, stream, identity: None };
                let request = RequestId(resume.request_id);
                let group = decode::group(resume.group);
                Ok(Opening { stream, session, request, group, resumed: true, command })
            }
            _ => {
                let words = "the first operation of a stream must open or resume a session";
                Err(refused(Reason::InvalidFrame, words))
            }
        }
    }
}

/// A later operation of a stream.
#[derive(Debug, PartialEq)]
pub enum StreamOperation {
    Change(Tier, Command),
    /// A read of one lock.
    Status(LockName),
}

/// Decodes a later operation. Gives the request id under which it is answered.
pub fn decode(
    operation: BorrowedOperation<'_>,
    scope: Scope,
) -> (RequestId, Result<StreamOperation, Failure>) {
    let (request, tier, command) = match operation {
        BorrowedOperation::Acquire(request) => {
            (request.request_id, request.tier, decode::acquire(request, scope))
        }
        BorrowedOperation::Release(request) => {
            (request.request_id, request.tier, decode::release(request, scope))
        }
        BorrowedOperation::Message(operation) => return decode_message(operation, scope),
    };
    (
        RequestId(request),
        decode::tier(tier).and_then(|tier| Ok(StreamOperation::Change(tier, command?))),
    )
}

fn decode_message(
    operation: Operation,
    scope: Scope,
) -> (RequestId, Result<StreamOperation, Failure>) {
    use operation::Kind;
    let tier = tier_of(&operation);
    let (request, command) = match operation.kind {
        Some(Kind::Status(request)) => {
            let asked = answerable(request.request_id)
                .and_then(|()| decode::lock_name(&request.name))
                .map(StreamOperation::Status);
            return (RequestId(request.request_id), asked);
        }
        Some(Kind::KeepAlive(request)) => (request.request_id, decode::keep_alive(&request, scope)),
        Some(Kind::Close(request)) => (request.request_id, decode::close(&request, scope)),
        Some(Kind::Acquire(request)) => (request.request_id, decode::acquire(&request, scope)),
        Some(Kind::Cancel(request)) => (request.request_id, decode::cancel(&request, scope)),
        Some(Kind::Release(request)) => (request.request_id, decode::release(&request, scope)),
        Some(Kind::Renew(request)) => (request.request_id, decode::renew(&request, scope)),
        Some(Kind::AcquireAll(request)) => {
            (request.request_id, decode::acquire_all(request, scope))
        }
        Some(Kind::Convert(request)) => (request.request_id, decode::convert(&request, scope)),
        Some(Kind::Proclaim(request)) => (request.request_id, decode::proclaim(request, scope)),
        Some(Kind::Transfer(request)) => (request.request_id, decode::transfer(&request, scope)),
        Some(Kind::Open(request)) => (request.request_id, Err(not_again())),
        Some(Kind::Resume(request)) => (request.request_id, Err(not_again())),
        None => {
            let words = "this node does not know the operation; upgrade it";
            (0, Err(refused(Reason::InvalidFrame, words)))
        }
    };
    (RequestId(request), tier.and_then(|tier| Ok(StreamOperation::Change(tier, command?))))
}

fn answerable(request: u64) -> Result<(), Failure> {
    match request {
        0 => Err(refused(Reason::InvalidRequestId, "a request id is above 0")),
        _ => Ok(()),
    }
}

fn tier_of(operation: &Operation) -> Result<Tier, Failure> {
    use operation::Kind;
    decode::tier(match &operation.kind {
        Some(Kind::Acquire(request)) => request.tier,
        Some(Kind::AcquireAll(request)) => request.tier,
        Some(Kind::Convert(request)) => request.tier,
        Some(Kind::Cancel(request)) => request.tier,
        Some(Kind::Release(request)) => request.tier,
        Some(Kind::Renew(request)) => request.tier,
        Some(Kind::Proclaim(request)) => request.tier,
        Some(Kind::Transfer(request)) => request.tier,
        Some(
            Kind::Open(_) | Kind::Resume(_) | Kind::KeepAlive(_) | Kind::Close(_) | Kind::Status(_),
        )
        | None => 0,
    })
}

fn not_again() -> Failure {
    refused(Reason::InvalidFrame, "the stream has its session; use another stream for another one")
}

/// A stream is known by the request id of its first operation, which rises from one stream to the next. So if two openings
/// overtake each other, the server knows the later one.
fn stream_id(request: u64) -> Result<StreamId, Failure> {
    if request == 0 {
        let words = "open and resume need a request id above 0, and higher than that of any stream \
                     that the session had before";
        return Err(refused(Reason::InvalidRequestId, words));
    }
    Ok(StreamId(request))
}

#[cfg(test)]
mod tests {
    use crate::v1::{AcquireRequest, OpenSessionRequest, ResumeSessionRequest, StatusRequest};

    use super::*;

    const SESSION: &str = "000102030405060708090a0b0c0d0e0f";

    fn frame(kinds: Vec<Option<operation::Kind>>) -> ClientFrame {
        let operations = kinds.into_iter().map(|kind| Operation { kind }).collect();
        ClientFrame { acked_through: 0, operations }
    }

    fn open(session_id: &str) -> operation::Kind {
        let session_id = session_id.to_owned();
        operation::Kind::Open(OpenSessionRequest {
            session_id,
            request_id: 1,
            ..Default::default()
        })
    }

    #[test]
    fn a_stream_begins_with_an_open_or_a_resume() {
        let opening = Opening::decode(&frame(vec![Some(open(SESSION))])).unwrap();
        assert!(!opening.resumed);
        let Command::OpenSession(command) = opening.command else { panic!("not an open") };
        assert_eq!(command.stream, Some(opening.stream));

        let resume = ResumeSessionRequest {
            session_id: SESSION.into(),
            request_id: 9,
            ..Default::default()
        };
        let opening = Opening::decode(&frame(vec![Some(operation::Kind::Resume(resume))])).unwrap();
        assert!(opening.resumed);
        assert_eq!(opening.request, RequestId(9));
        assert_eq!(opening.group, 1, "the root group if the client names none");
    }

    #[test]
    fn a_stream_is_for_the_group_of_its_first_operation() {
        let operation::Kind::Open(open) = open(SESSION) else { panic!("not an open") };
        let open = operation::Kind::Open(OpenSessionRequest { group: 7, ..open });
        assert_eq!(Opening::decode(&frame(vec![Some(open)])).unwrap().group, 7);
        let session_id = SESSION.to_owned();
        let resume = ResumeSessionRequest { session_id, request_id: 9, group: 64 };
        let resume = frame(vec![Some(operation::Kind::Resume(resume))]);
        assert_eq!(Opening::decode(&resume).unwrap().group, 64);
    }

    #[test]
    fn nothing_else_begins_a_stream() {
        let acquire = operation::Kind::Acquire(AcquireRequest::default());
        for kinds in [vec![], vec![None], vec![Some(acquire.clone()), Some(open(SESSION))]] {
            let failure = Opening::decode(&frame(kinds)).unwrap_err();
            assert_eq!(failure.reason(), Reason::InvalidFrame);
        }
        let failure = Opening::decode(&frame(vec![Some(open("secret"))])).unwrap_err();
        assert_eq!(failure.reason(), Reason::InvalidSessionId);
    }

    #[test]
    fn a_stream_is_opened_once_and_an_unknown_operation_is_refused() {
        let session = decode::session_id(SESSION).unwrap().0;
        let scope = Scope::Stream { session, acked_through: RequestId(0) };
        for kind in [Some(open(SESSION)), None] {
            let (_, command) = decode_message(Operation { kind }, scope);
            assert_eq!(command.unwrap_err().reason(), Reason::InvalidFrame);
        }
    }

    #[test]
    fn a_read_on_a_stream_needs_a_number_and_a_valid_name() {
        let session = decode::session_id(SESSION).unwrap().0;
        let scope = Scope::Stream { session, acked_through: RequestId(0) };
        let look = |name: &str, request_id| {
            let request = StatusRequest { name: name.to_owned(), request_id };
            decode_message(Operation { kind: Some(operation::Kind::Status(request)) }, scope)
        };
        let (request, asked) = look("wallet", 7);
        assert_eq!(request, RequestId(7));
        assert!(matches!(asked, Ok(StreamOperation::Status(name)) if name.as_str() == "wallet"));
        for (name, request, reason) in
            [("wallet", 0, Reason::InvalidRequestId), ("", 8, Reason::InvalidName)]
        {
            let (reported, asked) = look(name, request);
            assert_eq!((reported.0, asked.unwrap_err().reason()), (request, reason));
        }
    }
}
