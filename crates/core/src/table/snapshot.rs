//! The table as bytes.
//!
//! The encoding is canonical: equal tables have equal bytes, so replicas can be compared by digest.
//! What can be computed from the rest (the index of deadlines, what a session holds and waits for) is
//! not in it. The version comes first, the digest of all before it last.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::LockTable;
use super::answers::{Answers, Question, Reply};
use super::deadlines::Due;
use super::ended::End;
use super::queue::{Ticket, WaitQueue, Waiter};
use super::resource::{Bounds, Claim, Hold, Resource};
use super::session::{Session, Wait};
use crate::codec::{DecodeError, Fnv1a, Reader, Sink};
use crate::command::{Mode, OpenSession, Owner};
use crate::id::{ActorId, FenceToken, LogIndex, PublicSessionId, RequestId, SessionId, StreamId};
use crate::limits::Limits;
use crate::name::LockName;
use crate::outcome::ReleaseAnswer;
use crate::time::{LogicalTime, Span};

const VERSION: u8 = 1;
const DIGEST_BYTES: usize = 8;

/// A fingerprint of a whole table. Two replicas at the same log index have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(pub u64);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl LockTable {
    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        let digest = Fnv1a::of(&bytes);
        bytes.put(&digest.to_le_bytes());
        bytes
    }

    /// The digest of the canonical bytes, without making them.
    pub fn digest(&self) -> Digest {
        let mut hash = Fnv1a::new();
        self.write(&mut hash);
        Digest(hash.value())
    }

    /// Reads back what [`encode`](LockTable::encode) wrote, and refuses anything else.
    pub fn decode(bytes: &[u8], limits: Limits) -> Result<LockTable, DecodeError> {
        let (body, digest) =
            bytes.split_last_chunk::<DIGEST_BYTES>().ok_or(DecodeError::UnexpectedEnd)?;
        let mut reader = Reader::new(body);
        // Before the digest: another version may have another one, and deserves its own words.
        reader.version("snapshot", VERSION)?;
        let (stored, computed) = (u64::from_le_bytes(*digest), Fnv1a::of(body));
        if stored != computed {
            return Err(DecodeError::DigestMismatch { stored, computed });
        }
        let mut table = LockTable::new(limits);
        table.read(&mut reader)?;
        reader.end()?;
        table.check().map_err(DecodeError::Inconsistent)?;
        #[cfg(feature = "planted")]
        table.forget_parts();
        Ok(table)
    }

    /// As if they were not in the snapshot.
    #[cfg(feature = "planted")]
    fn forget_parts(&mut self) {
        if crate::planted::Bug::TokensNotInSnapshot.is_active() {
            let held = self.resources.values().filter_map(|resource| resource.hold.as_ref());
            self.last_token = held.map(|hold| hold.token.0).max().unwrap_or(0);
        }
        if crate::planted::Bug::AnswersNotInSnapshot.is_active() {
            for session in self.sessions.values_mut() {
                session.answers = Answers::restored(session.answers.acked_through());
            }
        }
        if crate::planted::Bug::WaitersNotInSnapshot.is_active() {
            for session in self.sessions.values_mut() {
                for wait in core::mem::take(&mut session.waits).into_values() {
                    let resource = self.resources.get_mut(&wait.name);
                    let queue = resource.and_then(|resource| resource.queue.take());
                    for (_, waiter) in queue.iter().flat_map(|queue| queue.iter()) {
                        let due = Due::Wait(waiter.claim.session, waiter.claim.request);
                        self.deadlines.remove(waiter.deadline, due);
                    }
                }
            }
            self.waiter_count = 0;
        }
        if crate::planted::Bug::DeadlinesNotRebuilt.is_active() {
            self.deadlines = Default::default();
        }
    }

    fn write(&self, sink: &mut impl Sink) {
        sink.u8(VERSION);
        sink.varint(self.now.as_ms());
        sink.varint(self.applied_index.0);
        sink.varint(self.last_token);
        sink.count(self.sessions.len());
        for (id, session) in &self.sessions {
            id.encode(sink);
            write_session(session, sink);
        }
        sink.count(self.ended.len());
        for (id, end) in self.ended.iter() {
            id.encode(sink);
            sink.u8(u8::from(end == End::Closed));
        }
        sink.count(self.resources.len());
        for (name, resource) in &self.resources {
            sink.bytes(name.as_bytes());
            // A resource in the table is held, except in the middle of a command.
            if let Some(hold) = &resource.hold {
                write_hold(hold, sink);
            }
            sink.count(resource.waiter_count());
            for (ticket, waiter) in resource.queue.iter().flat_map(|queue| queue.iter()) {
                sink.varint(ticket.0);
                write_waiter(waiter, sink);
            }
        }
    }

    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.now = LogicalTime::from_ms(reader.varint()?);
        self.applied_index = LogIndex(reader.varint()?);
        self.last_token = reader.varint()?;
        for _ in 0..reader.count()? {
            let id = SessionId::decode(reader)?;
            in_order(self.sessions.last_key_value().map(|(last, _)| *last), id, "sessions")?;
            let session = read_session(reader)?;
            self.deadlines.insert(session.deadline, Due::Session(id));
            self.public_ids.insert((session.public, id));
            self.sessions.insert(id, session);
        }
        for _ in 0..reader.count()? {
            let id = SessionId::decode(reader)?;
            let closed = reader.bool("ended session")?;
            if self.ended.get(id).is_some() {
                let what = String::from("a session has ended twice");
                return Err(DecodeError::Inconsistent(what));
            }
            let end = if closed { End::Closed } else { End::Expired };
            self.ended.remember(id, end, usize::MAX);
        }
        for _ in 0..reader.count()? {
            let name = reader.name()?;
            in_order(self.resources.last_key_value().map(|(last, _)| last), &name, "locks")?;
            let resource = self.read_resource(&name, reader)?;
            self.resources.insert(name, resource);
        }
        Ok(())
    }

    fn read_resource(
        &mut self,
        name: &LockName,
        reader: &mut Reader<'_>,
    ) -> Result<Resource, DecodeError> {
        let hold = read_hold(reader)?;
        if let Some(deadline) = hold.deadline() {
            self.deadlines.insert(deadline, Due::Hold(hold.session, hold.request));
        }
        if let Some(session) = self.sessions.get_mut(&hold.session) {
            session.holds.insert(hold.request, name.clone());
        }
        let mut resource = Resource::held(hold);
        let mut queue = WaitQueue::default();
        for _ in 0..reader.count()? {
            let ticket = Ticket(reader.varint()?);
            in_order(queue.last_ticket(), ticket, "waiters")?;
            let waiter = read_waiter(reader)?;
            let (id, request) = (waiter.claim.session, waiter.claim.request);
            self.deadlines.insert(waiter.deadline, Due::Wait(id, request));
            if let Some(session) = self.sessions.get_mut(&id) {
                session.waits.insert(request, Wait { name: name.clone(), ticket });
            }
            queue.insert(ticket, waiter);
        }
        self.waiter_count += queue.len();
        if !queue.is_empty() {
            resource.queue = Some(Box::new(queue));
        }
        Ok(resource)
    }
}

