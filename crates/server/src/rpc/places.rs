//! How much a node serves at a time. Each kind has places of its own: sessions last, and however many there are, they
//! leave room for the calls that are over in a moment, and nobody who watches takes the place of one who locks.
//!
//! A place is held for as long as what it was taken for lasts. Who finds none is told which kind it was.

use std::sync::Arc;

use holdfast_proto::v1::Failure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::{Stream, StreamExt};

use super::failure;
use super::forward::PASSED_ON_MAX;

/// Twice as many as a cluster is planned for, all at its leader.
const SESSION_STREAMS_MAX: usize = 200_000;
const CALLS_MAX: usize = 100_000;
const WATCHES_MAX: usize = 100_000;

pub(super) type Place = OwnedSemaphorePermit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One question, one answer.
    Call,
    /// The stream of a session.
    Session,
    /// One of those whose frames this node hands to the leader.
    PassedOn,
    /// Whoever follows what happens.
    Watch,
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Places {
    calls: OfKind,
    sessions: OfKind,
    passed_on: OfKind,
    watches: OfKind,
}

#[derive(Clone, Debug)]
struct OfKind {
    free: Arc<Semaphore>,
    max: usize,
}

impl Default for Places {
    fn default() -> Places {
        Places::new(CALLS_MAX, SESSION_STREAMS_MAX, PASSED_ON_MAX, WATCHES_MAX)
    }
}

impl Places {
    fn new(calls: usize, sessions: usize, passed_on: usize, watches: usize) -> Places {
        let [calls, sessions, passed_on, watches] = [calls, sessions, passed_on, watches]
            .map(|max| OfKind { free: Arc::new(Semaphore::new(max)), max });
        Places { calls, sessions, passed_on, watches }
    }

    pub(super) fn take(&self, kind: Kind) -> Result<Place, Failure> {
        let of_kind = match kind {
            Kind::Call => &self.calls,
            Kind::Session => &self.sessions,
            Kind::PassedOn => &self.passed_on,
            Kind::Watch => &self.watches,
        };
        let place = Arc::clone(&of_kind.free).try_acquire_owned();
        place.map_err(|_| failure::no_place(&in_words(kind, of_kind.max)))
    }
}

fn in_words(kind: Kind, max: usize) -> String {
    match kind {
        Kind::Call => format!("this node has {max} calls under way, as many as it may"),
        Kind::Session => format!("this node serves {max} streams of sessions, as many as it may"),
        Kind::PassedOn => format!(
            "this node does not lead and passes {max} streams on to the leader, as many as it may; go to the leader"
        ),
        Kind::Watch => format!("this node tells {max} watchers and observers, as many as it may"),
    }
}

/// The places are held until the stream ends.
pub(super) fn held_by<S: Stream>(stream: S, places: [Place; 2]) -> impl Stream<Item = S::Item> {
    stream.map(move |item| {
        let _held = &places;
        item
    })
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::Reason;

    use super::*;

    const KINDS: [Kind; 4] = [Kind::Call, Kind::Session, Kind::PassedOn, Kind::Watch];

    #[test]
    fn as_many_of_one_kind_as_there_may_be_leave_room_for_every_other() {
        for full in KINDS {
            let places = Places::new(3, 3, 3, 3);
            let taken: Vec<Place> = (0..3).map(|_| places.take(full).unwrap()).collect();
            for kind in KINDS {
                assert_eq!(places.take(kind).is_ok(), kind != full, "{full:?} is full: {kind:?}");
            }
            drop(taken);
            assert!(places.take(full).is_ok(), "{full:?}: there is room again");
        }
    }

    #[test]
    fn who_finds_no_place_is_told_of_what_there_are_too_many_and_may_try_again() {
        let places = Places::new(1, 2, 3, 4);
        for (kind, words) in
            [(Kind::Call, "1 calls"), (Kind::Session, "2 streams"), (Kind::PassedOn, "3 streams")]
        {
            let _taken: Vec<Place> = std::iter::from_fn(|| places.take(kind).ok()).collect();
            let failure = places.take(kind).unwrap_err();
            assert!(failure.message.contains(words), "{}", failure.message);
            assert_eq!(failure.reason(), Reason::Overloaded);
            assert!(failure.retryable && !failure.may_have_happened);
        }
    }

    #[test]
    fn the_sessions_that_a_cluster_is_planned_for_find_their_places() {
        const PLANNED: usize = 100_000;
        let places = Places::default();
        let sessions: Vec<Place> =
            (0..PLANNED).map(|_| places.take(Kind::Session).unwrap()).collect();
        assert_eq!(sessions.len(), PLANNED);
        assert!(places.take(Kind::Call).is_ok());
    }

    #[tokio::test]
    async fn what_is_passed_on_has_its_places_until_it_ends() {
        let places = Places::new(1, 1, 1, 1);
        let taken = || [Kind::Watch, Kind::PassedOn].map(|kind| places.take(kind));
        let [watch, passed_on] = taken().map(Result::unwrap);
        let mut stream = Box::pin(held_by(tokio_stream::iter([1, 2]), [watch, passed_on]));
        assert_eq!(stream.next().await, Some(1));
        assert!(taken().iter().all(Result::is_err));
        drop(stream);
        assert!(taken().iter().all(Result::is_ok));
    }
}
