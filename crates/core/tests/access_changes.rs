//! A change of the policy is checked in log order, as what the sessions do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use holdfast_core::command::{Action, Intervention, OpenSession};
use holdfast_core::{
    Access, AccessChange, AccessRefusal, BOOTSTRAP_PRINCIPAL, BuiltInRole, ChangeAccess, Command,
    FenceToken, Identity, Limits, Outcome, Principal, PublicSessionId, Rejection, RoleName, Roles,
    RulesVersion, Span, TokenId, TokenRecord, Verb,
};

use world::{World, lock_name};

mod world;

const DENIED: Outcome = Outcome::Rejected(Rejection::PermissionDenied);

fn principal(name: &str) -> Principal {
    Principal::parse(&format!("token:{name}")).unwrap()
}

fn admin() -> RoleName {
    RoleName::parse(BuiltInRole::Admin.name()).unwrap()
}

fn make_admin(name: &str) -> AccessChange {
    AccessChange::Grant { principal: principal(name), role: admin() }
}

fn change_as(world: &mut World, identity: Option<Identity>, change: AccessChange) -> Outcome {
    world.apply(Command::ChangeAccess(Box::new(ChangeAccess {
        by: "an operator".into(),
        identity: identity.map(Box::new),
        expected: None,
        changes: [change].into(),
        end_sessions: false,
    })))
}

fn token(name: &str) -> Option<Identity> {
    Some(Identity::of(principal(name)))
}

/// What the token in the data directory of a node is.
fn bootstrap() -> Identity {
    let principal = Principal::parse(BOOTSTRAP_PRINCIPAL).unwrap();
    Identity { principal, claimed: [admin()].into() }
}

#[test]
fn an_administrator_who_was_revoked_cannot_undo_that() {
    let mut world = World::new(Limits::default());
    change_as(&mut world, None, make_admin("alice"));
    change_as(&mut world, token("alice"), make_admin("bob"));
    let banned =
        change_as(&mut world, token("bob"), AccessChange::Ban { principal: principal("alice") });
    assert_eq!(banned, Outcome::AccessChanged { generation: 3 });
    // It passed the door before.
    assert_eq!(change_as(&mut world, token("alice"), make_admin("alice")), DENIED);
    assert_eq!(world.table.access().generation(), 3);
    assert_eq!(change_as(&mut world, token("stranger"), make_admin("stranger")), DENIED);
}

#[test]
fn an_operator_who_was_revoked_does_not_step_in_any_more() {
    let mut world = World::new(Limits::default());
    let everything = [
        Action::Break { name: lock_name("a"), token: None },
        Action::Transfer { name: lock_name("a"), token: FenceToken(1), to: PublicSessionId(1) },
        Action::Freeze { prefix: "a".into(), ttl: Span::from_secs(1) },
        Action::Thaw { prefix: "a".into() },
        Action::SetPermits { name: lock_name("a"), limit: Some(3) },
        Action::KillSession { session: PublicSessionId(1) },
        Action::Reopen { name: lock_name("a") },
        Action::SetLimits { bytes: Some(1 << 30), locks: None },
    ];
    let step_in = |world: &mut World, action: &Action| {
        let (by, reason, action) = ("token:olga".into(), "a test".into(), action.clone());
        let identity = token("olga").map(Box::new);
        world.apply(Command::Intervene(Intervention { by, reason, action, identity }))
    };
    change_as(&mut world, None, make_admin("olga"));
    for action in &everything {
        assert_ne!(step_in(&mut world, action), DENIED, "{action:?}");
    }
    change_as(&mut world, None, AccessChange::Ban { principal: principal("olga") });
    for action in &everything {
        assert_eq!(step_in(&mut world, action), DENIED, "{action:?}");
    }
}

#[test]
fn a_change_of_roles_ends_the_sessions_that_may_not_connect_after_it() {
    let mut world = World::new(Limits::default());
    let user = RoleName::parse("user").unwrap();
    for name in ["alice", "bob"] {
        let principal = principal(name);
        let grant = AccessChange::Grant { principal: principal.clone(), role: user.clone() };
        change_as(&mut world, None, grant);
        let identity = Some(Box::new(Identity::of(principal)));
        let open = OpenSession { identity, ..world.opening(name, Span::from_secs(60)) };
        assert!(matches!(world.apply(Command::OpenSession(open)), Outcome::SessionOpen { .. }));
    }
    let bindings = [(principal("bob"), [user].into())].into();
    let roles = Roles { bindings, ..Roles::default() };
    world.apply(Command::ChangeAccess(Box::new(ChangeAccess {
        by: "an operator".into(),
        identity: None,
        expected: None,
        changes: [AccessChange::Replace(roles)].into(),
        end_sessions: true,
    })));
    let (alice, bob) = (world.session("alice"), world.session("bob"));
    assert!(world.table.session(alice).is_none() && world.table.session(bob).is_some());
}

