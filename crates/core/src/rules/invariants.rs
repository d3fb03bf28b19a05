//! What is always true of a table between two commands. Tests and the simulation ask after every
//! command; a snapshot that does not pass is refused.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::codec::DecodeError;
use crate::model::command::Mode;
use crate::model::id::{FenceToken, RequestId, SessionId};
use crate::model::limits::Limits;
use crate::model::name::LockName;
use crate::model::rules_version::RulesVersion;
use crate::model::slot::Slot;
use crate::state::answers::{Question, Reply};
use crate::state::deadlines::{Deadlines, Due};
use crate::state::hold::Hold;
use crate::state::lock::Lock;
use crate::state::moves::{Arrival, Moves};
use crate::state::queue::Counts;
use crate::state::session::Session;
use crate::state::table::LockTable;
use crate::state::wait::Wait;

/// Fails the check with the text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

impl LockTable {
    /// Reads back what [`encode`](LockTable::encode) wrote, and refuses anything else.
    pub fn decode(bytes: &[u8], limits: Limits) -> Result<LockTable, DecodeError> {
        let table = LockTable::decode_unchecked(bytes, limits)?;
        table.check().map_err(DecodeError::Inconsistent)?;
        #[cfg(feature = "planted")]
        let table = table.with_parts_forgotten();
        Ok(table)
    }

