//! Bugs that other lock services shipped, as far as the lock table alone can have them. Each test
//! names one and where it was seen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod world;

use holdfast_core::command::OpenSession;
use holdfast_core::{
    Command, Event, Limits, LockTable, Outcome, Rejection, ReleaseAnswer, Span, StreamId,
};
use world::{World, token};

fn world() -> World {
    World::new(Limits::default())
}

fn granted_to(world: &World, lock: &str) -> Vec<String> {
    let grants = world.events.iter().filter_map(|event| match event {
        Event::Granted { name, session, .. } if name.as_str() == lock => Some(*session),
        _ => None,
    });
    grants.map(|session| world.name_of(session)).collect()
}

/// etcd#11456, etcd#9921.
#[test]
fn a_waiter_whose_session_died_while_it_was_queued_is_never_granted() {
    let mut world = world();
    world.open("alice", 60_000);
    world.open("bob", 5_000);
    world.open("carol", 60_000);
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("bob", 1, "wallet", 30_000);
    world.acquire("carol", 1, "wallet", 30_000);
    world.at(5_000).tick();
    assert_eq!(world.waiters("wallet"), ["carol"]);
    world.release("alice", 2, "wallet", 1);
    assert_eq!(granted_to(&world, "wallet"), ["carol"]);
}

/// etcd#11456: the dying session is first in line for what it frees.
#[test]
fn a_dying_session_is_not_granted_what_its_own_end_frees() {
    for close in [true, false] {
        let mut world = world();
        world.open("alice", 5_000);
        world.open("bob", 60_000);
        world.acquire("alice", 1, "wallet", 0);
        world.acquire("alice", 2, "wallet", 30_000);
        world.acquire("bob", 1, "wallet", 30_000);
        world.at(5_000);
        if close {
            world.close("alice")
        } else {
            world.tick()
        };
        assert_eq!(granted_to(&world, "wallet"), ["bob"]);
        assert_eq!(world.table.last_token(), 2);
    }
}

/// node-redlock#296: a grant that arrives already expired.
#[test]
fn a_late_tick_grants_nothing_to_sessions_that_end_with_it() {
    // Whether one tick reaches them all or not.
    for expiries_per_tick_max in [1, 2, 100] {
        let limits = Limits { expiries_per_tick_max, ..Limits::default() };
        let mut world = World::new(limits);
        for (who, ttl_ms) in [("alice", 5_000), ("bob", 6_000), ("carol", 7_000), ("dave", 60_000)]
        {
            world.open(who, ttl_ms);
            world.acquire(who, 1, "wallet", 50_000);
        }
        // Bob's own lock is freed when he comes up, and has a dead and a living waiter.
        world.acquire("bob", 2, "keys", 0);
        world.acquire("carol", 2, "keys", 50_000);
        world.acquire("dave", 2, "keys", 50_000);
        world.at(20_000);
        let (mut wallet, mut keys) = (Vec::new(), Vec::new());
        while world.table.next_deadline().unwrap() <= world.now {
            world.tick();
            wallet.extend(granted_to(&world, "wallet"));
            keys.extend(granted_to(&world, "keys"));
        }
        assert_eq!(wallet, ["dave"]);
        assert_eq!(keys, ["dave"]);
    }
}

/// etcd#2660, etcd#9395, etcd#17132: the TTL is reset at every election, and a lock never expires.
#[test]
fn a_dead_holder_is_freed_however_often_the_leader_changes() {
    let mut world = world();
    world.open("alice", 10_000);
    world.acquire("alice", 1, "wallet", 0);
    for ms in (1_000..=20_000).step_by(500) {
        world.at(ms).begin_term(2_000);
        world.tick();
        // Its TTL at least, and at most one grace more.
        let held = world.holder("wallet").is_some();
        assert!(if ms < 10_000 { held } else { ms < 12_000 || !held }, "at {ms} ms: {held}");
    }
}

