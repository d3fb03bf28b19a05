//! What the grace of a new leader moves.

use holdfast_core::{Command, EndReason, Event, Limits, LogicalTime, Span};

use crate::world;
use crate::world::World;

#[test]
fn a_grace_moves_what_ends_before_it_and_nothing_else() {
    let deadline_after = |ttl: u64| {
        let mut world = World::new(Limits::default());
        world.open("alice", ttl);
        world.begin_term(1_000);
        world.table.next_deadline().map(|deadline| deadline.as_ms())
    };
    assert_eq!(deadline_after(999), Some(1_000));
    assert_eq!(deadline_after(1_000), Some(1_000));
    assert_eq!(deadline_after(1_001), Some(1_001));
}

#[test]
fn a_hold_is_given_one_grace_since_its_renewal_and_none_past_its_max_hold() {
    let mut world = world();
    let mut acquire = world.acquiring("alice", 1, "wallet", 0);
    acquire.terms.ttl = Some(Span::from_ms(500));
    acquire.terms.max_hold = Some(Span::from_ms(2_700));
    world.apply(Command::Acquire(acquire));
    let deadline = |world: &World| world.table.status("wallet", 1).holders[0].deadline.unwrap();
    world.at(400).begin_term(1_000);
    assert_eq!(deadline(&world).as_ms(), 1_400);
    world.at(1_000).begin_term(1_000);
    assert_eq!(deadline(&world).as_ms(), 1_400, "it had its grace");
    world.at(1_300).renew("alice", 2, "wallet", 1);
    assert_eq!(deadline(&world).as_ms(), 1_800);
    world.at(1_750).begin_term(1_000);
    assert_eq!(deadline(&world).as_ms(), 2_700, "its max-hold");
    world.at(2_700).tick();
    let reasons: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            Event::HoldEnded { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [EndReason::MaxHold]);
}

#[test]
fn a_session_that_outlives_a_grace_has_not_used_it() {
    let mut world = World::new(Limits::default());
    world.open("alice", 60_000);
    world.begin_term(60_000);
    world.at(59_000).begin_term(5_000);
    assert_eq!(world.table.next_deadline(), Some(LogicalTime::from_ms(64_000)));
}
