//! How much the table holds, and how much it may: the memory that its parts take, as an estimate, and its locks.
//!
//! The estimate is made of lengths and fixed costs, so that all replicas count alike. It is kept up to date by each
//! change, and can be computed from the rest at any time; it is not in the snapshot. A wait counts as much as the holds
//! and the answer that it can become, so that a grant from a queue never needs more room than there is.
//!
//! The limits are replicated, and an operator can change them. What adds to the table is refused at the limit. What gives
//! something back is always carried out. In between stand renewals and cancellations, whose answers have to be
//! kept: they have [a part more](RESERVE_PART).

use super::LockTable;
use super::answers::{Question, Reply};
use super::session::Session;
use super::wait::Wait;
use crate::command::{Member, Owner};
use crate::id::SessionId;
use crate::name::LockName;
use crate::outcome::Rejection;
use crate::rules::RulesVersion;

const SESSION: u64 = 640;
const LOCK: u64 = 128;
const HOLD: u64 = 256;
const WAIT: u64 = 256;
const ANSWER: u64 = 96;
const CYCLE_LINK: u64 = 48;
const LOSS: u64 = 32;

/// Past the limit renewals and cancellations have such a part of it more.
const RESERVE_PART: u64 = 16;
/// One session may take such a part of the bytes.
const SESSION_PART: u64 = 4;

/// What the whole table may hold. Replicated, and changed by operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// As [`LockTable::size_bytes`] counts them.
    pub bytes: u64,
    /// Resources that are held, awaited or closed.
    pub locks: u64,
}

impl TableLimits {
    /// A snapshot of a larger table could not be sent.
    pub const BYTES_MAX: u64 = 3 << 30;
    /// Less would leave no room for anything.
    pub const BYTES_MIN: u64 = 64 << 10;
    pub const LOCKS_MAX: u64 = 100_000_000;
    pub const LOCKS_MIN: u64 = 1;

    pub fn are_possible(&self) -> bool {
        (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&self.bytes)
            && (Self::LOCKS_MIN..=Self::LOCKS_MAX).contains(&self.locks)
    }
}

impl Default for TableLimits {
    fn default() -> Self {
        TableLimits { bytes: 1 << 30, locks: 1_000_000 }
    }
}

fn len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

pub(crate) fn of_owner(owner: &Owner) -> u64 {
    let texts = [&owner.application, &owner.host, &owner.note];
    SESSION + texts.iter().map(|text| len(text.as_bytes())).sum::<u64>()
}

/// A resource without those who hold it or wait for it.
pub(crate) fn of_lock(name: &LockName) -> u64 {
    LOCK + len(name.as_bytes())
}

pub(crate) fn of_hold(name: &LockName, metadata: &[u8]) -> u64 {
    HOLD + len(name.as_bytes()) + len(metadata)
}

pub(crate) fn of_wait(wait: &Wait) -> u64 {
    let places = wait.places.as_slice().iter();
    let holds: u64 = places.map(|place| of_hold(&place.name, &wait.terms.metadata)).sum();
    WAIT + holds + of_answer(&wait.question, &Reply::Granted)
}

pub(crate) fn of_answer(question: &Question, reply: &Reply) -> u64 {
    let name = match question {
        Question::Acquire { name }
        | Question::Convert { name, .. }
        | Question::Release { name, .. }
        | Question::Renew { name, .. }
        | Question::Proclaim { name, .. }
        | Question::Transfer { name, .. } => len(name.as_bytes()),
        Question::AcquireAll { .. } | Question::AcquireToCome | Question::Cancel { .. } => 0,
    };
    let links = match reply {
        Reply::Deadlock(cycle) => cycle.len() as u64,
        _ => 0,
    };
    ANSWER + name + CYCLE_LINK * links
}

impl Session {
    /// What it takes of the table's bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        of_owner(&self.owner)
            + self.held_bytes
            + self.waits.bytes()
            + self.answers.bytes()
            + LOSS * (self.losses().len() + self.shared_losses().len()) as u64
    }
}

