//! Whose a token is, and where tokens begin and end.

use holdfast_core::{
    FenceToken, LogIndex, Outcome, Rejection, ReleaseAnswer, RestoreOptions, Span,
};

use crate::world;
use crate::world::token;

#[test]
fn the_highest_token_is_the_highest_number_of_a_signed_column() {
    assert_eq!(FenceToken::MAX.0, i64::MAX as u64);
}

#[test]
fn tokens_that_were_never_granted_have_no_holder() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    world.release("alice", 2, "wallet", 1);
    let mut release = |request, token| world.release("alice", request, "wallet", token);
    let answer = Outcome::Release;
    assert_eq!(release(3, 0), answer(ReleaseAnswer::NotOwner));
    assert_eq!(release(4, 1), answer(ReleaseAnswer::AlreadyReleased));
    assert_eq!(release(5, 2), answer(ReleaseAnswer::NotOwner));
}

#[test]
fn a_token_from_before_the_session_was_never_its_own() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    world.release("alice", 2, "wallet", 1);
    world.open("carol", 60_000);
    let not_owner = Outcome::Release(ReleaseAnswer::NotOwner);
    assert_eq!(world.release("carol", 1, "wallet", 1), not_owner);
    assert_eq!(token(&world.acquire("alice", 3, "wallet", 0)), 2);
    assert_eq!(world.release("carol", 2, "wallet", 2), not_owner, "it is held by another");
}

#[test]
fn a_release_needs_the_right_name() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    assert!(!matches!(
        world.release("alice", 2, "purse", 1),
        Outcome::Release(ReleaseAnswer::Released)
    ));
    assert_eq!(world.holder("wallet").as_deref(), Some("alice"));
}

#[test]
fn a_token_is_current_while_it_is_held() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("alice", 2, "keys", 0);
    let standing = |name, token| {
        let standing = world.table.token_standing(name, FenceToken(token));
        (standing.is_held, standing.current, standing.last_given)
    };
    assert_eq!(standing("wallet", 1), (true, Some(FenceToken(1)), 2));
    assert_eq!(standing("wallet", 2), (false, Some(FenceToken(1)), 2));
    assert_eq!(standing("desk", 1), (false, None, 2));
}

#[test]
fn a_restore_ends_all_sessions_and_grants_nothing_for_a_while() {
    let restored = |closed_for| {
        let mut world = world();
        world.open("carol", 900_000);
        assert_eq!(world.table.longest_ttl(), Some(Span::from_secs(900)));
        world.acquire("alice", 1, "wallet", 0);
        world.acquire("alice", 2, "keys", 0);
        world.acquire("bob", 1, "wallet", 9_000);
        let (by, reason) = ("olga".into(), "restored".into());
        let (token_floor, index) = (1_000, LogIndex(500));
        let beginning = RestoreOptions { token_floor, index, closed_for, by, reason };
        let ended = world.table.reset_for_restore(beginning);
        world.table.check().unwrap();
        assert_eq!((ended.sessions, ended.holds, ended.waits), (3, 2, 1));
        assert_eq!((world.table.session_count(), world.table.lock_count()), (0, 0));
        assert_eq!((world.table.longest_ttl(), world.table.waiter_count()), (None, 0));
        assert_eq!(world.table.applied_index(), LogIndex(500));
        world
    };
    let mut open = restored(Span::ZERO);
    assert_eq!(open.table.next_deadline(), None);
    open.open("dave", 60_000);
    assert_eq!(token(&open.acquire("dave", 1, "wallet", 0)), 1_001);

    let mut closed = restored(Span::from_secs(9));
    closed.open("dave", 60_000);
    assert_eq!(closed.acquire("dave", 1, "wallet", 0), Outcome::Rejected(Rejection::Frozen));
    closed.at(9_000).tick();
    assert_eq!(token(&closed.acquire("dave", 2, "wallet", 0)), 1_001);
}

#[test]
fn when_the_tokens_run_out_nothing_is_granted_any_more() {
    let mut world = world();
    let (token_floor, index) = (FenceToken::MAX.0 - 1, LogIndex(0));
    let (by, reason) = ("olga".into(), "restored".into());
    let closed_for = Span::ZERO;
    world.table.reset_for_restore(RestoreOptions { token_floor, index, closed_for, by, reason });
    world.open("carol", 60_000);
    assert_eq!(token(&world.acquire("carol", 1, "wallet", 0)), FenceToken::MAX.0);
    let refused = Outcome::Rejected(Rejection::TooManyHolds);
    assert_eq!(world.acquire("carol", 2, "keys", 0), refused);
    assert_eq!(world.table.last_token(), FenceToken::MAX.0);
}
