//! How much is taken by those that have a quota. It can be computed from the table, and is not in the snapshot. A policy
//! without such quotas costs nothing.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::model::access::principal::Principal;
use crate::model::access::quota::{Quota, QuotaSubject};
use crate::state::prefix_map::PrefixMap;

/// What is taken of what a [`Quota`] limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub sessions: u64,
    pub locks: u64,
    pub waits: u64,
}

impl Used {
    pub(crate) const SESSION: Used = Used { sessions: 1, locks: 0, waits: 0 };
    pub(crate) const HOLD: Used = Used { sessions: 0, locks: 1, waits: 0 };
    /// A place in a queue.
    pub(crate) const PLACE: Used = Used { sessions: 0, locks: 1, waits: 1 };

    pub(crate) fn times(self, count: u64) -> Used {
        let Used { sessions, locks, waits } = self;
        Used { sessions: sessions * count, locks: locks * count, waits: waits * count }
    }

    pub(crate) fn plus(self, more: Used) -> Used {
        Used {
            sessions: self.sessions + more.sessions,
            locks: self.locks + more.locks,
            waits: self.waits + more.waits,
        }
    }

    fn minus(self, less: Used) -> Used {
        Used {
            sessions: self.sessions.saturating_sub(less.sessions),
            locks: self.locks.saturating_sub(less.locks),
            waits: self.waits.saturating_sub(less.waits),
        }
    }
}

/// By subject, each with its quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    principals: BTreeMap<Principal, (Quota, Used)>,
    prefixes: PrefixMap<(Quota, Used)>,
}

impl Usage {
    /// Nothing is counted yet. None if there is nothing to count.
    pub(crate) fn of(quotas: &BTreeMap<QuotaSubject, Quota>) -> Option<Usage> {
        let mut usage = Usage::default();
        for (subject, quota) in quotas.iter().filter(|(_, quota)| quota.is_counted()) {
            let unused = (*quota, Used::default());
            match subject {
                QuotaSubject::Principal(principal) => {
                    usage.principals.insert(principal.clone(), unused);
                }
                QuotaSubject::Prefix(prefix) => {
                    usage.prefixes.insert(Arc::clone(prefix), unused);
                }
            }
        }
        (usage != Usage::default()).then_some(usage)
    }

    pub(crate) fn add_to_principal(&mut self, principal: Option<&Principal>, used: Used) {
        if let Some((_, now)) = principal.and_then(|principal| self.principals.get_mut(principal)) {
            *now = now.plus(used);
        }
    }

    pub(crate) fn take_from_principal(&mut self, principal: Option<&Principal>, used: Used) {
        if let Some((_, now)) = principal.and_then(|principal| self.principals.get_mut(principal)) {
            *now = now.minus(used);
        }
    }

    pub(crate) fn add_to_prefixes(&mut self, name: &str, used: Used) {
        self.prefixes.change_covering(name, |(_, now)| *now = now.plus(used));
    }

    pub(crate) fn take_from_prefixes(&mut self, name: &str, used: Used) {
        self.prefixes.change_covering(name, |(_, now)| *now = now.minus(used));
    }

    pub(crate) fn of_subject(&self, subject: &QuotaSubject) -> Option<Used> {
        let counted = match subject {
            QuotaSubject::Principal(principal) => self.principals.get(principal),
            QuotaSubject::Prefix(prefix) => self.prefixes.by_prefix().get(prefix),
        };
        counted.map(|(_, used)| *used)
    }

    pub(crate) fn of_principal(&self, principal: &Principal) -> Option<&(Quota, Used)> {
        self.principals.get(principal)
    }

    /// Those of the prefixes of the name.
    pub(crate) fn of_prefixes<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a (Quota, Used))> {
        self.prefixes.covering(name)
    }
}
