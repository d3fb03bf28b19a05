//! The recent events of each group, kept in a ring on every replica.
//!
//! The shard records the events of a turn in one step, as one batch that all readers share. Readers follow at their own
//! pace (`pace.rs`) and never delay the shard. The ring is bounded by number and by bytes. A reader that falls behind
//! its end gets an error. Positions (index of the log entry, number within it) are the same on every replica, so a
//! reader can continue at another node.
//!
//! Where events are published elsewhere, the log counts them (`holdfast_core::Publication`); the ring then knows
//! the number of each, which is the same on every replica, and so what is missing after a pause.
//!
//! Invariant: everything after `complete_after` is in the ring, in order.
//!
//! Caveat: a batch goes as a whole, so up to [`BATCH_EVENTS_MAX`] events that are forgotten still take memory.

mod event_slice;
mod pace;
mod session_texts;
mod view;

pub(crate) use self::event_slice::{EventRef, EventSlice, SharedEvent};
pub(crate) use self::pace::Pace;
pub(crate) use self::session_texts::SessionTexts;
pub(crate) use self::view::{EventView, SessionView, kind, message};

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_core::command::Owner;
use holdfast_core::{Event, LogIndex, LogicalTime, Principal, PublicSessionId, Publication, SLOTS};
use holdfast_proto::v1::EventPosition;
use holdfast_replica::{FOUNDING_INDEX, GroupId};
use tokio::sync::watch;

const BYTES_MAX: usize = 64 << 20;

/// With several groups each ring gets its share, but no less than this. Otherwise one busy group would cut off all
/// watches.
const SHARE_EVENTS_MIN: u64 = 8_192;
const SHARE_BYTES_MIN: usize = 4 << 20;

/// What a turn does is recorded in pieces of so many.
const BATCH_EVENTS_MAX: usize = 1_024;

/// A reader of the whole ring takes so many events at a time, so that the shard does not wait long for the lock.
const EVENTS_PER_LOOK: usize = 1_024;
/// A bound, because the shard may record faster than the reader reads.
const LOOKS_MAX: usize = 1_024;

/// An entry of a group's log, and the number of an event in it. Positions of different groups have no order that means
/// anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) group: GroupId,
    pub(crate) index: u64,
    pub(crate) number: u32,
}

impl From<Position> for EventPosition {
    fn from(Position { group, index, number }: Position) -> EventPosition {
        EventPosition { group: group.0, index, number }
    }
}

#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) position: Position,
    pub(crate) at: LogicalTime,
    /// For display only.
    pub(crate) unix_ms: u64,
    pub(crate) event: Event,
    /// How many that are news this ring recorded before; not the same on other replicas.
    pub(crate) serial: u64,
}

/// Something after the position is no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted;

/// The next events that are to be published.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// So many before them are no longer kept.
    pub(crate) lost: u64,
    /// How many were counted before the first of them.
    pub(crate) before: u64,
    pub(crate) events: Vec<SharedEvent>,
}

/// In order, and never none.
type Batch = Arc<Vec<Recorded>>;

/// One who wants to know the owners of sessions, by the number that the ring gave it.
#[derive(Debug)]
pub(crate) struct OwnerReader(usize);

/// What the audit says of a session besides its id.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionOwner {
    pub(crate) owner: Owner,
    /// None if what the session does is not checked.
    pub(crate) principal: Option<Principal>,
}

type Sessions = Arc<Vec<(PublicSessionId, SessionOwner)>>;

/// The rings of all groups, in the order of their numbers.
#[derive(Clone, Debug)]
pub(crate) struct EventRings(Arc<[Arc<EventRing>]>);

/// The recent events of one group.
#[derive(Debug)]
pub(crate) struct EventRing {
    group: GroupId,
    ring: Mutex<Ring>,
    news: watch::Sender<Position>,
}

#[derive(Debug)]
struct Ring {
    events_max: usize,
    bytes_max: usize,
    batches: VecDeque<Batch>,
    /// So many of the first batch are forgotten.
    forgotten: usize,
    /// How many are kept, and about how much memory they take.
    events: usize,
    bytes: usize,
    /// That are news.
    recorded: u64,
    /// What the log says at the end of the ring, if it counts.
    publication: Option<Publication>,
    complete_after: Position,
    /// Who was there when the state became that of a snapshot, for each who wants to know owners.
    sessions: Vec<Sessions>,
}