/// etcd#2660: early expiry around an election.
#[test]
fn a_new_leader_expires_no_client_early() {
    let mut world = world();
    world.open("alice", 10_000);
    world.acquire("alice", 1, "wallet", 0);
    world.at(9_000).touch("alice", 0);
    world.at(9_500).begin_term(1_000);
    world.at(18_999).tick();
    assert_eq!(world.holder("wallet").as_deref(), Some("alice"));
}

/// etcd 3.6.5: a renewal races the expiry.
#[test]
fn a_renewal_never_revives_what_has_ended() {
    let mut world = world();
    world.open("alice", 10_000);
    world.open("bob", 60_000);
    let mut acquire = world.acquiring("alice", 1, "wallet", 0);
    acquire.terms.ttl = Some(Span::from_ms(1_000));
    world.apply(Command::Acquire(acquire));
    world.at(1_000).tick();
    let not_held = Outcome::Rejected(Rejection::NotHeld);
    assert_eq!(world.renew("alice", 2, "wallet", 1), not_held);
    world.acquire("bob", 1, "wallet", 0);
    assert_eq!(world.renew("alice", 3, "wallet", 1), not_held);
    assert_eq!(world.renew("alice", 4, "wallet", 2), not_held);

    world.at(20_000).tick();
    let unknown = Outcome::Rejected(Rejection::UnknownSession);
    assert_eq!(world.touch("alice", 0), unknown);
    assert_eq!(world.renew("alice", 5, "wallet", 1), unknown);
    let attach = Command::AttachStream {
        session: world.session("alice"),
        stream: StreamId(1),
        identity: None,
    };
    assert_eq!(world.apply(attach), unknown);
    assert_eq!(world.holder("wallet").as_deref(), Some("bob"));
}

/// curator#600, curator#855, etcd#9715.
#[test]
fn a_cancelled_acquire_leaves_no_ghost_in_the_queue() {
    let mut world = world();
    world.open("alice", 60_000);
    world.open("bob", 60_000);
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("bob", 1, "wallet", 30_000);
    assert_eq!(world.cancel("bob", 2, 1), Outcome::CancelDone);
    // And one whose cancellation arrives first.
    assert_eq!(world.cancel("bob", 4, 3), Outcome::CancelDone);
    assert_eq!(world.acquire("bob", 3, "wallet", 30_000), Outcome::Cancelled);
    assert_eq!(world.table.waiter_count(), 0);
    world.release("alice", 2, "wallet", 1);
    assert_eq!(world.table.lock_count(), 0);
    // Nor does a retry of the cancelled request bring it back.
    assert_eq!(world.acquire("bob", 1, "wallet", 30_000), Outcome::Cancelled);
    assert_eq!(world.table.lock_count(), 0);
}

/// curator#1121: an acquire satisfied by one's own earlier session; etcd#10756: one session is
/// re-entrant by accident.
#[test]
fn an_acquire_is_not_satisfied_by_ones_own_earlier_hold() {
    let mut world = world();
    world.open("alice", 60_000);
    world.open("alice again", 60_000);
    world.acquire("alice", 1, "wallet", 0);
    assert_eq!(world.acquire("alice", 2, "wallet", 0), Outcome::Busy);
    assert_eq!(world.acquire("alice", 3, "wallet", 1_000), Outcome::Queued { position: 1 });
    assert_eq!(world.acquire("alice again", 1, "wallet", 0), Outcome::Busy);
}

/// curator `withProtection`.
#[test]
fn a_retried_acquire_is_granted_once_and_does_not_wait_for_itself() {
    let mut world = world();
    world.open("alice", 60_000);
    world.open("bob", 60_000);
    let first = world.acquire("alice", 1, "wallet", 30_000);
    assert_eq!(world.acquire("alice", 1, "wallet", 30_000), first);
    assert_eq!(world.table.last_token(), 1);
    assert_eq!(world.table.waiter_count(), 0);

    assert_eq!(world.acquire("bob", 1, "wallet", 30_000), Outcome::Queued { position: 1 });
    assert_eq!(world.acquire("bob", 1, "wallet", 30_000), Outcome::Queued { position: 1 });
    assert_eq!(world.table.waiter_count(), 1);
    world.release("alice", 2, "wallet", 1);
    assert_eq!(token(&world.acquire("bob", 1, "wallet", 30_000)), 2);
    assert_eq!(world.table.last_token(), 2);
}

