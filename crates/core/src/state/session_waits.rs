//! The waits of one session: by request, and by the actor that waits.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use crate::model::id::{ActorId, RequestId};
use crate::model::name::LockName;
use crate::state::wait::Wait;

#[derive(Clone, Debug, Default)]
pub(crate) struct SessionWaits {
    /// Boxed: the nodes of the map stay small, so that iterating over many waits is fast.
    by_request: BTreeMap<RequestId, Box<Wait>>,
    by_actor: BTreeSet<(ActorId, RequestId)>,
    /// The waits for one exclusive lock only. A holder or an operator can transfer the lock to such a wait.
    lone: BTreeSet<(LockName, RequestId)>,
    /// How many queue places all waits have together.
    place_count: usize,
    /// What the waits add to the size of the lock table, in bytes.
    bytes: u64,
}

impl SessionWaits {
    pub(crate) fn insert(&mut self, request: RequestId, wait: Wait) {
        self.by_actor.insert((wait.actor, request));
        self.lone.extend(wait.sole_name().map(|name| (name.clone(), request)));
        self.place_count += wait.places.as_slice().len();
        self.bytes += wait.size_bytes();
        self.by_request.insert(request, Box::new(wait));
    }

    pub(crate) fn remove(&mut self, request: RequestId) -> Option<Box<Wait>> {
        let wait = self.by_request.remove(&request)?;
        self.by_actor.remove(&(wait.actor, request));
        if let Some(name) = wait.sole_name() {
            self.lone.remove(&(name.clone(), request));
        }
        self.place_count -= wait.places.as_slice().len();
        self.bytes -= wait.size_bytes();
        Some(wait)
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<&Wait> {
        self.by_request.get(&request).map(|wait| &**wait)
    }

    pub(crate) fn first(&self) -> Option<(RequestId, &Wait)> {
        self.iter().next()
    }

    pub(crate) fn contains(&self, request: RequestId) -> bool {
        self.by_request.contains_key(&request)
    }

    /// The waits of one actor, in the order of their requests.
    pub(crate) fn of(&self, actor: ActorId) -> impl Iterator<Item = (RequestId, &Wait)> {
        self.by_actor
            .range((actor, RequestId(0))..=(actor, RequestId(u64::MAX)))
            .filter_map(|(_, request)| Some((*request, self.get(*request)?)))
    }

    /// The waits for this lock only, in exclusive mode, in the order of their requests.
    pub(crate) fn only_for(&self, name: &LockName) -> impl Iterator<Item = (RequestId, &Wait)> {
        self.lone
            .range((name.clone(), RequestId(0))..=(name.clone(), RequestId(u64::MAX)))
            .filter_map(|(_, request)| Some((*request, self.get(*request)?)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Wait)> {
        self.by_request.iter().map(|(request, wait)| (*request, &**wait))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_request.len()
    }

    pub(crate) fn place_count(&self) -> usize {
        self.place_count
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_request.is_empty()
    }

    /// Whether the indexes, the count of places and the size agree with `by_request`.
    pub(crate) fn are_indexed(&self) -> bool {
        let places = self.iter().map(|(_, wait)| wait.places.as_slice().len());
        places.sum::<usize>() == self.place_count
            && self.iter().map(|(_, wait)| wait.size_bytes()).sum::<u64>() == self.bytes
            && self.by_actor.len() == self.by_request.len()
            && self.iter().filter(|(_, wait)| wait.sole_name().is_some()).count() == self.lone.len()
            && self.iter().all(|(request, wait)| self.by_actor.contains(&(wait.actor, request)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::command::Mode;
    use crate::model::time::LogicalTime;
    use crate::state::answers::Question;
    use crate::state::queue::Ticket;
    use crate::state::wait::{QueuePlace, QueuePlaces};

    fn waits() -> SessionWaits {
        let name = LockName::new("wallet").unwrap();
        let place = QueuePlace { name: name.clone(), ticket: Ticket(1), mode: Mode::Exclusive };
        let wait = Wait {
            actor: ActorId(1),
            places: QueuePlaces::One(place),
            queued_at: LogicalTime::ZERO,
            deadline: LogicalTime::ZERO,
            terms: Box::default(),
            question: Question::Acquire { name },
            converts: None,
        };
        let mut waits = SessionWaits::default();
        waits.insert(RequestId(1), wait);
        waits
    }

    #[test]
    fn a_wrong_count_or_index_of_session_waits_is_detected() {
        assert!(waits().are_indexed());
        let mut miscounted = waits();
        miscounted.place_count += 1;
        let mut unknown = waits();
        unknown.by_actor.clear();
        let mut lost = waits();
        lost.lone.clear();
        let mut misplaced = waits();
        misplaced.by_actor = BTreeSet::from([(ActorId(2), RequestId(1))]);
        for wrong in [miscounted, unknown, lost, misplaced] {
            assert!(!wrong.are_indexed());
        }
    }
}
