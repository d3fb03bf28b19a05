//! A group adopts the policy of the root group: in force from there on, in the order of its own log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::collections::BTreeSet;

use holdfast_core::command::OpenSession;
use holdfast_core::{
    Access, AccessChange, BOOTSTRAP_PRINCIPAL, Batch, BuiltInRole, ChangeAccess, Command, Event,
    Identity, Limits, LockTable, LogicalTime, Outcome, Principal, Quota, QuotaSubject, Rejection,
    RoleName, Roles, Rule, RulesVersion, Span, Verb, Verbs,
};
use proptest::prelude::*;

use world::World;

mod world;

const DENIED: Outcome = Outcome::Rejected(Rejection::PermissionDenied);
const PEOPLE: [&str; 4] = ["alice", "bob", "carol", "dave"];

fn principal(name: &str) -> Principal {
    Principal::parse(&format!("token:{name}")).unwrap()
}

fn role(name: &str) -> RoleName {
    RoleName::parse(name).unwrap()
}

fn grant(name: &str, granted: &str) -> AccessChange {
    AccessChange::Grant { principal: principal(name), role: role(granted) }
}

fn revoke(name: &str, revoked: &str) -> AccessChange {
    AccessChange::Revoke { principal: principal(name), role: role(revoked) }
}

/// A role that may connect, or one that may do nothing.
fn put_role(name: &str, may_connect: bool) -> AccessChange {
    let connect = Rule::on_cluster(Verbs::of(&[Verb::Connect]));
    let rules = connect.into_iter().filter(|_| may_connect).collect();
    AccessChange::PutRole { role: role(name), rules }
}

fn change(root: &mut World, changes: impl Into<Vec<AccessChange>>, end_sessions: bool) -> Outcome {
    root.apply(Command::ChangeAccess(Box::new(ChangeAccess {
        by: "token:root".into(),
        identity: None,
        expected: None,
        changes: changes.into().into_boxed_slice(),
        end_sessions,
    })))
}

fn adopt(group: &mut World, root: &World) -> Outcome {
    group.apply(Command::AdoptPolicy(Box::new(root.table.access().clone())))
}

fn open(group: &mut World, name: &str, identity: Option<Identity>) -> Outcome {
    let open = group.opening(name, Span::from_secs(60));
    group.apply(Command::OpenSession(OpenSession { identity: identity.map(Box::new), ..open }))
}

fn open_as(group: &mut World, name: &str) {
    let opened = open(group, name, Some(Identity::of(principal(name))));
    assert!(matches!(opened, Outcome::SessionOpen { .. }), "{name}: {opened:?}");
}

fn has_session(group: &mut World, name: &str) -> bool {
    let session = group.session(name);
    group.table.has_session(session)
}

fn with_sessions(group: &mut World) -> BTreeSet<&'static str> {
    PEOPLE.into_iter().filter(|name| has_session(group, name)).collect()
}

/// All are users, in the root group and in another group, and have sessions in that one.
fn root_and_group() -> (World, World) {
    let mut root = World::new(Limits::default());
    change(&mut root, PEOPLE.map(|name| grant(name, "user")), false);
    let mut group = World::new(Limits::default());
    assert_eq!(adopt(&mut group, &root), Outcome::Done);
    PEOPLE.into_iter().for_each(|name| open_as(&mut group, name));
    (root, group)
}

#[test]
fn a_group_takes_a_higher_generation_only() {
    let (mut root, mut group) = root_and_group();
    let first = root.table.access().clone();
    change(&mut root, [revoke("alice", "user")], false);
    adopt(&mut group, &root);
    assert_eq!(group.events, [Event::PolicyAdopted { generation: 2 }]);
    assert_eq!(group.table.access(), root.table.access());
    for older in [first, Access::default()] {
        let outcome = group.apply(Command::AdoptPolicy(Box::new(older)));
        assert_eq!((outcome, group.events.len()), (Outcome::Done, 0));
        assert_eq!(group.table.access(), root.table.access());
    }
    adopt(&mut group, &root);
    assert_eq!(group.events, [], "it has it already");
    assert_eq!(group.acquire("alice", 1, "a", 0), DENIED);
}

#[test]
fn rights_that_were_in_use_end_with_the_adoption() {
    let (mut root, mut group) = root_and_group();
    assert!(matches!(group.acquire("alice", 1, "a", 0), Outcome::Granted(_)));
    change(&mut root, [revoke("alice", "user")], false);
    assert!(matches!(group.acquire("alice", 2, "b", 0), Outcome::Granted(_)), "not adopted yet");
    adopt(&mut group, &root);
    assert_eq!(group.acquire("alice", 3, "c", 0), DENIED);
    assert_eq!(group.touch("alice", 0), DENIED);
    assert!(matches!(group.release("alice", 4, "a", 1), Outcome::Release(_)));
}

