//! A session in a snapshot, without what it holds and waits for.

use alloc::string::String;

use super::answer;
use crate::model::access::identity::Identity;
use crate::model::codec::{DecodeError, Reader, Sink, in_order};
use crate::model::command::{OpenSession, Owner};
use crate::model::event::EndReason;
use crate::model::id::{FenceToken, PublicSessionId, RequestId, SessionId, StreamId};
use crate::model::slot::MapEpoch;
use crate::model::slot_move::{Departures, MoveId};
use crate::model::time::{LogicalTime, Span};
use crate::state::answers::Answers;
use crate::state::session::{Departed, Session};

/// Added to whether the session is connected: a list of its shared holds that ended follows.
const LOST_SHARED: u8 = 2;
/// Added as well: its identity follows that.
const HAS_IDENTITY: u8 = 4;
/// Added as well: it has ended, and the reason follows that.
const IS_ENDING: u8 = 8;
/// Added as well: the move by which it came follows that.
const IS_GUEST: u8 = 16;
/// Added as well: what has left of it follows that.
const HAS_DEPARTED: u8 = 32;
const FLAGS_MAX: u8 = 63;

/// Why sessions end, by the codes of the reasons.
const REASONS: [EndReason; 4] =
    [EndReason::Ttl, EndReason::Closed, EndReason::Disconnected, EndReason::Killed];

fn code_of(reason: EndReason) -> u8 {
    match reason {
        EndReason::Closed => 1,
        EndReason::Disconnected => 2,
        EndReason::Killed => 3,
        EndReason::Ttl
        | EndReason::MaxHold
        | EndReason::SessionExpired
        | EndReason::Broken
        | EndReason::Wounded
        | EndReason::Transferred
        | EndReason::Moved => 0,
    }
}

pub(super) fn write(session: &Session, sink: &mut impl Sink) {
    session.public.encode(sink);
    sink.varint(session.stream.0);
    sink.varint(session.ttl.as_ms());
    sink.varint(session.linger.as_ms());
    session.owner.encode(sink);
    sink.varint(session.opened_at.as_ms());
    sink.varint(session.below_own_tokens);
    sink.varint(session.deadline.as_ms());
    let lost_shared = !session.shared_losses().is_empty();
    let mut flags = u8::from(session.connected);
    flags |= if lost_shared { LOST_SHARED } else { 0 };
    flags |= if session.identity.is_some() { HAS_IDENTITY } else { 0 };
    flags |= if session.ending.is_some() { IS_ENDING } else { 0 };
    flags |= if session.guest_of.is_some() { IS_GUEST } else { 0 };
    flags |= if session.departed().is_some() { HAS_DEPARTED } else { 0 };
    sink.u8(flags);
    sink.u8(u8::from(session.graced));
    sink.u8(u8::from(session.lingering));
    sink.count(session.losses().len());
    for token in session.losses() {
        sink.varint(token.0);
    }
    if lost_shared {
        sink.count(session.shared_losses().len());
        for (token, acquire) in session.shared_losses() {
            sink.varint(token.0);
            sink.varint(acquire.0);
        }
    }
    if let Some(identity) = &session.identity {
        identity.write(sink);
    }
    if let Some(reason) = session.ending {
        sink.u8(code_of(reason));
    }
    if let Some(id) = session.guest_of {
        id.write(sink);
    }
    if let Some(Departed { departures, through }) = session.departed() {
        sink.varint(departures.epoch.0);
        sink.varint(departures.count);
        sink.varint(through.0);
    }
    sink.varint(session.answers.acked_through().0);
    sink.count(session.answers.len());
    for (request, answer) in session.answers.iter() {
        sink.varint(request.0);
        answer::write(answer, sink);
    }
}

pub(super) fn read(reader: &mut Reader<'_>, version: u8) -> Result<Session, DecodeError> {
    let open = OpenSession {
        session: SessionId(0),
        public: PublicSessionId::decode(reader)?,
        stream: Some(StreamId(reader.varint()?)),
        ttl: Span::from_ms(reader.varint()?),
        linger: Span::from_ms(reader.varint()?),
        owner: Owner::decode(reader)?,
        identity: None,
    };
    let opened_at = LogicalTime::from_ms(reader.varint()?);
    let below_own_tokens = reader.varint()?;
    let mut session = Session::new(open, opened_at, below_own_tokens);
    session.deadline = LogicalTime::from_ms(reader.varint()?);
    let flags = reader.u8()?;
    if flags > 1 && version < 4 || flags > FLAGS_MAX {
        return Err(DecodeError::UnknownTag { what: "session", tag: flags });
    }
    session.connected = flags & 1 == 1;
    let lost_shared = flags & LOST_SHARED != 0;
    session.graced = reader.bool("session")?;
    session.lingering = reader.bool("session")?;
    for _ in 0..reader.count()? {
        let token = FenceToken(reader.varint()?);
        in_order(session.losses().last().copied(), token, "losses")?;
        session.remember_loss(token, usize::MAX);
    }
    if lost_shared {
        let mut last = None;
        for _ in 0..reader.count()? {
            let loss = (FenceToken(reader.varint()?), RequestId(reader.varint()?));
            in_order(last.replace(loss), loss, "losses of shared holds")?;
            session.remember_shared_loss(loss.0, loss.1, usize::MAX);
        }
        if session.shared_losses().is_empty() {
            let what = String::from("a list of losses is empty");
            return Err(DecodeError::Inconsistent(what));
        }
    }
    if flags & HAS_IDENTITY != 0 {
        session.identity = Some(Identity::read(reader)?);
    }
    if flags & IS_ENDING != 0 {
        let tag = reader.u8()?;
        let reason = REASONS.get(usize::from(tag));
        let unknown = DecodeError::UnknownTag { what: "reason of a session's end", tag };
        session.ending = Some(*reason.ok_or(unknown)?);
    }
    if flags & IS_GUEST != 0 {
        session.guest_of = Some(MoveId::read(reader)?);
    }
    if flags & HAS_DEPARTED != 0 {
        let epoch = MapEpoch(reader.varint()?);
        let departures = Departures { epoch, count: reader.varint()? };
        session.restore_departed(Departed { departures, through: RequestId(reader.varint()?) });
    }
    session.answers = Answers::restored(RequestId(reader.varint()?));
    let mut last = None;
    for _ in 0..reader.count()? {
        let request = RequestId(reader.varint()?);
        in_order(last.replace(request), request, "answers")?;
        let (question, reply) = answer::read(reader)?;
        if reply.is_of_departure() && session.departed().is_none() {
            let what = String::from("a request has left its session, and nothing of the session");
            return Err(DecodeError::Inconsistent(what));
        }
        session.answers.keep(request, question, reply);
        if session.answers.get(request).is_none() {
            let what = String::from("an acknowledged answer is kept");
            return Err(DecodeError::Inconsistent(what));
        }
    }
    Ok(session)
}
