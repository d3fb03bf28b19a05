//! The table as bytes.
//!
//! The encoding is canonical: equal tables have equal bytes, so replicas can be compared by digest.
//! What can be computed from the rest (the index of deadlines, the queues, what a session holds) is not
//! in it: a wait is told with its session, and says where it stands. The version comes first, the digest
//! of all before it last.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::LockTable;
use super::deadlines::Due;
use super::ended::End;
use super::freeze::Freeze;
use super::hold::Hold;
use super::queue::Waiter;
use super::wait::Wait;
use crate::codec::{DecodeError, Fnv1a, Reader, Sink};
use crate::id::{LogIndex, RequestId, SessionId};
use crate::limits::Limits;
use crate::name::LockName;
use crate::time::LogicalTime;

mod answer;
mod hold;
mod session;
mod version_1;
mod wait;

/// Version 1 is that of 0.1, which had only exclusive locks. It is still read.
const VERSION: u8 = 2;
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
        let version = reader.version("snapshot", VERSION)?;
        let (stored, computed) = (u64::from_le_bytes(*digest), Fnv1a::of(body));
        if stored != computed {
            return Err(DecodeError::DigestMismatch { stored, computed });
        }
        let mut table = LockTable::new(limits);
        match version {
            1 => table.read_version_1(&mut reader)?,
            _ => table.read(&mut reader)?,
        }
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
            let held = self.resources.values().flat_map(|resource| resource.holds());
            self.last_token = held.map(|hold| hold.token.0).max().unwrap_or(0);
        }
        if crate::planted::Bug::AnswersNotInSnapshot.is_active() {
            for session in self.sessions.values_mut() {
                session.answers =
                    super::answers::Answers::restored(session.answers.acked_through());
            }
        }
        if crate::planted::Bug::WaitersNotInSnapshot.is_active() {
            for id in self.sessions.keys().copied().collect::<Vec<SessionId>>() {
                let session = self.sessions.get_mut(&id);
                let waits = session.map(|session| core::mem::take(&mut session.waits));
                for (request, wait) in waits.into_iter().flatten() {
                    self.leave_queues(id, request, &wait);
                }
            }
            self.resources.retain(|_, resource| !resource.is_unused());
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
            session::write(session, sink);
            sink.count(session.waits.len());
            for (request, wait) in &session.waits {
                sink.varint(request.0);
                wait::write(wait, sink);
            }
        }
        sink.count(self.ended.len());
        for (id, end) in self.ended.iter() {
            id.encode(sink);
            sink.u8(u8::from(end == End::Closed));
        }
        let kept = |resource: &super::Resource| {
            resource.holder_count() > 0 || resource.closed_until().is_some()
        };
        sink.count(self.resources.values().filter(|resource| kept(resource)).count());
        for (name, resource) in self.resources.iter().filter(|(_, resource)| kept(resource)) {
            sink.bytes(name.as_bytes());
            sink.optional(resource.closed_until().map(LogicalTime::as_ms));
            sink.count(resource.holder_count());
            for hold in resource.holds() {
                hold::write(hold, sink);
            }
        }
        sink.count(self.permits.len());
        for (name, limit) in &self.permits {
            sink.bytes(name.as_bytes());
            sink.varint(u64::from(*limit));
        }
        sink.count(self.freezes.len());
        for (prefix, freeze) in self.freezes.iter() {
            sink.bytes(prefix.as_bytes());
            sink.varint(freeze.until.as_ms());
            sink.bytes(freeze.by.as_bytes());
            sink.bytes(freeze.reason.as_bytes());
        }
    }

    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.read_head(reader)?;
        let mut waits = Vec::new();
        for _ in 0..reader.count()? {
            let id = self.read_session(reader)?;
            let mut last = None;
            for _ in 0..reader.count()? {
                let request = RequestId(reader.varint()?);
                in_order(last.replace(request), request, "waits")?;
                waits.push((id, request, wait::read(reader)?));
            }
        }
        self.read_ended(reader)?;
        let mut last = None;
        for _ in 0..reader.count()? {
            let name = reader.name()?;
            in_order(last.as_ref(), &name, "locks")?;
            if let Some(until) = reader.optional()?.map(LogicalTime::from_ms) {
                self.resources.entry(name.clone()).or_default().close_until(Some(until));
                self.closed.insert((until, name.clone()));
            }
            let mut last_hold = None;
            for _ in 0..reader.count()? {
                let hold = hold::read(reader)?;
                in_order(last_hold.replace(hold.key()), hold.key(), "holds")?;
                self.restore_hold(&name, hold);
            }
            last = Some(name);
        }
        for (id, request, wait) in waits {
            self.restore_wait(id, request, wait)?;
        }
        for _ in 0..reader.count()? {
            let name = reader.name()?;
            in_order(self.permits.last_key_value().map(|(last, _)| last), &name, "permits")?;
            let limit = reader.u32()?;
            self.permits.insert(name, limit);
        }
        let mut last = None;
        for _ in 0..reader.count()? {
            let prefix = reader.text()?;
            in_order(last.replace(prefix), prefix, "freezes")?;
            let freeze = Freeze {
                until: LogicalTime::from_ms(reader.varint()?),
                by: reader.text()?.into(),
                reason: reader.text()?.into(),
            };
            self.freezes.insert(prefix.into(), freeze);
        }
        Ok(())
    }

    fn read_head(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.now = LogicalTime::from_ms(reader.varint()?);
        self.applied_index = LogIndex(reader.varint()?);
        self.last_token = reader.varint()?;
        Ok(())
    }

    fn read_session(&mut self, reader: &mut Reader<'_>) -> Result<SessionId, DecodeError> {
        let id = SessionId::decode(reader)?;
        in_order(self.sessions.last_key_value().map(|(last, _)| *last), id, "sessions")?;
        let session = session::read(reader)?;
        self.deadlines.insert(session.deadline, Due::Session(id));
        self.public_ids.insert((session.public, id));
        self.sessions.insert(id, session);
        Ok(id)
    }

    fn read_ended(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
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
        Ok(())
    }

    fn restore_hold(&mut self, name: &LockName, hold: Hold) {
        if let Some(deadline) = hold.deadline() {
            let due = Due::Hold(hold.session, hold.request, hold.token);
            self.deadlines.insert(deadline, due);
        }
        if let Some(session) = self.sessions.get_mut(&hold.session) {
            session.add_hold(hold.request, name.clone());
        }
        self.resources.entry(name.clone()).or_default().add_hold(hold);
    }

    fn restore_wait(
        &mut self,
        session: SessionId,
        request: RequestId,
        wait: Wait,
    ) -> Result<(), DecodeError> {
        for place in wait.places.as_slice() {
            let queue = self.resources.entry(place.name.clone()).or_default().queue_mut();
            if queue.get(place.ticket).is_some() {
                let what = String::from("two waiters stand in one place");
                return Err(DecodeError::Inconsistent(what));
            }
            let (actor, mode, policy) = (wait.actor, place.mode, wait.terms.policy);
            queue.insert(place.ticket, Waiter { session, request, actor, mode, policy });
            self.waiter_count += 1;
        }
        self.note_wait(session, request, wait);
        Ok(())
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