/// etcd#22082.
#[test]
fn a_retried_release_never_frees_a_newer_hold() {
    let mut world = world();
    world.open("alice", 60_000);
    world.acquire("alice", 1, "wallet", 0);
    world.release("alice", 2, "wallet", 1);
    world.acquire("alice", 3, "wallet", 0);
    let released = Outcome::Release(ReleaseAnswer::Released);
    assert_eq!(world.release("alice", 2, "wallet", 1), released);
    // Also after its answer is forgotten, and under another number.
    world.touch("alice", 3);
    let discarded = Outcome::Rejected(Rejection::AnswerDiscarded);
    assert_eq!(world.release("alice", 2, "wallet", 1), discarded);
    let already = Outcome::Release(ReleaseAnswer::AlreadyReleased);
    assert_eq!(world.release("alice", 4, "wallet", 1), already);
    assert_eq!(world.holder("wallet").as_deref(), Some("alice"));
}

/// redisson#1353.
#[test]
fn dead_waiters_do_not_stall_the_queue() {
    let mut world = world();
    world.open("alice", 60_000);
    world.open("bob", 60_000);
    world.acquire("alice", 1, "wallet", 0);
    for request in 1..=100 {
        world.acquire("bob", request, "wallet", 1_000);
    }
    world.acquire("bob", 101, "wallet", 30_000);
    // No tick has cleared them away.
    world.at(2_000).release("alice", 2, "wallet", 1);
    assert_eq!(granted_to(&world, "wallet"), ["bob"]);
    assert_eq!(token(&world.acquire("bob", 101, "wallet", 30_000)), 2);
    assert_eq!(world.table.waiter_count(), 0);
}

/// hazelcast#26526.
#[test]
fn memory_does_not_grow_with_every_name_ever_used() {
    let mut world = world();
    world.open("alice", 60_000);
    let empty = world.table.encode().len();
    for number in 1..=1_000_u64 {
        let lock = format!("order-{number}");
        let mut acquire = world.acquiring("alice", 2 * number, &lock, 0);
        acquire.call.acked_through.0 = 2 * number - 1;
        world.apply(Command::Acquire(acquire));
        world.release("alice", 2 * number + 1, &lock, number);
    }
    world.touch("alice", 5_000);
    assert_eq!((world.table.lock_count(), world.table.waiter_count()), (0, 0));
    assert_eq!(world.table.next_deadline().map(|at| at.as_ms()), Some(60_000));
    // A few bytes for larger numbers; nothing for the names.
    assert!(world.table.encode().len() <= empty + 8);
    world.close("alice");
    assert_eq!(world.table.next_deadline(), None);
    assert_eq!(world.table.session_count(), 0);
}

/// etcd#16028, etcd#17780.
#[test]
fn tokens_do_not_go_back_when_a_snapshot_is_restored() {
    let mut world = world();
    world.open("alice", 60_000);
    world.acquire("alice", 1, "wallet", 0);
    world.release("alice", 2, "wallet", 1);
    world.close("alice");
    // The table is empty now, and must remember its last token all the same.
    world.table = LockTable::decode(&world.table.encode(), Limits::default()).unwrap();
    world.open("bob", 60_000);
    assert_eq!(token(&world.acquire("bob", 1, "wallet", 0)), 2);
}

/// valkey#2651, etcd#12291: a clock that jumps expires locks, or keeps them.
#[test]
fn a_stamp_that_goes_back_does_not_turn_back_time() {
    let mut world = world();
    world.at(50_000).open("alice", 10_000);
    world.at(1_000).acquire("alice", 1, "wallet", 0);
    assert_eq!(world.table.now().as_ms(), 50_000);
    assert_eq!(world.table.next_deadline().map(|at| at.as_ms()), Some(60_000));
    world.at(2_000).tick();
    assert_eq!(world.holder("wallet").as_deref(), Some("alice"));
}