/// Canonical bytes list everything in order, once.
fn in_order<T: Ord>(last: Option<T>, next: T, what: &str) -> Result<(), DecodeError> {
    match last {
        Some(last) if last >= next => {
            Err(DecodeError::Inconsistent(format!("{what} are not in order")))
        }
        _ => Ok(()),
    }
}

fn write_session(session: &Session, sink: &mut impl Sink) {
    session.public.encode(sink);
    sink.varint(session.stream.0);
    sink.varint(session.ttl.as_ms());
    sink.varint(session.linger.as_ms());
    session.owner.encode(sink);
    sink.varint(session.opened_at.as_ms());
    sink.varint(session.opened_at_token);
    sink.varint(session.deadline.as_ms());
    sink.u8(u8::from(session.connected));
    sink.u8(u8::from(session.graced));
    sink.u8(u8::from(session.lingering));
    sink.count(session.losses().len());
    for token in session.losses() {
        sink.varint(token.0);
    }
    sink.varint(session.answers.acked_through().0);
    sink.count(session.answers.len());
    for (request, answer) in session.answers.iter() {
        sink.varint(request.0);
        write_question(&answer.question, sink);
        write_reply(answer.reply, sink);
    }
}

fn read_session(reader: &mut Reader<'_>) -> Result<Session, DecodeError> {
    let open = OpenSession {
        session: SessionId(0),
        public: PublicSessionId::decode(reader)?,
        stream: Some(StreamId(reader.varint()?)),
        ttl: Span::from_ms(reader.varint()?),
        linger: Span::from_ms(reader.varint()?),
        owner: Owner::decode(reader)?,
    };
    let opened_at = LogicalTime::from_ms(reader.varint()?);
    let opened_at_token = reader.varint()?;
    let mut session = Session::new(open, opened_at, opened_at_token);
    session.deadline = LogicalTime::from_ms(reader.varint()?);
    session.connected = reader.bool("session")?;
    session.graced = reader.bool("session")?;
    session.lingering = reader.bool("session")?;
    for _ in 0..reader.count()? {
        let token = FenceToken(reader.varint()?);
        in_order(session.losses().last().copied(), token, "losses")?;
        session.remember_loss(token, usize::MAX);
    }
    session.answers = Answers::restored(RequestId(reader.varint()?));
    let mut last = None;
    for _ in 0..reader.count()? {
        let request = RequestId(reader.varint()?);
        in_order(last.replace(request), request, "answers")?;
        let question = read_question(reader)?;
        let reply = read_reply(reader)?;
        session.answers.keep(request, question, reply);
        if session.answers.get(request).is_none() {
            let what = String::from("an acknowledged answer is kept");
            return Err(DecodeError::Inconsistent(what));
        }
    }
    Ok(session)
}

