//! Once: the answers of a session, kept until it says that it has them.
//!
//! A request that comes again under the same id is not carried out again; it gets the answer it had.
//! Requests that were refused are remembered as well, so that a straggling copy of one cannot succeed
//! after its sender gave up.

use alloc::boxed::Box;

use crate::model::codec::{Fnv1a, Sink};
use crate::model::id::{FenceToken, PublicSessionId, RequestId};
use crate::model::name::LockName;
use crate::model::outcome::{CycleLink, Rejection, ReleaseAnswer};
use crate::model::time::LogicalTime;
use crate::state::dense_map::DenseMap;
use crate::state::size;

/// What a request asked, as far as a retry must repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Acquire {
        name: LockName,
    },
    /// The names are told by a fingerprint.
    AcquireAll {
        names: u64,
    },
    /// Something that can wait and was cancelled before it arrived, so that it is not known.
    AcquireToCome,
    Convert {
        name: LockName,
        token: FenceToken,
    },
    Release {
        name: LockName,
        token: FenceToken,
    },
    Renew {
        name: LockName,
        token: FenceToken,
    },
    Proclaim {
        name: LockName,
        token: FenceToken,
    },
    Transfer {
        name: LockName,
        token: FenceToken,
        to: PublicSessionId,
    },
    Cancel {
        target: RequestId,
    },
}

/// What was answered. Grants are told from the hold as it is now, so they need nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted,
    /// The hold of an earlier acquire was entered again.
    Reentered {
        acquire: RequestId,
    },
    /// The hold of an earlier acquire has the mode that was asked for.
    Converted {
        acquire: RequestId,
    },
    Busy,
    TimedOut,
    Cancelled,
    Deadlock(Box<[CycleLink]>),
    Died {
        since: LogicalTime,
    },
    CancelDone,
    CancelTooLate,
    CancelNothing,
    Release(ReleaseAnswer),
    Renewed {
        deadline: Option<LogicalTime>,
    },
    Proclaimed,
    Transferred {
        token: FenceToken,
    },
    Rejected(Rejection),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) question: Question,
    pub(crate) reply: Reply,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// All above the mark.
    kept: DenseMap<RequestId, Answer>,
    /// The session has its answers up to here.
    acked_through: RequestId,
    /// What is kept takes so much of the table's size.
    bytes: u64,
}

impl Answer {
    fn size_bytes(&self) -> u64 {
        self.question.answer_bytes(&self.reply)
    }
}

impl Question {
    pub(crate) fn acquire_all<'a>(names: impl Iterator<Item = &'a LockName>) -> Question {
        let mut hash = Fnv1a::new();
        for name in names {
            hash.bytes(name.as_bytes());
        }
        Question::AcquireAll { names: hash.value() }
    }

    /// What the answer to it takes, if it is kept.
    pub(crate) fn answer_bytes(&self, reply: &Reply) -> u64 {
        let name = match self {
            Question::Acquire { name }
            | Question::Convert { name, .. }
            | Question::Release { name, .. }
            | Question::Renew { name, .. }
            | Question::Proclaim { name, .. }
            | Question::Transfer { name, .. } => name.len() as u64,
            Question::AcquireAll { .. } | Question::AcquireToCome | Question::Cancel { .. } => 0,
        };
        let links = match reply {
            Reply::Deadlock(cycle) => cycle.len() as u64,
            _ => 0,
        };
        size::ANSWER + name + size::CYCLE_LINK * links
    }

    /// Is this the question that was asked before?
    pub(crate) fn repeats(&self, before: &Question) -> bool {
        match (self, before) {
            (
                Question::Acquire { .. } | Question::AcquireAll { .. } | Question::Convert { .. },
                Question::AcquireToCome,
            ) => true,
            (now, before) => now == before,
        }
    }
}

impl Answers {
    pub(crate) fn restored(acked_through: RequestId) -> Answers {
        Answers { kept: DenseMap::default(), acked_through, bytes: 0 }
    }

    /// Forgets what the session has. The mark never goes back.
    pub(crate) fn acknowledge(&mut self, through: RequestId) {
        if through <= self.acked_through {
            return;
        }
        self.acked_through = through;
        let forgotten = self.kept.iter().take_while(|(request, _)| **request <= through);
        self.bytes -= forgotten.map(|(_, answer)| answer.size_bytes()).sum::<u64>();
        self.kept.remove_through(&through);
    }

    pub(crate) fn keep(&mut self, request: RequestId, question: Question, reply: Reply) {
        if request > self.acked_through {
            let answer = Answer { question, reply };
            self.bytes += answer.size_bytes();
            if let Some(before) = self.kept.insert(request, answer) {
                self.bytes -= before.size_bytes();
            }
        }
    }

    /// As if the request had never come.
    pub(crate) fn forget(&mut self, request: RequestId) {
        if let Some(answer) = self.kept.remove(&request) {
            self.bytes -= answer.size_bytes();
        }
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<&Answer> {
        self.kept.get(&request)
    }

    /// The mark that leaves the newest `kept` answers, for a session that sends this request. None if the request is
    /// not the newest of all: what is older than the answers may be anything.
    pub(crate) fn mark_of_newest(&self, kept: usize, request: RequestId) -> Option<RequestId> {
        if self.kept.last_key().is_some_and(|last| request <= *last) {
            return None;
        }
        let last_dropped = self.kept.len().checked_sub(kept)?.checked_sub(1)?;
        self.kept.keys().nth(last_dropped).copied()
    }

    pub(crate) fn acked_through(&self) -> RequestId {
        self.acked_through
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Are the bytes those of the answers?
    pub(crate) fn are_counted(&self) -> bool {
        self.kept.values().map(Answer::size_bytes).sum::<u64>() == self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Answer)> {
        self.kept.iter().map(|(request, answer)| (*request, answer))
    }
}