/// A copy of an opening, and then one of an acquire, straggle in after their session has ended.
#[test]
fn a_session_that_has_ended_is_not_opened_again_by_a_straggler() {
    let mut world = world();
    for name in ["alice", "bob"] {
        let open = Command::OpenSession(world.opening(name, Span::from_ms(10_000)));
        world.apply(open.clone());
        assert!(matches!(world.acquire(name, 1, name, 0), Outcome::Granted(_)));
        let session = world.session(name);
        match name {
            "alice" => drop(world.apply(Command::CloseSession { session })),
            _ => drop(world.at(60_000).tick()),
        }
        assert_eq!(world.apply(open.clone()), Outcome::Rejected(Rejection::SessionExists));
        world.table = LockTable::decode(&world.table.encode(), Limits::default()).unwrap();
        assert_eq!(world.apply(open), Outcome::Rejected(Rejection::SessionExists));
        let unknown = Outcome::Rejected(Rejection::UnknownSession);
        assert_eq!(world.acquire(name, 1, name, 0), unknown);
        // A release that comes late: what was closed was given back. Of what expired nothing is known
        // whether an earlier copy of the release had done it.
        let answer = match name {
            "alice" => Outcome::Release(ReleaseAnswer::AlreadyReleased),
            _ => unknown,
        };
        assert_eq!(world.release(name, 2, name, 1), answer);
    }
    assert_eq!(world.table.lock_count(), 0);
}

/// A hello that was held up somewhere arrives after the client came back on another stream; then the
/// one who held it up notices that no client is there any more.
#[test]
fn a_hello_that_arrives_late_does_not_take_the_session_from_its_newer_stream() {
    let mut world = world();
    let open = world.opening("alice", Span::from_ms(10_000));
    let open = OpenSession { stream: Some(StreamId(1)), linger: Span::from_ms(100), ..open };
    world.apply(Command::OpenSession(open));
    let session = world.session("alice");
    world.apply(Command::AttachStream { session, stream: StreamId(7), identity: None });
    world.apply(Command::AttachStream { session, stream: StreamId(5), identity: None });
    world.detach("alice", 5);
    world.at(5_000).tick();
    assert_eq!(world.table.session_count(), 1);
    // The end of the newer one counts, and only once it has come.
    world.detach("alice", 7);
    world.at(5_100).tick();
    assert_eq!(world.table.session_count(), 0);
}

/// Otherwise a session that forgot to acknowledge could not even give back what it has.
#[test]
fn a_session_with_too_many_answers_kept_can_still_release_and_cancel() {
    let mut world = World::new(Limits { unacknowledged_answers_max: 3, ..Limits::default() });
    world.open("alice", 60_000);
    world.open("bob", 60_000);
    world.acquire("bob", 1, "taken", 0);
    world.acquire("alice", 1, "taken", 30_000);
    for request in 2..=4 {
        world.acquire("alice", request, "mine", 0);
    }
    let full = Outcome::Rejected(Rejection::TooManyUnacknowledged);
    assert_eq!(world.acquire("alice", 5, "more", 0), full);
    assert_eq!(world.cancel("alice", 6, 1), Outcome::CancelDone);
    let released = Outcome::Release(ReleaseAnswer::Released);
    assert_eq!(world.release("alice", 7, "mine", 2), released);
    assert_eq!(world.release("alice", 7, "mine", 2), released, "and they are kept like others");
    // There is an end to that too.
    for request in 8..20 {
        world.release("alice", request, "mine", 2);
    }
    assert_eq!(world.release("alice", 20, "mine", 2), full);
}

/// A late word about an old stream must not end a session that has come back.
#[test]
fn a_stream_that_broke_long_ago_does_not_shorten_the_session() {
    let mut world = world();
    let open = world.opening("alice", Span::from_ms(10_000));
    let open = OpenSession { stream: Some(StreamId(1)), linger: Span::from_ms(100), ..open };
    world.apply(Command::OpenSession(open));
    let session = world.session("alice");
    world.apply(Command::AttachStream { session, stream: StreamId(2), identity: None });
    world.detach("alice", 1);
    world.at(5_000).tick();
    assert_eq!(world.table.session_count(), 1);
}
