//! The current state of the locks, for `watch` and `top`. It begins with a snapshot (the summaries of the watched
//! locks) and follows the events after it.
//!
//! A snapshot names only the first holder of a lock, and counts the other holders and the waiters. These are *unnamed*
//! here. Queues are FIFO, so an event about an unknown holder or waiter is taken for one of the unnamed.
//!
//! Caveat: a conversion may be granted at once while another task of the same session waits for the lock. The board
//! then takes that waiter for the conversion, and shows the queue one too short until the waiter is granted.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_proto::v1::{EventKind, LockSummary, Mode, WatchEvent};

use crate::status::OwnerInfo;

/// How many locks the board follows at most.
const LOCKS_MAX: usize = 200_000;

/// Milliseconds since an arbitrary moment, which is the same for all calls to one board.
pub(crate) type Millis = u64;

#[derive(Debug, Default)]
pub(crate) struct Board {
    locks: BTreeMap<String, Lock>,
    /// There are more locks than the board follows.
    is_cut: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Lock {
    holders: Vec<Holder>,
    unnamed_holders: u64,
    waiters: BTreeSet<(String, u64)>,
    unnamed_waiters: u64,
    /// When something last happened to it.
    pub(crate) changed_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) session: String,
    /// The request id of its acquire; `None` if the holder is from a snapshot.
    request: Option<u64>,
    pub(crate) token: u64,
    /// Signed, because the hold may be older than the moment from which the board counts.
    since: i64,
    /// Empty if it is not known.
    pub(crate) owner: String,
    pub(crate) reason: String,
}

impl Holder {
    pub(crate) fn held_for_ms(&self, now: Millis) -> Millis {
        u64::try_from(signed(now).saturating_sub(self.since)).unwrap_or(0)
    }
}

fn signed(time: Millis) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

impl Lock {
    pub(crate) fn holder_count(&self) -> u64 {
        self.holders.len() as u64 + self.unnamed_holders
    }

    pub(crate) fn waiter_count(&self) -> u64 {
        self.waiters.len() as u64 + self.unnamed_waiters
    }

    pub(crate) fn first_holder(&self) -> Option<&Holder> {
        self.holders.first()
    }

    fn granted(&mut self, holder: Holder) {
        if let Some(request) = holder.request {
            self.remove_waiter(&holder.session, request);
        }
        self.holders.push(holder);
    }

    fn remove_waiter(&mut self, session: &str, request: u64) {
        if !self.waiters.remove(&(session.to_owned(), request)) {
            self.unnamed_waiters = self.unnamed_waiters.saturating_sub(1);
        }
    }

    fn ended(&mut self, event: &WatchEvent) {
        match self.place_of(event) {
            Some(place) => drop(self.holders.remove(place)),
            None => self.unnamed_holders = self.unnamed_holders.saturating_sub(1),
        }
    }

    fn place_of(&self, event: &WatchEvent) -> Option<usize> {
        let of_request = |holder: &Holder| {
            holder.session == event.public_session_id && holder.request == Some(event.request_id)
        };
        let of_token = |holder: &Holder| {
            holder.session == event.public_session_id && holder.token == event.token
        };
        let by_request = self.holders.iter().position(of_request);
        by_request.or_else(|| self.holders.iter().position(of_token))
    }

    fn converted(&mut self, event: &WatchEvent) {
        let of_session = |(session, _): &&(String, u64)| *session == event.public_session_id;
        if event.mode() == Mode::Exclusive
            && let Some(waiter) = self.waiters.iter().find(of_session).cloned()
        {
            self.waiters.remove(&waiter);
        }
        // The conversion may give a new token, so the request id identifies the hold. A holder from a snapshot has
        // none, and matches by its session alone.
        let of_request = |holder: &&mut Holder| {
            holder.session == event.public_session_id
                && holder.request.is_none_or(|request| request == event.request_id)
        };
        if let Some(holder) = self.holders.iter_mut().find(of_request) {
            holder.token = event.token;
        }
    }

    fn is_unused(&self) -> bool {
        self.holder_count() == 0 && self.waiter_count() == 0
    }
}

impl Board {
    /// Empties the board, before a new snapshot.
    pub(crate) fn clear(&mut self) {
        *self = Board::default();
    }

    pub(crate) fn put(&mut self, lock: &LockSummary, now: Millis) {
        let first = (lock.holder_count > 0).then(|| Holder {
            session: lock.public_session_id.clone(),
            request: None,
            token: lock.token,
            since: signed(now).saturating_sub(signed(lock.held_for_ms)),
            owner: OwnerInfo::from(lock.owner.clone()).in_words(),
            reason: String::from_utf8_lossy(&lock.metadata).into_owned(),
        });
        let entry = Lock {
            unnamed_holders: lock.holder_count.saturating_sub(u64::from(first.is_some())),
            holders: first.into_iter().collect(),
            unnamed_waiters: lock.waiter_count,
            changed_at: now,
            ..Lock::default()
        };
        if self.has_room_for(&lock.name) && !entry.is_unused() {
            self.locks.insert(lock.name.clone(), entry);
        }
    }

