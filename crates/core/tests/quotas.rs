//! Quotas of principals and prefixes, as the lock table counts for them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use holdfast_core::command::{AcquireAll, Member, Mode, OpenSession, Terms};
use holdfast_core::{
    AccessChange, AccessRefusal, ActorId, ChangeAccess, Command, Identity, Limits, LockTable,
    Outcome, Principal, Quota, QuotaError, QuotaKind, QuotaSubject, Rejection, RoleName,
    RulesVersion, Span,
};

use world::{World, lock_name};

mod world;

fn principal() -> Principal {
    Principal::parse("token:billing").unwrap()
}

fn change(world: &mut World, changes: impl Into<Box<[AccessChange]>>) -> Outcome {
    world.apply(Command::ChangeAccess(Box::new(ChangeAccess {
        by: "a test".into(),
        identity: None,
        expected: None,
        changes: changes.into(),
        end_sessions: false,
    })))
}

fn set(subject: &str, quota: Quota) -> AccessChange {
    AccessChange::SetQuotas([(QuotaSubject::parse(subject).unwrap(), quota)].into())
}

fn opening(world: &mut World, name: &str) -> Command {
    let identity = Some(Box::new(Identity::of(principal())));
    Command::OpenSession(OpenSession { identity, ..world.opening(name, Span::from_secs(60)) })
}

/// With two sessions of one principal.
fn world_with(quotas: &[(&str, Quota)]) -> World {
    let mut world = World::new(Limits::default());
    let role = RoleName::parse("user").unwrap();
    change(&mut world, [AccessChange::Grant { principal: principal(), role }]);
    for name in ["alice", "bob"] {
        let open = opening(&mut world, name);
        assert!(matches!(world.apply(open), Outcome::SessionOpen { .. }));
    }
    let quotas: Vec<_> = quotas.iter().map(|(subject, quota)| set(subject, *quota)).collect();
    if !quotas.is_empty() {
        assert!(matches!(change(&mut world, quotas), Outcome::AccessChanged { .. }));
    }
    world
}

fn exceeded(kind: QuotaKind, limit: u64, is_of_prefix: bool) -> Outcome {
    Outcome::Rejected(Rejection::QuotaExceeded { kind, limit, is_of_prefix })
}

fn locks(limit: u64) -> Quota {
    Quota { locks: Some(limit), ..Quota::default() }
}

#[test]
fn the_sessions_of_a_principal_share_its_quota_of_locks_and_give_back_what_they_release() {
    let mut world = world_with(&[("token:billing", locks(2))]);
    let full = exceeded(QuotaKind::Locks, 2, false);
    assert!(matches!(world.acquire("alice", 1, "a", 0), Outcome::Granted(_)));
    assert!(matches!(world.acquire("bob", 1, "b", 0), Outcome::Granted(_)));
    assert_eq!(world.acquire("bob", 2, "c", 0), full);
    assert_eq!(world.acquire("alice", 2, "b", 9_000), full, "a place in a queue counts");
    // The same request succeeds when there is room: the refusal was not kept as its answer.
    world.release("alice", 3, "a", 1);
    assert!(matches!(world.acquire("bob", 2, "c", 0), Outcome::Granted(_)));
    // Others are not concerned.
    world.open("stranger", 60_000);
    assert!(matches!(world.acquire("stranger", 1, "d", 0), Outcome::Granted(_)));
    // What ends with its session is given back, too.
    let bob = world.session("bob");
    world.apply(Command::CloseSession { session: bob });
    assert!(matches!(world.acquire("alice", 4, "e", 0), Outcome::Granted(_)));
    assert!(matches!(world.acquire("alice", 5, "f", 0), Outcome::Granted(_)));
    assert_eq!(world.acquire("alice", 6, "g", 0), full);
    world.table.check().unwrap();
}

