//! What those that have a quota take, kept in step with the table.

use crate::model::access::principal::Principal;
use crate::model::access::quota::{Quota, QuotaSubject};
use crate::model::id::SessionId;
use crate::model::name::LockName;
use crate::state::session::Session;
use crate::state::table::LockTable;
use crate::state::usage::{Usage, Used};

impl LockTable {
    /// After the quotas have changed, and for a table that was read.
    pub(crate) fn count_usage_again(&mut self) {
        self.usage = self.counted_usage();
        #[cfg(feature = "planted")]
        if crate::planted::Bug::QuotaBeginsAtNothing.is_active() {
            self.usage = Usage::of(self.access.quotas());
        }
    }

    /// All of it, counted again.
    pub(crate) fn counted_usage(&self) -> Option<Usage> {
        let mut usage = Usage::of(self.access.quotas())?;
        for (_, session) in self.sessions.iter() {
            usage.add_to_principal(principal_of(session), used_by(session));
        }
        for (name, lock) in self.locks.iter() {
            usage.add_to_prefixes(name, Used::HOLD.times(lock.holder_count() as u64));
            usage.add_to_prefixes(name, Used::PLACE.times(lock.waiter_count() as u64));
        }
        Some(usage)
    }

    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// The quotas, each with what is taken. What only has a rate is not counted.
    pub fn quota_use(&self) -> impl Iterator<Item = (&QuotaSubject, &Quota, Used)> {
        self.access.quotas().iter().map(|(subject, quota)| {
            let used = self.usage.as_ref().and_then(|usage| usage.of_subject(subject));
            (subject, quota, used.unwrap_or_default())
        })
    }

    /// A session takes a hold, or a place in a queue.
    pub(super) fn count_taken(&mut self, id: SessionId, name: &LockName, used: Used) {
        if let Some(usage) = &mut self.usage {
            usage.add_to_principal(self.sessions.get(&id).and_then(principal_of), used);
            usage.add_to_prefixes(name, used);
        }
    }

    /// It gives that back. A session that has ended gave back its part when it did.
    pub(super) fn count_given_back(&mut self, id: SessionId, name: &LockName, used: Used) {
        if let Some(usage) = &mut self.usage {
            usage.take_from_principal(self.sessions.get(&id).and_then(principal_of), used);
            usage.take_from_prefixes(name, used);
        }
    }

    /// The session becomes this principal's, with all that it has taken.
    pub(super) fn count_under(&mut self, id: SessionId, principal: Option<&Principal>) {
        if let Some(usage) = &mut self.usage
            && let Some(session) = self.sessions.get(&id)
        {
            usage.take_from_principal(principal_of(session), used_by(session));
            usage.add_to_principal(principal, used_by(session));
        }
    }

    /// The session has ended. What it holds and where it waits counts until that ends.
    pub(super) fn count_session_out(&mut self, id: SessionId) {
        if let Some(usage) = &mut self.usage
            && let Some(session) = self.sessions.get(&id)
        {
            usage.take_from_principal(principal_of(session), Used::SESSION);
        }
    }

    pub(super) fn count_session(&mut self, session: &Session, is_new: bool) {
        if let Some(usage) = &mut self.usage {
            let (principal, used) = (principal_of(session), used_by(session));
            match is_new {
                true => usage.add_to_principal(principal, used),
                false => usage.take_from_principal(principal, used),
            }
        }
    }
}

fn principal_of(session: &Session) -> Option<&Principal> {
    session.identity.as_deref().map(|identity| &identity.principal)
}

/// The session itself unless it has ended, what it holds, and the places where it waits.
fn used_by(session: &Session) -> Used {
    let holds = Used::HOLD.times(session.hold_count() as u64);
    let places = session.waits.iter().map(|(_, wait)| wait.places.as_slice().len() as u64).sum();
    let own = if session.ending.is_none() { Used::SESSION } else { Used::default() };
    own.plus(holds).plus(Used::PLACE.times(places))
}
