//! The policy is in force in log order: what a principal may not do any more is refused to its sessions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use holdfast_core::command::{
    AcquireAll, Action, Intervention, Member, Mode, OpenSession, Policy, Terms,
};
use holdfast_core::{
    AccessChange, AccessRefusal, ActorId, Batch, ChangeAccess, Command, EndReason, Event, Identity,
    Limits, LockTable, LogicalTime, Outcome, Pattern, Principal, PublicSessionId, Quota,
    QuotaSubject, Rejection, RoleName, Rule, Span, StreamId, TokenId, TokenRecord, Verb, Verbs,
};

use world::{World, hold, lock_name};

mod world;

const DENIED: Outcome = Outcome::Rejected(Rejection::PermissionDenied);

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

/// `connect`, and these verbs for this pattern.
fn put_role(name: &str, verbs: &[Verb], pattern: &str) -> AccessChange {
    let rules = [
        Rule::on_cluster(Verbs::of(&[Verb::Connect])),
        Rule::on_names(Verbs::of(verbs), Pattern::parse(pattern).unwrap()),
    ];
    AccessChange::PutRole { role: role(name), rules: rules.into_iter().flatten().collect() }
}

fn change(world: &mut World, changes: impl Into<Vec<AccessChange>>) -> Outcome {
    changed(world, changes, false)
}

fn changed(world: &mut World, changes: impl Into<Vec<AccessChange>>, end: bool) -> Outcome {
    world.apply(Command::ChangeAccess(Box::new(ChangeAccess {
        by: "token:root".into(),
        identity: None,
        expected: None,
        changes: changes.into().into_boxed_slice(),
        end_sessions: end,
    })))
}

fn open_as(world: &mut World, name: &str, ttl_ms: u64) -> Outcome {
    let open = world.opening(name, Span::from_ms(ttl_ms));
    let identity = Some(Box::new(Identity::of(principal(name))));
    world.apply(Command::OpenSession(OpenSession { identity, ..open }))
}

fn acquire_all(world: &mut World, name: &str, request: u64, names: &[&str]) -> Outcome {
    let members = names.iter().map(|name| Member { name: lock_name(name), mode: Mode::Exclusive });
    let call = world.call(name, request);
    world.apply(Command::AcquireAll(AcquireAll {
        call,
        actor: ActorId(0),
        members: members.collect(),
        terms: Terms { wait: Span::from_ms(5_000), ..Terms::default() },
    }))
}

/// Alice and bob are users.
fn world_of_users() -> World {
    let mut world = World::new(Limits::default());
    change(&mut world, [grant("alice", "user"), grant("bob", "user")]);
    for name in ["alice", "bob"] {
        assert!(matches!(open_as(&mut world, name, 10_000), Outcome::SessionOpen { .. }));
    }
    world
}

#[test]
fn a_principal_without_roles_opens_no_session() {
    let mut world = World::new(Limits::default());
    assert_eq!(open_as(&mut world, "alice", 10_000), DENIED);
    change(&mut world, [grant("alice", "reader")]);
    assert!(matches!(open_as(&mut world, "alice", 10_000), Outcome::SessionOpen { .. }));
    assert_eq!(world.acquire("alice", 1, "a", 0), DENIED, "a reader takes no locks");
}

#[test]
fn a_session_without_an_identity_is_not_checked() {
    let mut world = World::new(Limits::default());
    world.open("alice", 10_000);
    assert!(matches!(world.acquire("alice", 1, "a", 0), Outcome::Granted(_)));
}

