//! When something ends, to the millisecond.

use holdfast_core::{
    Command, Event, FenceToken, Limits, Outcome, PublicSessionId, RequestId, Span, StreamId,
};

use crate::world::World;
use crate::{wallet, world};

#[test]
fn everything_ends_at_its_deadline_and_not_before() {
    let ended = |at: u64| {
        let mut world = World::new(Limits::default());
        world.open("alice", 5_000);
        world.at(at).tick();
        world.events.iter().any(|event| matches!(event, Event::SessionEnded { .. }))
    };
    assert!(!ended(4_999));
    assert!(ended(5_000));
}

#[test]
fn a_wait_that_ends_at_the_moment_of_the_release_is_over() {
    let mut world = world();
    world.open("carol", 600_000);
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("bob", 1, "wallet", 5_000);
    world.acquire("carol", 1, "wallet", 5_001);
    world.at(5_000).release("alice", 2, "wallet", 1);
    assert_eq!(world.holder("wallet").as_deref(), Some("carol"));
    assert_eq!(world.acquire("bob", 1, "wallet", 5_000), Outcome::TimedOut);
}

#[test]
fn a_lock_is_not_handed_to_a_wait_that_ends_at_that_moment() {
    let transfer_at = |ms| {
        let mut world = world();
        world.acquire("alice", 1, "wallet", 0);
        world.acquire("bob", 1, "wallet", 5_000);
        let (call, to) = (world.call("alice", 2), PublicSessionId(2));
        world.at(ms).apply(Command::Transfer { call, hold: wallet(), to })
    };
    assert_eq!(transfer_at(4_999), Outcome::Transferred { token: FenceToken(2) });
    assert!(matches!(transfer_at(5_000), Outcome::Rejected(_)));
}

#[test]
fn every_command_of_a_session_keeps_it_alive_and_no_other_does() {
    let mut world = World::new(Limits::default());
    world.open("alice", 10_000);
    world.acquire("alice", 1, "wallet", 0);
    let session = world.session("alice");
    let call = world.call("alice", 2);
    let stream = StreamId(1);
    let open = world.opening("alice", Span::from_secs(10));
    let said = [
        Command::OpenSession(open),
        Command::AttachStream { session, stream, identity: None },
        Command::Touch { session, acked_through: RequestId(0) },
        Command::Acquire(world.acquiring("alice", 3, "other", 0)),
        Command::Cancel { call, target: RequestId(9) },
        Command::Release { call, hold: wallet() },
        Command::Renew { call, hold: wallet(), ttl: None },
    ];
    let mut now = 0;
    for command in said {
        assert_eq!(command.session(), Some(session));
        now += 1_000;
        world.at(now).apply(command.clone());
        let ends = world.table.next_deadline().map(|deadline| deadline.as_ms());
        assert_eq!(ends, Some(now + 10_000), "{command:?}");
    }
    assert_eq!(Command::CloseSession { session }.session(), Some(session));
    assert_eq!(Command::DetachStream { session, stream }.session(), Some(session));
    for command in [Command::Tick, Command::BeginTerm { grace: Span::from_ms(1) }] {
        assert_eq!(command.session(), None);
        world.at(now + 500).apply(command);
        let ends = world.table.next_deadline().map(|deadline| deadline.as_ms());
        assert_eq!(ends, Some(now + 10_000));
    }
}

#[test]
fn a_session_that_comes_back_by_a_stream_lives_its_ttl() {
    let mut world = World::new(Limits::default());
    let mut open = world.opening("alice", Span::from_ms(10_000));
    (open.stream, open.linger) = (Some(StreamId(5)), Span::from_ms(500));
    world.apply(Command::OpenSession(open));
    let session = world.session("alice");
    let next_ms = |world: &World| world.table.next_deadline().unwrap().as_ms();
    world.at(100).detach("alice", 4);
    assert_eq!(next_ms(&world), 10_000, "not its stream");
    world.at(100).detach("alice", 5);
    assert_eq!(next_ms(&world), 600);
    world.at(200).detach("alice", 5);
    assert_eq!(next_ms(&world), 600, "it broke once");
    world.at(300).apply(Command::AttachStream { session, stream: StreamId(5), identity: None });
    assert_eq!(next_ms(&world), 10_300);
    world.at(400).detach("alice", 5);
    assert_eq!(next_ms(&world), 900, "it was open again");
}

#[test]
fn a_renewal_without_a_ttl_of_its_own_changes_nothing() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    match world.at(1_000).renew("alice", 2, "wallet", 1) {
        Outcome::Renewed { deadline, session_deadline } => {
            assert_eq!((deadline, session_deadline.as_ms()), (None, 601_000));
        }
        other => panic!("{other:?}"),
    }
}
