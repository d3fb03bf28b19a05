//! A hold in a snapshot.

use alloc::boxed::Box;

use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::command::Mode;
use crate::model::id::{ActorId, FenceToken, RequestId, SessionId};
use crate::model::time::{LogicalTime, Span};
use crate::state::hold::{Bounds, Extras, Hold, Holder};

pub(super) fn write(hold: &Hold, sink: &mut impl Sink) {
    let bounds = hold.bounds();
    hold.session.encode(sink);
    sink.varint(hold.request.0);
    sink.varint(hold.actor.0);
    hold.mode.encode(sink);
    sink.varint(hold.token.0);
    sink.varint(hold.granted_at.as_ms());
    sink.optional(bounds.ttl.map(Span::as_ms));
    sink.optional(bounds.deadline.map(LogicalTime::as_ms));
    sink.optional(bounds.max_hold_end.map(LogicalTime::as_ms));
    sink.u8(u8::from(bounds.graced));
    sink.optional(hold.lock_delay().map(Span::as_ms));
    sink.optional(hold.since().map(LogicalTime::as_ms));
    sink.u8(u8::from(hold.is_preemptible()));
    sink.varint(u64::from(hold.reentries()));
    sink.optional(hold.converted_by().map(|request| request.0));
    sink.bytes(hold.metadata());
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Hold, DecodeError> {
    let holder = read_holder(reader)?;
    let mode = Mode::decode(reader)?;
    let token = FenceToken(reader.varint()?);
    let granted_at = LogicalTime::from_ms(reader.varint()?);
    let extras = Extras {
        bounds: read_bounds(reader)?,
        lock_delay: reader.optional()?.map(Span::from_ms),
        since: reader.optional()?.map(LogicalTime::from_ms),
        preemptible: reader.bool("hold")?,
        reentries: reader.u32()?,
        converted_by: reader.optional()?.map(RequestId),
        metadata: Box::from(reader.bytes()?),
    };
    Ok(Hold::with_extras(holder, mode, token, granted_at, extras))
}

/// As version 1 wrote it.
pub(super) fn read_version_1(reader: &mut Reader<'_>) -> Result<Hold, DecodeError> {
    let holder = read_holder(reader)?;
    let mode = Mode::decode(reader)?;
    let token = FenceToken(reader.varint()?);
    let granted_at = LogicalTime::from_ms(reader.varint()?);
    let bounds = read_bounds(reader)?;
    let metadata = Box::from(reader.bytes()?);
    let extras = Extras { bounds, metadata, ..Extras::default() };
    Ok(Hold::with_extras(holder, mode, token, granted_at, extras))
}

fn read_holder(reader: &mut Reader<'_>) -> Result<Holder, DecodeError> {
    Ok(Holder {
        session: SessionId::decode(reader)?,
        request: RequestId(reader.varint()?),
        actor: ActorId(reader.varint()?),
    })
}

fn read_bounds(reader: &mut Reader<'_>) -> Result<Bounds, DecodeError> {
    Ok(Bounds {
        ttl: reader.optional()?.map(Span::from_ms),
        deadline: reader.optional()?.map(LogicalTime::from_ms),
        max_hold_end: reader.optional()?.map(LogicalTime::from_ms),
        graced: reader.bool("hold")?,
    })
}