#[test]
fn the_bootstrap_token_makes_one_change_and_has_no_rights_after_it() {
    let mut world = World::new(Limits::default());
    let may = |access: &Access| access.grants(&bootstrap()).allow_cluster(Verb::Access);
    assert!(may(world.table.access()));
    // It would be the last, and no principal could make another.
    let refused = Outcome::Rejected(Rejection::AccessRefused(AccessRefusal::LastAdministrator));
    let bans_mallory = AccessChange::Ban { principal: principal("mallory") };
    assert_eq!(change_as(&mut world, Some(bootstrap()), bans_mallory), refused);
    assert!(may(world.table.access()));
    let principal = Principal::parse("cert:alice").unwrap();
    let make_alice_admin = AccessChange::Grant { principal, role: admin() };
    let first = change_as(&mut world, Some(bootstrap()), make_alice_admin);
    assert_eq!(first, Outcome::AccessChanged { generation: 1 });
    assert!(!may(world.table.access()));
    // Of another node, which has a token of its own.
    assert_eq!(change_as(&mut world, Some(bootstrap()), make_admin("mallory")), DENIED);
}

fn put_token(name: &str, id: u64) -> AccessChange {
    let (digest, note) = ([7; 32], String::new());
    let (id, principal) = (TokenId(id), principal(name));
    AccessChange::PutToken(TokenRecord { id, digest, principal, expires_at_unix_ms: None, note })
}

#[test]
fn the_last_administrator_stays() {
    let last = Outcome::Rejected(Rejection::AccessRefused(AccessRefusal::LastAdministrator));
    let mut world = World::new(Limits::default());
    let change = |world: &mut World, change| change_as(world, None, change);
    let ban = |name| AccessChange::Ban { principal: principal(name) };
    change(&mut world, make_admin("alice"));
    change(&mut world, put_token("alice", 1));
    for attempt in [
        ban("alice"),
        AccessChange::Revoke { principal: principal("alice"), role: admin() },
        AccessChange::RevokeToken { id: TokenId(1) },
        AccessChange::Replace(Roles::default()),
    ] {
        assert_eq!(change(&mut world, attempt.clone()), last, "{attempt:?}");
    }
    // A second one that cannot prove who it is does not count.
    change(&mut world, make_admin("bob"));
    assert_eq!(change(&mut world, ban("alice")), last);
    change(&mut world, put_token("bob", 2));
    assert_ne!(change(&mut world, ban("alice")), last);
    assert_eq!(change(&mut world, ban("bob")), last);
    // Who has a certificate needs no token.
    let carol = Principal::parse("cert:carol").unwrap();
    change(&mut world, AccessChange::Grant { principal: carol, role: admin() });
    assert_ne!(change(&mut world, ban("bob")), last);
}

#[test]
fn what_rules_5_decide_is_not_decided_by_rules_4() {
    let mut world = World::with_rules(Limits::default(), RulesVersion::FOUR);
    let user = RoleName::parse("user").unwrap();
    let ban = |name| AccessChange::Ban { principal: principal(name) };
    let checked = ChangeAccess {
        by: "an operator".into(),
        identity: token("stranger").map(Box::new),
        expected: None,
        changes: [make_admin("alice"), put_token("alice", 1)].into(),
        end_sessions: false,
    };
    let mut checked = Command::ChangeAccess(Box::new(checked));
    checked.fit_rules(RulesVersion::FOUR);
    assert_eq!(checked.rules_needed(), RulesVersion::FOUR);
    assert_eq!(world.apply(checked), Outcome::AccessChanged { generation: 1 });
    let banned = change_as(&mut world, None, ban("alice"));
    assert_eq!(banned, Outcome::AccessChanged { generation: 2 }, "it was the last one");

    let identity = Some(Box::new(bootstrap()));
    let open = OpenSession { identity, ..world.opening("bootstrap", Span::from_secs(60)) };
    assert!(matches!(world.apply(Command::OpenSession(open)), Outcome::SessionOpen { .. }));
    let identity = Some(Box::new(Identity::of(principal("bob"))));
    change_as(&mut world, None, AccessChange::Grant { principal: principal("bob"), role: user });
    let open = OpenSession { identity, ..world.opening("bob", Span::from_secs(60)) };
    world.apply(Command::OpenSession(open));
    world.apply(Command::ChangeAccess(Box::new(ChangeAccess {
        by: "an operator".into(),
        identity: None,
        expected: None,
        changes: [AccessChange::Replace(Roles::default())].into(),
        end_sessions: true,
    })));
    let bob = world.session("bob");
    assert!(world.table.session(bob).is_some());
    // The same table under rules 5.
    world.apply(Command::AdoptRules { version: RulesVersion::FIVE });
    assert_eq!(world.acquire("bootstrap", 1, "a", 0), DENIED);
}
