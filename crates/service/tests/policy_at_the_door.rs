//! What the door says to callers, by the policy that is in force.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_core::command::{Call, HoldRef};
use holdfast_core::{
    AccessChange, ChangeAccess, Command, FenceToken, Identity, Limits, LockName, LockTable,
    LogIndex, LogicalTime, Pattern, Principal, PublicSessionId, RequestId, RoleName, Rule,
    RulesVersion, SessionId, TokenId, TokenRecord, Verb, Verbs,
};
use holdfast_proto::v1::Reason;
use holdfast_service::{
    About, AuthMode, Caller, Credential, Method, Protocol, Service, ShownToken,
};

const TOKEN: ShownToken = ShownToken { id: TokenId(7), digest: [7; 32] };

struct World {
    table: LockTable,
    service: Service,
}

impl World {
    fn new(mode: AuthMode) -> World {
        let mut table = LockTable::new(Limits::default());
        let adopt = Command::AdoptRules { version: RulesVersion::NEWEST };
        table.apply(LogIndex(1), LogicalTime::ZERO, adopt, &mut Vec::new());
        World { table, service: Service::default().with_mode(mode) }
    }

    fn change(&mut self, changes: impl Into<Box<[AccessChange]>>) {
        let change = ChangeAccess {
            by: "a test".into(),
            identity: None,
            expected: None,
            changes: changes.into(),
            end_sessions: false,
        };
        let change = Command::ChangeAccess(Box::new(change));
        let before = self.table.access().generation();
        self.table.apply(LogIndex(2), LogicalTime::ZERO, change, &mut Vec::new());
        assert_eq!(self.table.access().generation(), before + 1);
        self.service.policy().publish(self.table.access());
    }

    fn refusal(&self, caller: &Caller, method: Method, about: About<'_>) -> Option<Reason> {
        self.service.authorise(caller, method, about).err().map(|failure| failure.reason())
    }
}

fn alice() -> Principal {
    Principal::parse("token:alice").unwrap()
}

fn grant(role: &str) -> AccessChange {
    AccessChange::Grant { principal: alice(), role: RoleName::parse(role).unwrap() }
}

fn put_token(expires_at_unix_ms: Option<u64>) -> AccessChange {
    AccessChange::PutToken(TokenRecord {
        id: TOKEN.id,
        digest: TOKEN.digest,
        principal: alice(),
        expires_at_unix_ms,
        note: String::new(),
    })
}

fn client() -> Caller {
    Caller::client(Protocol::Framed, None)
}

#[test]
fn the_policy_is_for_administrators_in_every_mode() {
    for mode in [AuthMode::Off, AuthMode::Permissive, AuthMode::Required] {
        let mut world = World::new(mode);
        world.change([grant("user")]);
        for method in [Method::ChangeAccess, Method::ShowAccess] {
            let of = |caller: &Caller| world.refusal(caller, method, About::Nothing);
            assert_eq!(of(&client()), Some(Reason::Unauthenticated), "{mode:?} {method:?}");
            let node = Caller::node(3).forwarded_from(Some(3));
            assert_eq!(of(&node), Some(Reason::PermissionDenied), "{mode:?} {method:?}");
            let user =
                client().authenticated(Identity::of(alice()), Credential::Certificate("07".into()));
            assert_eq!(of(&user), Some(Reason::PermissionDenied), "{mode:?} {method:?}");
        }
        world.change([grant("admin")]);
        let admin =
            client().authenticated(Identity::of(alice()), Credential::Certificate("07".into()));
        assert_eq!(world.refusal(&admin, Method::ChangeAccess, About::Nothing), None, "{mode:?}");
        let of_stranger = world.refusal(&client(), Method::Status, About::Name("a"));
        assert_eq!(of_stranger.is_some(), mode == AuthMode::Required, "{mode:?}");
    }
}

#[test]
fn a_node_of_its_own_accord_reads_and_asks_for_the_leadership() {
    let world = World::new(AuthMode::Required);
    let forwarded = Caller::node(3).forwarded_from(Some(3));
    let of = |method| world.refusal(&forwarded, method, About::Nothing);
    for method in [
        Method::List,
        Method::ListSessions,
        Method::ClusterStatus,
        Method::History,
        Method::TransferLeadership,
    ] {
        assert_eq!(of(method), None, "{method:?}");
    }
    for method in [
        Method::OpenSession,
        Method::Acquire,
        Method::Release,
        Method::Break,
        Method::KillSession,
        Method::RemoveNode,
        Method::SetLimits,
        Method::SaveSnapshot,
        Method::ChangeAccess,
        Method::ShowAccess,
    ] {
        assert_eq!(of(method), Some(Reason::PermissionDenied), "{method:?}");
    }
}

#[test]
fn only_at_the_node_itself_a_node_changes_the_policy() {
    for mode in [AuthMode::Off, AuthMode::Permissive, AuthMode::Required] {
        let world = World::new(mode);
        let of = |caller: &Caller| world.refusal(caller, Method::ChangeAccess, About::Nothing);
        assert_eq!(of(&Caller::node(3)), None, "{mode:?}");
        let forwarded = Caller::forwarded(&Caller::node(3).to_wire(), 3).unwrap();
        assert_eq!(of(&forwarded), Some(Reason::PermissionDenied), "{mode:?}");
    }
}

