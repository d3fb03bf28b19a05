//! What all checkers look at: a history, and what follows from it, worked out once.

use std::ops::Deref;

use super::log::{Entry, Stretch, merged, stretches};
use crate::history::History;

/// A history with the one log that its replicas applied.
#[derive(Debug)]
pub struct Evidence<'a> {
    history: &'a History,
    stretches: Vec<Stretch<'a>>,
    log: Vec<Entry<'a>>,
}

impl<'a> Evidence<'a> {
    pub fn of(history: &'a History) -> Evidence<'a> {
        let stretches = stretches(history);
        Evidence { history, log: merged(&stretches), stretches }
    }

    /// What each node did.
    pub(super) fn stretches(&self) -> &[Stretch<'a>] {
        &self.stretches
    }

    /// Every entry with events, in order; empty if the log was not recorded.
    pub(super) fn log(&self) -> &[Entry<'a>] {
        &self.log
    }
}

/// Most checkers ask it as they would ask the history.
impl Deref for Evidence<'_> {
    type Target = History;

    fn deref(&self) -> &History {
        self.history
    }
}
