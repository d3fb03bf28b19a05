//! An event that is encoded without a message of its own.

use prost::Message;
use prost::encoding::message::encode_repeated;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::v1::{CycleLink, EndReason, EventKind, EventPosition, Mode};

/// A [`WatchEvent`](crate::v1::WatchEvent) but for its names, which it borrows.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedEvent<'a> {
    pub position: EventPosition,
    pub logical_time_ms: u64,
    pub unix_ms: u64,
    pub kind: EventKind,
    pub public_session_id: &'a str,
    pub request_id: u64,
    pub actor: u64,
    pub mode: Mode,
    pub token: u64,
    pub reason: EndReason,
    pub metadata: &'a [u8],
    pub by: &'a str,
    pub detail: &'a str,
    pub held_for_ms: Option<u64>,
    pub cycle: &'a [CycleLink],
}

impl BorrowedEvent<'_> {
    pub(super) fn encode<'a>(
        &self,
        tag: u32,
        names: impl Iterator<Item = &'a str>,
        buf: &mut Vec<u8>,
    ) {
        encode_key(tag, WireType::LengthDelimited, buf);
        // The length is known afterwards, and has one byte nearly always.
        let length_at = buf.len();
        buf.push(0);
        let start = buf.len();
        self.encode_fields(names, buf);
        let length = buf.len() - start;
        let more = encoded_len_varint(length as u64) - 1;
        if more > 0 {
            buf.resize(buf.len() + more, 0);
            buf.copy_within(start..start + length, start + more);
        }
        encode_varint(length as u64, &mut &mut buf[length_at..=length_at + more]);
    }

    fn encode_fields<'a>(&self, names: impl Iterator<Item = &'a str>, buf: &mut Vec<u8>) {
        let mut few = Few::default();
        few.put_key(1, WireType::LengthDelimited);
        few.put_varint(self.position.encoded_len() as u64);
        few.put_number(1, self.position.group.into());
        few.put_number(2, self.position.index);
        few.put_number(3, self.position.number.into());
        few.put_number(2, self.logical_time_ms);
        few.put_number(3, self.unix_ms);
        few.put_choice(4, self.kind.into());
        for name in names {
            few.put_text(5, name.as_bytes(), buf);
        }
        few.put_text_if_any(6, self.public_session_id.as_bytes(), buf);
        few.put_number(7, self.request_id);
        few.put_number(8, self.actor);
        few.put_choice(9, self.mode.into());
        few.put_number(10, self.token);
        few.put_choice(11, self.reason.into());
        few.put_text_if_any(12, self.metadata, buf);
        few.put_text_if_any(13, self.by.as_bytes(), buf);
        few.put_text_if_any(14, self.detail.as_bytes(), buf);
        if let Some(held_for_ms) = self.held_for_ms {
            few.put_key(15, WireType::Varint);
            few.put_varint(held_for_ms);
        }
        few.flush(buf);
        encode_repeated(16, self.cycle, buf);
    }
}

/// More than all numbers between two texts take.
const FEW_BYTES: usize = 128;

/// Bytes that go to the buffer together: to put each there by itself costs more than to encode it.
struct Few {
    bytes: [u8; FEW_BYTES],
    used: usize,
}

impl Default for Few {
    fn default() -> Few {
        Few { bytes: [0; FEW_BYTES], used: 0 }
    }
}

impl Few {
    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.bytes[self.used] = byte;
        self.used += 1;
    }

    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_byte((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.put_byte(value as u8);
    }

    /// All tags here are below 16, so a key is one byte.
    #[inline]
    fn put_key(&mut self, tag: u8, wire_type: WireType) {
        self.put_byte(tag << 3 | wire_type as u8);
    }

    #[inline]
    fn put_number(&mut self, tag: u8, number: u64) {
        if number != 0 {
            self.put_key(tag, WireType::Varint);
            self.put_varint(number);
        }
    }

    #[inline]
    fn put_choice(&mut self, tag: u8, choice: i32) {
        self.put_number(tag, u64::try_from(choice).unwrap_or(0));
    }

    #[inline]
    fn put_text(&mut self, tag: u8, text: &[u8], buf: &mut Vec<u8>) {
        self.put_key(tag, WireType::LengthDelimited);
        self.put_varint(text.len() as u64);
        self.flush(buf);
        buf.extend_from_slice(text);
    }

    #[inline]
    fn put_text_if_any(&mut self, tag: u8, text: &[u8], buf: &mut Vec<u8>) {
        if !text.is_empty() {
            self.put_text(tag, text, buf);
        }
    }

    #[inline]
    fn flush(&mut self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.bytes[..self.used]);
        self.used = 0;
    }
}