#[test]
fn a_revoked_principal_can_only_give_up_what_it_has() {
    let mut world = world_of_users();
    assert!(matches!(world.acquire("alice", 1, "a", 0), Outcome::Granted(_)));
    assert!(matches!(world.acquire("alice", 2, "b", 0), Outcome::Granted(_)));
    change(&mut world, [revoke("alice", "user")]);
    assert_eq!(world.acquire("alice", 3, "c", 0), DENIED);
    assert_eq!(world.renew("alice", 4, "a", 1), DENIED);
    assert_eq!(world.touch("alice", 0), DENIED);
    let call = world.call("alice", 5);
    let convert = Command::Convert {
        call,
        hold: hold("a", 1),
        to: Mode::Shared,
        wait: Span::ZERO,
        policy: Policy::Wait,
    };
    assert_eq!(world.apply(convert), DENIED);
    let call = world.call("alice", 6);
    let to = PublicSessionId(2);
    assert_eq!(world.apply(Command::Transfer { call, hold: hold("a", 1), to }), DENIED);
    let session = world.session("alice");
    let identity = Some(Box::new(Identity::of(principal("alice"))));
    let attach = Command::AttachStream { session, stream: StreamId(9), identity };
    assert_eq!(world.apply(attach), DENIED);
    assert!(matches!(world.release("alice", 7, "a", 1), Outcome::Release(_)));
    assert!(matches!(world.acquire("bob", 1, "a", 0), Outcome::Granted(_)), "it was released");
}

#[test]
fn the_session_of_a_revoked_principal_ends_within_its_ttl_whatever_it_says() {
    let mut world = world_of_users();
    world.acquire("alice", 1, "a", 0);
    change(&mut world, [revoke("alice", "user")]);
    for ms in [4_000, 9_000] {
        world.at(ms).touch("alice", 0);
        world.cancel("alice", ms, 77);
        let alice = world.session("alice");
        let left = world.table.session_time_left(alice);
        assert_eq!(left, Some(Span::from_ms(10_000 - ms)), "a rejected heartbeat gives no time");
        world.touch("bob", 0);
    }
    world.at(10_001).apply(Command::Tick);
    let alice = world.session("alice");
    assert!(!world.table.has_session(alice));
    assert_eq!(world.table.session_count(), 1, "bob was heard of");
}

#[test]
fn a_retry_of_an_answered_request_is_answered_after_the_revocation() {
    let mut world = world_of_users();
    let granted = world.acquire("alice", 1, "a", 0);
    change(&mut world, [revoke("alice", "user")]);
    assert_eq!(world.acquire("alice", 1, "a", 0), granted, "it has to know what to release");
}

#[test]
fn a_waiter_whose_principal_was_revoked_is_passed_over() {
    let mut world = world_of_users();
    change(&mut world, [grant("carol", "user")]);
    open_as(&mut world, "carol", 10_000);
    world.acquire("bob", 1, "a", 0);
    assert!(matches!(world.acquire("alice", 1, "a", 9_000), Outcome::Queued { .. }));
    assert!(matches!(world.acquire("carol", 1, "a", 9_000), Outcome::Queued { .. }));
    change(&mut world, [revoke("alice", "user")]);
    world.release("bob", 2, "a", 1);
    let (alice, carol) = (world.session("alice"), world.session("carol"));
    let ended = world.events.iter().any(|event| {
        matches!(event, Event::WaitEnded { session, outcome, .. } if *session == alice && *outcome == DENIED)
    });
    assert!(ended, "{:?}", world.events);
    let granted =
        |event: &Event| matches!(event, Event::Granted { session, .. } if *session == carol);
    assert!(world.events.iter().any(granted), "{:?}", world.events);
    world.table.check().unwrap();
}

#[test]
fn a_lock_is_not_handed_to_a_revoked_waiter() {
    let mut world = world_of_users();
    world.acquire("bob", 1, "a", 0);
    world.acquire("alice", 1, "a", 9_000);
    change(&mut world, [revoke("alice", "user")]);
    let call = world.call("bob", 2);
    let to = PublicSessionId(world.session("alice").0 as u64);
    let no_such_waiter = Outcome::Rejected(Rejection::NoSuchWaiter);
    let transfer = Command::Transfer { call, hold: hold("a", 1), to };
    assert_eq!(world.apply(transfer), no_such_waiter);
    let action = Action::Transfer { name: lock_name("a"), token: hold("a", 1).token, to };
    let (by, reason) = ("op".into(), "stuck".into());
    assert_eq!(
        world.apply(Command::Intervene(Intervention { by, reason, action, identity: None })),
        no_such_waiter
    );
}

