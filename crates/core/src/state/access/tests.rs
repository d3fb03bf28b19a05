//! Properties of the policy, against a reading of its rules that takes no shortcut.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::{btree_map, btree_set, vec as list};
use proptest::prelude::*;

use super::*;
use crate::model::access::change::{AccessChange, AccessRefusal, TokenId, TokenRecord};
use crate::model::access::policy::NOTE_BYTES_MAX;
use crate::model::access::principal::Principal;
use crate::model::access::quota::{Quota, QuotaSubject};
use crate::model::access::role::{BuiltInRole, RULES_PER_ROLE_MAX};
use crate::model::access::verb::Scope;
use crate::model::codec::Reader;

const NAMES: [&str; 6] = ["a", "a/", "a/b", "a/bc", "b", "é"];
const PATTERNS: [&str; 6] = ["*", "a*", "a/*", "a/b", "b", "é*"];
const ROLES: [&str; 5] = ["r1", "r2", "r3", "user", "admin"];
const PRINCIPALS: [&str; 4] = ["cert:x", "token:x", "token:y", "jwt:https://i:x"];

fn principal() -> impl Strategy<Value = Principal> {
    (0..PRINCIPALS.len()).prop_map(|at| Principal::parse(PRINCIPALS[at]).unwrap())
}

fn role() -> impl Strategy<Value = RoleName> {
    (0..ROLES.len()).prop_map(|at| RoleName::parse(ROLES[at]).unwrap())
}

fn verbs(scope: Scope) -> impl Strategy<Value = Verbs> {
    let all: Vec<Verb> = Verbs::of(Verb::ALL).within(scope).iter().collect();
    proptest::sample::subsequence(all.clone(), 1..=all.len())
        .prop_map(|verbs| verbs.into_iter().collect())
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (verbs(Scope::Names), 0..PATTERNS.len()).prop_map(|(verbs, at)| {
            Rule::on_names(verbs, Pattern::parse(PATTERNS[at]).unwrap()).unwrap()
        }),
        verbs(Scope::Cluster).prop_map(|verbs| Rule::on_cluster(verbs).unwrap()),
    ]
}

fn change() -> impl Strategy<Value = AccessChange> {
    let roles = (
        btree_map(role(), list(rule(), 0..3), 0..3),
        btree_map(principal(), btree_set(role(), 0..3), 0..3),
    );
    prop_oneof![
        3 => (role(), list(rule(), 0..4))
            .prop_map(|(role, rules)| AccessChange::PutRole { role, rules }),
        1 => role().prop_map(|role| AccessChange::DeleteRole { role }),
        4 => (principal(), role())
            .prop_map(|(principal, role)| AccessChange::Grant { principal, role }),
        1 => (principal(), role())
            .prop_map(|(principal, role)| AccessChange::Revoke { principal, role }),
        1 => principal().prop_map(|principal| AccessChange::Ban { principal }),
        2 => (0_u64..4, principal(), any::<Option<u64>>()).prop_map(|(id, principal, expires)| {
            AccessChange::PutToken(TokenRecord {
                id: TokenId(id),
                digest: [7; 32],
                principal,
                expires_at_unix_ms: expires,
                note: "ci".to_string(),
            })
        }),
        1 => (0_u64..4).prop_map(|id| AccessChange::RevokeToken { id: TokenId(id) }),
        1 => (principal(), any::<Option<u8>>(), any::<Option<u8>>()).prop_map(|(principal, locks, rate)| {
            let subject = QuotaSubject::Principal(principal);
            let quota = Quota { locks: locks.map(u64::from), rate: rate.map(u64::from), ..Quota::default() };
            AccessChange::SetQuotas([(subject, quota)].into())
        }),
        1 => roles.prop_map(|(roles, bindings)| AccessChange::Replace(Roles { roles, bindings })),
    ]
}

/// The rules of one role, as the policy has them.
fn rules_of(access: &Access, role: &RoleName) -> Vec<Rule> {
    match BuiltInRole::named(role) {
        Some(role) => role.rules(),
        None => access.roles().roles.get(role).cloned().unwrap_or_default(),
    }
}

/// Is there, for the verb, one role of the identity with one rule that fits?
fn allowed(
    access: &Access,
    identity: &Identity,
    verb: Verb,
    fits: impl Fn(&Pattern) -> bool,
) -> bool {
    if access.banned().any(|banned| *banned == identity.principal) {
        return false;
    }
    let bound = access.roles().bindings.get(&identity.principal).cloned().unwrap_or_default();
    bound.union(&identity.claimed).any(|role| {
        rules_of(access, role).iter().any(|rule| match rule {
            Rule::Names { verbs, pattern } => verbs.contains(verb) && fits(pattern),
            Rule::Cluster { verbs } => verbs.contains(verb),
        })
    })
}

fn round_trip(access: &Access) -> Access {
    let mut bytes = Vec::new();
    access.write(&mut bytes, RulesVersion::NEWEST);
    let mut reader = Reader::new(&bytes);
    let read = Access::read(&mut reader, RulesVersion::NEWEST).unwrap();
    let mut again = Vec::new();
    read.write(&mut again, RulesVersion::NEWEST);
    assert_eq!(bytes, again);
    read
}