impl Position {
    /// Before the first entry.
    pub(crate) fn start_of(group: GroupId) -> Position {
        Position { group, index: 0, number: 0 }
    }

    /// After everything in this entry.
    pub(crate) fn end_of(group: GroupId, index: u64) -> Position {
        Position { group, index, number: u32::MAX }
    }
}

impl EventRings {
    /// With room for so many events in all rings together, or fewer if they are large. A share is never less than some
    /// thousand events.
    pub(crate) fn new(
        groups: impl ExactSizeIterator<Item = GroupId>,
        events_max: u64,
    ) -> EventRings {
        let count = groups.len().max(1);
        let share = (events_max / count as u64).max(SHARE_EVENTS_MIN.min(events_max));
        let bytes = (BYTES_MAX / count).max(SHARE_BYTES_MIN);
        EventRings(groups.map(|group| Arc::new(EventRing::new(group, share, bytes))).collect())
    }

    /// Of a cluster with one group.
    #[cfg(test)]
    pub(crate) fn of_one(ring: Arc<EventRing>) -> EventRings {
        EventRings(Arc::from([ring]))
    }

    /// The ring of a group of this cluster.
    pub(crate) fn of(&self, group: GroupId) -> &Arc<EventRing> {
        let place = (group.0 as usize).checked_sub(1);
        place.and_then(|place| self.0.get(place)).unwrap_or_else(|| self.root())
    }

    /// The ring of the root group.
    pub(crate) fn root(&self) -> &Arc<EventRing> {
        &self.0[0]
    }

    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &Arc<EventRing>> {
        self.0.iter()
    }
}