    pub(crate) fn apply(&mut self, event: &WatchEvent, now: Millis) {
        for name in &event.names {
            let begins = matches!(event.kind(), EventKind::Granted | EventKind::Queued);
            if begins && self.has_room_for(name) {
                self.locks.entry(name.clone()).or_default();
            }
            let Some(lock) = self.locks.get_mut(name) else { continue };
            lock.changed_at = now;
            match event.kind() {
                EventKind::Granted => lock.granted(Holder {
                    session: event.public_session_id.clone(),
                    request: Some(event.request_id),
                    token: event.token,
                    since: signed(now),
                    owner: String::new(),
                    reason: String::from_utf8_lossy(&event.metadata).into_owned(),
                }),
                EventKind::Queued => {
                    lock.waiters.insert((event.public_session_id.clone(), event.request_id));
                }
                EventKind::WaitEnded => {
                    lock.remove_waiter(&event.public_session_id, event.request_id);
                }
                EventKind::Released
                | EventKind::Expired
                | EventKind::Wounded
                | EventKind::Broken
                | EventKind::Killed
                | EventKind::Transferred => lock.ended(event),
                EventKind::Converted => lock.converted(event),
                EventKind::Proclaimed => {
                    if let Some(place) = lock.place_of(event) {
                        lock.holders[place].reason =
                            String::from_utf8_lossy(&event.metadata).into_owned();
                    }
                }
                _ => {}
            }
            if lock.is_unused() {
                self.locks.remove(name);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Lock)> {
        self.locks.iter().map(|(name, lock)| (name.as_str(), lock))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Lock> {
        self.locks.get(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn has_room_for(&mut self, name: &str) -> bool {
        let has_room = self.locks.len() < LOCKS_MAX || self.locks.contains_key(name);
        self.is_cut |= !has_room;
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, name: &str, session: &str, request: u64, token: u64) -> WatchEvent {
        WatchEvent {
            kind: kind.into(),
            names: vec![name.into()],
            public_session_id: session.into(),
            request_id: request,
            token,
            mode: Mode::Exclusive.into(),
            ..Default::default()
        }
    }

    fn counts(board: &Board, name: &str) -> (u64, u64) {
        board.get(name).map_or((0, 0), |lock| (lock.holder_count(), lock.waiter_count()))
    }

    #[test]
    fn a_lock_is_followed_from_its_first_grant_to_its_last_release() {
        let mut board = Board::default();
        board.apply(&event(EventKind::Granted, "a", "s", 1, 1), 10);
        board.apply(&event(EventKind::Queued, "a", "t", 1, 0), 20);
        board.apply(&event(EventKind::Queued, "a", "u", 1, 0), 20);
        assert_eq!(counts(&board, "a"), (1, 2));
        board.apply(&event(EventKind::WaitEnded, "a", "u", 1, 0), 30);
        board.apply(&event(EventKind::Released, "a", "s", 1, 1), 40);
        board.apply(&event(EventKind::Granted, "a", "t", 1, 2), 40);
        assert_eq!(counts(&board, "a"), (1, 0));
        assert_eq!(board.get("a").unwrap().first_holder().unwrap().held_for_ms(45), 5);
        board.apply(&event(EventKind::Expired, "a", "t", 1, 2), 50);
        assert_eq!(board.len(), 0);
    }

    #[test]
    fn unnamed_holders_and_waiters_of_a_snapshot_leave_first() {
        let mut board = Board::default();
        let summary = LockSummary {
            name: "a".into(),
            holder_count: 2,
            waiter_count: 1,
            token: 7,
            public_session_id: "s".into(),
            held_for_ms: 500,
            ..Default::default()
        };
        board.put(&summary, 100);
        assert_eq!(counts(&board, "a"), (2, 1));
        assert_eq!(board.get("a").unwrap().first_holder().unwrap().held_for_ms(101), 501);
        board.apply(&event(EventKind::Queued, "a", "v", 1, 0), 110);
        board.apply(&event(EventKind::Released, "a", "s", 3, 7), 120);
        board.apply(&event(EventKind::Released, "a", "r", 9, 7), 120);
        board.apply(&event(EventKind::Granted, "a", "t", 4, 8), 120);
        assert_eq!(counts(&board, "a"), (1, 1));
        board.apply(&event(EventKind::Released, "a", "t", 4, 8), 130);
        board.apply(&event(EventKind::Granted, "a", "v", 1, 9), 130);
        assert_eq!(counts(&board, "a"), (1, 0));
    }

    #[test]
    fn a_conversion_leaves_the_queue_and_has_a_new_token() {
        let mut board = Board::default();
        board.apply(&event(EventKind::Granted, "a", "s", 1, 1), 0);
        board.apply(&event(EventKind::Queued, "a", "s", 2, 0), 0);
        board.apply(&event(EventKind::Converted, "a", "s", 1, 5), 0);
        assert_eq!(counts(&board, "a"), (1, 0));
        assert_eq!(board.get("a").unwrap().first_holder().unwrap().token, 5);
    }
}
