//! The end of a session with more holds and waits than one log entry may end: see ADR 79.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod arbitrary;
mod world;

use holdfast_core::command::{Action, Intervention};
use holdfast_core::{
    Command, EndReason, Event, Limits, LockStatus, LockTable, LogIndex, LogicalTime, Outcome,
    PublicSessionId, Rejection, RestoreOptions, RulesVersion, SessionSummary, Span, Used,
};
use proptest::prelude::*;
use world::World;

const BUDGET: usize = 7;

fn limits() -> Limits {
    Limits { ended_parts_per_entry_max: BUDGET, ..Limits::default() }
}

/// Alice holds so many locks, and waits for as many that Bob holds.
fn a_session_with_much(rules: RulesVersion, holds: u64, waits: u64) -> World {
    let mut world = World::with_rules(limits(), rules);
    world.open("alice", 60_000);
    world.open("bob", 600_000);
    for number in 1..=holds {
        world.acquire("alice", number, &format!("held/{number:03}"), 0);
    }
    for number in 1..=waits {
        world.acquire("bob", number, &format!("awaited/{number:03}"), 0);
        world.acquire("alice", holds + number, &format!("awaited/{number:03}"), 60_000);
    }
    world
}

fn close_alice(world: &mut World) -> Outcome {
    let session = world.session("alice");
    world.apply(Command::CloseSession { session })
}

/// Holds and queue places that have ended.
fn ended_parts(events: &[Event]) -> usize {
    let parts = events.iter().map(|event| match event {
        Event::Released { .. } | Event::HoldEnded { .. } => 1,
        Event::WaitEnded { names, outcome, .. }
            if *outcome == Outcome::Rejected(Rejection::UnknownSession) =>
        {
            names.as_slice().len()
        }
        _ => 0,
    });
    parts.sum()
}

fn session_ends(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::SessionEnded { .. })).count()
}

#[test]
fn a_session_with_no_more_than_the_budget_ends_in_one_entry() {
    let mut world = a_session_with_much(RulesVersion::NEWEST, 4, 3);
    assert_eq!(close_alice(&mut world), Outcome::SessionClosed);
    assert_eq!((ended_parts(&world.events), session_ends(&world.events)), (BUDGET, 1));
    assert_eq!(world.table.ending_session_count(), 0);
}

#[test]
fn each_entry_ends_no_more_than_the_budget_and_ticks_are_due_until_all_have_ended() {
    let mut world = a_session_with_much(RulesVersion::NEWEST, 20, 10);
    assert_eq!(close_alice(&mut world), Outcome::SessionClosed);
    let mut ended = ended_parts(&world.events);
    assert_eq!((ended, session_ends(&world.events)), (BUDGET, 0));
    assert_eq!(world.table.session_count(), 1, "alice's session has ended");
    while world.table.ending_session_count() > 0 {
        assert_eq!(world.table.next_deadline(), Some(world.now), "a tick is due");
        assert_eq!(session_ends(&world.events), 0);
        world.apply(Command::Tick);
        let parts = ended_parts(&world.events);
        assert!(parts == BUDGET || ended + parts == 30, "{parts} after {ended}");
        ended += parts;
    }
    assert_eq!(ended, 30);
    let last = world.events.last();
    assert!(
        matches!(last, Some(Event::SessionEnded { reason: EndReason::Closed, .. })),
        "{last:?}"
    );
    assert_eq!(world.table.lock_count(), 10, "bob's locks are left");
    assert!(world.table.next_deadline() > Some(world.now));
}

#[test]
fn the_decision_has_an_event_unless_the_session_ends_with_it() {
    let decisions = |world: &World| -> Vec<EndReason> {
        let reason = |event: &Event| match event {
            Event::SessionEnding { reason, .. } => Some(*reason),
            _ => None,
        };
        world.events.iter().filter_map(reason).collect()
    };
    let mut large = a_session_with_much(RulesVersion::NEWEST, 20, 10);
    close_alice(&mut large);
    assert_eq!(decisions(&large), [EndReason::Closed]);
    assert!(matches!(large.events[0], Event::SessionEnding { .. }), "it comes first");
    large.tick();
    assert_eq!(decisions(&large), []);
    let mut small = a_session_with_much(RulesVersion::NEWEST, 4, 3);
    close_alice(&mut small);
    assert_eq!(decisions(&small), []);
}

#[test]
fn before_rules_8_a_session_ends_in_one_entry() {
    let mut world = a_session_with_much(RulesVersion::SEVEN, 20, 10);
    close_alice(&mut world);
    assert_eq!((ended_parts(&world.events), session_ends(&world.events)), (30, 1));
}