#[test]
fn a_waiter_that_was_revoked_elsewhere_is_passed_over_after_the_adoption() {
    let (mut root, mut group) = root_and_group();
    group.acquire("bob", 1, "a", 0);
    group.acquire("alice", 1, "a", 9_000);
    group.acquire("carol", 1, "a", 9_000);
    change(&mut root, [revoke("alice", "user")], false);
    adopt(&mut group, &root);
    group.release("bob", 2, "a", 1);
    let carol = group.session("carol");
    let granted = group.events.iter().filter_map(|event| match event {
        Event::Granted { session, .. } => Some(*session),
        _ => None,
    });
    assert_eq!(granted.collect::<Vec<_>>(), [carol]);
}

#[test]
fn sessions_that_a_change_ended_end_also_in_a_group_that_skips_its_generation() {
    let (mut root, mut group) = root_and_group();
    group.acquire("alice", 1, "a", 0);
    group.acquire("bob", 1, "a", 9_000);
    change(&mut root, [revoke("alice", "user")], true);
    change(&mut root, [grant("alice", "user")], false);
    adopt(&mut group, &root);
    assert_eq!(with_sessions(&mut group), BTreeSet::from(["bob", "carol", "dave"]));
    assert_eq!(group.holder("a").as_deref(), Some("bob"));
    // It ends them once.
    let session = group.session("alice again");
    assert!(!group.table.has_session(session));
    open(&mut group, "alice again", Some(Identity::of(principal("alice"))));
    change(&mut root, [revoke("dave", "user")], false);
    adopt(&mut group, &root);
    assert!(has_session(&mut group, "alice again"));
    assert!(has_session(&mut group, "dave"), "that change ended no sessions");
}

#[test]
fn a_change_of_roles_ends_the_sessions_that_may_not_connect_any_more() {
    let (mut root, mut group) = root_and_group();
    open(&mut group, "stranger", None);
    change(&mut root, [put_role("guests", true), grant("alice", "guests")], false);
    change(&mut root, [revoke("alice", "user")], false);
    adopt(&mut group, &root);
    change(&mut root, [put_role("guests", false)], true);
    adopt(&mut group, &root);
    assert_eq!(with_sessions(&mut group), BTreeSet::from(["bob", "carol", "dave"]));
    assert!(has_session(&mut group, "stranger"), "it is not checked");
}

/// The group does not know any more which sessions could not connect then.
#[test]
fn a_group_that_skips_a_change_of_roles_with_ended_sessions_ends_those_of_all_identities() {
    let (mut root, mut group) = root_and_group();
    open(&mut group, "stranger", None);
    change(&mut root, [put_role("guests", false)], true);
    change(&mut root, [grant("alice", "guests")], false);
    adopt(&mut group, &root);
    assert_eq!(with_sessions(&mut group), BTreeSet::new());
    assert!(has_session(&mut group, "stranger"), "it is not checked");
}

#[test]
fn what_is_remembered_of_ended_sessions_is_bounded_and_what_is_forgotten_counts_as_ended() {
    let (mut root, mut group) = root_and_group();
    let mut lagging = World::new(Limits::default());
    adopt(&mut lagging, &root);
    open_as(&mut lagging, "bob");
    let end =
        |root: &mut World, number| change(root, [revoke(&format!("user-{number}"), "user")], true);
    (0..500).for_each(|number| drop(end(&mut root, number)));
    adopt(&mut group, &root);
    assert_eq!(with_sessions(&mut group).len(), PEOPLE.len());
    (500..1_200).for_each(|number| drop(end(&mut root, number)));
    adopt(&mut group, &root);
    assert_eq!(with_sessions(&mut group).len(), PEOPLE.len(), "it had the older half");
    adopt(&mut lagging, &root);
    assert!(!has_session(&mut lagging, "bob"));
    let bytes = lagging.table.encode();
    assert!(bytes.len() < 64 * 1_024, "{} bytes", bytes.len());
}

#[test]
fn the_bootstrap_token_has_no_rights_in_a_group_after_the_adoption() {
    let (mut root, mut group) = (World::new(Limits::default()), World::new(Limits::default()));
    let admin = role(BuiltInRole::Admin.name());
    let bootstrap = Identity {
        principal: Principal::parse(BOOTSTRAP_PRINCIPAL).unwrap(),
        claimed: [admin].into(),
    };
    open(&mut group, "installer", Some(bootstrap.clone()));
    assert!(matches!(group.acquire("installer", 1, "a", 0), Outcome::Granted(_)));
    for generation in 1..=3 {
        change(&mut root, [grant(&format!("admin-{generation}"), "admin")], false);
    }
    adopt(&mut group, &root);
    assert_eq!(group.acquire("installer", 2, "b", 0), DENIED);
    assert_eq!(open(&mut group, "other", Some(bootstrap)), DENIED);
}

