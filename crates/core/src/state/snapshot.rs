//! The table as bytes.
//!
//! The encoding is canonical: equal tables have equal bytes, so replicas can be compared by digest.
//! What can be computed from the rest (the index of deadlines, the queues, what a session holds) is not
//! in it: a wait is told with its session, and says where it stands. The version comes first, the digest
//! of all before it last. It can be written at once, or a few entries at a time while the table changes.

use alloc::vec::Vec;
use core::fmt;

use crate::model::codec::{DecodeError, Fnv1a, Reader, Sink};
use crate::model::id::SessionId;
use crate::model::limits::Limits;
use crate::state::table::LockTable;
use crate::state::unfinished_snapshot::UnfinishedSnapshot;

mod answer;
mod hold;
pub(crate) mod part;
mod read;
mod session;
mod version_1;
mod wait;
mod write;

/// The newest that is read. Version 1 is that of 0.1, which had only exclusive locks; version 3 also tells how
/// far events are published; version 4 tells which rules the table follows, and what only later rules know.
const VERSION: u8 = 4;
/// What is written of a table of the first rules whose events are published.
const VERSION_OF_PUBLICATION: u8 = 3;
/// What is written of a table of the first rules whose events are not published: older nodes can read it, and it has
/// one form only.
const VERSION_USUAL: u8 = 2;
const DIGEST_BYTES: usize = 8;
/// Before each entry of a list whose length is not known when it begins, and after the last.
const NEXT: u8 = 1;
const END: u8 = 0;
/// Before a promotion that is left for later.
const DEFERRED_QUEUE: u8 = 1;
const DEFERRED_PREFIX: u8 = 2;

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
        self.write_all(&mut bytes);
        let digest = Fnv1a::of(&bytes);
        bytes.put(&digest.to_le_bytes());
        bytes
    }

    /// The digest of the canonical bytes, without making them.
    pub fn digest(&self) -> Digest {
        let mut hash = Fnv1a::new();
        self.write_all(&mut hash);
        Digest(hash.value())
    }

    /// Reads back what [`encode`](LockTable::encode) wrote. Whether the table contradicts itself is not asked.
    pub(crate) fn decode_unchecked(bytes: &[u8], limits: Limits) -> Result<LockTable, DecodeError> {
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
            version => table.read(&mut reader, version)?,
        }
        reader.end()?;
        table.snapshot_bytes_last = bytes.len();
        table.recount();
        Ok(table)
    }

    /// As if they were not in the snapshot.
    #[cfg(feature = "planted")]
    pub(crate) fn with_parts_forgotten(mut self) -> LockTable {
        if crate::planted::Bug::TokensNotInSnapshot.is_active() {
            let held = self.locks.values().flat_map(|lock| lock.holds());
            self.last_token = held.map(|hold| hold.token.0).max().unwrap_or(0);
        }
        if crate::planted::Bug::AnswersNotInSnapshot.is_active() {
            for id in self.sessions.keys().copied().collect::<Vec<SessionId>>() {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.answers =
                        crate::state::answers::Answers::restored(session.answers.acked_through());
                }
            }
        }
        if crate::planted::Bug::WaitersNotInSnapshot.is_active() {
            for id in self.sessions.keys().copied().collect::<Vec<SessionId>>() {
                let session = self.sessions.get_mut(&id);
                let waits = session.map(|session| core::mem::take(&mut session.waits));
                for (request, wait) in waits.iter().flat_map(|waits| waits.iter()) {
                    self.leave_queues(id, request, wait);
                }
            }
            self.forget_unused();
        }
        if crate::planted::Bug::PermitsNotInSnapshot.is_active() {
            self.permits.clear();
        }
        if crate::planted::Bug::FreezesNotInSnapshot.is_active() {
            self.freezes = Default::default();
        }
        if crate::planted::Bug::DelaysNotInSnapshot.is_active() {
            for (_, name) in core::mem::take(&mut self.closed) {
                if let Some(lock) = self.locks.get_mut(&name) {
                    lock.close_until(None);
                }
            }
            self.forget_unused();
        }
        if crate::planted::Bug::EndingNotInSnapshot.is_active() {
            for (_, id) in core::mem::take(&mut self.ending) {
                self.forget_ending(id);
            }
            self.forget_unused();
        }
        if crate::planted::Bug::DeadlinesNotRebuilt.is_active() {
            self.deadlines = Default::default();
        }
        self.recount();
        self
    }

    #[cfg(feature = "planted")]
    fn forget_ending(&mut self, id: SessionId) {
        let Some(session) = self.remove_session(id) else { return };
        for (request, wait) in session.waits.iter() {
            self.leave_queues(id, request, wait);
        }
        for (request, name) in session.holds() {
            self.remove_hold(name, (id, request));
        }
    }

    #[cfg(feature = "planted")]
    fn forget_unused(&mut self) {
        let unused = self.locks.iter().filter(|(_, lock)| lock.is_unused());
        let unused: Vec<crate::model::name::LockName> =
            unused.map(|(name, _)| name.clone()).collect();
        unused.iter().for_each(|name| drop(self.locks.remove(name)));
    }

    /// Counts again what sizes are made of.
    fn recount(&mut self) {
        let held: Vec<(SessionId, u64)> = self
            .sessions
            .iter()
            .map(|(id, session)| (*id, self.count_held_bytes(*id, session)))
            .collect();
        for (id, bytes) in held {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.held_bytes = bytes;
            }
        }
        self.size = self.count_bytes();
        self.count_usage_again();
    }

    /// Begins to write the table as it is now, without stopping for it: see
    /// [`continue_snapshot`](LockTable::continue_snapshot). One that was under way is given up. `head` is
    /// put before the bytes, for the caller's own use.
    pub fn begin_snapshot(&mut self, head: &[u8]) {
        let mut bytes = Vec::with_capacity(head.len() + self.snapshot_bytes_usual());
        bytes.put(head);
        let digested = bytes.len();
        self.write_head(&mut bytes);
        self.sessions.begin_walk();
        self.locks.begin_walk();
        self.unfinished = Some(UnfinishedSnapshot {
            bytes,
            digest: Fnv1a::new(),
            digested,
            sessions_done: false,
        });
    }

    /// Writes so many entries more, or fewer if they are large. When all are written, returns the bytes: the
    /// head, and what [`encode`](LockTable::encode) would have given when it was begun.
    pub fn continue_snapshot(&mut self, entries_max: usize) -> Option<Vec<u8>> {
        let unfinished = self.unfinished.as_mut()?;
        let mut room = entries_max;
        if !unfinished.sessions_done {
            room = self.sessions.walk_on(room, &mut unfinished.bytes);
            unfinished.sessions_done = room > 0;
            if unfinished.sessions_done {
                unfinished.bytes.u8(END);
            }
        }
        let done = unfinished.sessions_done && self.locks.walk_on(room, &mut unfinished.bytes) > 0;
        if done {
            unfinished.bytes.u8(END);
        }
        unfinished.digest.put(&unfinished.bytes[unfinished.digested..]);
        unfinished.digested = unfinished.bytes.len();
        if !done {
            return None;
        }
        self.sessions.end_walk();
        self.locks.end_walk();
        let UnfinishedSnapshot { mut bytes, digest, .. } = self.unfinished.take()?;
        bytes.put(&digest.value().to_le_bytes());
        self.snapshot_bytes_last = bytes.len();
        Some(bytes)
    }

    /// Is one begun and not finished?
    pub fn is_writing_snapshot(&self) -> bool {
        self.unfinished.is_some()
    }

    /// So that the bytes rarely have to move while they grow.
    fn snapshot_bytes_usual(&self) -> usize {
        const RESOURCE: usize = 96;
        const SESSION: usize = 256;
        let usual = self.locks.len() * RESOURCE + self.sessions.len() * SESSION;
        // Some sessions keep many answers.
        usual.max(self.snapshot_bytes_last + self.snapshot_bytes_last / 8)
    }
}