fn write_hold(hold: &Hold, sink: &mut impl Sink) {
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
    sink.bytes(hold.metadata());
}

fn read_hold(reader: &mut Reader<'_>) -> Result<Hold, DecodeError> {
    let session = SessionId::decode(reader)?;
    let request = RequestId(reader.varint()?);
    let actor = ActorId(reader.varint()?);
    let mode = Mode::decode(reader)?;
    let token = FenceToken(reader.varint()?);
    let granted_at = LogicalTime::from_ms(reader.varint()?);
    let bounds = Bounds {
        ttl: reader.optional()?.map(Span::from_ms),
        deadline: reader.optional()?.map(LogicalTime::from_ms),
        max_hold_end: reader.optional()?.map(LogicalTime::from_ms),
        graced: reader.bool("hold")?,
    };
    let metadata = Box::from(reader.bytes()?);
    let claim = Claim { session, request, actor, mode, ttl: None, max_hold: None, metadata };
    let hold = Hold::with_bounds(claim, token, granted_at, bounds);
    if hold.bounds() != bounds {
        let what = String::from("a hold has a TTL and no deadline");
        return Err(DecodeError::Inconsistent(what));
    }
    Ok(hold)
}

fn write_waiter(waiter: &Waiter, sink: &mut impl Sink) {
    let claim = &waiter.claim;
    claim.session.encode(sink);
    sink.varint(claim.request.0);
    sink.varint(claim.actor.0);
    claim.mode.encode(sink);
    sink.optional(claim.ttl.map(Span::as_ms));
    sink.optional(claim.max_hold.map(Span::as_ms));
    sink.bytes(&claim.metadata);
    sink.varint(waiter.queued_at.as_ms());
    sink.varint(waiter.deadline.as_ms());
}

