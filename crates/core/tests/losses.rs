//! What a session is told that it lost while no notice could come. Readers have one token together, so of a shared
//! hold the acquire is remembered as well.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod world;

use holdfast_core::command::{Acquire, Mode, Terms};
use holdfast_core::{
    Command, FenceToken, Limits, LockTable, Outcome, RequestId, RulesVersion, SessionId, Span,
};
use world::World;

/// Alice reads the page by two requests. The hold of the first has a TTL of its own, which passes.
fn one_of_two_shared_holds_is_lost(rules: RulesVersion) -> (World, SessionId) {
    let mut world = World::with_rules(Limits::default(), rules);
    world.open("alice", 60_000);
    for (request, ttl) in [(1, Some(Span::from_secs(1))), (2, None)] {
        let acquire = world.acquiring("alice", request, "page", 0);
        let terms = Terms { ttl, ..acquire.terms.clone() };
        let shared = Acquire { mode: Mode::Shared, terms, ..acquire };
        let outcome = world.apply(Command::Acquire(shared));
        assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
    }
    world.at(1_000).apply(Command::Tick);
    let alice = world.session("alice");
    assert_eq!(world.table.status("page", 9).holder_count, 1);
    (world, alice)
}

#[test]
fn the_lost_one_of_two_shared_holds_under_one_token_is_reported() {
    let (mut world, alice) = one_of_two_shared_holds_is_lost(RulesVersion::NEWEST);
    let token = FenceToken(1);
    let reported = vec![(token, None), (token, Some(RequestId(1)))];
    assert_eq!(world.table.losses(alice), reported);
    world.table = LockTable::decode(&world.table.encode(), Limits::default()).unwrap();
    assert_eq!(world.table.losses(alice), reported, "it is in the snapshot");
}

#[test]
fn under_the_first_rules_only_the_token_is_reported_and_stored() {
    let (world, alice) = one_of_two_shared_holds_is_lost(RulesVersion::ONE);
    assert_eq!(world.table.losses(alice), [(FenceToken(1), None)]);
    assert_eq!(world.table.encode()[0], 2);
}
