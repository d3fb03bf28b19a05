//! What all checkers look at: a history, and what follows from it, worked out once.

use std::collections::HashMap;
use std::ops::Deref;

use holdfast_core::{RequestId, SessionId};

use super::log::{Entry, LogRun, log_runs, merged};
use crate::history::{ClientOperation, History};

/// A history with the one log that its replicas applied.
#[derive(Debug)]
pub struct Evidence<'a> {
    history: &'a History,
    log_runs: Vec<LogRun<'a>>,
    log: Vec<Entry<'a>>,
    /// Where each request is in the history; of several copies the first.
    asked: HashMap<(SessionId, RequestId), &'a ClientOperation>,
}

impl<'a> Evidence<'a> {
    pub fn of(history: &'a History) -> Evidence<'a> {
        let log_runs = log_runs(history);
        let mut asked = HashMap::with_capacity(history.operations.len());
        for operation in &history.operations {
            asked.entry((operation.session, operation.request)).or_insert(operation);
        }
        Evidence { history, log: merged(&log_runs), log_runs, asked }
    }

    /// What each node did.
    pub(super) fn log_runs(&self) -> &[LogRun<'a>] {
        &self.log_runs
    }

    /// Every entry with events, in order; empty if the log was not recorded.
    pub(super) fn log(&self) -> &[Entry<'a>] {
        &self.log
    }

    /// What a session asked under this number.
    pub(super) fn asked(
        &self,
        session: SessionId,
        request: RequestId,
    ) -> Option<&'a ClientOperation> {
        self.asked.get(&(session, request)).copied()
    }
}

/// Most checkers ask it as they would ask the history.
impl Deref for Evidence<'_> {
    type Target = History;

    fn deref(&self) -> &History {
        self.history
    }
}