fn read_waiter(reader: &mut Reader<'_>) -> Result<Waiter, DecodeError> {
    let claim = Claim {
        session: SessionId::decode(reader)?,
        request: RequestId(reader.varint()?),
        actor: ActorId(reader.varint()?),
        mode: Mode::decode(reader)?,
        ttl: reader.optional()?.map(Span::from_ms),
        max_hold: reader.optional()?.map(Span::from_ms),
        metadata: Box::from(reader.bytes()?),
    };
    let queued_at = LogicalTime::from_ms(reader.varint()?);
    let deadline = LogicalTime::from_ms(reader.varint()?);
    Ok(Waiter { claim, queued_at, deadline })
}

fn write_question(question: &Question, sink: &mut impl Sink) {
    match question {
        Question::Acquire { name } => {
            sink.u8(1);
            sink.bytes(name.as_bytes());
        }
        Question::AcquireToCome => sink.u8(2),
        Question::Release { name, token } => {
            sink.u8(3);
            sink.bytes(name.as_bytes());
            sink.varint(token.0);
        }
        Question::Renew { name, token } => {
            sink.u8(4);
            sink.bytes(name.as_bytes());
            sink.varint(token.0);
        }
        Question::Cancel { target } => {
            sink.u8(5);
            sink.varint(target.0);
        }
    }
}

fn read_question(reader: &mut Reader<'_>) -> Result<Question, DecodeError> {
    Ok(match reader.u8()? {
        1 => Question::Acquire { name: reader.name()? },
        2 => Question::AcquireToCome,
        3 => Question::Release { name: reader.name()?, token: FenceToken(reader.varint()?) },
        4 => Question::Renew { name: reader.name()?, token: FenceToken(reader.varint()?) },
        5 => Question::Cancel { target: RequestId(reader.varint()?) },
        tag => return Err(DecodeError::UnknownTag { what: "kept request", tag }),
    })
}

fn write_reply(reply: Reply, sink: &mut impl Sink) {
    sink.u8(match reply {
        Reply::Granted => 1,
        Reply::Busy => 2,
        Reply::TimedOut => 3,
        Reply::Cancelled => 4,
        Reply::CancelDone => 5,
        Reply::CancelTooLate => 6,
        Reply::CancelNothing => 7,
        Reply::Release(ReleaseAnswer::Released) => 8,
        Reply::Release(ReleaseAnswer::NotOwner) => 9,
        Reply::Release(ReleaseAnswer::AlreadyReleased) => 10,
        Reply::Release(ReleaseAnswer::Expired) => 11,
        Reply::Renewed { .. } => 12,
        Reply::NotHeld => 13,
        Reply::TooManyHolds => 14,
        Reply::TooManyWaits => 15,
        Reply::QueueFull => 16,
    });
    if let Reply::Renewed { deadline } = reply {
        sink.optional(deadline.map(LogicalTime::as_ms));
    }
}

fn read_reply(reader: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    Ok(match reader.u8()? {
        1 => Reply::Granted,
        2 => Reply::Busy,
        3 => Reply::TimedOut,
        4 => Reply::Cancelled,
        5 => Reply::CancelDone,
        6 => Reply::CancelTooLate,
        7 => Reply::CancelNothing,
        8 => Reply::Release(ReleaseAnswer::Released),
        9 => Reply::Release(ReleaseAnswer::NotOwner),
        10 => Reply::Release(ReleaseAnswer::AlreadyReleased),
        11 => Reply::Release(ReleaseAnswer::Expired),
        12 => Reply::Renewed { deadline: reader.optional()?.map(LogicalTime::from_ms) },
        13 => Reply::NotHeld,
        14 => Reply::TooManyHolds,
        15 => Reply::TooManyWaits,
        16 => Reply::QueueFull,
        tag => return Err(DecodeError::UnknownTag { what: "kept answer", tag }),
    })
}
