//! A `ClientFrame` that is read where it lies.
//!
//! Nearly all operations are acquires and releases. Of those no message is made and no text is copied. Whatever is unusual (another
//! kind of operation, a field that is not known here, a number of more than nine bytes) is left to the generated decoding, and so
//! is everything that is wrong: it has the last word about what a frame is.

use prost::{DecodeError, Message};

use super::fields::{Fields, Value};
use crate::count::count_fields;
use crate::v1::operation::Kind;
use crate::v1::{AcquireRequest, ClientFrame, Operation, ReleaseRequest};

#[cfg(test)]
mod tests;

/// Field of `ClientFrame`.
const OPERATIONS: u32 = 2;

/// Of a release of a lock with a short name.
const OPERATION_BYTES_USUAL: usize = 32;
/// In a frame.
const OPERATIONS_USUAL_MAX: usize = 1_024;

/// A [`ClientFrame`] of bytes that the caller owns.
#[derive(Debug, Default, PartialEq)]
pub struct BorrowedFrame<'a> {
    pub acked_through: u64,
    pub operations: Vec<BorrowedOperation<'a>>,
}

#[derive(Debug, PartialEq)]
pub enum BorrowedOperation<'a> {
    Acquire(BorrowedAcquire<'a>),
    Release(BorrowedRelease<'a>),
    /// Of any kind.
    Message(Operation),
}

/// An [`AcquireRequest`] of texts that the caller owns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BorrowedAcquire<'a> {
    pub session_id: &'a str,
    pub request_id: u64,
    pub acked_through: u64,
    pub name: &'a str,
    pub mode: i32,
    pub wait_ms: u64,
    pub ttl_ms: Option<u64>,
    pub max_hold_ms: Option<u64>,
    pub actor: u64,
    pub metadata: &'a [u8],
    pub permits: u32,
    pub policy: i32,
    pub since_ms: Option<u64>,
    pub preemptible: bool,
    pub reentrant: bool,
    pub lock_delay_ms: Option<u64>,
    pub tier: i32,
    pub traceparent: &'a str,
}

/// A [`ReleaseRequest`] of texts that the caller owns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BorrowedRelease<'a> {
    pub session_id: &'a str,
    pub request_id: u64,
    pub acked_through: u64,
    pub name: &'a str,
    pub token: u64,
    pub acquire_request_id: u64,
    pub tier: i32,
}

impl<'a> BorrowedFrame<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<BorrowedFrame<'a>, DecodeError> {
        match BorrowedFrame::read(bytes) {
            Some(frame) => Ok(frame),
            None => ClientFrame::decode(bytes).map(BorrowedFrame::from),
        }
    }

    /// How many operations are in it, up to where it is no frame any more. Takes no memory, unlike what is made of them.
    pub fn count_operations(bytes: &[u8]) -> usize {
        count_fields(bytes, |field| field == OPERATIONS)
    }

    fn read(bytes: &'a [u8]) -> Option<BorrowedFrame<'a>> {
        let expected = (bytes.len() / OPERATION_BYTES_USUAL).min(OPERATIONS_USUAL_MAX);
        let mut frame =
            BorrowedFrame { acked_through: 0, operations: Vec::with_capacity(expected) };
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Number(acked_through)) => frame.acked_through = acked_through,
                (2, Value::Bytes(operation)) => {
                    frame.operations.push(BorrowedOperation::read(operation)?);
                }
                _ => return None,
            }
        }
        Some(frame)
    }
}

impl From<ClientFrame> for BorrowedFrame<'_> {
    fn from(ClientFrame { acked_through, operations }: ClientFrame) -> Self {
        let operations = operations.into_iter().map(BorrowedOperation::Message).collect();
        BorrowedFrame { acked_through, operations }
    }
}

