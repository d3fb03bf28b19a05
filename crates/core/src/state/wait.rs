//! A wait: one request in a queue, or in several at once.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::command::{Mode, Terms};
use crate::model::id::{ActorId, FenceToken, RequestId};
use crate::model::name::{LockName, Names};
use crate::model::time::LogicalTime;
use crate::state::answers::{Question, Reply};
use crate::state::queue::Ticket;
use crate::state::size;

#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) actor: ActorId,
    pub(crate) places: QueuePlaces,
    pub(crate) queued_at: LogicalTime,
    /// When it stops waiting.
    pub(crate) deadline: LogicalTime,
    pub(crate) terms: Box<Terms>,
    /// The request, for deduplication.
    pub(crate) question: Question,
    /// The hold that it wants to convert; an acquire has none.
    pub(crate) converts: Option<Converts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Converts {
    /// The acquire of the hold.
    pub(crate) acquire: RequestId,
    pub(crate) token: FenceToken,
}

/// The queue places of a wait. Usually there is one, which needs no allocation.
#[derive(Clone, Debug)]
pub(crate) enum QueuePlaces {
    One(QueuePlace),
    /// In order.
    Many(Box<[QueuePlace]>),
}

#[derive(Clone, Debug)]
pub(crate) struct QueuePlace {
    pub(crate) name: LockName,
    pub(crate) ticket: Ticket,
    pub(crate) mode: Mode,
}

impl Wait {
    /// Its size in the table, including that of its future grant.
    pub(crate) fn size_bytes(&self) -> u64 {
        let places = self.places.as_slice().iter();
        let holds: u64 = places.map(|place| size::of_hold(&place.name, &self.terms.metadata)).sum();
        size::WAIT + holds + self.question.answer_bytes(&Reply::Granted)
    }

    /// The lock, if it waits only for this one, exclusively, and does not convert a hold of it.
    pub(crate) fn sole_name(&self) -> Option<&LockName> {
        match self.places.as_slice() {
            [place] if place.mode == Mode::Exclusive && self.converts.is_none() => {
                Some(&place.name)
            }
            _ => None,
        }
    }

    pub(crate) fn names(&self) -> Names {
        self.places.as_slice().iter().map(|place| place.name.clone()).collect()
    }
}

impl QueuePlaces {
    pub(crate) fn as_slice(&self) -> &[QueuePlace] {
        match self {
            QueuePlaces::One(place) => core::slice::from_ref(place),
            QueuePlaces::Many(places) => places,
        }
    }
}

impl FromIterator<QueuePlace> for QueuePlaces {
    fn from_iter<I: IntoIterator<Item = QueuePlace>>(places: I) -> QueuePlaces {
        let mut places = places.into_iter();
        match (places.next(), places.next()) {
            (Some(only), None) => QueuePlaces::One(only),
            (first, second) => {
                let all: Vec<QueuePlace> = first.into_iter().chain(second).chain(places).collect();
                QueuePlaces::Many(all.into_boxed_slice())
            }
        }
    }
}
