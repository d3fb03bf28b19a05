//! The stored answers of a session, for deduplication. They are kept until the session acknowledges them.
//!
//! A retry under the same id is not carried out again: it gets the stored answer. Refusals are stored as well, so that
//! a late copy of a refused request cannot succeed after its sender gave up.

use alloc::boxed::Box;

use crate::model::codec::{Fnv1a, Sink};
use crate::model::id::{FenceToken, PublicSessionId, RequestId};
use crate::model::name::LockName;
use crate::model::outcome::{CycleLink, Rejection, ReleaseAnswer};
use crate::model::slot::MapEpoch;
use crate::model::time::LogicalTime;
use crate::state::dense_map::DenseMap;
use crate::state::size;

/// The part of a request that a retry must repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Acquire {
        name: LockName,
    },
    /// A fingerprint stands for the names.
    AcquireAll {
        names: u64,
    },
    /// A request that was cancelled before it arrived, so that its content is unknown.
    CancelledBeforeArrival,
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

/// The stored answer. A grant stores nothing here: its answer is made from the present hold.
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
    /// Refused by `wait-die`. A retry with this `since` keeps the age of its actor.
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
    /// What the request asked for has left by the move of this epoch.
    Moved {
        epoch: MapEpoch,
    },
    /// Some locks of a wait have left, and others not. So the wait has ended.
    Divided {
        epoch: MapEpoch,
    },
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
    /// The session has acknowledged its answers up to here.
    acked_through: RequestId,
    /// The share of the stored answers in the table's size.
    bytes: u64,
}

impl Reply {
    /// The request held or waited, and a move of slots has ended that.
    pub(crate) fn is_of_departure(&self) -> bool {
        matches!(self, Reply::Moved { .. } | Reply::Divided { .. })
    }
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
            Question::AcquireAll { .. }
            | Question::CancelledBeforeArrival
            | Question::Cancel { .. } => 0,
        };
        let links = match reply {
            Reply::Deadlock(cycle) => cycle.len() as u64,
            _ => 0,
        };
        size::ANSWER + name + size::CYCLE_LINK * links
    }

    /// Whether a retry repeats this question.
    pub(crate) fn repeats(&self, before: &Question) -> bool {
        match (self, before) {
            (
                Question::Acquire { .. } | Question::AcquireAll { .. } | Question::Convert { .. },
                Question::CancelledBeforeArrival,
            ) => true,
            (now, before) => now == before,
        }
    }
}

impl Answers {
    pub(crate) fn restored(acked_through: RequestId) -> Answers {
        Answers { kept: DenseMap::default(), acked_through, bytes: 0 }
    }

    /// Drops the acknowledged answers. The mark never goes back.
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

    /// Drops the answer, as if the request had never arrived.
    pub(crate) fn forget(&mut self, request: RequestId) {
        if let Some(answer) = self.kept.remove(&request) {
            self.bytes -= answer.size_bytes();
        }
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<&Answer> {
        self.kept.get(&request)
    }

    /// The mark that keeps the newest `kept` answers, for a session that sends this request. None if the request is not
    /// the newest one: an older request may be a retry.
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