impl<'a> BorrowedOperation<'a> {
    fn read(bytes: &'a [u8]) -> Option<BorrowedOperation<'a>> {
        let mut fields = Fields::of(bytes);
        let first = fields.next()?;
        let usual = match first {
            // What is said of a request in two pieces is put together elsewhere.
            _ if !fields.is_at_end() => None,
            Some((5, Value::Bytes(acquire))) => {
                BorrowedAcquire::read(acquire).map(BorrowedOperation::Acquire)
            }
            Some((7, Value::Bytes(release))) => {
                BorrowedRelease::read(release).map(BorrowedOperation::Release)
            }
            _ => None,
        };
        usual.or_else(|| Operation::decode(bytes).ok().map(BorrowedOperation::Message))
    }

    /// Of which span it is part; empty: none.
    pub fn traceparent(&self) -> &str {
        match self {
            BorrowedOperation::Acquire(request) => request.traceparent,
            BorrowedOperation::Release(_) => "",
            BorrowedOperation::Message(operation) => match &operation.kind {
                Some(Kind::Acquire(request)) => &request.traceparent,
                Some(Kind::AcquireAll(request)) => &request.traceparent,
                _ => "",
            },
        }
    }
}

impl<'a> BorrowedAcquire<'a> {
    fn read(bytes: &'a [u8]) -> Option<BorrowedAcquire<'a>> {
        let mut request = BorrowedAcquire::default();
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, value) => request.session_id = value.text()?,
                (2, value) => request.request_id = value.number()?,
                (3, value) => request.acked_through = value.number()?,
                (4, value) => request.name = value.text()?,
                (5, value) => request.mode = value.number()? as i32,
                (6, value) => request.wait_ms = value.number()?,
                (7, value) => request.ttl_ms = Some(value.number()?),
                (8, value) => request.max_hold_ms = Some(value.number()?),
                (9, value) => request.actor = value.number()?,
                (10, value) => request.metadata = value.bytes()?,
                (11, value) => request.permits = value.number()? as u32,
                (12, value) => request.policy = value.number()? as i32,
                (13, value) => request.since_ms = Some(value.number()?),
                (14, value) => request.preemptible = value.number()? != 0,
                (15, value) => request.reentrant = value.number()? != 0,
                (16, value) => request.lock_delay_ms = Some(value.number()?),
                (17, value) => request.tier = value.number()? as i32,
                (18, value) => request.traceparent = value.text()?,
                _ => return None,
            }
        }
        Some(request)
    }
}

impl<'a> From<&'a AcquireRequest> for BorrowedAcquire<'a> {
    fn from(request: &'a AcquireRequest) -> BorrowedAcquire<'a> {
        BorrowedAcquire {
            session_id: &request.session_id,
            request_id: request.request_id,
            acked_through: request.acked_through,
            name: &request.name,
            mode: request.mode,
            wait_ms: request.wait_ms,
            ttl_ms: request.ttl_ms,
            max_hold_ms: request.max_hold_ms,
            actor: request.actor,
            metadata: &request.metadata,
            permits: request.permits,
            policy: request.policy,
            since_ms: request.since_ms,
            preemptible: request.preemptible,
            reentrant: request.reentrant,
            lock_delay_ms: request.lock_delay_ms,
            tier: request.tier,
            traceparent: &request.traceparent,
        }
    }
}

impl<'a> BorrowedRelease<'a> {
    fn read(bytes: &'a [u8]) -> Option<BorrowedRelease<'a>> {
        let mut request = BorrowedRelease::default();
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, value) => request.session_id = value.text()?,
                (2, value) => request.request_id = value.number()?,
                (3, value) => request.acked_through = value.number()?,
                (4, value) => request.name = value.text()?,
                (5, value) => request.token = value.number()?,
                (6, value) => request.acquire_request_id = value.number()?,
                (7, value) => request.tier = value.number()? as i32,
                _ => return None,
            }
        }
        Some(request)
    }
}

impl<'a> From<&'a ReleaseRequest> for BorrowedRelease<'a> {
    fn from(request: &'a ReleaseRequest) -> BorrowedRelease<'a> {
        BorrowedRelease {
            session_id: &request.session_id,
            request_id: request.request_id,
            acked_through: request.acked_through,
            name: &request.name,
            token: request.token,
            acquire_request_id: request.acquire_request_id,
            tier: request.tier,
        }
    }
}
