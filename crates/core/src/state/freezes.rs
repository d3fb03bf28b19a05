//! Prefixes that an operator has frozen: nothing under them is granted, while releases, renewals and
//! deadlines go on.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::model::time::LogicalTime;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freezes {
    by_prefix: BTreeMap<Box<str>, Freeze>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Freeze {
    pub(crate) until: LogicalTime,
    pub(crate) by: Box<str>,
    pub(crate) reason: Box<str>,
}

impl Freezes {
    pub(crate) fn insert(&mut self, prefix: Box<str>, freeze: Freeze) {
        self.by_prefix.insert(prefix, freeze);
    }

    pub(crate) fn remove(&mut self, prefix: &str) -> Option<Freeze> {
        self.by_prefix.remove(prefix)
    }

    /// Is this name frozen? There are few freezes, so all are looked at.
    pub(crate) fn cover(&self, name: &str) -> bool {
        !self.by_prefix.is_empty() && self.over(name).is_some()
    }

    /// The freeze of a name that lasts longest.
    pub(crate) fn over(&self, name: &str) -> Option<(&str, &Freeze)> {
        self.iter()
            .filter(|(prefix, _)| name.starts_with(*prefix))
            .max_by_key(|(_, freeze)| freeze.until)
    }

    pub(crate) fn contains(&self, prefix: &str) -> bool {
        self.by_prefix.contains_key(prefix)
    }

    /// When the first of them ends.
    pub(crate) fn first_end(&self) -> Option<LogicalTime> {
        self.by_prefix.values().map(|freeze| freeze.until).min()
    }

    pub(crate) fn first_due(&self, now: LogicalTime) -> Option<Box<str>> {
        self.by_prefix
            .iter()
            .find(|(_, freeze)| freeze.until <= now)
            .map(|(prefix, _)| prefix.clone())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Freeze)> {
        self.by_prefix.iter().map(|(prefix, freeze)| (&**prefix, freeze))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_prefix.len()
    }
}