#[test]
fn every_member_of_an_acquire_all_is_checked() {
    let mut world = world_of_users();
    let eu = put_role("eu", &[Verb::Exclusive], "eu/*");
    change(&mut world, [eu, revoke("alice", "user"), grant("alice", "eu")]);
    assert_eq!(acquire_all(&mut world, "alice", 1, &["eu/a", "us/a"]), DENIED);
    assert_eq!(acquire_all(&mut world, "alice", 2, &["us/a", "eu/a"]), DENIED);
    let granted = acquire_all(&mut world, "alice", 3, &["eu/a", "eu/b"]);
    assert!(matches!(granted, Outcome::GrantedAll(_)), "{granted:?}");
}

#[test]
fn a_hold_is_kept_by_the_verb_of_its_mode() {
    let mut world = world_of_users();
    world.acquire("alice", 1, "a", 0);
    let shared = put_role("shared", &[Verb::Shared], "*");
    change(&mut world, [shared, revoke("alice", "user"), grant("alice", "shared")]);
    assert_eq!(world.renew("alice", 2, "a", 1), DENIED, "it is held exclusively");
    assert_eq!(world.acquire("alice", 3, "b", 0), DENIED);
    let mut acquire = world.acquiring("alice", 4, "b", 0);
    acquire.mode = Mode::Shared;
    assert!(matches!(world.apply(Command::Acquire(acquire)), Outcome::Granted(_)));
    assert!(matches!(world.touch("alice", 0), Outcome::Touched { .. }), "it may still connect");
}

#[test]
fn to_wound_needs_its_verb() {
    let mut world = world_of_users();
    let eu = put_role("eu", &[Verb::Exclusive], "eu/*");
    change(&mut world, [eu, revoke("alice", "user"), grant("alice", "eu")]);
    let mut acquire = world.acquiring("alice", 1, "eu/a", 1_000);
    acquire.terms.policy = Policy::WoundWait;
    assert_eq!(world.apply(Command::Acquire(acquire)), DENIED);
    assert!(matches!(world.acquire("alice", 2, "eu/a", 1_000), Outcome::Granted(_)));
}

#[test]
fn a_change_that_ends_sessions_ends_them_in_the_same_entry() {
    let mut world = world_of_users();
    world.acquire("alice", 1, "a", 0);
    world.acquire("bob", 1, "a", 9_000);
    world.events.clear();
    changed(&mut world, [AccessChange::Ban { principal: principal("alice") }], true);
    let alice = world.session("alice");
    assert!(!world.table.has_session(alice));
    assert!(matches!(world.events.first(), Some(Event::AccessChanged { generation: 2, .. })));
    let killed = EndReason::Killed;
    let ended =
        |event: &Event| matches!(event, Event::SessionEnded { reason, .. } if *reason == killed);
    assert!(world.events.iter().any(ended), "{:?}", world.events);
    let bob = world.session("bob");
    let granted =
        |event: &Event| matches!(event, Event::Granted { session, .. } if *session == bob);
    assert!(world.events.iter().any(granted), "{:?}", world.events);
}

#[test]
fn a_token_that_is_revoked_with_sessions_ends_those_of_its_principal() {
    let mut world = world_of_users();
    let token = TokenRecord {
        id: TokenId(7),
        digest: [1; 32],
        principal: principal("alice"),
        expires_at_unix_ms: None,
        note: String::new(),
    };
    change(&mut world, [AccessChange::PutToken(token)]);
    changed(&mut world, [AccessChange::RevokeToken { id: TokenId(7) }], true);
    let alice = world.session("alice");
    assert!(!world.table.has_session(alice));
    assert_eq!(world.table.session_count(), 1, "bob's is left");
}

