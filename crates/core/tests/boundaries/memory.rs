//! What is remembered, and how much of it.

use holdfast_core::command::OpenSession;
use holdfast_core::{
    Command, Limits, LogIndex, Outcome, PublicSessionId, Rejection, ReleaseAnswer, Span,
};

use crate::world::World;
use crate::{with_limits, world};

#[test]
fn only_the_latest_losses_are_remembered() {
    let limits = Limits { remembered_losses_max: 2, ..Limits::default() };
    let mut world = with_limits(limits);
    for request in 1..=3 {
        let mut acquire = world.acquiring("alice", request, &format!("lock-{request}"), 0);
        acquire.terms.ttl = Some(Span::from_ms(1_000));
        world.apply(Command::Acquire(acquire));
    }
    world.at(1_000).tick();
    let mut release =
        |request, token| world.release("alice", request, &format!("lock-{token}"), token);
    let answer = Outcome::Release;
    assert_eq!(release(4, 1), answer(ReleaseAnswer::AlreadyReleased), "forgotten");
    assert_eq!(release(5, 2), answer(ReleaseAnswer::Expired));
    assert_eq!(release(6, 3), answer(ReleaseAnswer::Expired));
}

#[test]
fn only_the_latest_ended_sessions_are_remembered() {
    let ended_sessions_span = Span::ZERO;
    let limits = Limits { ended_sessions_max: 2, ended_sessions_span, ..Limits::default() };
    let mut world = World::new(limits);
    for who in ["alice", "bob", "carol"] {
        world.open(who, 60_000);
    }
    for who in ["alice", "bob", "carol"] {
        world.close(who);
    }
    let again = |world: &mut World, who| world.open(who, 60_000);
    let ended = Outcome::Rejected(Rejection::SessionExists);
    assert!(matches!(again(&mut world, "alice"), Outcome::SessionOpen { .. }), "forgotten");
    assert_eq!(again(&mut world, "bob"), ended);
    assert_eq!(again(&mut world, "carol"), ended);
    // A second life that ends does not shorten the memory of others.
    world.close("alice");
    assert_eq!(again(&mut world, "carol"), ended);
    assert_eq!(again(&mut world, "alice"), ended);
}

#[test]
fn a_cancel_before_its_request_takes_room_for_two_answers() {
    let limits = Limits { unacknowledged_answers_max: 1, ..Limits::default() };
    let mut room_for_two = with_limits(limits.clone());
    assert_eq!(room_for_two.cancel("alice", 1, 9), Outcome::CancelDone);
    let mut room_for_one = with_limits(limits);
    room_for_one.release("alice", 1, "wallet", 1);
    let refused = Outcome::Rejected(Rejection::TooManyUnacknowledged);
    assert_eq!(room_for_one.cancel("alice", 2, 9), refused);
}

#[test]
fn a_session_is_opened_again_only_with_the_same_settings() {
    let changes: [fn(&mut OpenSession); 4] = [
        |open| open.public = PublicSessionId(99),
        |open| open.ttl = Span::from_secs(31),
        |open| open.linger = Span::from_secs(1),
        |open| open.owner.pid = 7,
    ];
    for change in changes {
        let mut world = World::new(Limits::default());
        let open = world.opening("alice", Span::from_secs(30));
        world.apply(Command::OpenSession(open.clone()));
        let again = world.apply(Command::OpenSession(open.clone()));
        assert!(matches!(again, Outcome::SessionOpen { .. }));
        let mut other = open;
        change(&mut other);
        let refused = world.apply(Command::OpenSession(other));
        assert_eq!(refused, Outcome::Rejected(Rejection::SessionExists));
    }
}

#[test]
fn a_session_is_there_from_its_opening_to_its_end() {
    let mut world = world();
    let (alice, carol) = (world.session("alice"), world.session("carol"));
    assert!(world.table.has_session(alice) && !world.table.has_session(carol));
    world.close("alice");
    assert!(!world.table.has_session(alice));
}

#[test]
fn the_table_knows_how_far_the_log_was_applied() {
    let mut world = world();
    assert_eq!(world.table.applied_index(), LogIndex(2));
    world.table.apply(LogIndex(1), world.now, Command::Tick, &mut Vec::new());
    assert_eq!(world.table.applied_index(), LogIndex(2), "it never goes back");
}

#[test]
fn a_snapshot_is_written_in_parts_as_it_was_when_it_was_begun() {
    for entries_max in 1..8 {
        let mut world = world();
        for request in 1..4 {
            world.acquire("alice", request, &format!("lock/{request}"), 0);
        }
        assert!(!world.table.is_writing_snapshot());
        let as_it_was = world.table.encode();
        world.table.begin_snapshot(b"head");
        assert!(world.table.is_writing_snapshot());
        world.release("alice", 4, "lock/2", 2);
        let mut parts = 1;
        let bytes = loop {
            match world.table.continue_snapshot(entries_max) {
                Some(bytes) => break bytes,
                None => parts += 1,
            }
            assert!(parts < 9, "it does not end");
        };
        assert_eq!(bytes, [b"head".to_vec(), as_it_was].concat());
        assert_eq!(parts, 5 / entries_max + 1, "two sessions and three locks");
        assert!(!world.table.is_writing_snapshot());
        assert_eq!(world.table.continue_snapshot(entries_max), None);
    }
}
