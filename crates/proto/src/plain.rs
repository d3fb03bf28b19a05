//! A session's stream on a connection of its own, without HTTP/2.
//!
//! The messages are those of the `Session` call; only what is around them is less. The dialler greets, the other greets back, and
//! then each sends pieces:
//!
//! ```text
//! GREETING, then for each piece: length u32 (little-endian, of what follows it), kind u8, message
//! ```
//!
//! | kind | up | down |
//! |---|---|---|
//! | [`FRAME`] | `ClientFrame` | `ServerFrame` |
//! | [`PING`] | nothing: does the other end answer? | |
//! | [`AUTH`] | a credential, as text; before the first frame | |
//! | [`END`] | | `Failure`: why the stream ends; nothing follows |
//!
//! A ping is answered by a frame that says nothing. A side that has no more to say ends its half of the connection.
//!
//! A node serves many clients, and makes few messages of what they say: it reads their frames as [`BorrowedFrame`] and writes its own
//! with a [`FrameWriter`]. A client makes messages of all that it hears, but quickly: [`read_server_frame`].

use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes, BytesMut};

mod borrowed_frame;
mod client_frame;
mod fields;
mod frame_writer;
mod server_frame;

pub use borrowed_frame::{BorrowedAcquire, BorrowedFrame, BorrowedOperation, BorrowedRelease};
pub use client_frame::EncodedClientFrame;
pub use frame_writer::{BorrowedGrant, FrameWriter};
pub use server_frame::read_server_frame;

/// No HTTP begins so, which is how a port tells the two apart by the first byte.
pub const GREETING: [u8; 4] = [0xf5, b'h', b's', b'1'];

pub const FRAME: u8 = 0;
pub const PING: u8 = 1;
pub const END: u8 = 2;
pub const AUTH: u8 = 3;

const LENGTH_BYTES: usize = 4;
/// Read from a socket in one go, if there is as much.
const READ_BYTES: usize = 8 * 1024;
/// What a buffer that was needed once for something large is cut down to.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// What the other side sent is not a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPiece {
    #[error("a piece of {bytes} bytes; one has at most {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    #[error("a piece of no kind")]
    Empty,
}

/// A piece that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub kind: u8,
    pub message: Bytes,
}

/// Cuts what is read from a connection into pieces.
#[derive(Debug)]
pub struct Pieces {
    bytes_max: usize,
    read: BytesMut,
}

impl Pieces {
    pub fn new(bytes_max: usize) -> Pieces {
        Pieces { bytes_max, read: BytesMut::new() }
    }

    /// Where more is to be read into.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.read.is_empty() && self.read.capacity() > KEPT_BYTES_MAX {
            self.read = BytesMut::new();
        }
        self.read.reserve(READ_BYTES);
        &mut self.read
    }

    /// None: more has to be read first.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, NotAPiece> {
        let Some(bytes) = self.announced() else { return Ok(None) };
        let bytes_max = self.bytes_max + 1;
        if bytes > bytes_max {
            return Err(NotAPiece::TooLarge { bytes, bytes_max });
        }
        if bytes == 0 {
            return Err(NotAPiece::Empty);
        }
        if self.read.len() < LENGTH_BYTES + bytes {
            return Ok(None);
        }
        self.read.advance(LENGTH_BYTES);
        let mut piece = self.read.split_to(bytes).freeze();
        let kind = piece.get_u8();
        Ok(Some(Piece { kind, message: piece }))
    }

    /// How long the next one says that it is, if its beginning has come.
    fn announced(&self) -> Option<usize> {
        self.read.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length) as usize)
    }

    /// Bytes that were read and are in no piece yet.
    pub fn held(&self) -> usize {
        self.read.len()
    }

    /// Nothing of a piece has come that is not whole.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty()
    }
}

/// Appends a piece to what is to be written. False if the message is larger than a piece may be, and then nothing is.
pub fn put(written: &mut Vec<u8>, kind: u8, message: &impl Message, bytes_max: usize) -> bool {
    put_bytes(written, kind, &message.encode_to_vec(), bytes_max)
}

/// The same with a message that is in bytes already.
pub fn put_bytes(written: &mut Vec<u8>, kind: u8, message: &[u8], bytes_max: usize) -> bool {
    let Ok(length) = u32::try_from(message.len() + 1) else { return false };
    if message.len() > bytes_max {
        return false;
    }
    written.put_u32_le(length);
    written.put_u8(kind);
    written.extend_from_slice(message);
    true
}

/// Empties a buffer that was written, and does not keep much of it.
pub fn reuse(written: &mut Vec<u8>) {
    written.clear();
    written.shrink_to(KEPT_BYTES_MAX);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1::{ClientFrame, Failure};

    const BYTES_MAX: usize = 100;

    fn frame(acked_through: u64) -> ClientFrame {
        ClientFrame { acked_through, operations: Vec::new() }
    }

    proptest! {
        #[test]
        fn pieces_are_the_same_however_they_are_cut_on_their_way(
            frames in proptest::collection::vec(any::<u64>(), 0..20),
            cuts in proptest::collection::vec(1_usize..30, 1..20),
        ) {
            let mut written = Vec::new();
            for acked_through in &frames {
                prop_assert!(put(&mut written, FRAME, &frame(*acked_through), BYTES_MAX));
            }
            let (mut pieces, mut seen) = (Pieces::new(BYTES_MAX), Vec::new());
            let mut cuts = cuts.iter().cycle();
            let mut rest = written.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                pieces.room().extend_from_slice(now);
                rest = later;
                while let Some(piece) = pieces.next_piece().unwrap() {
                    prop_assert_eq!(piece.kind, FRAME);
                    seen.push(ClientFrame::decode(piece.message).unwrap().acked_through);
                }
            }
            prop_assert!(pieces.is_empty());
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn whatever_comes_is_a_piece_or_a_mistake(bytes: Vec<u8>) {
            let mut pieces = Pieces::new(BYTES_MAX);
            pieces.room().extend_from_slice(&bytes);
            let mut left = bytes.len();
            while let Ok(Some(piece)) = pieces.next_piece() {
                left -= LENGTH_BYTES + 1 + piece.message.len();
            }
            prop_assert_eq!(left == 0, pieces.is_empty());
        }
    }

    #[test]
    fn an_oversized_piece_is_neither_written_nor_awaited() {
        let mut written = Vec::new();
        let long = Failure { message: "x".repeat(BYTES_MAX), ..Failure::default() };
        assert!(!put(&mut written, END, &long, BYTES_MAX));
        assert!(written.is_empty());
        let mut pieces = Pieces::new(BYTES_MAX);
        pieces.room().extend_from_slice(&(BYTES_MAX as u32 + 2).to_le_bytes());
        let (bytes, bytes_max) = (BYTES_MAX + 2, BYTES_MAX + 1);
        assert_eq!(pieces.next_piece(), Err(NotAPiece::TooLarge { bytes, bytes_max }));
        let mut pieces = Pieces::new(BYTES_MAX);
        pieces.room().extend_from_slice(&[0; 4]);
        assert_eq!(pieces.next_piece(), Err(NotAPiece::Empty));
    }
}
