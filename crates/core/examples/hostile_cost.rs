//! What one client can make a single command cost. Each case is doubled in size until it takes too long:
//! a cost that grows with the square of what one session may have stops every replica of the group.
//!
//! `cargo run --profile optimised -p holdfast-core --example hostile_cost`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program for people")]

mod world;

use std::time::{Duration, Instant};

use holdfast_core::command::{
    Acquire, AcquireAll, Action, Call, HoldRef, Intervention, Member, Mode, Policy, Terms,
};
use holdfast_core::{
    ActorId, Command, Limits, LockName, LockTable, LogIndex, LogicalTime, Outcome, PublicSessionId,
    RequestId, RulesVersion, SessionId, Span,
};
use world::opening;

struct Stage {
    table: LockTable,
    index: u64,
    next: u64,
}

impl Stage {
    fn new(sessions: u128) -> Stage {
        // With `rules-2` as the second argument, as tables did before walks were bounded.
        let is_before = std::env::args().nth(2).is_some_and(|rules| rules == "rules-2");
        let rules = if is_before { RulesVersion::TWO } else { RulesVersion::NEWEST };
        let table = LockTable::with_rules(Limits::default(), rules);
        let mut stage = Stage { table, index: 0, next: 0 };
        for id in 1..=sessions {
            let (session, public) = (SessionId(id), PublicSessionId(id as u64));
            stage.apply(opening(session, public, Span::from_secs(3_600)));
        }
        stage
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let at = LogicalTime::from_ms(1);
        self.table.apply(LogIndex(self.index), at, command, &mut Vec::new())
    }

    fn timed(&mut self, command: Command) -> (Outcome, Duration) {
        let start = Instant::now();
        let outcome = self.apply(command);
        (outcome, start.elapsed())
    }

    fn call(&mut self, session: u128) -> Call {
        self.next += 1;
        let acked_through = RequestId(self.next - 1);
        Call { session: SessionId(session), request: RequestId(self.next), acked_through }
    }

    fn terms(wait_s: u64, policy: Policy) -> Terms {
        Terms { wait: Span::from_secs(wait_s), policy, ..Terms::default() }
    }

    fn acquiring(
        &mut self,
        session: u128,
        actor: u64,
        name: &str,
        mode: Mode,
        wait: u64,
    ) -> Command {
        Command::Acquire(Acquire {
            call: self.call(session),
            actor: ActorId(actor),
            name: name_of(name),
            mode,
            terms: Stage::terms(wait, Policy::Detect),
        })
    }

    fn acquiring_all(&mut self, session: u128, actor: u64, names: &[(&str, Mode)]) -> Command {
        let members = names.iter().map(|(name, mode)| Member { name: name_of(name), mode: *mode });
        Command::AcquireAll(AcquireAll {
            call: self.call(session),
            actor: ActorId(actor),
            members: members.collect(),
            terms: Stage::terms(600, Policy::Wait),
        })
    }
}