#[test]
fn the_end_of_a_small_session_does_not_wait_for_that_of_a_large_one() {
    let mut world = a_session_with_much(RulesVersion::NEWEST, 30, 0);
    world.open("carol", 60_000);
    world.acquire("carol", 1, "hers", 0);
    close_alice(&mut world);
    let session = world.session("carol");
    world.apply(Command::CloseSession { session });
    assert_eq!(session_ends(&world.events), 1);
    assert_eq!(world.table.status("hers", 1).holder_count, 0);
    assert_eq!(world.table.ending_session_count(), 1, "alice's holds are left");
}

#[test]
fn sessions_that_end_together_share_the_budget() {
    let mut world = World::new(limits());
    let mut request = 0;
    for name in ["alice", "bob", "carol"] {
        world.open(name, 1_000);
        for _ in 0..5 {
            request += 1;
            world.acquire(name, request, &format!("lock/{request}"), 0);
        }
    }
    world.at(2_000).apply(Command::Tick);
    assert_eq!(world.table.session_count(), 0, "all have expired");
    // The first ends at once. Of those that are left, this entry ends as many again.
    assert_eq!((ended_parts(&world.events), session_ends(&world.events)), (5 + BUDGET, 2));
    world.apply(Command::Tick);
    assert_eq!((ended_parts(&world.events), session_ends(&world.events)), (3, 1));
    assert_eq!(world.table.lock_count(), 0);
}

#[test]
fn no_wait_of_an_ending_session_is_granted() {
    let mut world = a_session_with_much(RulesVersion::NEWEST, 0, 30);
    close_alice(&mut world);
    assert_eq!(world.table.ending_session_count(), 1);
    // Bob gives back the locks that alice's last waits are for. Carol queues behind them.
    world.open("carol", 60_000);
    world.acquire("carol", 1, "awaited/030", 60_000);
    let token = world.table.status("awaited/030", 1).holders[0].token.0;
    world.release("bob", 31, "awaited/030", token);
    let grants = |events: &[Event]| -> Vec<u64> {
        let to_carol = events.iter().filter_map(|event| match event {
            Event::Granted { request, .. } => Some(request.0),
            _ => None,
        });
        to_carol.collect()
    };
    let mut granted = grants(&world.events);
    while world.table.ending_session_count() > 0 {
        world.tick();
        granted.extend(grants(&world.events));
    }
    assert_eq!(world.holder("awaited/030").as_deref(), Some("carol"));
    assert_eq!(granted, [1], "carol's request alone is granted");
}

#[test]
fn requests_of_an_ending_session_are_answered_as_those_of_an_ended_one() {
    let mut world = a_session_with_much(RulesVersion::NEWEST, 60, 0);
    let token = world.table.status("held/060", 1).holders[0].token.0;
    close_alice(&mut world);
    let unknown = Outcome::Rejected(Rejection::UnknownSession);
    assert_eq!(world.table.ending_session_count(), 1);
    assert_eq!(world.acquire("alice", 100, "new", 0), unknown);
    assert_eq!(world.renew("alice", 101, "held/060", token), unknown);
    assert_eq!(world.touch("alice", 0), unknown);
    assert_eq!(world.open("alice", 60_000), Outcome::Rejected(Rejection::SessionExists));
    assert_eq!(world.table.status("new", 1).holder_count, 0);
    assert_eq!(world.table.ending_session_count(), 1, "all that was asked while it was ending");
}

#[test]
fn a_lock_that_is_broken_while_its_closed_session_is_ending_has_no_lock_delay() {
    let mut world = World::new(limits());
    world.open("alice", 60_000);
    for number in 1..=30 {
        let mut acquire = world.acquiring("alice", number, &format!("held/{number:03}"), 0);
        acquire.terms.lock_delay = Some(Span::from_ms(60_000));
        world.apply(Command::Acquire(acquire));
    }
    close_alice(&mut world);
    let name = world::lock_name("held/030");
    world.apply(Command::Intervene(Intervention {
        by: "an operator".into(),
        reason: "a test".into(),
        action: Action::Break { name, token: None },
        identity: None,
    }));
    world.open("bob", 60_000);
    let outcome = world.acquire("bob", 1, "held/030", 0);
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
}

