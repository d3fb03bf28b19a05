//! `WatchFrame`, written by hand instead of generated: its events stay as they are on the wire.
//!
//! A cluster at work has some hundred thousand events a second. A node that serves a watch writes each once,
//! straight into the frame; one that passes a watch on copies bytes; and who receives a frame makes messages
//! only of the events that it wants to see. On the wire it is the message of `watch.proto`.
//!
//! Invariant: [`WatchEvents`] holds nothing but events that can be decoded; a frame with others is refused as a whole.

use std::fmt;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType, check_wire_type, decode_varint};
use prost::{DecodeError, Message};

use crate::v1::{EventPosition, LockSummary, WatchEvent};

mod borrowed;
mod check;
#[cfg(test)]
mod tests;

pub use borrowed::BorrowedEvent;

const LOCKS: u32 = 1;
const SNAPSHOT_COMPLETE: u32 = 2;
const EVENTS: u32 = 3;
const POSITION: u32 = 4;

/// A page of the snapshot, the end of the snapshot, or events; see `watch.proto`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchFrame {
    pub locks: Vec<LockSummary>,
    pub snapshot_complete: bool,
    pub events: WatchEvents,
    pub position: Option<EventPosition>,
}

/// Events in order, encoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WatchEvents {
    /// Each with its tag and its length before it, as in the frame.
    encoded: Vec<u8>,
    count: usize,
}

impl WatchEvents {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn push(&mut self, event: &WatchEvent) {
        encoding::message::encode(EVENTS, event, &mut self.encoded);
        self.count += 1;
    }

    /// The same as [`WatchEvents::push`] of the message that this describes, without making it.
    pub fn push_borrowed<'a>(
        &mut self,
        event: &BorrowedEvent<'_>,
        names: impl Iterator<Item = &'a str>,
    ) {
        event.encode(EVENTS, names, &mut self.encoded);
        self.count += 1;
    }

    /// Decoded one by one.
    pub fn iter(&self) -> impl Iterator<Item = WatchEvent> {
        self.latest(usize::MAX)
    }

    /// The last so many; what was before them is not decoded.
    pub fn latest(&self, max: usize) -> impl Iterator<Item = WatchEvent> {
        let before = self.count.saturating_sub(max);
        // What is kept was checked.
        self.encoded().skip(before).map(|event| WatchEvent::decode(event).unwrap_or_default())
    }

    /// The bytes of each.
    fn encoded(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.encoded[..];
        std::iter::from_fn(move || {
            encoding::decode_key(&mut rest).ok()?;
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (event, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(event)
        })
    }

    fn merge(&mut self, buf: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError> {
        let length = usize::try_from(decode_varint(buf)?).unwrap_or(usize::MAX);
        if length > buf.remaining() {
            // There is no other way to an error that says so.
            return encoding::skip_field(WireType::SixtyFourBit, EVENTS, &mut &[][..], context);
        }
        let before = self.encoded.len();
        encoding::encode_key(EVENTS, WireType::LengthDelimited, &mut self.encoded);
        encoding::encode_varint(length as u64, &mut self.encoded);
        let start = self.encoded.len();
        self.encoded.put(buf.take(length));
        let event = &self.encoded[start..];
        if !check::is_event(event)
            && let Err(error) = WatchEvent::decode(event)
        {
            self.encoded.truncate(before);
            return Err(error);
        }
        self.count += 1;
        Ok(())
    }
}

impl Message for WatchFrame {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        encoding::message::encode_repeated(LOCKS, &self.locks, buf);
        if self.snapshot_complete {
            encoding::bool::encode(SNAPSHOT_COMPLETE, &self.snapshot_complete, buf);
        }
        buf.put_slice(&self.events.encoded);
        if let Some(position) = &self.position {
            encoding::message::encode(POSITION, position, buf);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            LOCKS => encoding::message::merge_repeated(wire_type, &mut self.locks, buf, context),
            SNAPSHOT_COMPLETE => {
                encoding::bool::merge(wire_type, &mut self.snapshot_complete, buf, context)
            }
            EVENTS => {
                check_wire_type(WireType::LengthDelimited, wire_type)?;
                self.events.merge(buf, context)
            }
            POSITION => {
                let position = self.position.get_or_insert_default();
                encoding::message::merge(wire_type, position, buf, context)
            }
            _ => encoding::skip_field(wire_type, tag, buf, context),
        }
    }

    fn encoded_len(&self) -> usize {
        let position = self.position.as_ref();
        encoding::message::encoded_len_repeated(LOCKS, &self.locks)
            + if self.snapshot_complete {
                encoding::bool::encoded_len(SNAPSHOT_COMPLETE, &true)
            } else {
                0
            }
            + self.events.encoded.len()
            + position.map_or(0, |position| encoding::message::encoded_len(POSITION, position))
    }

    fn clear(&mut self) {
        *self = WatchFrame::default();
    }
}

impl fmt::Debug for WatchEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl FromIterator<WatchEvent> for WatchEvents {
    fn from_iter<I: IntoIterator<Item = WatchEvent>>(events: I) -> WatchEvents {
        let mut encoded = WatchEvents::default();
        events.into_iter().for_each(|event| encoded.push(&event));
        encoded
    }
}

impl From<Vec<WatchEvent>> for WatchEvents {
    fn from(events: Vec<WatchEvent>) -> WatchEvents {
        events.into_iter().collect()
    }
}

impl IntoIterator for WatchEvents {
    type Item = WatchEvent;
    type IntoIter = std::vec::IntoIter<WatchEvent>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter().collect::<Vec<_>>().into_iter()
    }
}
