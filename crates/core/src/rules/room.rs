//! What the limits of the whole table allow.
//!
//! The limits are replicated, and an operator can change them. What adds to the table is refused at the limit. What gives
//! something back is always carried out. In between stand renewals and cancellations, whose answers have to be
//! kept: they have [a part more](RESERVE_PART).

use crate::model::command::{Member, Owner};
use crate::model::id::SessionId;
use crate::model::outcome::Rejection;
use crate::model::rules_version::RulesVersion;
use crate::state::answers::{Question, Reply};
use crate::state::size;
use crate::state::table::LockTable;

/// Past the limit renewals and cancellations have such a part of it more.
const RESERVE_PART: u64 = 16;
/// One session may take such a part of the bytes.
const SESSION_PART: u64 = 4;

impl LockTable {
    /// May a new session with this owner be opened?
    pub(crate) fn room_for_session(&self, owner: &Owner) -> Result<(), Rejection> {
        self.room_for_bytes(size::of_owner(owner))
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
        let new = |member: &&Member| !self.lock_map().contains_key(&member.name);
        let new_locks = members.iter().filter(new).count() as u64;
        let limit = self.table_limits().locks;
        if new_locks > 0 && self.lock_map().len() as u64 + new_locks > limit {
            return Err(Rejection::TooManyLocks { limit });
        }
        let new_bytes: u64 = members.iter().filter(new).map(|new| size::of_lock(&new.name)).sum();
        let holds: u64 = members.iter().map(|member| size::of_hold(&member.name, metadata)).sum();
        let own = size::WAIT + holds + question.answer_bytes(&Reply::Granted);
        self.room_for_bytes(new_bytes + own)?;
        self.room_in_session(session, own)
    }

    /// May the session have one more answer kept, and this many bytes beside it?
    pub(crate) fn room_for_answer(
        &self,
        session: SessionId,
        question: &Question,
        more: u64,
    ) -> Result<(), Rejection> {
        let answer = question.answer_bytes(&Reply::Granted);
        match question {
            // What it gives back is larger than its answer.
            Question::Release { .. } => Ok(()),
            Question::Renew { .. } | Question::Cancel { .. } | Question::AcquireToCome => {
                let limit = self.table_limits().bytes;
                if self.is_limited()
                    && self.size_bytes() + 2 * answer > limit + limit / RESERVE_PART
                {
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
        self.rules() >= RulesVersion::TWO
    }

    fn room_for_bytes(&self, added: u64) -> Result<(), Rejection> {
        let limit = self.table_limits().bytes;
        if self.is_limited() && self.size_bytes() + added > limit {
            return Err(Rejection::TooManyBytes { limit });
        }
        Ok(())
    }

    fn room_in_session(&self, id: SessionId, added: u64) -> Result<(), Rejection> {
        let limit = self.table_limits().bytes / SESSION_PART;
        let taken = self.session_map().get(&id).map_or(0, |session| session.size_bytes());
        if self.is_limited() && taken + added > limit {
            return Err(Rejection::SessionTooLarge { limit });
        }
        Ok(())
    }
}