#[test]
fn a_snapshot_of_ending_sessions_goes_on_alike() {
    let mut world = a_session_with_much(RulesVersion::NEWEST, 20, 10);
    let (by, reason, identity) = ("root".into(), "too much".into(), None);
    let action = Action::KillSession { session: PublicSessionId(1) };
    world.apply(Command::Intervene(Intervention { by, reason, identity, action }));
    let mut read = LockTable::decode(&world.table.encode(), limits()).unwrap();
    assert_eq!(read.digest(), world.table.digest());
    let mut index = read.applied_index().0;
    while world.table.ending_session_count() > 0 {
        index += 1;
        let mut events = Vec::new();
        read.apply(LogIndex(index), world.now, Command::Tick, &mut events);
        world.apply(Command::Tick);
        assert_eq!(events, world.events);
        assert_eq!(read.digest(), world.table.digest());
    }
    assert_eq!(read.ending_session_count(), 0);
}

#[test]
fn a_restore_ends_sessions_that_are_ending() {
    let mut world = a_session_with_much(RulesVersion::NEWEST, 20, 10);
    close_alice(&mut world);
    assert_eq!(world.table.ending_session_count(), 1);
    let options = RestoreOptions {
        token_floor: 1_000,
        index: LogIndex(10_000),
        closed_for: Span::ZERO,
        by: "root".into(),
        reason: "restored".into(),
    };
    world.table.reset_for_restore(options);
    world.table.check().unwrap();
    assert_eq!((world.table.lock_count(), world.table.waiter_count()), (0, 0));
    assert_eq!((world.table.session_count(), world.table.ending_session_count()), (0, 0));
    let open = world.open("alice", 60_000);
    assert_eq!(open, Outcome::Rejected(Rejection::SessionExists), "its end is remembered");
}

/// All that clients and operators see of the table, but for tokens: these depend on the order of grants.
#[derive(Debug, PartialEq)]
struct Seen {
    sessions: Vec<SessionSummary>,
    locks: Vec<LockStatus>,
    counts: (usize, usize, u64),
    quotas: Vec<Used>,
    next_deadline: Option<LogicalTime>,
}

fn seen(table: &LockTable) -> Seen {
    let status = |name| {
        let mut status = table.status(name, usize::MAX);
        status.holders.iter_mut().for_each(|holder| holder.token = holdfast_core::FenceToken(0));
        status
    };
    Seen {
        sessions: table.sessions(None, usize::MAX),
        locks: arbitrary::NAMES.map(status).into(),
        counts: (table.lock_count(), table.waiter_count(), table.size_bytes()),
        quotas: table.quota_use().map(|(_, _, used)| used).collect(),
        next_deadline: table.next_deadline(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// However few parts of a session one entry ends, in the end the table is as if one entry had ended them all.
    #[test]
    fn a_session_that_ends_in_parts_leaves_what_one_that_ends_at_once_leaves(
        budget in 1_usize..4,
        steps in proptest::collection::vec((0_u64..900, arbitrary::command()), 1..100),
    ) {
        let few = Limits { ended_parts_per_entry_max: budget, ..Limits::default() };
        let mut table = LockTable::with_rules(few, RulesVersion::NEWEST);
        let (mut now, mut index) = (LogicalTime::ZERO, 0);
        for (request, (pause_ms, mut command)) in (1_000..).zip(steps) {
            if let Command::Acquire(acquire) = &mut command {
                acquire.call.request = holdfast_core::RequestId(request);
            }
            now = now.after(Span::from_ms(pause_ms));
            index += 1;
            let mut at_once = LockTable::decode(&table.encode(), Limits::default()).unwrap();
            let mut events = Vec::new();
            table.apply(LogIndex(index), now, command.clone(), &mut events);
            at_once.apply(LogIndex(index), now, command, &mut Vec::new());
            assert_eq!(at_once.ending_session_count(), 0);
            // The first tick also ends what is due. After that, only the rest of the sessions is left.
            for tick in 0.. {
                let ending = table.ending_session_count();
                if ending == 0 {
                    break;
                }
                events.clear();
                index += 1;
                table.apply(LogIndex(index), now, Command::Tick, &mut events);
                at_once.apply(LogIndex(index), now, Command::Tick, &mut Vec::new());
                table.check().unwrap();
                // A wait for several locks ends as a whole.
                let parts = ended_parts(&events);
                assert!(tick == 0 || parts < budget + arbitrary::NAMES.len(), "{events:?}");
                assert!(parts > 0 || table.ending_session_count() < ending, "nothing goes on");
            }
            assert_eq!(seen(&table), seen(&at_once));
        }
    }
}