impl EventRing {
    /// With room for so many, or fewer if they are large.
    fn new(group: GroupId, events_max: u64, bytes_max: usize) -> EventRing {
        let events_max = usize::try_from(events_max).unwrap_or(usize::MAX);
        let complete_after = Position::start_of(group);
        let ring = Ring {
            events_max,
            bytes_max,
            batches: VecDeque::new(),
            forgotten: 0,
            events: 0,
            bytes: 0,
            recorded: 0,
            publication: None,
            complete_after,
            sessions: Vec::new(),
        };
        EventRing { group, ring: Mutex::new(ring), news: watch::Sender::new(complete_after) }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    /// A ring of the root group alone.
    pub(crate) fn of_root(events_max: u64) -> EventRing {
        EventRing::new(GroupId::FIRST, events_max, BYTES_MAX)
    }

    /// The events of a turn, in order, and what the log has counted with them.
    pub(crate) fn record(
        &self,
        events: &mut Vec<(LogIndex, LogicalTime, Event)>,
        unix_ms: u64,
        publication: Option<Publication>,
    ) {
        let mut ring = self.lock();
        let mut last = ring.newest();
        // What a replica finds in its log when it starts is the longest turn of all: each event is moved once.
        let mut events = events.drain(..);
        loop {
            let piece = events.by_ref().take(BATCH_EVENTS_MAX);
            let batch = piece.map(|(index, at, event)| {
                let number = if last.index == index.0 { last.number.wrapping_add(1) } else { 0 };
                last = Position { group: self.group, index: index.0, number };
                ring.bytes += weight(&event);
                let serial = ring.recorded;
                ring.recorded += u64::from(event.is_publishable());
                Recorded { position: last, at, unix_ms, event, serial }
            });
            let batch: Vec<Recorded> = batch.collect();
            if batch.is_empty() {
                break;
            }
            ring.events += batch.len();
            ring.batches.push_back(Arc::new(batch));
        }
        ring.publication = publication;
        ring.forget_oldest();
        drop(ring);
        self.news.send_replace(last);
    }

    /// The state is that of a snapshot: what happened up to it is not known.
    pub(crate) fn restart_after(&self, index: u64) {
        let mut ring = self.lock();
        ring.batches.clear();
        (ring.forgotten, ring.events, ring.bytes) = (0, 0, 0);
        ring.publication = None;
        let end = Position::end_of(self.group, index);
        ring.complete_after = end;
        drop(ring);
        self.news.send_replace(end);
    }

    /// The next events after a position, at most so many.
    pub(crate) fn after(&self, position: Position, max: usize) -> Result<EventSlice, Compacted> {
        let ring = self.lock();
        if position < ring.complete_after {
            return Err(Compacted);
        }
        Ok(ring.slice(max, |event| event.position <= position))
    }

    /// The next events after so many were counted, at most so many; none if the log does not count.
    pub(crate) fn after_count(&self, through: u64, max: usize) -> Option<Counted> {
        let ring = self.lock();
        let end = ring.publication?.events;
        let all = ring.slice(usize::MAX, |_| false);
        let first_kept = all.first().map_or(end, |event| ring.count_before(event));
        let before = through.max(first_kept);
        let rest = ring.slice(usize::MAX, |event| ring.count_before(event) < before);
        let news = rest.seen().filter(|event| event.event.is_publishable());
        // Events from before the count began do not count as lost.
        let news = news.filter(|event| ring.is_counted(event));
        let events = news.take(max).map(EventRef::keep).collect();
        Some(Counted { lost: before - through, before, events })
    }

    /// What the log has counted.
    pub(crate) fn publication(&self) -> Option<Publication> {
        self.lock().publication
    }

    /// Looks at all that is kept, from the oldest on. What goes meanwhile is passed over.
    pub(crate) fn look_through(&self, look: impl FnMut(EventRef<'_>)) {
        let mut look = look;
        let mut position = self.oldest();
        for _ in 0..LOOKS_MAX {
            let Ok(events) = self.after(position, EVENTS_PER_LOOK) else {
                position = self.oldest();
                continue;
            };
            let Some(last) = events.last() else { break };
            position = last.position;
            events.seen().for_each(&mut look);
        }
    }

    /// Everything that ever happened in the group is there. A group that was founded with several others begins with a
    /// snapshot, before which nothing happened.
    pub(crate) fn is_whole(&self) -> bool {
        let oldest = self.oldest();
        oldest.index == 0 || oldest == Position::end_of(self.group, FOUNDING_INDEX)
    }

    /// Is everything after the position still there?
    pub(crate) fn keeps(&self, position: Position) -> bool {
        position >= self.lock().complete_after
    }

    /// After what everything is still there.
    pub(crate) fn oldest(&self) -> Position {
        self.lock().complete_after
    }

    /// What was recorded last.
    pub(crate) fn newest(&self) -> Position {
        *self.news.borrow()
    }

    /// The sessions of a state that came as a snapshot.
    pub(crate) fn set_sessions(&self, sessions: Vec<(PublicSessionId, SessionOwner)>) {
        let sessions = Arc::new(sessions);
        self.lock().sessions.iter_mut().for_each(|slot| slot.clone_from(&sessions));
    }

    /// For one who wants to know owners.
    pub(crate) fn owner_reader(&self) -> OwnerReader {
        let mut ring = self.lock();
        ring.sessions.push(Sessions::default());
        OwnerReader(ring.sessions.len() - 1)
    }

    /// Once for each snapshot and reader.
    pub(crate) fn take_sessions(&self, reader: &OwnerReader) -> Sessions {
        self.lock().sessions.get_mut(reader.0).map(std::mem::take).unwrap_or_default()
    }

    /// Changes whenever there is more to read.
    pub(crate) fn news(&self) -> watch::Receiver<Position> {
        self.news.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// How many the log had counted before this event; 0 if it is from before the count.
    fn count_before(&self, event: &Recorded) -> u64 {
        let since = self.recorded - event.serial;
        self.publication.map_or(0, |publication| publication.events.saturating_sub(since))
    }

    fn is_counted(&self, event: &Recorded) -> bool {
        let since = self.recorded - event.serial;
        self.publication.is_some_and(|publication| publication.events >= since)
    }

    fn newest(&self) -> Position {
        let last = self.batches.back().and_then(|batch| batch.last());
        last.map_or(self.complete_after, |event| event.position)
    }

    /// At most so many of those that are kept, from the first on for which this is no longer so.
    fn slice(&self, max: usize, is_before: impl Fn(&Recorded) -> bool) -> EventSlice {
        let ends_before = |batch: &Batch| batch.last().is_none_or(&is_before);
        let first = self.batches.partition_point(ends_before);
        let mut start = match self.batches.get(first) {
            Some(batch) => batch.partition_point(&is_before),
            None => 0,
        };
        if first == 0 {
            start = start.max(self.forgotten);
        }
        EventSlice::of(self.batches.range(first..), start, max)
    }

    fn forget_oldest(&mut self) {
        while self.events > self.events_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.batches.front().and_then(|batch| batch.get(self.forgotten))
            else {
                return;
            };
            self.bytes -= weight(&oldest.event);
            self.complete_after = oldest.position;
            self.events -= 1;
            self.forgotten += 1;
            if self.batches.front().is_some_and(|batch| batch.len() == self.forgotten) {
                self.batches.pop_front();
                self.forgotten = 0;
            }
        }
    }
}

/// About how much memory an event takes. Names are shared with the table, mostly; that does not count.
fn weight(event: &Event) -> usize {
    let texts = match event {
        Event::Granted { name, metadata, .. }
        | Event::Converted { name, metadata, .. }
        | Event::Proclaimed { name, metadata, .. } => name.len() + metadata.len(),
        Event::Refused { names, .. } | Event::WaitEnded { names, .. } => {
            names.iter().map(|name| name.len() + 64).sum()
        }
        Event::Intervened(intervention) => intervention.by.len() + intervention.reason.len(),
        Event::Queued { name, .. }
        | Event::Released { name, .. }
        | Event::HoldEnded { name, .. }
        | Event::HoldMovedIn { name, .. }
        | Event::Reopened { name } => name.len(),
        Event::Thawed { prefix } => prefix.len(),
        Event::SessionOpened { owner, .. } => {
            size_of_val(&**owner) + owner.application.len() + owner.host.len() + owner.note.len()
        }
        Event::AccessChanged { change, .. } => change.size_bytes(),
        Event::OwnershipChanged { .. } => usize::from(SLOTS) / 8,
        Event::SessionEnded { .. } | Event::SessionEnding { .. } | Event::PolicyAdopted { .. } => 0,
    };
    size_of::<Recorded>() + texts
}

#[cfg(test)]
mod tests {
    use holdfast_core::SessionId;

    use super::*;

    fn happened(indexes: impl IntoIterator<Item = u64>) -> Vec<(LogIndex, LogicalTime, Event)> {
        let (session, public) = (SessionId(1), PublicSessionId(1));
        let event =
            Event::SessionOpened { session, public, owner: Box::default(), principal: None };
        indexes
            .into_iter()
            .map(|index| (LogIndex(index), LogicalTime::from_ms(index), event.clone()))
            .collect()
    }

    const ROOM: u64 = 1_000;

    fn ring_after(index: u64) -> EventRing {
        let ring = EventRing::of_root(ROOM);
        ring.restart_after(index);
        ring
    }

    fn positions(ring: &EventRing, after: Position) -> Vec<(u64, u32)> {
        let events = ring.after(after, usize::MAX).unwrap();
        events.iter().map(|event| (event.position.index, event.position.number)).collect()
    }

    #[test]
    fn events_are_numbered_within_their_entry_however_the_turns_fall() {
        let ring = ring_after(4);
        ring.record(&mut happened([5, 5]), 0, None);
        ring.record(&mut happened([5, 7]), 0, None);
        assert_eq!(
            positions(&ring, Position::end_of(GroupId::FIRST, 4)),
            [(5, 0), (5, 1), (5, 2), (7, 0)]
        );
        assert_eq!(
            positions(&ring, Position { group: GroupId::FIRST, index: 5, number: 1 }),
            [(5, 2), (7, 0)]
        );
        assert_eq!(positions(&ring, Position::end_of(GroupId::FIRST, 5)), [(7, 0)]);
        assert_eq!(*ring.news().borrow(), Position { group: GroupId::FIRST, index: 7, number: 0 });
    }

    #[test]
    fn events_before_the_start_or_a_snapshot_are_compacted() {
        let ring = ring_after(4);
        ring.record(&mut happened([5]), 0, None);
        assert_eq!(ring.after(Position::end_of(GroupId::FIRST, 3), 9).unwrap_err(), Compacted);
        ring.restart_after(20);
        assert_eq!(ring.after(Position::end_of(GroupId::FIRST, 19), 9).unwrap_err(), Compacted);
        assert!(positions(&ring, Position::end_of(GroupId::FIRST, 20)).is_empty());
        ring.record(&mut happened([21]), 0, None);
        assert_eq!(positions(&ring, Position::end_of(GroupId::FIRST, 20)), [(21, 0)]);
    }

    #[test]
    fn a_reader_that_falls_behind_gets_an_error_and_the_ring_stays_bounded() {
        let ring = ring_after(0);
        let reader = Position { group: GroupId::FIRST, index: 1, number: 0 };
        ring.record(&mut happened(1..=ROOM), 0, None);
        assert!(ring.keeps(Position::end_of(GroupId::FIRST, 0)));
        ring.record(&mut happened([ROOM + 1]), 0, None);
        assert!(!ring.keeps(Position::end_of(GroupId::FIRST, 0)) && ring.keeps(reader));
        ring.record(&mut happened([ROOM + 2]), 0, None);
        assert_eq!(ring.after(reader, 1).unwrap_err(), Compacted);
        assert_eq!(ring.lock().events as u64, ROOM);
    }

    fn so_many(events: u64) -> Option<Publication> {
        Some(Publication { events, through: 0, index: LogIndex(0), term: 0 })
    }

    fn counted(ring: &EventRing, through: u64) -> (u64, u64, Vec<u64>) {
        let counted = ring.after_count(through, usize::MAX).unwrap();
        let indexes = counted.events.iter().map(|event| event.position.index);
        (counted.lost, counted.before, indexes.collect())
    }

    fn a_wait_ends_with_a_grant_event(index: u64) -> (LogIndex, LogicalTime, Event) {
        let event = Event::WaitEnded {
            names: std::iter::empty().collect(),
            session: SessionId(1),
            request: holdfast_core::RequestId(1),
            outcome: holdfast_core::Outcome::GrantedAll(Box::default()),
        };
        (LogIndex(index), LogicalTime::ZERO, event)
    }

    #[test]
    fn events_are_found_by_the_logs_count_and_unpublishable_ones_are_skipped() {
        let ring = ring_after(4);
        ring.record(&mut happened([5, 6]), 0, None);
        assert!(ring.after_count(0, 9).is_none(), "the count has not begun");
        // The count begins after entry 7.
        ring.record(&mut happened([7, 8]), 0, so_many(1));
        assert_eq!(counted(&ring, 0), (0, 0, vec![8]));
        let mut more = happened([9]);
        more.push(a_wait_ends_with_a_grant_event(9));
        more.extend(happened([10]));
        ring.record(&mut more, 0, so_many(3));
        assert_eq!(counted(&ring, 0), (0, 0, vec![8, 9, 10]));
        assert_eq!(counted(&ring, 1), (0, 1, vec![9, 10]));
        assert_eq!(counted(&ring, 2), (0, 2, vec![10]));
        assert_eq!(counted(&ring, 3), (0, 3, vec![]));
        // Another node published more than this replica has applied yet.
        assert_eq!(counted(&ring, 5), (0, 5, vec![]));
    }

    #[test]
    fn lost_events_are_counted_exactly_after_a_full_ring_and_after_a_snapshot() {
        let ring = ring_after(0);
        ring.record(&mut happened(1..=ROOM + 30), 0, so_many(ROOM + 30));
        let (lost, before, kept) = counted(&ring, 10);
        assert_eq!((lost, before), (20, 30));
        assert_eq!((kept.len() as u64, kept[0]), (ROOM, 31));
        // Another replica's snapshot, in which 5,000 were counted.
        ring.restart_after(7_000);
        assert!(ring.after_count(10, 9).is_none(), "the count is not known yet");
        ring.record(&mut Vec::new(), 0, so_many(5_000));
        assert_eq!(counted(&ring, 10), (4_990, 5_000, vec![]));
        ring.record(&mut happened([7_001]), 0, so_many(5_001));
        assert_eq!(counted(&ring, 10), (4_990, 5_000, vec![7_001]));
    }
}
