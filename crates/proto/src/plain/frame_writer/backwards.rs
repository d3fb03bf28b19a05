//! Fields written from the last to the first: when the length of a message is due, the message is there already.

use prost::encoding::{WireType, encoded_len_varint};

/// Appends what is written to the buffer. It must not take more than the room.
#[inline]
pub(super) fn put_backwards(
    buffer: &mut Vec<u8>,
    room: usize,
    write: impl FnOnce(&mut Backwards<'_>),
) {
    let begin = buffer.len();
    buffer.resize(begin + room, 0);
    let mut backwards = Backwards { room: &mut buffer[begin..], unused: room };
    write(&mut backwards);
    let unused = backwards.unused;
    buffer.copy_within(begin + unused.., begin);
    buffer.truncate(buffer.len() - unused);
}

/// As in the generated encoding, a field that has its default value is left out, unless it is optional. All tags are below 16, so
/// a key is one byte.
pub(super) struct Backwards<'a> {
    room: &'a mut [u8],
    /// At its beginning.
    unused: usize,
}

impl Backwards<'_> {
    #[inline]
    pub(super) fn number(&mut self, tag: u8, number: u64) {
        if number != 0 {
            self.varint(number);
            self.key(tag, WireType::Varint);
        }
    }

    #[inline]
    pub(super) fn choice(&mut self, tag: u8, choice: i32) {
        // So it is on the wire, though none is negative.
        self.number(tag, i64::from(choice) as u64);
    }

    #[inline]
    pub(super) fn optional(&mut self, tag: u8, number: Option<u64>) {
        if let Some(number) = number {
            self.varint(number);
            self.key(tag, WireType::Varint);
        }
    }

    #[inline]
    pub(super) fn text(&mut self, tag: u8, text: &[u8]) {
        if !text.is_empty() {
            self.take(text.len()).copy_from_slice(text);
            self.varint(text.len() as u64);
            self.key(tag, WireType::LengthDelimited);
        }
    }

    /// Everything so far is one message, and is this field of another.
    #[inline]
    pub(super) fn enclose(&mut self, tag: u8) {
        self.varint((self.room.len() - self.unused) as u64);
        self.key(tag, WireType::LengthDelimited);
    }

    #[inline]
    fn key(&mut self, tag: u8, wire_type: WireType) {
        self.take(1)[0] = tag << 3 | wire_type as u8;
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        if let Some((last, others)) = self.take(encoded_len_varint(value)).split_last_mut() {
            for byte in others {
                *byte = value as u8 | 0x80;
                value >>= 7;
            }
            *last = value as u8;
        }
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.unused;
        self.unused -= bytes;
        &mut self.room[self.unused..end]
    }
}
