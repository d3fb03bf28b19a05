//! Once: the answers of a session, kept until it says that it has them.
//!
//! A request that comes again under the same id is not carried out again; it gets the answer it had.
//! Requests that were refused are remembered as well, so that a straggling copy of one cannot succeed
//! after its sender gave up.

use alloc::collections::BTreeMap;

use crate::id::{FenceToken, RequestId};
use crate::name::LockName;
use crate::outcome::ReleaseAnswer;
use crate::time::LogicalTime;

/// What a request asked, as far as a retry must repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Acquire {
        name: LockName,
    },
    /// An acquire that was cancelled before it arrived, so that its name is not known.
    AcquireToCome,
    Release {
        name: LockName,
        token: FenceToken,
    },
    Renew {
        name: LockName,
        token: FenceToken,
    },
    Cancel {
        target: RequestId,
    },
}

/// What was answered. Grants are told from the hold as it is now, so they need nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted,
    Busy,
    TimedOut,
    Cancelled,
    CancelDone,
    CancelTooLate,
    CancelNothing,
    Release(ReleaseAnswer),
    Renewed { deadline: Option<LogicalTime> },
    NotHeld,
    TooManyHolds,
    TooManyWaits,
    QueueFull,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) question: Question,
    pub(crate) reply: Reply,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// All above the mark.
    kept: BTreeMap<RequestId, Answer>,
    /// The session has its answers up to here.
    acked_through: RequestId,
}

impl Question {
    /// Is this the question that was asked before?
    pub(crate) fn repeats(&self, before: &Question) -> bool {
        match (self, before) {
            (Question::Acquire { .. }, Question::AcquireToCome) => true,
            (now, before) => now == before,
        }
    }
}

impl Answers {
    pub(crate) fn restored(acked_through: RequestId) -> Answers {
        Answers { kept: BTreeMap::new(), acked_through }
    }

    /// Forgets what the session has. The mark never goes back.
    pub(crate) fn acknowledge(&mut self, through: RequestId) {
        if through <= self.acked_through {
            return;
        }
        self.acked_through = through;
        while let Some(first) = self.kept.first_entry() {
            if *first.key() > through {
                break;
            }
            first.remove();
        }
    }

    pub(crate) fn keep(&mut self, request: RequestId, question: Question, reply: Reply) {
        if request > self.acked_through {
            self.kept.insert(request, Answer { question, reply });
        }
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<&Answer> {
        self.kept.get(&request)
    }

    pub(crate) fn acked_through(&self) -> RequestId {
        self.acked_through
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Answer)> {
        self.kept.iter().map(|(request, answer)| (*request, answer))
    }
}