    /// Does the table contradict itself? If so, says how. It looks at everything, so it is as slow as
    /// the table is large.
    pub fn check(&self) -> Result<(), String> {
        let mut tokens = Vec::with_capacity(self.lock_map().len());
        let mut deadlines = Deadlines::default();
        let (mut hold_count, mut place_count) = (0, 0);
        let (mut conversions, mut converted) = (0, 0);
        let mut identified = 0;
        let (mut ending, mut public_ids) = (BTreeSet::new(), BTreeSet::new());
        for (id, session) in self.session_map().iter() {
            self.check_session(session)?;
            ensure!(session.answers.are_counted(), "{} miscounts its answers", session.public);
            let held = self.count_held_bytes(*id, session);
            ensure!(held == session.held_bytes, "{} miscounts what it holds", session.public);
            match session.ending {
                Some(_) => {
                    ensure!(
                        session.deadline <= self.now(),
                        "{} ended in the future",
                        session.public
                    );
                    ending.insert((session.deadline, *id));
                }
                None => {
                    deadlines.insert(session.deadline, Due::Session(*id));
                    public_ids.insert((session.public, *id));
                }
            }
            hold_count += session.hold_count();
            conversions += session.conversions();
            identified += usize::from(session.identity.is_some());
            ensure!(session.waits.are_indexed(), "{} misplaces its waits", session.public);
            for (request, wait) in session.waits.iter() {
                self.check_wait(*id, request, wait)?;
                deadlines.insert(wait.deadline, Due::Wait(*id, request));
                place_count += wait.places.as_slice().len();
            }
        }
        let mut waiters = 0;
        let mut holders = 0;
        let mut closed = BTreeSet::new();
        for (name, lock) in self.lock_map().iter() {
            ensure!(!lock.is_unused(), "{name} is in the table for nothing");
            self.check_holders(name, lock, &mut tokens, &mut deadlines)?;
            self.check_queue(name, lock)?;
            closed.extend(lock.closed_until().map(|until| (until, name.clone())));
            waiters += lock.waiter_count();
            holders += lock.holder_count();
            converted += lock.holds().filter(|hold| hold.converted_by().is_some()).count();
        }
        for name in self.deferred().names() {
            ensure!(self.lock_map().contains_key(name), "{name} is to be promoted and unknown");
        }
        tokens.sort_unstable();
        if let Some(twice) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("token {} was granted twice", twice[0].1));
        }
        ensure!(identified == self.identified_sessions(), "identities are miscounted");
        ensure!(self.counted_usage().as_ref() == self.usage(), "what quotas count is miscounted");
        ensure!(conversions == converted, "a session has converted what it does not hold");
        ensure!(hold_count == holders, "a session holds what is not held by it");
        ensure!(place_count == waiters, "a session waits where it does not stand");
        ensure!(waiters == self.waiter_count(), "{waiters} wait, counted {}", self.waiter_count());
        let bytes = self.count_bytes();
        ensure!(
            bytes == self.size_bytes(),
            "the table takes {bytes} bytes, counted {}",
            self.size_bytes()
        );
        let ownership = self.ownership();
        ensure!(
            ownership.epoch().0 > 0 || ownership.slots().is_all(),
            "slots are missing at epoch 0, when the group has all of them"
        );
        self.check_moves()?;
        ensure!(self.table_limits().are_possible(), "the limits of the table are impossible");
        ensure!(deadlines == *self.deadlines(), "the index of deadlines is not exact");
        ensure!(closed == *self.closed_locks(), "the index of closed locks is not exact");
        ensure!(!self.has_freed(), "something that was freed was not promoted");
        ensure!(public_ids == *self.public_ids(), "the index of public ids is not exact");
        ensure!(ending == *self.ending_index(), "the index of ending sessions is not exact");
        ensure!(self.last_token() <= FenceToken::MAX.0, "the last token is too high");
        if let Some(publication) = self.publication() {
            ensure!(publication.through <= publication.events, "more is published than happened");
            ensure!(publication.index <= self.applied_index(), "the future is published");
        }
        Ok(())
    }

    fn check_moves(&self) -> Result<(), String> {
        let (moves, owned) = (self.moves(), self.ownership().slots());
        ensure!(
            self.rules() >= RulesVersion::TEN || *moves == Moves::default(),
            "slots move before the rules know of that"
        );
        if let Some(outgoing) = moves.outgoing() {
            let slots = outgoing.slots();
            ensure!(!owned.overlaps(slots), "slots that leave are owned");
            let is_left = |name: &&LockName| slots.contains(Slot::of(name));
            let left = self.lock_map().keys().chain(self.stored_permits().keys()).find(is_left);
            if outgoing.complete().is_some()
                && let Some(left) = left
            {
                return Err(format!("{left} is in the table, and its slot has left"));
            }
        }
        for incoming in moves.incoming.values() {
            if let Arrival::Installing { epoch, slots, .. } = &incoming.arrival {
                ensure!(!owned.overlaps(slots), "slots that come are owned");
                ensure!(*epoch > self.ownership().epoch(), "slots come by an epoch that is over");
            }
        }
        Ok(())
    }

    fn check_session(&self, session: &Session) -> Result<(), String> {
        let public = session.public;
        ensure!(session.opened_at <= self.now(), "session {public} was opened in the future");
        ensure!(
            session.below_own_tokens <= self.last_token()
                && session.losses().iter().all(|token| token.0 <= self.last_token())
                && session.shared_losses().iter().all(|(token, _)| token.0 <= self.last_token()),
            "session {public} knows a token that was not granted yet"
        );
        for (request, answer) in session.answers.iter() {
            ensure!(
                request > session.answers.acked_through(),
                "session {public} keeps an acknowledged answer"
            );
            ensure!(
                !session.waits.contains(request),
                "session {public} waits for what is answered"
            );
            ensure!(
                !matches!(answer.reply, Reply::Rejected(rejection) if rejection.is_of_placement()),
                "session {public} keeps the refusal of a group that does not own the slot"
            );
            let held = session.held_by(request);
            ensure!(
                held.is_empty() || answer.reply == Reply::Granted,
                "session {public} holds what its answer denies"
            );
            ensure!(
                match (&answer.question, held) {
                    (Question::Acquire { name }, [held]) => name == held,
                    (Question::AcquireAll { .. }, _) => true,
                    (_, held) => held.is_empty(),
                },
                "session {public} holds what it did not ask for"
            );
        }
        ensure!(session.holds().count() == session.hold_count(), "{public} miscounts its holds");
        for (request, _) in session.holds() {
            ensure!(
                request <= session.answers.acked_through()
                    || session.answers.get(request).is_some(),
                "session {public} has no answer for what it holds"
            );
            ensure!(
                !session.waits.contains(request),
                "session {public} both holds and waits by one request"
            );
        }
        Ok(())
    }

    fn check_wait(&self, id: SessionId, request: RequestId, wait: &Wait) -> Result<(), String> {
        ensure!(wait.queued_at <= self.now(), "a wait is from the future");
        let session = self.session_map().get(&id);
        ensure!(
            session.is_none_or(|it| it.ending.is_none() || wait.queued_at <= it.deadline),
            "a session that had ended has begun to wait"
        );
        let places = wait.places.as_slice();
        let names: BTreeSet<&str> = places.iter().map(|place| &*place.name).collect();
        ensure!(names.len() == places.len(), "a wait stands twice in one queue");
        let mut standing =
            self.all_waits_of((id, wait.actor)).flat_map(|(_, wait)| wait.places.as_slice());
        let is_in_several = standing.nth(1).is_some();
        for place in places {
            let name = &place.name;
            let queue = self.lock_map().get(name).map(|lock| lock.queue());
            let waiter = queue.and_then(|queue| queue.get(place.ticket));
            ensure!(
                waiter.is_some_and(|waiter| {
                    (waiter.session, waiter.request, waiter.actor) == (id, request, wait.actor)
                        && waiter.mode == place.mode
                        && waiter.policy == wait.terms.policy
                }),
                "a waiter of {name} does not stand there"
            );
            ensure!(
                queue.is_some_and(
                    |queue| queue.in_several_queues().contains(&place.ticket) == is_in_several
                ),
                "a waiter of {name} is not known to stand elsewhere"
            );
            let room = wait.converts.is_some() || place.ticket.0 > 0;
            ensure!(
                room && place.ticket.0 < u64::MAX / 2,
                "the queue of {name} runs out of tickets"
            );
            if let Some(converts) = wait.converts {
                let hold =
                    self.lock_map().get(name).and_then(|held| held.hold((id, converts.acquire)));
                ensure!(
                    hold.is_some_and(|hold| hold.mode == Mode::Shared
                        && hold.token == converts.token
                        && hold.actor == wait.actor),
                    "a hold of {name} is to be converted that is not there"
                );
                ensure!(
                    queue.and_then(|queue| queue.first()).map(|first| first.0)
                        == Some(place.ticket),
                    "who converts {name} is not the first in line"
                );
            }
        }
        Ok(())
    }

    fn check_holders(
        &self,
        name: &LockName,
        lock: &Lock,
        tokens: &mut Vec<(Option<SessionId>, FenceToken)>,
        deadlines: &mut Deadlines,
    ) -> Result<(), String> {
        let mode = lock.mode();
        for hold in lock.holds() {
            self.check_hold(name, hold)?;
            if let Some(deadline) = hold.deadline() {
                deadlines.insert(deadline, Due::Hold(hold.session, hold.request, hold.token));
            }
            let alike = match (mode, hold.mode) {
                (Some(Mode::Exclusive), Mode::Exclusive) => lock.holder_count() == 1,
                (Some(Mode::Shared), Mode::Shared) => lock.shared_token() == Some(hold.token),
                (Some(Mode::Permit { .. }), Mode::Permit { .. }) => true,
                _ => false,
            };
            ensure!(alike, "{name} is held in ways that do not go together");
            if let Mode::Permit { limit } = hold.mode {
                ensure!(
                    self.stored_permits().contains_key(name)
                        || lock.holder_count() <= limit as usize,
                    "more permits of {name} are out than there are"
                );
            }
        }
        // Readers of one run have one token; otherwise each grant has its own. What came with a slot has a token of
        // another group, and so have readers that joined such a run. Among themselves those of one guest differ.
        let guest = |hold: &Hold| {
            let session = self.session_map().get(&hold.session);
            session.and_then(|session| session.guest_of).map(|_| hold.session)
        };
        let own = lock.holds().map(|hold| (guest(hold), hold.token));
        match mode {
            Some(Mode::Shared) if self.moves().has_come() => {}
            Some(Mode::Shared) => tokens.extend(own.take(1)),
            _ => tokens.extend(own),
        }
        Ok(())
    }

    fn check_hold(&self, name: &LockName, hold: &Hold) -> Result<(), String> {
        let session = self.known(name, hold.session)?;
        ensure!(
            session.held_by(hold.request).contains(name),
            "the holder of {name} does not know it"
        );
        ensure!(
            hold.converted_by().is_none_or(|it| session.converted_by(it) == Some(hold.request)),
            "the holder of {name} does not know by what it was converted"
        );
        // Older snapshots do not know that a reader may have joined a run that began before its session.
        let lowest = if hold.mode == Mode::Shared { 0 } else { session.below_own_tokens };
        ensure!(
            lowest < hold.token.0 && hold.token.0 <= self.last_token(),
            "{name} is held under token {}, which was not granted to its session",
            hold.token
        );
        ensure!(hold.granted_at <= self.now(), "{name} is granted in the future");
        ensure!(
            session.ending.is_none() || hold.granted_at <= session.deadline,
            "{name} was granted to a session that had ended"
        );
        let bounds = hold.bounds();
        ensure!(
            bounds.deadline.is_some()
                || (bounds.ttl.is_none() && bounds.max_hold_end.is_none() && !bounds.graced),
            "{name} has a TTL and no deadline"
        );
        ensure!(
            bounds.max_hold_end.is_none() || bounds.deadline <= bounds.max_hold_end,
            "{name} is held past its max-hold"
        );
        Ok(())
    }

    fn check_queue(&self, name: &LockName, lock: &Lock) -> Result<(), String> {
        let queue = lock.queue();
        let mut counts = Counts::NONE;
        for (_, waiter) in queue.iter() {
            self.known(name, waiter.session)?;
            *counts.of(waiter.mode) += 1;
        }
        ensure!(counts == queue.counts(), "the queue of {name} is miscounted");
        let next = queue.first().map(|(ticket, _)| ticket);
        // The first in line waits for something: else it would have been granted. One who is due may have
        // to wait for the tick that ends it.
        if let Some((_, waiter)) = queue.first()
            && let session = self.known(name, waiter.session)?
            && let Some(wait) = session.waits.get(waiter.request)
        {
            let places = wait.places.as_slice().iter();
            let is_deferred = || {
                self.deferred().covers(name)
                    || places.clone().any(|place| self.deferred().covers(&place.name))
            };
            let admitted = wait.converts.is_none()
                && session.ending.is_none()
                && session.deadline > self.now()
                && wait.deadline > self.now()
                && places.clone().all(|place| self.admits_waiter(&place.name, place.ticket));
            ensure!(
                !admitted || is_deferred(),
                "{name} could be granted to the first in line, {next:?}"
            );
        }
        Ok(())
    }

    fn known(&self, name: &LockName, id: SessionId) -> Result<&Session, String> {
        let session = self.session_map().get(&id);
        // Only then in words: it is asked of every hold.
        session.ok_or_else(|| format!("{name} is held or awaited by an unknown session"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::LogIndex;
    use crate::model::time::LogicalTime;
    use crate::state::queue::Ticket;
    use crate::state::wait::QueuePlaces;

    const BOB: SessionId = SessionId(2);
    const CAROL: SessionId = SessionId(3);
    const FIRST: RequestId = RequestId(1);

    /// Bob holds the wallet under token 2, Carol waits for it until 9 s; it is 1 s.
    fn table() -> LockTable {
        let bytes = include_bytes!("../../tests/fixtures/version-2/snapshot");
        LockTable::decode(bytes, Limits::default()).unwrap()
    }

    fn wallet() -> LockName {
        LockName::new("wallet").unwrap()
    }

    fn complaint(change: impl FnOnce(&mut LockTable)) -> String {
        let mut table = table();
        change(&mut table);
        table.check().unwrap_err()
    }

    fn take_carols_wait(table: &mut LockTable) -> Wait {
        *table.change_session(CAROL, |session| session.waits.remove(FIRST)).unwrap().unwrap()
    }

    fn put_carols_wait(table: &mut LockTable, wait: Wait) {
        table.change_session(CAROL, |session| session.waits.insert(FIRST, wait)).unwrap();
    }

    /// The promotion of the free wallet is missing.
    fn leave_carol_before_a_free_lock(table: &mut LockTable) {
        table.take_hold(&wallet(), (BOB, FIRST), &mut Vec::new()).unwrap();
        table.take_freed();
    }

    #[test]
    fn timestamps_in_the_future_violate_an_invariant() {
        let future = LogicalTime::from_ms(2_000);
        let said = complaint(|table| {
            table.change_session(BOB, |session| session.opened_at = future).unwrap();
        });
        assert!(said.contains("opened in the future"), "{said}");
        let said = complaint(|table| {
            let mut wait = take_carols_wait(table);
            wait.queued_at = future;
            put_carols_wait(table, wait);
        });
        assert!(said.contains("a wait is from the future"), "{said}");
        let said = complaint(|table| {
            table.change_hold(&wallet(), (BOB, FIRST), |hold| hold.granted_at = future).unwrap();
        });
        assert!(said.contains("granted in the future"), "{said}");
    }

    #[test]
    fn a_token_older_than_its_session_violates_an_invariant() {
        let said = complaint(|table| {
            table.change_session(BOB, |session| session.below_own_tokens = 2).unwrap();
        });
        assert!(said.contains("held under token 2"), "{said}");
    }

    #[test]
    fn a_queue_behind_a_free_lock_without_room_violates_an_invariant() {
        let said = complaint(|table| {
            let mut wait = take_carols_wait(table);
            let mut place = wait.places.as_slice()[0].clone();
            let first = table.move_waiter(&place.name, place.ticket, Ticket(0));
            place.ticket = first.unwrap();
            wait.places = QueuePlaces::One(place);
            put_carols_wait(table, wait);
        });
        assert!(said.contains("runs out of tickets"), "{said}");
    }

    #[test]
    fn a_waiter_for_a_free_lock_violates_an_invariant_unless_it_is_due() {
        let said = complaint(leave_carol_before_a_free_lock);
        assert!(said.contains("could be granted to the first in line"), "{said}");
        let mut wait_is_due = table();
        leave_carol_before_a_free_lock(&mut wait_is_due);
        wait_is_due.begin_command(LogIndex(0), LogicalTime::from_ms(9_000));
        assert_eq!(wait_is_due.check(), Ok(()));
        let mut session_is_due = table();
        leave_carol_before_a_free_lock(&mut session_is_due);
        let now = session_is_due.now();
        session_is_due.change_lease(CAROL, |session| session.deadline = now).unwrap();
        assert_eq!(session_is_due.check(), Ok(()));
    }
}