fn name_of(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// Session 2 waits for many locks as one actor. Session 3 holds something and asks for what session 2
/// holds: the search comes to session 2 and looks, for each of its places, at all of its places.
fn a_bystander_who_waits_for_much(waits: u64) -> Duration {
    let mut stage = Stage::new(3);
    for number in 0..waits {
        let held = stage.acquiring(1, number + 1, &format!("h{number}"), Mode::Exclusive, 0);
        stage.apply(held);
    }
    let own = stage.acquiring(2, 0, "own", Mode::Exclusive, 0);
    stage.apply(own);
    for number in 0..waits {
        // By `Wait`, so that to queue them is quick; what is measured is another client's request.
        let mut wait = stage.acquiring(2, 0, &format!("h{number}"), Mode::Exclusive, 600);
        if let Command::Acquire(acquire) = &mut wait {
            acquire.terms.policy = Policy::Wait;
        }
        stage.apply(wait);
    }
    let other = stage.acquiring(3, 0, "other", Mode::Exclusive, 0);
    stage.apply(other);
    let asks = stage.acquiring(3, 0, "own", Mode::Exclusive, 600);
    let (outcome, took) = stage.timed(asks);
    assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
    took
}

/// Many readers want both a and b; b is taken. Each release of a reader of a walks along all of them,
/// and for each along the queue of b.
fn a_release_before_readers_of_two(waits: u64) -> Duration {
    let mut stage = Stage::new(3);
    let taken = stage.acquiring(1, 0, "b", Mode::Exclusive, 0);
    stage.apply(taken);
    let read = stage.acquiring(3, 0, "a", Mode::Shared, 0);
    let Outcome::Granted(grant) = stage.apply(read) else { unreachable!() };
    for number in 0..waits {
        let both = [("a", Mode::Shared), ("b", Mode::Shared)];
        let wait = stage.acquiring_all(2, number, &both);
        let outcome = stage.apply(wait);
        assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
    }
    let call = stage.call(3);
    let hold = HoldRef { name: name_of("a"), token: grant.token, acquire: RequestId(0) };
    stage.timed(Command::Release { call, hold }).1
}

/// As before, and a session that has many more places behind them is ended: the same queue is looked at
/// once for each place that became free.
fn the_end_of_a_session_behind_readers_of_two(waits: u64) -> Duration {
    let mut stage = Stage::new(4);
    let taken = stage.acquiring(1, 0, "b", Mode::Exclusive, 0);
    stage.apply(taken);
    let read = stage.acquiring(3, 0, "a", Mode::Shared, 0);
    stage.apply(read);
    for session in [2, 4] {
        for number in 0..waits {
            let wait =
                stage.acquiring_all(session, number, &[("a", Mode::Shared), ("b", Mode::Shared)]);
            stage.apply(wait);
        }
    }
    stage.timed(Command::CloseSession { session: SessionId(4) }).1
}

/// A transfer to one who waits for many other locks as the same actor.
fn a_transfer_to_one_who_waits_for_much(waits: u64) -> Duration {
    let mut stage = Stage::new(3);
    for number in 0..waits {
        let held = stage.acquiring(1, number + 1, &format!("h{number}"), Mode::Exclusive, 0);
        stage.apply(held);
    }
    let held = stage.acquiring(3, 0, "own", Mode::Exclusive, 0);
    let Outcome::Granted(grant) = stage.apply(held) else { unreachable!() };
    for number in 0..waits {
        let wait = stage.acquiring(2, 0, &format!("h{number}"), Mode::Exclusive, 600);
        stage.apply(wait);
    }
    let wait = stage.acquiring(2, 0, "own", Mode::Exclusive, 600);
    stage.apply(wait);
    let call = stage.call(3);
    let hold = HoldRef { name: name_of("own"), token: grant.token, acquire: RequestId(0) };
    let (outcome, took) = stage.timed(Command::Transfer { call, hold, to: PublicSessionId(2) });
    assert!(matches!(outcome, Outcome::Transferred { .. }), "{outcome:?}");
    took
}

/// The permits of a semaphore are set for which many actors wait who wait elsewhere as well: a search for
/// each of up to a thousand.
fn permits_set_for_many_who_wait_elsewhere(waits: u64) -> Duration {
    let mut stage = Stage::new(2);
    let held = stage.acquiring(1, 0, "sem", Mode::Permit { limit: 1 }, 0);
    stage.apply(held);
    let held = stage.acquiring(1, 0, "x", Mode::Exclusive, 0);
    stage.apply(held);
    for number in 0..waits {
        for (name, mode) in [("sem", Mode::Permit { limit: 1 }), ("x", Mode::Exclusive)] {
            let wait = stage.acquiring(2, number, name, mode, 600);
            let outcome = stage.apply(wait);
            assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
        }
    }
    let action = Action::SetPermits { name: name_of("sem"), limit: Some(1) };
    let intervention = Intervention { by: "o".into(), reason: "r".into(), action, identity: None };
    stage.timed(Command::Intervene(intervention)).1
}

/// Many readers wait for two locks, and a client that holds something asks for one of them.
fn an_acquire_behind_readers_of_two(waits: u64) -> Duration {
    let mut stage = Stage::new(3);
    for name in ["a", "b"] {
        let held = stage.acquiring(1, 0, name, Mode::Exclusive, 0);
        stage.apply(held);
    }
    for number in 0..waits {
        let wait = stage.acquiring_all(2, number, &[("a", Mode::Shared), ("b", Mode::Shared)]);
        stage.apply(wait);
    }
    let other = stage.acquiring(3, 0, "other", Mode::Exclusive, 0);
    stage.apply(other);
    let asks = stage.acquiring(3, 0, "a", Mode::Exclusive, 600);
    stage.timed(asks).1
}

/// A snapshot with one actor who waits for much is read back.
fn reading_a_snapshot(waits: u64) -> Duration {
    let mut stage = Stage::new(2);
    for number in 0..waits {
        let held = stage.acquiring(1, number + 1, &format!("h{number}"), Mode::Exclusive, 0);
        stage.apply(held);
        let mut wait = stage.acquiring(2, 0, &format!("h{number}"), Mode::Exclusive, 600);
        if let Command::Acquire(acquire) = &mut wait {
            acquire.terms.policy = Policy::Wait;
        }
        stage.apply(wait);
    }
    let bytes = stage.table.encode();
    let start = Instant::now();
    LockTable::decode(&bytes, Limits::default()).unwrap();
    start.elapsed()
}

/// One more wait of an actor that waits for much already.
fn one_more_wait(waits: u64) -> Duration {
    let mut stage = Stage::new(2);
    for number in 0..=waits {
        let held = stage.acquiring(1, number + 1, &format!("h{number}"), Mode::Exclusive, 0);
        stage.apply(held);
    }
    for number in 0..waits {
        let mut wait = stage.acquiring(2, 0, &format!("h{number}"), Mode::Exclusive, 600);
        if let Command::Acquire(acquire) = &mut wait {
            acquire.terms.policy = Policy::Wait;
        }
        stage.apply(wait);
    }
    let more = stage.acquiring(2, 0, &format!("h{waits}"), Mode::Exclusive, 600);
    stage.timed(more).1
}

/// Many readers want 256 locks each, of which the last in order is taken: all others are looked at for each reader.
fn a_release_before_readers_of_256(readers: u64) -> Duration {
    let mut stage = Stage::new(3);
    let names: Vec<String> = (0..256).map(|number| format!("name/{number:03}")).collect();
    let taken = stage.acquiring(1, 0, &names[255], Mode::Exclusive, 0);
    stage.apply(taken);
    let read = stage.acquiring(3, 0, &names[0], Mode::Shared, 0);
    let Outcome::Granted(grant) = stage.apply(read) else { unreachable!() };
    let all: Vec<(&str, Mode)> = names.iter().map(|name| (name.as_str(), Mode::Shared)).collect();
    for number in 0..readers / 64 {
        let wait = stage.acquiring_all(2, number, &all);
        let outcome = stage.apply(wait);
        assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
    }
    let call = stage.call(3);
    let hold = HoldRef { name: name_of(&names[0]), token: grant.token, acquire: RequestId(0) };
    stage.timed(Command::Release { call, hold }).1
}

/// The oldest actor of all asks by `WaitDie` for a lock that many younger ones read.
fn wait_die_for_a_lock_of_many_readers(holders: u64) -> Duration {
    let mut stage = Stage::new(2);
    for number in 0..16 * holders {
        let read = stage.acquiring(2, number, "hot", Mode::Shared, 0);
        stage.apply(read);
    }
    let mut asks = stage.acquiring(1, 0, "hot", Mode::Exclusive, 600);
    if let Command::Acquire(acquire) = &mut asks {
        acquire.terms.policy = Policy::WaitDie;
        acquire.terms.since = Some(LogicalTime::ZERO);
    }
    stage.timed(asks).1
}

/// A release by a token that none of the many permits of the session has.
fn a_release_by_a_token_among_many_permits(holders: u64) -> Duration {
    let mut stage = Stage::new(2);
    for number in 0..16 * holders {
        let permit = stage.acquiring(2, number, "sem", Mode::Permit { limit: 1_000_000 }, 0);
        stage.apply(permit);
    }
    let call = stage.call(2);
    let token = holdfast_core::FenceToken(16 * holders + 1);
    let hold = HoldRef { name: name_of("sem"), token, acquire: RequestId(0) };
    stage.timed(Command::Release { call, hold }).1
}

/// A prefix is thawed under which many locks are awaited, and all are free.
fn a_thaw_of_many_awaited_locks(locks: u64) -> Duration {
    let mut stage = Stage::new(2);
    let intervene = |action| {
        Command::Intervene(Intervention {
            by: "o".into(),
            reason: "r".into(),
            action,
            identity: None,
        })
    };
    stage.apply(intervene(Action::Freeze { prefix: "".into(), ttl: Span::from_secs(600) }));
    for number in 0..4 * locks {
        let wait = stage.acquiring(2, number, &format!("lock/{number}"), Mode::Exclusive, 600);
        stage.apply(wait);
    }
    stage.timed(intervene(Action::Thaw { prefix: "".into() })).1
}

/// A session is closed that holds many locks: the slowest entry until the last of them has ended.
fn the_end_of_a_session_with_many_locks(locks: u64) -> Duration {
    let mut stage = Stage::new(1);
    for number in 0..16 * locks {
        let held = stage.acquiring(1, number, &format!("lock/{number}"), Mode::Exclusive, 0);
        stage.apply(held);
    }
    let mut slowest = stage.timed(Command::CloseSession { session: SessionId(1) }).1;
    while stage.table.ending_session_count() > 0 {
        slowest = slowest.max(stage.timed(Command::Tick).1);
    }
    slowest
}

fn main() {
    type Case = (&'static str, fn(u64) -> Duration);
    let cases: [Case; 13] = [
        ("an acquire, the holder waits for N", a_bystander_who_waits_for_much),
        ("a release, N readers want a second lock", a_release_before_readers_of_two),
        ("a close with N such waits, N before them", the_end_of_a_session_behind_readers_of_two),
        ("a transfer to one who waits for N", a_transfer_to_one_who_waits_for_much),
        ("set-permits, N wait who wait elsewhere too", permits_set_for_many_who_wait_elsewhere),
        ("an acquire behind N readers of two", an_acquire_behind_readers_of_two),
        ("reading a snapshot with N waits of one", reading_a_snapshot),
        ("one more wait of one who waits for N", one_more_wait),
        ("a release, N/64 readers want 256 locks", a_release_before_readers_of_256),
        ("wait-die, 16N younger readers", wait_die_for_a_lock_of_many_readers),
        ("a release by token, 16N permits", a_release_by_a_token_among_many_permits),
        ("a thaw of 4N awaited locks", a_thaw_of_many_awaited_locks),
        ("a close with 16N locks", the_end_of_a_session_with_many_locks),
    ];
    let only = std::env::args().nth(1).unwrap_or_default();
    for (what, case) in cases.into_iter().filter(|(what, _)| what.contains(&only)) {
        for waits in [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000] {
            let took = case(waits);
            println!("{what}: N={waits} {took:?}");
            if took > Duration::from_secs(1) {
                break;
            }
        }
    }
}
