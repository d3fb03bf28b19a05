//! How the table is read back. Nothing is believed: order, counts and what belongs together are checked.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{DEFERRED_PREFIX, DEFERRED_QUEUE, hold, session, wait};
use crate::model::access::policy::Access;
use crate::model::codec::{DecodeError, Reader, in_order};
use crate::model::id::{LogIndex, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::publication::Publication;
use crate::model::rules_version::RulesVersion;
use crate::model::table_limits::TableLimits;
use crate::model::time::LogicalTime;
use crate::state::deadlines::Due;
use crate::state::deferred::Promotion;
use crate::state::ended_sessions::End;
use crate::state::freezes::Freeze;
use crate::state::hold::Hold;
use crate::state::lock::Lock;
use crate::state::moves::Moves;
use crate::state::ownership::Ownership;
use crate::state::queue::{Ticket, Waiter};
use crate::state::table::LockTable;
use crate::state::wait::Wait;

impl LockTable {
    pub(super) fn read(&mut self, reader: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        if version >= 4 {
            self.rules = RulesVersion::decode(reader)?;
            if self.rules == RulesVersion::ONE {
                // Such a table is written as an older version: each has one form only.
                return Err(DecodeError::Inconsistent(String::from("it tells of the first rules")));
            }
        }
        self.read_head(reader)?;
        self.read_ended(reader, version)?;
        self.read_permits(reader)?;
        self.read_freezes(reader)?;
        if version >= 4 {
            self.table_limits = TableLimits { bytes: reader.varint()?, locks: reader.varint()? };
        }
        if version == 3 || (version >= 4 && reader.bool("publication")?) {
            self.publication = Some(Publication::read(reader)?);
        }
        if self.rules >= RulesVersion::THREE {
            self.read_deferred(reader)?;
        }
        if self.rules >= RulesVersion::FOUR {
            self.access = Access::read(reader, self.rules)?;
        }
        if self.rules >= RulesVersion::SEVEN {
            self.ownership = Ownership::read(reader)?;
        }
        if self.rules >= RulesVersion::TEN {
            self.moves = Moves::read(reader)?;
        }
        let mut waits = Vec::new();
        while reader.bool("list of sessions")? {
            let id = self.read_session(reader, version)?;
            let mut last = None;
            for _ in 0..reader.count()? {
                let request = RequestId(reader.varint()?);
                in_order(last.replace(request), request, "waits")?;
                waits.push((id, request, wait::read(reader)?));
            }
        }
        while reader.bool("list of locks")? {
            let name = reader.name()?;
            in_order(self.locks.last_key(), &name, "locks")?;
            self.read_lock(name, reader)?;
        }
        for (id, request, wait) in waits {
            self.restore_wait(id, request, wait)?;
        }
        Ok(())
    }

    fn read_permits(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..reader.count()? {
            let name = reader.name()?;
            in_order(self.permits.last_key_value().map(|(last, _)| last), &name, "permits")?;
            let limit = reader.u32()?;
            self.permits.insert(name, limit);
        }
        Ok(())
    }

    fn read_freezes(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
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

    fn read_deferred(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..reader.count()? {
            let promotion = match reader.u8()? {
                DEFERRED_QUEUE => {
                    let name = reader.name()?;
                    Promotion::Queue { name, passed: reader.optional()?.map(Ticket) }
                }
                DEFERRED_PREFIX => {
                    let prefix = reader.text()?.into();
                    let has_begun = reader.bool("thawed prefix")?;
                    let passed = if has_begun { Some(reader.name()?) } else { None };
                    Promotion::Prefix { prefix, passed }
                }
                tag => return Err(DecodeError::UnknownTag { what: "deferred promotion", tag }),
            };
            if !self.deferred.restore(promotion) {
                let what = String::from("a promotion is left for later twice");
                return Err(DecodeError::Inconsistent(what));
            }
        }
        Ok(())
    }

    /// Its name is above those of all before it.
    fn read_lock(&mut self, name: LockName, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut lock = Lock::default();
        if let Some(until) = reader.optional()?.map(LogicalTime::from_ms) {
            lock.close_until(Some(until));
            self.closed.insert((until, name.clone()));
        }
        let mut last = None;
        let count = reader.count()?;
        for _ in 0..count {
            let hold = hold::read(reader)?;
            in_order(last.replace(hold.key()), hold.key(), "holds")?;
            self.index_hold(&name, &hold);
            lock.add_hold(hold);
        }
        if lock.is_unused() {
            let what = format!("{name} is there for nothing");
            return Err(DecodeError::Inconsistent(what));
        }
        self.locks.push_last(name, lock);
        Ok(())
    }

    pub(super) fn read_head(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.now = LogicalTime::from_ms(reader.varint()?);
        self.applied_index = LogIndex(reader.varint()?);
        self.last_token = reader.varint()?;
        Ok(())
    }

    pub(super) fn read_session(
        &mut self,
        reader: &mut Reader<'_>,
        version: u8,
    ) -> Result<SessionId, DecodeError> {
        let id = SessionId::decode(reader)?;
        in_order(self.sessions.last_key().copied(), id, "sessions")?;
        let session = session::read(reader, version)?;
        if session.identity.is_some() && self.rules < RulesVersion::FOUR {
            let what = String::from("a session has an identity before the rules know of any");
            return Err(DecodeError::Inconsistent(what));
        }
        if session.ending.is_some() && self.rules < RulesVersion::EIGHT {
            let what = String::from("a session is ending before the rules know of that");
            return Err(DecodeError::Inconsistent(what));
        }
        let has_moved = session.guest_of.is_some() || session.departed().is_some();
        if has_moved && self.rules < RulesVersion::TEN {
            let what = String::from("a session has moved before the rules know of that");
            return Err(DecodeError::Inconsistent(what));
        }
        self.identified_sessions += usize::from(session.identity.is_some());
        if session.ending.is_some() {
            self.ending.insert((session.deadline, id));
        } else {
            self.deadlines.insert(session.deadline, Due::Session(id));
            self.public_ids.insert((session.public, id));
        }
        self.sessions.push_last(id, session);
        Ok(id)
    }

    pub(super) fn read_ended(
        &mut self,
        reader: &mut Reader<'_>,
        version: u8,
    ) -> Result<(), DecodeError> {
        let mut at = LogicalTime::ZERO;
        for _ in 0..reader.count()? {
            let id = SessionId::decode(reader)?;
            let closed = reader.bool("ended session")?;
            if self.ended.get(id).is_some() {
                let what = String::from("a session has ended twice");
                return Err(DecodeError::Inconsistent(what));
            }
            let end = if closed { End::Closed } else { End::Expired };
            if version >= 4 {
                let ms = at.as_ms().checked_add(reader.varint()?);
                at = LogicalTime::from_ms(ms.ok_or(DecodeError::InvalidNumber)?);
            }
            self.ended.remember(id, end, at);
        }
        Ok(())
    }

    pub(super) fn restore_hold(&mut self, name: &LockName, hold: Hold) {
        self.index_hold(name, &hold);
        self.locks.change_or_add(name, |_, lock| lock.add_hold(hold));
    }

    /// What can be computed from a hold.
    fn index_hold(&mut self, name: &LockName, hold: &Hold) {
        if let Some(deadline) = hold.deadline() {
            let due = Due::Hold(hold.session, hold.request, hold.token);
            self.deadlines.insert(deadline, due);
        }
        if let Some(session) = self.sessions.get_mut(&hold.session) {
            session.add_hold(hold.request, name.clone());
            if let Some(convert) = hold.converted_by() {
                session.note_conversion(convert, hold.request, None);
            }
        }
    }

    pub(super) fn restore_wait(
        &mut self,
        session: SessionId,
        request: RequestId,
        wait: Wait,
    ) -> Result<(), DecodeError> {
        for place in wait.places.as_slice() {
            let (actor, mode, policy) = (wait.actor, place.mode, wait.terms.policy);
            let waiter = Waiter { session, request, actor, mode, policy };
            let is_free = self.locks.change_or_add(&place.name, |_, lock| {
                let is_free = lock.queue().get(place.ticket).is_none();
                lock.queue_mut().insert(place.ticket, waiter);
                is_free
            });
            if !is_free {
                let what = String::from("two waiters stand in one place");
                return Err(DecodeError::Inconsistent(what));
            }
            self.waiter_count += 1;
        }
        self.add_wait(session, request, wait);
        Ok(())
    }
}
