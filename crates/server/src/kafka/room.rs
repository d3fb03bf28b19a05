//! How many events may be in memory on their way to Kafka, and how many bytes, for all groups of a node together.
//!
//! Invariant: what all batches take is at most the room, and one event more for each group, however many groups there
//! are and however long Kafka is away.
//!
//! No group waits for the batch of another one. Half of the room is divided equally among the groups: that share is
//! always free, because a group has one batch on its way. The other half is for the groups that have more to send, on a
//! first-come basis. A single group has the whole room for itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct RoomInFlight {
    /// Of each group.
    share: Room,
    /// What is free of the other half.
    common: Mutex<Room>,
}

/// The room that one batch takes. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    of: Arc<RoomInFlight>,
    from_common: Room,
}

impl Room {
    fn plus(self, other: Room) -> Room {
        Room { events: self.events + other.events, bytes: self.bytes + other.bytes }
    }

    /// None of it below zero.
    fn minus(self, other: Room) -> Room {
        let events = self.events.saturating_sub(other.events);
        Room { events, bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

impl RoomInFlight {
    pub(super) fn for_groups(groups: usize, events_max: u64) -> Arc<RoomInFlight> {
        let events = usize::try_from(events_max).unwrap_or(usize::MAX);
        let (share, common) = match groups {
            0 | 1 => (Room { events, bytes: BYTES_MAX }, Room::default()),
            _ => {
                let common = Room { events: events / 2, bytes: BYTES_MAX / 2 };
                let rest = Room { events, bytes: BYTES_MAX }.minus(common);
                (Room { events: rest.events / groups, bytes: rest.bytes / groups }, common)
            }
        };
        // With less than one event a group could send nothing.
        let share = Room { events: share.events.max(1), ..share };
        Arc::new(RoomInFlight { share, common: Mutex::new(common) })
    }

    /// For the next batch of a group that has none on its way: its share, and all that is free in common.
    pub(super) fn reserve(self: &Arc<Self>) -> Reservation {
        let from_common = std::mem::take(&mut *self.common());
        Reservation { of: Arc::clone(self), from_common }
    }

    fn common(&self) -> MutexGuard<'_, Room> {
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    pub(super) fn room(&self) -> Room {
        self.of.share.plus(self.from_common)
    }

    /// Gives back what the batch does not take.
    pub(super) fn shrink_to(&mut self, taken: Room) {
        let kept = taken.minus(self.of.share);
        let unused = self.from_common.minus(kept);
        self.from_common = self.from_common.minus(unused);
        let mut common = self.of.common();
        *common = common.plus(unused);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut common = self.of.common();
        *common = common.plus(self.from_common);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENTS: usize = 4_096;
    const WHOLE: Room = Room { events: EVENTS, bytes: BYTES_MAX };

    #[test]
    fn a_single_group_has_the_whole_room() {
        let room = RoomInFlight::for_groups(1, EVENTS as u64);
        assert_eq!(room.reserve().room(), WHOLE);
        assert_eq!(room.reserve().room(), WHOLE);
    }

    #[test]
    fn a_busy_group_takes_at_least_half_and_leaves_each_other_its_share() {
        let room = RoomInFlight::for_groups(64, EVENTS as u64);
        let mut busy = room.reserve();
        assert!(busy.room().events >= EVENTS / 2 && busy.room().bytes >= BYTES_MAX / 2);
        busy.shrink_to(WHOLE);
        let others: Vec<Reservation> = (1..64).map(|_| room.reserve()).collect();
        assert!(others.iter().all(|other| other.room().events == 32));
        drop(busy);
        drop(others);
        assert!(room.reserve().room().events >= EVENTS / 2, "all of it is free again");
    }

    #[test]
    fn what_a_batch_does_not_take_is_free_at_once() {
        let room = RoomInFlight::for_groups(2, EVENTS as u64);
        let mut first = room.reserve();
        first.shrink_to(Room { events: EVENTS / 4 + 100, bytes: 1_000 });
        let second = room.reserve().room();
        assert_eq!(second.events, EVENTS / 4 + EVENTS / 2 - 100);
        assert_eq!(second.bytes, BYTES_MAX / 4 + BYTES_MAX / 2);
    }

    #[test]
    fn each_group_can_send_one_event_even_if_the_room_is_for_fewer() {
        let room = RoomInFlight::for_groups(64, 1);
        let all: Vec<Reservation> = (0..64).map(|_| room.reserve()).collect();
        assert!(all.iter().all(|one| one.room().events == 1));
    }

    proptest! {
        /// Each step is of a group: it sends a batch of this size, or its batch arrives.
        #[test]
        fn all_batches_together_never_take_more_than_the_room(
            groups in 1..65_usize,
            steps in prop::collection::vec((0..64_usize, 0..10_000_usize, any::<bool>()), 1..300),
        ) {
            let room = RoomInFlight::for_groups(groups, EVENTS as u64);
            let mut batches: Vec<Option<(Reservation, Room)>> = (0..groups).map(|_| None).collect();
            for (group, wanted, arrives) in steps {
                let batch = &mut batches[group % groups];
                if arrives || batch.is_some() {
                    *batch = None;
                    continue;
                }
                let mut reservation = room.reserve();
                let Room { events, bytes } = reservation.room();
                let taken = Room { events: wanted.min(events), bytes: (wanted * 512).min(bytes) };
                reservation.shrink_to(taken);
                *batch = Some((reservation, taken));
                let all = batches.iter().flatten().map(|(_, taken)| *taken);
                let all = all.fold(Room::default(), Room::plus);
                prop_assert!(all.events <= EVENTS && all.bytes <= BYTES_MAX, "{all:?}");
            }
            batches.clear();
            let (share, common) = (room.share, *room.common());
            prop_assert!(share.events + common.events >= EVENTS / 2);
            if groups > 1 {
                prop_assert_eq!(common, Room { events: EVENTS / 2, bytes: BYTES_MAX / 2 });
            }
        }
    }
}