#[test]
fn adopted_quotas_count_what_was_taken_before() {
    let (mut root, mut group) = root_and_group();
    group.acquire("alice", 1, "a", 0);
    let subject = QuotaSubject::parse("token:alice").unwrap();
    let quota = Quota { locks: Some(2), ..Quota::default() };
    change(&mut root, [AccessChange::SetQuotas([(subject, quota)].into())], false);
    adopt(&mut group, &root);
    assert!(matches!(group.acquire("alice", 2, "b", 0), Outcome::Granted(_)));
    let third = group.acquire("alice", 3, "c", 0);
    assert!(matches!(third, Outcome::Rejected(Rejection::QuotaExceeded { .. })), "{third:?}");
}

#[test]
fn an_adopted_policy_is_in_the_snapshot_with_what_it_says_of_ended_sessions() {
    let (mut root, mut group) = root_and_group();
    change(&mut root, [revoke("alice", "user")], true);
    change(&mut root, [put_role("guests", false)], true);
    let restored = LockTable::decode(&root.table.encode(), Limits::default()).unwrap();
    assert_eq!((restored.access(), restored.digest()), (root.table.access(), root.table.digest()));
    root.table = restored;
    adopt(&mut group, &root);
    assert_eq!(with_sessions(&mut group), BTreeSet::from(["bob", "carol", "dave"]));
    let restored = LockTable::decode(&group.table.encode(), Limits::default()).unwrap();
    assert_eq!(restored.digest(), group.table.digest());
    assert_eq!(restored.access(), root.table.access());
}

#[test]
fn a_table_of_older_rules_adopts_nothing_and_an_older_entry_cannot_say_it() {
    let (root, _) = root_and_group();
    let mut group = World::with_rules(Limits::default(), RulesVersion::EIGHT);
    assert_eq!(adopt(&mut group, &root), Outcome::Rejected(Rejection::RulesNotAdopted));
    assert_eq!(group.table.access().generation(), 0);
    let command = Command::AdoptPolicy(Box::new(root.table.access().clone()));
    let batch = Batch { at: LogicalTime::ZERO, commands: vec![command] };
    let mut bytes = batch.encode();
    assert_eq!((bytes[0], Batch::decode(&bytes).unwrap()), (10, batch));
    bytes[0] = 8;
    assert!(Batch::decode(&bytes).is_err());
}

/// Under older rules nothing was noted.
#[test]
fn a_policy_that_was_changed_under_older_rules_ends_the_sessions_of_all_identities() {
    let mut root = World::with_rules(Limits::default(), RulesVersion::EIGHT);
    change(&mut root, PEOPLE.map(|name| grant(name, "user")), false);
    let mut group = World::new(Limits::default());
    adopt(&mut group, &root);
    open_as(&mut group, "alice");
    change(&mut root, [revoke("bob", "user")], true);
    root.apply(Command::AdoptRules { version: RulesVersion::NINE });
    adopt(&mut group, &root);
    assert_eq!(with_sessions(&mut group), BTreeSet::new());
}

fn any_change() -> impl Strategy<Value = AccessChange> {
    let name = || (0..PEOPLE.len()).prop_map(|at| PEOPLE[at]);
    let roles = || prop_oneof![Just("user"), Just("guests")];
    prop_oneof![
        4 => (name(), roles()).prop_map(|(name, role)| grant(name, role)),
        3 => (name(), roles()).prop_map(|(name, role)| revoke(name, role)),
        1 => name().prop_map(|name| AccessChange::Ban { principal: principal(name) }),
        2 => any::<bool>().prop_map(|may_connect| put_role("guests", may_connect)),
        1 => proptest::sample::subsequence(PEOPLE.to_vec(), 0..=PEOPLE.len()).prop_map(|names| {
            let users = || BTreeSet::from([role("user")]);
            let bindings = names.iter().map(|name| (principal(name), users())).collect();
            AccessChange::Replace(Roles { bindings, ..Roles::default() })
        }),
    ]
}

proptest! {
    /// The root group has the same sessions as another group that adopts each generation, and a third one skips some.
    #[test]
    fn a_group_that_skips_generations_ends_at_least_the_sessions_that_the_root_group_ended(
        steps in proptest::collection::vec((any_change(), any::<bool>(), any::<bool>()), 1..12),
    ) {
        let (mut root, mut each) = root_and_group();
        PEOPLE.into_iter().for_each(|name| open_as(&mut root, name));
        let (_, mut some) = root_and_group();
        for (step, end_sessions, is_adopted) in steps {
            let changed = change(&mut root, [step], end_sessions);
            adopt(&mut each, &root);
            prop_assert_eq!(with_sessions(&mut each), with_sessions(&mut root), "{:?}", changed);
            if is_adopted {
                adopt(&mut some, &root);
                let (left, right) = (with_sessions(&mut some), with_sessions(&mut root));
                prop_assert!(left.is_subset(&right), "{left:?} and {right:?}");
            }
        }
    }
}