#[test]
fn several_changes_are_made_together_or_not_at_all() {
    let mut world = world_of_users();
    let before = world.table.access().clone();
    let refused = change(&mut world, [grant("carol", "user"), grant("carol", "nothing")]);
    let refusal = AccessRefusal::RoleNotFound;
    assert_eq!(refused, Outcome::Rejected(Rejection::AccessRefused(refusal)));
    assert_eq!(*world.table.access(), before);
    let none = Outcome::Rejected(Rejection::AccessRefused(AccessRefusal::ChangeCount));
    assert_eq!(change(&mut world, []), none);
}

#[test]
fn a_session_that_comes_back_is_checked_as_the_identity_that_it_has_then() {
    let mut world = world_of_users();
    let session = world.session("alice");
    let attach = |identity| Command::AttachStream { session, stream: StreamId(3), identity };
    let mut claims = Identity::of(Principal::parse("jwt:issuer:alice").unwrap());
    assert_eq!(world.apply(attach(Some(Box::new(claims.clone())))), DENIED);
    claims.claimed.insert(role("reader"));
    world.apply(attach(Some(Box::new(claims))));
    assert_eq!(world.acquire("alice", 1, "a", 0), DENIED, "a reader");
    world.apply(attach(None));
    assert!(matches!(world.acquire("alice", 2, "a", 0), Outcome::Granted(_)), "not checked");
}

#[test]
fn commands_of_the_policy_need_rules_and_are_unknown_to_older_entries() {
    let identity = || Some(Box::new(Identity::of(principal("alice"))));
    let mut world = World::new(Limits::default());
    let open = OpenSession { identity: identity(), ..world.opening("alice", Span::from_secs(5)) };
    let session = open.session;
    let change = ChangeAccess {
        by: "a".into(),
        identity: identity(),
        expected: Some(3),
        changes: [grant("alice", "user")].into(),
        end_sessions: true,
    };
    let action = Action::SetLimits { bytes: None, locks: None };
    let (by, reason) = ("a".into(), "b".into());
    let unchecked = ChangeAccess { identity: None, ..change.clone() };
    let subject = QuotaSubject::parse("token:alice").unwrap();
    let quota = Quota { locks: Some(5), ..Quota::default() };
    let changes = [AccessChange::SetQuotas([(subject, quota)].into())].into();
    let quotas = ChangeAccess { changes, ..unchecked.clone() };
    let commands = [
        (5, Command::OpenSession(open)),
        (5, Command::AttachStream { session, stream: StreamId(1), identity: identity() }),
        (5, Command::ChangeAccess(Box::new(unchecked))),
        (6, Command::Intervene(Intervention { by, reason, action, identity: identity() })),
        (6, Command::ChangeAccess(Box::new(change.clone()))),
        (7, Command::ChangeAccess(Box::new(quotas))),
    ];
    for (version, command) in commands {
        assert_eq!(command.rules_needed().number(), version - 1);
        let batch = Batch { at: LogicalTime::ZERO, commands: vec![command] };
        let mut bytes = batch.encode();
        assert_eq!(Batch::decode(&bytes).unwrap(), batch);
        assert_eq!(bytes[0], version, "a build that reads less refuses it with words");
        bytes[0] = version - 1;
        assert!(Batch::decode(&bytes).is_err());
    }
}

#[test]
fn the_policy_and_the_identities_are_in_the_snapshot() {
    let mut world = world_of_users();
    world.acquire("bob", 1, "a", 0);
    world.acquire("alice", 1, "a", 9_000);
    let read = LockTable::decode(&world.table.encode(), Limits::default()).unwrap();
    assert_eq!(read.digest(), world.table.digest());
    assert_eq!(read.access(), world.table.access());
    world.table = read;
    change(&mut world, [revoke("alice", "user")]);
    assert_eq!(world.acquire("alice", 2, "b", 0), DENIED);
}