impl LockTable {
    /// How many bytes the table takes, as all replicas estimate it.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    pub fn table_limits(&self) -> TableLimits {
        self.table_limits
    }

    /// Notes that a part of the table has another size now.
    pub(crate) fn resize(size: &mut u64, before: u64, after: u64) {
        *size = (*size + after).saturating_sub(before);
    }

    /// All parts, counted again.
    pub(crate) fn count_bytes(&self) -> u64 {
        let sessions: u64 = self.sessions.values().map(|session| session.size_bytes()).sum();
        let locks: u64 = self.resources.keys().map(of_lock).sum();
        let permits: u64 = self.permits.keys().map(of_lock).sum();
        sessions + locks + permits
    }

    /// What the session holds, counted again.
    pub(crate) fn count_held_bytes(&self, id: SessionId, session: &Session) -> u64 {
        let holds = session.holds().map(|(request, name)| {
            let resource = self.resources.get(name);
            let hold = resource.and_then(|resource| resource.hold((id, request)));
            hold.map_or(0, |hold| of_hold(name, hold.metadata()))
        });
        holds.sum()
    }

    /// Counts everything again, of a table that was read.
    pub(crate) fn recount(&mut self) {
        let held: alloc::vec::Vec<(SessionId, u64)> = self
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
    }

    /// May a new session with this owner be opened?
    pub(crate) fn room_for_session(&self, owner: &Owner) -> Result<(), Rejection> {
        self.room_for_bytes(of_owner(owner))
    }

    /// May the session be granted these, or wait for them?
    pub(crate) fn room_for_acquire(
        &self,
        session: SessionId,
        members: &[Member],
        metadata: &[u8],
        question: &Question,
    ) -> Result<(), Rejection> {
        if !self.is_limited() {
            return Ok(());
        }
        let holds: u64 = members.iter().map(|member| of_hold(&member.name, metadata)).sum();
        let own = WAIT + holds + of_answer(question, &Reply::Granted);
        // To look for a name costs about as much as to grant it. Far from the limits all may be new.
        let as_if_new = members.iter().map(|member| of_lock(&member.name));
        if self.room_for_locks(as_if_new, own).is_err() {
            let new = members.iter().filter(|member| !self.resources.contains_key(&member.name));
            self.room_for_locks(new.map(|member| of_lock(&member.name)), own)?;
        }
        self.room_in_session(session, own)
    }

    /// May the session have one more answer kept, and this many bytes beside it?
    pub(crate) fn room_for_answer(
        &self,
        session: SessionId,
        question: &Question,
        more: u64,
    ) -> Result<(), Rejection> {
        let answer = of_answer(question, &Reply::Granted);
        match question {
            // What it gives back is larger than its answer.
            Question::Release { .. } => Ok(()),
            Question::Renew { .. } | Question::Cancel { .. } | Question::AcquireToCome => {
                let limit = self.table_limits.bytes;
                if self.is_limited() && self.size + 2 * answer > limit + limit / RESERVE_PART {
                    return Err(Rejection::TooManyBytes { limit });
                }
                Ok(())
            }
            // An acquire is asked once more, with all that it wants: this is for one that is refused, or enters again.
            Question::Acquire { .. }
            | Question::AcquireAll { .. }
            | Question::Convert { .. }
            | Question::Proclaim { .. }
            | Question::Transfer { .. } => {
                self.room_for_bytes(answer + more)?;
                self.room_in_session(session, answer + more)
            }
        }
    }

    fn is_limited(&self) -> bool {
        self.rules >= RulesVersion::TWO
    }

    /// May new locks of these sizes come to the others, and this many bytes with them?
    fn room_for_locks(&self, sizes: impl Iterator<Item = u64>, more: u64) -> Result<(), Rejection> {
        let (locks, bytes) = sizes.fold((0, 0), |(locks, sum), size| (locks + 1, sum + size));
        let limit = self.table_limits.locks;
        if locks > 0 && self.resources.len() as u64 + locks > limit {
            return Err(Rejection::TooManyLocks { limit });
        }
        self.room_for_bytes(bytes + more)
    }

    fn room_for_bytes(&self, added: u64) -> Result<(), Rejection> {
        let limit = self.table_limits.bytes;
        if self.is_limited() && self.size + added > limit {
            return Err(Rejection::TooManyBytes { limit });
        }
        Ok(())
    }

    fn room_in_session(&self, id: SessionId, added: u64) -> Result<(), Rejection> {
        let limit = self.table_limits.bytes / SESSION_PART;
        // What the session takes is a part of the whole.
        if self.size + added <= limit {
            return Ok(());
        }
        let taken = self.sessions.get(&id).map_or(0, |session| session.size_bytes());
        if self.is_limited() && taken + added > limit {
            return Err(Rejection::SessionTooLarge { limit });
        }
        Ok(())
    }
}
