//! A `ServerFrame` that is read in one go.
//!
//! Nearly all that a client hears are grants and releases, each four messages deep; the generated decoding takes its time on each level. Whatever
//! is unusual or wrong is left to that, as with a [`BorrowedFrame`](super::BorrowedFrame).

use prost::{DecodeError, Message};

use super::fields::{Fields, Value};
use crate::v1::acquire_response::Outcome;
use crate::v1::answer::Result as AnswerResult;
use crate::v1::{AcquireResponse, Answer, Grant, Notice, ReleaseResponse, ServerFrame};

#[cfg(test)]
mod tests;

/// Of a release.
const ANSWER_BYTES_USUAL: usize = 16;
/// In a frame.
const ANSWERS_USUAL_MAX: usize = 256;

/// The same as `ServerFrame::decode`, but for one thing: unknown fields may be nested one level deeper.
pub fn read_server_frame(bytes: &[u8]) -> Result<ServerFrame, DecodeError> {
    match frame(bytes) {
        Some(frame) => Ok(frame),
        None => ServerFrame::decode(bytes),
    }
}

fn frame(bytes: &[u8]) -> Option<ServerFrame> {
    let expected = (bytes.len() / ANSWER_BYTES_USUAL).min(ANSWERS_USUAL_MAX);
    let mut frame = ServerFrame { answers: Vec::with_capacity(expected), notices: Vec::new() };
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(bytes)) => {
                frame.answers.push(answer(bytes).or_else(|| Answer::decode(bytes).ok())?);
            }
            (2, Value::Bytes(bytes)) => frame.notices.push(Notice::decode(bytes).ok()?),
            _ => return None,
        }
    }
    Some(frame)
}

fn answer(bytes: &[u8]) -> Option<Answer> {
    let mut answer = Answer::default();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, value) => answer.request_id = value.number()?,
            // What is said in two pieces is put together elsewhere.
            _ if answer.result.is_some() => return None,
            (5, value) => answer.result = Some(AnswerResult::Acquire(acquired(value.bytes()?)?)),
            (7, value) => answer.result = Some(AnswerResult::Release(released(value.bytes()?)?)),
            _ => return None,
        }
    }
    Some(answer)
}

fn acquired(bytes: &[u8]) -> Option<AcquireResponse> {
    let mut response = AcquireResponse::default();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, value) => response.logical_time_ms = value.number()?,
            (2, value) if response.outcome.is_none() => {
                response.outcome = Some(Outcome::Granted(grant(value.bytes()?)?));
            }
            _ => return None,
        }
    }
    Some(response)
}

fn grant(bytes: &[u8]) -> Option<Grant> {
    let mut grant = Grant::default();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, value) => value.text()?.clone_into(&mut grant.name),
            (2, value) => grant.token = value.number()?,
            (3, value) => value.text()?.clone_into(&mut grant.fence),
            (4, value) => grant.guarantee = value.number()? as i32,
            (5, value) => grant.deadline_ms = Some(value.number()?),
            (6, value) => grant.session_deadline_ms = value.number()?,
            (7, value) => grant.mode = value.number()? as i32,
            (8, value) => grant.acquire_request_id = value.number()?,
            _ => return None,
        }
    }
    Some(grant)
}

fn released(bytes: &[u8]) -> Option<ReleaseResponse> {
    let mut response = ReleaseResponse::default();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, value) => response.logical_time_ms = value.number()?,
            (2, value) => response.outcome = value.number()? as i32,
            (3, value) => response.remaining = value.number()? as u32,
            _ => return None,
        }
    }
    Some(response)
}
