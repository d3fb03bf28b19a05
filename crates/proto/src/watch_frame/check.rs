//! Can an event be decoded? Looks at it once and keeps nothing.

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

use crate::v1::CycleLink;

/// Whatever passes, `WatchEvent::decode` takes; and all that a node sends passes.
pub(super) fn is_event(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        if event_field(&mut rest).is_none() {
            return false;
        }
    }
    true
}

fn event_field(rest: &mut &[u8]) -> Option<()> {
    let (tag, wire_type) = decode_key(rest).ok()?;
    match tag {
        1 => {
            let mut position = delimited(wire_type, rest)?;
            while !position.is_empty() {
                position_field(&mut position)?;
            }
            Some(())
        }
        2..=4 | 7..=11 | 15 => number(wire_type, rest),
        5 | 6 | 13 | 14 => std::str::from_utf8(delimited(wire_type, rest)?).ok().map(drop),
        12 => delimited(wire_type, rest).map(drop),
        16 => CycleLink::decode(delimited(wire_type, rest)?).ok().map(drop),
        _ => unknown(wire_type, rest),
    }
}

fn position_field(rest: &mut &[u8]) -> Option<()> {
    match decode_key(rest).ok()? {
        (1..=3, wire_type) => number(wire_type, rest),
        (_, wire_type) => unknown(wire_type, rest),
    }
}

fn number(wire_type: WireType, rest: &mut &[u8]) -> Option<()> {
    decode_varint(rest).ok().filter(|_| wire_type == WireType::Varint).map(drop)
}

fn delimited<'a>(wire_type: WireType, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = decode_varint(rest).ok().filter(|_| wire_type == WireType::LengthDelimited)?;
    skip(usize::try_from(length).ok()?, rest)
}

/// Of a later version. No sender uses groups.
fn unknown(wire_type: WireType, rest: &mut &[u8]) -> Option<()> {
    match wire_type {
        WireType::Varint => number(wire_type, rest),
        WireType::LengthDelimited => delimited(wire_type, rest).map(drop),
        WireType::SixtyFourBit => skip(8, rest).map(drop),
        WireType::ThirtyTwoBit => skip(4, rest).map(drop),
        WireType::StartGroup | WireType::EndGroup => None,
    }
}

fn skip<'a>(length: usize, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (skipped, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(skipped)
}