#[test]
fn a_token_is_good_until_it_is_revoked() {
    let mut world = World::new(AuthMode::Required);
    world.change([grant("user"), put_token(None)]);
    let shown = client().authenticated(Identity::of(alice()), Credential::Token(TOKEN));
    let forged = ShownToken { digest: [8; 32], ..TOKEN };
    let forged = client().authenticated(Identity::of(alice()), Credential::Token(forged));
    let other = Principal::parse("token:bob").unwrap();
    let of_other = client().authenticated(Identity::of(other), Credential::Token(TOKEN));
    let status = |world: &World, caller| world.refusal(caller, Method::Status, About::Name("a"));
    assert_eq!(status(&world, &shown), None);
    assert_eq!(status(&world, &forged), Some(Reason::Unauthenticated));
    assert_eq!(status(&world, &of_other), Some(Reason::PermissionDenied));
    world.change([AccessChange::RevokeToken { id: TOKEN.id }]);
    assert_eq!(status(&world, &shown), Some(Reason::Unauthenticated));
    let again = world.service.check_again(&shown, Method::Watch, About::Prefix(""));
    assert_eq!(again.unwrap_err().reason(), Reason::Unauthenticated);
    assert_eq!(world.refusal(&shown, Method::Release, About::Nothing), None, "it may let go");
    // Another credential of the same principal.
    let other_way =
        client().authenticated(Identity::of(alice()), Credential::Certificate("07".into()));
    assert_eq!(status(&world, &other_way), None);
    // A ban takes the tokens as well, and the caller hears of the ban.
    world.change([AccessChange::Ban { principal: alice() }]);
    assert_eq!(status(&world, &shown), Some(Reason::PermissionDenied));
}

#[test]
fn a_token_is_good_until_its_time_is_over() {
    static NOW: AtomicU64 = AtomicU64::new(999);
    let mut world = World::new(AuthMode::Required);
    world.service = world.service.with_clock(|| NOW.load(Ordering::Relaxed));
    world.change([grant("user"), put_token(Some(1_000))]);
    let shown = client().authenticated(Identity::of(alice()), Credential::Token(TOKEN));
    let status = |world: &World| world.refusal(&shown, Method::Status, About::Name("a"));
    assert_eq!(status(&world), None);
    NOW.store(1_000, Ordering::Relaxed);
    assert_eq!(status(&world), Some(Reason::CredentialExpired));
    assert_eq!(world.refusal(&shown, Method::Release, About::Nothing), None, "it may let go");
}

#[test]
fn to_hand_over_in_the_weaker_tier_needs_its_verb() {
    let mut world = World::new(AuthMode::Required);
    let role = RoleName::parse("strict").unwrap();
    let verbs = Verbs::of(&[Verb::Transfer, Verb::Exclusive]);
    let rules = Rule::on_names(verbs, Pattern::parse("*").unwrap()).into_iter().collect();
    world.change([AccessChange::PutRole { role, rules }, grant("strict")]);
    let caller =
        client().authenticated(Identity::of(alice()), Credential::Certificate("07".into()));
    let (session, acked_through) = (SessionId(1), RequestId(0));
    let call = Call { session, request: RequestId(2), acked_through };
    let (name, token) = (LockName::new("a").unwrap(), FenceToken(3));
    let hold = HoldRef { name, token, acquire: RequestId(0) };
    let transfer = Command::Transfer { call, hold, to: PublicSessionId(2) };
    let refusal = |about| world.refusal(&caller, Method::Transfer, about);
    assert_eq!(refusal(About::Command(&transfer)), None);
    assert_eq!(refusal(About::InMemory(&transfer)), Some(Reason::PermissionDenied));
}

#[test]
fn a_denial_names_the_verb_and_what_it_is_missing_for() {
    let mut world = World::new(AuthMode::Required);
    let role = RoleName::parse("billing").unwrap();
    let verbs = Verbs::of(&[Verb::Read, Verb::Exclusive]);
    let rules = Rule::on_names(verbs, Pattern::parse("billing/*").unwrap()).into_iter().collect();
    world.change([AccessChange::PutRole { role, rules }, grant("billing")]);
    let caller =
        client().authenticated(Identity::of(alice()), Credential::Certificate("07".into()));
    let words = |method, about| {
        world.service.authorise(&caller, method, about).map(drop).map_err(|failure| failure.message)
    };
    let says = |method, about, what: &str| {
        let words = words(method, about).unwrap_err();
        assert!(words.contains("token:alice") && words.contains(what), "{words}");
    };
    says(Method::Status, About::Name("other"), "the verb read for \"other\"");
    says(Method::List, About::Prefix("b"), "the verb read for \"b*\"");
    says(Method::List, About::Prefix(""), "the verb read for all names");
    says(Method::ClusterStatus, About::Nothing, "the verb cluster-read;");
    assert_eq!(words(Method::List, About::Prefix("billing/")), Ok(()));
    // What is frozen is told as far as the caller may read it.
    assert_eq!(words(Method::ListFreezes, About::VisibleNames), Ok(()));
    let visible = world.service.visible_names(&caller);
    for (prefix, is_shown) in [
        ("", true),
        ("bill", true),
        ("billing/", true),
        ("billing/a", true),
        ("billing2", false),
        ("other/", false),
    ] {
        assert_eq!(visible.reach(prefix), is_shown, "{prefix:?}");
    }
    let stranger = Principal::parse("token:stranger").unwrap();
    let stranger =
        client().authenticated(Identity::of(stranger), Credential::Certificate("07".into()));
    let of_stranger = world.refusal(&stranger, Method::ListFreezes, About::VisibleNames);
    assert_eq!(of_stranger, Some(Reason::PermissionDenied));
}