proptest! {
    #[test]
    fn grants_say_what_the_rules_say(
        changes in list(change(), 0..20),
        principal in principal(),
        claimed in btree_set(role(), 0..3),
    ) {
        let mut access = Access::default();
        for change in changes {
            let _ = access.change(None, &[change], None, RulesVersion::NEWEST);
        }
        let identity = Identity { principal, claimed };
        let grants = access.grants(&identity);
        for verb in Verb::ALL {
            let one = Verbs::of(&[*verb]);
            match verb.scope() {
                Scope::Cluster => {
                    let wanted = allowed(&access, &identity, *verb, |_| false);
                    prop_assert_eq!(grants.allow_cluster(*verb), wanted, "{}", verb);
                    prop_assert_eq!(access.allows_on_cluster(RulesVersion::NEWEST, &identity, *verb), wanted, "{}", verb);
                }
                Scope::Names => for name in NAMES {
                    let wanted = allowed(&access, &identity, *verb, |it| it.matches(name));
                    prop_assert_eq!(grants.allow(one, name), wanted, "{} {}", verb, name);
                    let wanted = allowed(&access, &identity, *verb, |it| it.covers_prefix(name));
                    prop_assert_eq!(grants.cover(one, name), wanted, "{} {}*", verb, name);
                    // A principal that may do something with all of a prefix may do it with each name in it.
                    prop_assert!(!grants.cover(one, name) || grants.allow(one, name));
                },
            }
        }
    }

    #[test]
    fn a_change_raises_the_generation_or_changes_nothing_and_all_can_be_written_and_read(
        changes in list((any::<bool>(), change()), 0..20),
    ) {
        let mut access = Access::default();
        for (stale, change) in changes {
            let before = access.clone();
            let expected = if stale { before.generation() + 1 } else { before.generation() };
            let mut bytes = Vec::new();
            change.write(&mut bytes);
            prop_assert_eq!(&AccessChange::read(&mut Reader::new(&bytes), u8::MAX).unwrap(), &change);
            match access.change(Some(expected), &[change], None, RulesVersion::NEWEST) {
                Ok(()) => prop_assert_eq!(access.generation(), before.generation() + 1),
                Err(_) => prop_assert_eq!(&access, &before),
            }
            prop_assert!(!stale || access == before);
            prop_assert_eq!(&round_trip(&access), &access);
        }
    }

    #[test]
    fn bytes_that_are_no_policy_are_refused_or_read_as_one(bytes in list(any::<u8>(), 0..64)) {
        if let Ok(access) = Access::read(&mut Reader::new(&bytes), RulesVersion::NEWEST) {
            prop_assert_eq!(round_trip(&access), access);
        }
        let _ = AccessChange::read(&mut Reader::new(&bytes), u8::MAX);
    }
}

fn name(text: &str) -> RoleName {
    RoleName::parse(text).unwrap()
}

fn grant(who: &str, role: &str) -> AccessChange {
    AccessChange::Grant { principal: Principal::parse(who).unwrap(), role: name(role) }
}

#[test]
fn a_banned_principal_has_no_right_until_something_is_granted_to_it_again() {
    let mut access = Access::default();
    let principal = Principal::parse("jwt:https://issuer:ann").unwrap();
    let identity =
        Identity { principal: principal.clone(), claimed: BTreeSet::from([name("admin")]) };
    let read = Verbs::of(&[Verb::Read]);
    assert!(access.grants(&identity).allow(read, "a"));
    access
        .change(
            None,
            &[AccessChange::Ban { principal: principal.clone() }],
            None,
            RulesVersion::NEWEST,
        )
        .unwrap();
    assert_eq!(access.grants(&identity), Grants::default());
    access
        .change(None, &[grant(principal.as_str(), "reader")], None, RulesVersion::NEWEST)
        .unwrap();
    assert!(access.grants(&identity).allow(read, "a"));
}

#[test]
fn what_is_not_possible_is_refused_with_its_reason() {
    let mut access = Access::default();
    let refused = |access: &mut Access, change| {
        access.change(None, &[change], None, RulesVersion::NEWEST).unwrap_err()
    };
    assert_eq!(refused(&mut access, grant("cert:x", "nothing")), AccessRefusal::RoleNotFound);
    let put = |role: &str, rules| AccessChange::PutRole { role: name(role), rules };
    assert_eq!(refused(&mut access, put("admin", vec![])), AccessRefusal::BuiltIn);
    let rule = Rule::on_cluster(Verbs::of(&[Verb::Connect])).unwrap();
    let many = vec![rule; RULES_PER_ROLE_MAX + 1];
    assert_eq!(refused(&mut access, put("many", many)), AccessRefusal::TooManyRules);
    let token = |who: &str, note: String| {
        AccessChange::PutToken(TokenRecord {
            id: TokenId(1),
            digest: [0; 32],
            principal: Principal::parse(who).unwrap(),
            expires_at_unix_ms: None,
            note,
        })
    };
    let wrong = token("cert:x", String::new());
    assert_eq!(refused(&mut access, wrong), AccessRefusal::NotATokenPrincipal);
    let long = token("token:x", "n".repeat(NOTE_BYTES_MAX + 1));
    assert_eq!(refused(&mut access, long), AccessRefusal::NoteTooLong);
    access.change(None, &[token("token:x", String::new())], None, RulesVersion::NEWEST).unwrap();
    let twice = token("token:x", String::new());
    assert_eq!(refused(&mut access, twice), AccessRefusal::TokenExists);
    let stale =
        access.change(Some(0), &[grant("cert:x", "user")], None, RulesVersion::NEWEST).unwrap_err();
    assert_eq!(stale, AccessRefusal::OtherGeneration { now: 1 });
}

#[test]
fn a_name_that_ends_in_a_star_is_not_a_prefix_in_disguise() {
    assert_eq!(Pattern::parse("a*b"), Err(crate::model::access::pattern::PatternError::StarInside));
    let exact = Pattern::parse("a/b").unwrap();
    assert!(exact.matches("a/b") && !exact.matches("a/b*") && !exact.covers_prefix("a/b"));
    assert!(Pattern::parse("a/*").unwrap().matches("a/*"));
}
