//! No principal, and no prefix, has more holds and places in queues than its quota allows, in the order of the log. What was
//! taken before a quota was lowered stays, and a request that waits may be granted: its place counted already. The
//! account is kept here by hand, from the events of the log.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{
    AccessChange, Event, LockName, Names, Principal, Quota, QuotaSubject, RequestId, SessionId,
};

use super::evidence::Evidence;
use super::findings::Findings;
use crate::history::Violation;

/// One name that a request has or waits for.
type RequestedName<'a> = (&'a LockName, SessionId, RequestId);

#[derive(Default)]
struct Account<'a> {
    principals: BTreeMap<SessionId, &'a Principal>,
    quotas: BTreeMap<&'a QuotaSubject, &'a Quota>,
    holds: BTreeSet<RequestedName<'a>>,
    waits: BTreeSet<RequestedName<'a>>,
}

impl<'a> Account<'a> {
    fn counts_for(&self, subject: &QuotaSubject, (name, session, _): &RequestedName<'a>) -> bool {
        match subject {
            QuotaSubject::Principal(principal) => self.principals.get(session) == Some(&principal),
            QuotaSubject::Prefix(prefix) => name.starts_with(&**prefix),
        }
    }

    /// The quotas that have been passed with what was just taken.
    fn passed(&self, requested: &RequestedName<'a>, index: u64) -> Vec<String> {
        let mut words = Vec::new();
        for (subject, quota) in &self.quotas {
            if !self.counts_for(subject, requested) {
                continue;
            }
            let count = |names: &BTreeSet<RequestedName<'a>>| {
                names.iter().filter(|requested| self.counts_for(subject, requested)).count() as u64
            };
            let (holds, waits) = (count(&self.holds), count(&self.waits));
            let is_waiting = self.waits.contains(requested);
            if quota.locks.is_some_and(|limit| holds + waits > limit)
                || (is_waiting && quota.waits.is_some_and(|limit| waits > limit))
            {
                words.push(format!(
                    "{subject} has {holds} holds and {waits} waits at index {index}, with the quota {quota}"
                ));
            }
        }
        words
    }

    fn set_quotas(&mut self, changes: &'a [AccessChange]) {
        for change in changes {
            if let AccessChange::SetQuotas(quotas) = change {
                self.quotas.extend(quotas);
            }
        }
    }

    fn end_waits(&mut self, names: &'a Names, session: SessionId, request: RequestId) {
        for name in names.iter() {
            self.waits.remove(&(name, session, request));
        }
    }
}

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("quotas");
    let mut account = Account::default();
    let mut generation = 0;
    for entry in history.log() {
        for event in &entry.events {
            let taken = match event {
                Event::AccessChanged { change, .. } => {
                    account.set_quotas(&change.changes);
                    None
                }
                Event::PolicyAdopted { generation: adopted } => {
                    for change in history.adopted_changes(generation, *adopted) {
                        account.set_quotas(&change.changes);
                    }
                    generation = *adopted;
                    None
                }
                Event::SessionOpened { session, principal: Some(principal), .. } => {
                    account.principals.insert(*session, principal);
                    None
                }
                Event::Granted { name, session, request, .. } => {
                    let requested = (name, *session, *request);
                    let was_waiting = account.waits.remove(&requested);
                    account.holds.insert(requested);
                    (!was_waiting).then_some(requested)
                }
                Event::Queued { name, session, request, .. } => {
                    let requested = (name, *session, *request);
                    account.waits.insert(requested);
                    Some(requested)
                }
                Event::WaitEnded { names, session, request, .. } => {
                    account.end_waits(names, *session, *request);
                    None
                }
                Event::Released { name, session, request, .. }
                | Event::HoldEnded { name, session, request, .. } => {
                    account.holds.remove(&(name, *session, *request));
                    None
                }
                _ => None,
            };
            let passed = taken.map(|requested| account.passed(&requested, entry.index.0));
            passed.into_iter().flatten().for_each(|words| findings.add(words));
        }
    }
    findings.into_violations()
}

#[cfg(test)]
mod tests {
    use holdfast_core::{ChangeAccess, Outcome, PublicSessionId};

    use super::*;
    use crate::check::test_history::*;

    fn quota(subject: &str, locks: u64) -> Event {
        let quota = Quota { locks: Some(locks), ..Quota::default() };
        let quotas = [(QuotaSubject::parse(subject).unwrap(), quota)].into();
        let (by, changes) = ("cert:root".into(), [AccessChange::SetQuotas(quotas)].into());
        let (identity, expected) = (None, None);
        let change = ChangeAccess { by, identity, expected, changes, end_sessions: false };
        Event::AccessChanged { change: Box::new(change), generation: 1 }
    }

    fn begun() -> TestHistory {
        let mut history = TestHistory::default();
        let (session, public) = (SessionId(1), PublicSessionId(1));
        let principal = Principal::parse("cert:client-1").ok();
        let owner = Box::default();
        history.log(1, [Event::SessionOpened { session, public, owner, principal }]);
        history
    }

    #[test]
    fn a_grant_past_the_quota_is_found_and_a_released_one_makes_room() {
        let mut history = begun();
        history.log(2, [quota("cert:client-1", 1)]);
        history.log(3, [granted("a", 1, 1, 1)]);
        history.log(4, [granted("b", 2, 1, 2)]);
        history.log(5, [released("a", 1, 1, 1)]);
        history.log(6, [granted("c", 1, 2, 3)]);
        assert_eq!(check(&history.evidence()), []);
        history.log(7, [queued("b", 1, 3)]);
        assert_eq!(check(&history.evidence()).len(), 1, "a place in a queue counts");
    }

    #[test]
    fn a_wait_that_becomes_a_hold_under_a_lower_quota_is_right() {
        let mut history = begun();
        history.log(2, [granted("jobs/a", 1, 1, 1)]);
        history.log(3, [queued("jobs/a", 2, 1)]);
        history.log(4, [quota("jobs/*", 1)]);
        let granted_to_other = granted("jobs/a", 2, 1, 2);
        let over = wait_ended("jobs/a", 2, 1, Outcome::TimedOut);
        history.log(5, [released("jobs/a", 1, 1, 1), granted_to_other, over]);
        assert_eq!(check(&history.evidence()), []);
        history.log(6, [granted("jobs/b", 1, 2, 3)]);
        assert_eq!(check(&history.evidence()).len(), 1);
    }
}