#[test]
fn a_prefix_has_a_quota_for_all_that_use_it() {
    let mut world = world_with(&[("jobs/*", locks(2)), ("jobs/big/*", locks(1))]);
    world.open("stranger", 60_000);
    assert!(matches!(world.acquire("stranger", 1, "jobs/big/1", 0), Outcome::Granted(_)));
    assert_eq!(world.acquire("alice", 1, "jobs/big/2", 0), exceeded(QuotaKind::Locks, 1, true));
    let member = |name| Member { name: lock_name(name), mode: Mode::Exclusive };
    let (call, actor, terms) = (world.call("alice", 2), ActorId(0), Terms::default());
    let members = [member("jobs/1"), member("jobs/2"), member("other")].into();
    let outcome = world.apply(Command::AcquireAll(AcquireAll { call, actor, members, terms }));
    assert_eq!(outcome, exceeded(QuotaKind::Locks, 2, true), "two of them are too many");
    assert!(matches!(world.acquire("alice", 3, "jobs/1", 0), Outcome::Granted(_)));
    assert!(matches!(world.acquire("alice", 4, "job", 0), Outcome::Granted(_)), "another name");
    world.table.check().unwrap();
}

#[test]
fn waits_and_sessions_have_quotas_of_their_own() {
    let quota = Quota { waits: Some(1), sessions: Some(2), ..Quota::default() };
    let mut world = world_with(&[("token:billing", quota)]);
    world.open("stranger", 60_000);
    world.acquire("stranger", 1, "a", 0);
    world.acquire("stranger", 2, "b", 0);
    assert!(matches!(world.acquire("alice", 1, "a", 9_000), Outcome::Queued { .. }));
    assert_eq!(world.acquire("bob", 1, "b", 9_000), exceeded(QuotaKind::Waits, 1, false));
    assert_eq!(world.acquire("bob", 2, "b", 0), Outcome::Busy, "it would not wait");
    // Granted after its wait, it waits no more.
    world.release("stranger", 3, "a", 1);
    assert!(matches!(world.acquire("bob", 1, "b", 9_000), Outcome::Queued { .. }));
    let open = opening(&mut world, "carol");
    assert_eq!(world.apply(open), exceeded(QuotaKind::Sessions, 2, false));
    let bob = world.session("bob");
    world.apply(Command::CloseSession { session: bob });
    let open = opening(&mut world, "carol");
    assert!(matches!(world.apply(open), Outcome::SessionOpen { .. }));
    world.table.check().unwrap();
}

#[test]
fn a_lower_quota_takes_nothing_away_and_a_deleted_one_limits_nothing() {
    let mut world = world_with(&[("token:billing", locks(2))]);
    world.acquire("alice", 1, "a", 0);
    world.acquire("alice", 2, "b", 0);
    change(&mut world, [set("token:billing", locks(0))]);
    assert_eq!(world.holder("a").as_deref(), Some("alice"));
    assert_eq!(world.acquire("bob", 1, "c", 0), exceeded(QuotaKind::Locks, 0, false));
    // What is kept in the snapshot goes on in the same way.
    let read = LockTable::decode(&world.table.encode(), Limits::default()).unwrap();
    assert_eq!((read.digest(), read.access()), (world.table.digest(), world.table.access()));
    read.check().unwrap();
    world.table = read;
    assert_eq!(world.acquire("bob", 2, "c", 0), exceeded(QuotaKind::Locks, 0, false));
    change(&mut world, [set("token:billing", Quota::default())]);
    assert!(matches!(world.acquire("bob", 3, "c", 0), Outcome::Granted(_)));
    assert!(world.table.access().quotas().is_empty());
}

#[test]
fn a_quota_that_is_not_possible_is_refused_with_words() {
    let mut world = world_with(&[]);
    let rate = Quota { rate: Some(5), ..Quota::default() };
    for (subject, quota, error) in [
        ("token:a", Quota { rate: Some(0), ..rate }, QuotaError::Number),
        ("token:a", Quota { burst: Some(3), rate: None, ..rate }, QuotaError::BurstWithoutRate),
        ("a/*", Quota { sessions: Some(1), ..rate }, QuotaError::SessionsOfPrefix),
    ] {
        let refused = Rejection::AccessRefused(AccessRefusal::InvalidQuota(error));
        assert_eq!(change(&mut world, [set(subject, quota)]), Outcome::Rejected(refused));
    }
    assert_eq!(QuotaSubject::parse("billing"), Err(QuotaError::Subject));
    assert_eq!(QuotaSubject::parse("token:ci-*"), Err(QuotaError::Subject));
}

#[test]
fn quotas_need_rules_6() {
    let mut world = World::with_rules(Limits::default(), RulesVersion::FIVE);
    let refused = change(&mut world, [set("token:billing", locks(1))]);
    assert_eq!(refused, Outcome::Rejected(Rejection::RulesNotAdopted));
}
