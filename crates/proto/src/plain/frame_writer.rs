//! A `ServerFrame` that is written while it is made.
//!
//! A leader answers some hundred thousand requests a second, nearly all of them with a grant or a release. Those two are
//! written straight into the piece, and everything else through its message. The bytes are those of the message either way.

use std::fmt;

use prost::encoding;

use self::backwards::put_backwards;
use super::{FRAME, LENGTH_BYTES, reuse};
use crate::Fence;
use crate::v1::{Answer, Grant, Guarantee, Mode, Notice, ReleaseResponse};

mod backwards;
#[cfg(test)]
mod tests;

/// Fields of `ServerFrame`.
const ANSWERS: u8 = 1;
const NOTICES: u8 = 2;

/// More than anything takes that is written straight, but for its name: each number ten bytes and its key, each message six, the
/// fence its text.
const BYTES_BESIDES_NAME: usize = 192;

/// A [`Grant`] that borrows its texts.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedGrant<'a> {
    pub name: &'a str,
    pub token: u64,
    pub fence: Option<Fence>,
    pub guarantee: Guarantee,
    pub deadline_ms: Option<u64>,
    pub session_deadline_ms: u64,
    pub mode: Mode,
    pub acquire_request_id: u64,
}

impl From<BorrowedGrant<'_>> for Grant {
    fn from(grant: BorrowedGrant<'_>) -> Grant {
        Grant {
            name: grant.name.to_owned(),
            token: grant.token,
            fence: grant.fence.map(|fence| fence.to_string()).unwrap_or_default(),
            guarantee: grant.guarantee.into(),
            deadline_ms: grant.deadline_ms,
            session_deadline_ms: grant.session_deadline_ms,
            mode: grant.mode.into(),
            acquire_request_id: grant.acquire_request_id,
        }
    }
}

/// One frame after the other, in the same memory.
pub struct FrameWriter {
    /// With what is before the message, then its answers.
    piece: Vec<u8>,
    /// They come after the answers.
    notices: Vec<u8>,
}

impl Default for FrameWriter {
    fn default() -> FrameWriter {
        let mut writer = FrameWriter { piece: Vec::new(), notices: Vec::new() };
        writer.begin();
        writer
    }
}

impl FrameWriter {
    fn begin(&mut self) {
        self.piece.extend_from_slice(&[0; LENGTH_BYTES]);
        self.piece.push(FRAME);
    }

    pub fn granted(&mut self, request_id: u64, logical_time_ms: u64, grant: &BorrowedGrant<'_>) {
        let room = BYTES_BESIDES_NAME + grant.name.len();
        put_backwards(&mut self.piece, room, |before| {
            before.number(8, grant.acquire_request_id);
            before.choice(7, grant.mode.into());
            before.number(6, grant.session_deadline_ms);
            before.optional(5, grant.deadline_ms);
            before.choice(4, grant.guarantee.into());
            if let Some(fence) = grant.fence {
                before.text(3, fence.text().as_bytes());
            }
            before.number(2, grant.token);
            before.text(1, grant.name.as_bytes());
            before.enclose(2);
            // In `AcquireResponse`.
            before.number(1, logical_time_ms);
            before.enclose(5);
            // In `Answer`.
            before.number(1, request_id);
            before.enclose(ANSWERS);
        });
    }

    pub fn released(&mut self, request_id: u64, response: &ReleaseResponse) {
        put_backwards(&mut self.piece, BYTES_BESIDES_NAME, |before| {
            before.number(3, response.remaining.into());
            before.choice(2, response.outcome);
            before.number(1, response.logical_time_ms);
            before.enclose(7);
            // In `Answer`.
            before.number(1, request_id);
            before.enclose(ANSWERS);
        });
    }

    pub fn answer(&mut self, answer: &Answer) {
        encoding::message::encode(ANSWERS.into(), answer, &mut self.piece);
    }

    pub fn notice(&mut self, notice: &Notice) {
        encoding::message::encode(NOTICES.into(), notice, &mut self.notices);
    }

    /// The whole piece. None if its message is larger than one may be.
    pub fn finish(&mut self, bytes_max: usize) -> Option<&[u8]> {
        self.piece.append(&mut self.notices);
        let after_length = self.piece.len() - LENGTH_BYTES;
        let length = u32::try_from(after_length).ok().filter(|_| after_length <= bytes_max + 1)?;
        self.piece[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        Some(&self.piece)
    }

    /// For the next frame.
    pub fn clear(&mut self) {
        reuse(&mut self.piece);
        reuse(&mut self.notices);
        self.begin();
    }
}

impl fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWriter").field("bytes", &self.piece.len()).finish_non_exhaustive()
    }
}
