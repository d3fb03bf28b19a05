//! What the limits of the whole table allow.
//!
//! The limits are replicated, and an operator can change them. What adds to the table is refused at the limit. What
//! gives something back is always carried out. In between stand renewals and cancellations, whose answers have to be
//! kept: they have [a part more](RESERVE_PART).

use alloc::collections::BTreeMap;

use crate::model::access::quota::{Quota, QuotaKind};
use crate::model::command::{Member, OpenSession};
use crate::model::id::SessionId;
use crate::model::name::LockName;
use crate::model::outcome::Rejection;
use crate::model::rules_version::RulesVersion;
use crate::state::answers::{Question, Reply};
use crate::state::size;
use crate::state::table::LockTable;
use crate::state::usage::Used;

/// Past the limit renewals and cancellations have such a part of it more.
const RESERVE_PART: u64 = 16;
/// What one session has may take such a part of the bytes. The entries of its locks are not counted: sessions can share
/// them. A lock's entry is smaller than a hold, so with them it is less than two such parts.
const SESSION_PART: u64 = 4;

impl LockTable {
    /// May this new session be opened?
    pub(crate) fn room_for_session(&self, open: &OpenSession) -> Result<(), Rejection> {
        if let Some(usage) = self.usage()
            && let Some(identity) = &open.identity
            && let Some((quota, used)) = usage.of_principal(&identity.principal)
        {
            within(QuotaKind::Sessions, quota.sessions, used.sessions, 1, false)?;
        }
        let identity = open.identity.as_ref().map_or(0, |identity| identity.size_bytes());
        self.room_for_bytes(size::of_owner(&open.owner) + identity)
    }

    /// Do the quotas allow the session to have this many more of the kind, for these names?
    pub(crate) fn room_in_quotas<'a>(
        &self,
        session: SessionId,
        names: impl ExactSizeIterator<Item = &'a LockName>,
        kind: QuotaKind,
    ) -> Result<(), Rejection> {
        let Some(usage) = self.usage() else { return Ok(()) };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::QuotaNotAsked.is_active() {
            return Ok(());
        }
        let check = |quota: &Quota, used: &Used, more, is_of_prefix| match kind {
            QuotaKind::Sessions => Ok(()),
            QuotaKind::Locks => within(kind, quota.locks, used.locks, more, is_of_prefix),
            QuotaKind::Waits => within(kind, quota.waits, used.waits, more, is_of_prefix),
        };
        let identity = self.session_map().get(&session).and_then(|it| it.identity.as_deref());
        let own = identity.and_then(|identity| usage.of_principal(&identity.principal));
        if let Some((quota, used)) = own {
            check(quota, used, names.len() as u64, false)?;
        }
        let mut by_prefix: BTreeMap<&str, (&Quota, &Used, u64)> = BTreeMap::new();
        for name in names {
            for (prefix, (quota, used)) in usage.of_prefixes(name) {
                by_prefix.entry(prefix).or_insert((quota, used, 0)).2 += 1;
            }
        }
        by_prefix.into_values().try_for_each(|(quota, used, more)| check(quota, used, more, true))
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
        self.room_in_quotas(session, members.iter().map(|it| &it.name), QuotaKind::Locks)?;
        let holds: u64 = members.iter().map(|member| size::of_hold(&member.name, metadata)).sum();
        let own = size::WAIT + holds + question.answer_bytes(&Reply::Granted);
        // To look for a name costs about as much as to grant it. Far from the limits all may be new.
        let as_if_new = members.iter().map(|member| size::of_lock(&member.name));
        if self.room_for_locks(as_if_new, own).is_err() {
            let new = members.iter().filter(|member| !self.lock_map().contains_key(&member.name));
            self.room_for_locks(new.map(|member| size::of_lock(&member.name)), own)?;
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
        let answer = question.answer_bytes(&Reply::Granted);
        match question {
            // What it gives back is larger than its answer.
            Question::Release { .. } => Ok(()),
            Question::Renew { .. } | Question::Cancel { .. } | Question::CancelledBeforeArrival => {
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

    /// May new locks of these sizes come to the others, and this many bytes with them?
    fn room_for_locks(&self, sizes: impl Iterator<Item = u64>, more: u64) -> Result<(), Rejection> {
        let (locks, bytes) = sizes.fold((0, 0), |(locks, sum), size| (locks + 1, sum + size));
        let limit = self.table_limits().locks;
        if locks > 0 && self.lock_map().len() as u64 + locks > limit {
            return Err(Rejection::TooManyLocks { limit });
        }
        self.room_for_bytes(bytes + more)
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
        // What the session takes is a part of the whole.
        if self.size_bytes() + added <= limit {
            return Ok(());
        }
        let taken = self.session_map().get(&id).map_or(0, |session| session.size_bytes());
        if self.is_limited() && taken + added > limit {
            return Err(Rejection::SessionTooLarge { limit });
        }
        Ok(())
    }
}

fn within(
    kind: QuotaKind,
    limit: Option<u64>,
    used: u64,
    more: u64,
    is_of_prefix: bool,
) -> Result<(), Rejection> {
    match limit {
        Some(limit) if used + more > limit => {
            Err(Rejection::QuotaExceeded { kind, limit, is_of_prefix })
        }
        _ => Ok(()),
    }
}
