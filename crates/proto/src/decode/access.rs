//! Changes of the policy.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{
    AccessChange, ChangeAccess, Command, Pattern, Principal, Quota, QuotaError, QuotaSubject,
    RoleName, Roles, Rule, TokenId, TokenRecord, Verb, Verbs,
};

use super::checked;
use crate::failure::refused;
use crate::hex;
use crate::v1::access_change::Change;
use crate::v1::{self, Failure, Reason};

/// What the caller `by` asks for.
pub fn change_access(request: v1::ChangeAccessRequest, by: &str) -> Result<Command, Failure> {
    let v1::ChangeAccessRequest { changes, expected_generation, end_sessions } = request;
    let changes = changes.into_iter().map(change).collect::<Result<Box<[_]>, _>>()?;
    let (by, identity, expected) = (by.into(), None, expected_generation);
    let change = ChangeAccess { by, identity, expected, changes, end_sessions };
    checked(Command::ChangeAccess(Box::new(change)))
}

fn change(change: v1::AccessChange) -> Result<AccessChange, Failure> {
    let unknown = || invalid("a change of a kind that this node does not know; upgrade it");
    Ok(match change.change.ok_or_else(unknown)? {
        Change::PutRole(put) => {
            AccessChange::PutRole { role: role(&put.name)?, rules: rules(put)? }
        }
        Change::DeleteRole(name) => AccessChange::DeleteRole { role: role(&name)? },
        Change::Grant(binding) => {
            let (principal, role) = one_role(&binding)?;
            AccessChange::Grant { principal, role }
        }
        Change::Revoke(binding) => {
            let (principal, role) = one_role(&binding)?;
            AccessChange::Revoke { principal, role }
        }
        Change::Ban(name) => AccessChange::Ban { principal: principal(&name)? },
        Change::PutToken(token) => AccessChange::PutToken(new_token(token)?),
        Change::RevokeToken(id) => AccessChange::RevokeToken { id: token_id(&id)? },
        Change::Replace(policy) => AccessChange::Replace(access_policy(policy)?),
        Change::SetQuotas(v1::AccessQuotas { quotas }) => {
            AccessChange::SetQuotas(access_quotas(quotas)?)
        }
    })
}

/// What a policy file says.
pub fn access_policy(policy: v1::AccessPolicy) -> Result<Roles, Failure> {
    let mut roles = BTreeMap::new();
    for put in policy.roles {
        let name = role(&put.name)?;
        if roles.insert(name, rules(put)?).is_some() {
            return Err(invalid("a role is defined twice"));
        }
    }
    let mut bindings = BTreeMap::new();
    for binding in policy.bindings {
        let names = binding.roles.iter().map(|name| role(name));
        let names = names.collect::<Result<BTreeSet<_>, _>>()?;
        if bindings.insert(principal(&binding.principal)?, names).is_some() {
            return Err(invalid(format!("the principal {} has two lines", binding.principal)));
        }
    }
    Ok(Roles { roles, bindings })
}

/// What a policy file says of quotas.
pub fn access_quotas(
    quotas: Vec<v1::AccessQuota>,
) -> Result<BTreeMap<QuotaSubject, Quota>, Failure> {
    let mut read = BTreeMap::new();
    for v1::AccessQuota { subject: name, sessions, locks, waits, rate, burst } in quotas {
        let wrong = |error: QuotaError| invalid(format!("the quota of {name}: {error}"));
        let subject = QuotaSubject::parse(&name).map_err(wrong)?;
        let quota = Quota { sessions, locks, waits, rate, burst };
        quota.check(&subject).map_err(wrong)?;
        if read.insert(subject, quota).is_some() {
            return Err(invalid(format!("{name} has two quotas")));
        }
    }
    Ok(read)
}

fn rules(role: v1::AccessRole) -> Result<Vec<Rule>, Failure> {
    role.rules.iter().map(rule).collect()
}

fn rule(rule: &v1::AccessRule) -> Result<Rule, Failure> {
    let known = |name: &String| {
        Verb::parse(name).ok_or_else(|| {
            let all = Verbs::of(Verb::ALL);
            invalid(format!("'{name}' is not a verb; the verbs are {all}"))
        })
    };
    let verbs = rule.verbs.iter().map(known).collect::<Result<Verbs, _>>()?;
    if rule.pattern.is_empty() {
        return Rule::on_cluster(verbs).ok_or_else(|| {
            invalid(
                "a rule without a pattern has verbs of the cluster, at least one, and no others",
            )
        });
    }
    let pattern = Pattern::parse(&rule.pattern).map_err(|error| invalid(error.to_string()))?;
    Rule::on_names(verbs, pattern).ok_or_else(|| {
        invalid("a rule with a pattern has verbs for names, at least one, and no others")
    })
}

fn new_token(token: v1::NewAccessToken) -> Result<TokenRecord, Failure> {
    let info = token.info.ok_or_else(|| invalid("a token without id and principal"))?;
    let digest = <[u8; 32]>::try_from(&token.digest[..])
        .map_err(|_| invalid("the digest of a token has 32 bytes"))?;
    Ok(TokenRecord {
        id: token_id(&info.id)?,
        digest,
        principal: principal(&info.principal)?,
        expires_at_unix_ms: info.expires_at_unix_ms,
        note: info.note,
    })
}

pub fn token_id(text: &str) -> Result<TokenId, Failure> {
    let id: Option<[u8; 8]> = hex::parse_hex(text);
    let wrong = || invalid("the id of a token is 16 lower-case hexadecimal digits");
    id.map(|id| TokenId(u64::from_be_bytes(id))).ok_or_else(wrong)
}

fn one_role(binding: &v1::AccessBinding) -> Result<(Principal, RoleName), Failure> {
    match &binding.roles[..] {
        [name] => Ok((principal(&binding.principal)?, role(name)?)),
        _ => Err(invalid("a role is granted or revoked one at a time")),
    }
}

fn principal(text: &str) -> Result<Principal, Failure> {
    Principal::parse(text).map_err(|error| invalid(error.to_string()))
}

fn role(text: &str) -> Result<RoleName, Failure> {
    RoleName::parse(text).map_err(|error| invalid(error.to_string()))
}

fn invalid(words: impl Into<String>) -> Failure {
    refused(Reason::InvalidAccess, words)
}

#[cfg(test)]
mod tests {
    use holdfast_core::Access;

    use super::*;
    use crate::encode::access;

    fn rule_of(verbs: &[&str], pattern: &str) -> v1::AccessRule {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        v1::AccessRule { verbs, pattern: pattern.into() }
    }

    fn decoded(change: Change) -> Result<Command, Failure> {
        let changes = vec![v1::AccessChange { change: Some(change) }];
        let request = v1::ChangeAccessRequest { changes, ..Default::default() };
        change_access(request, "token:root")
    }

    #[test]
    fn a_policy_survives_the_way_to_a_client_and_back() {
        let policy = v1::AccessPolicy {
            roles: vec![v1::AccessRole {
                name: "billing".into(),
                rules: vec![
                    rule_of(&["read", "exclusive"], "billing/*"),
                    rule_of(&["shared"], "invoices"),
                    rule_of(&["connect"], ""),
                ],
            }],
            bindings: vec![v1::AccessBinding {
                principal: "cert:billing".into(),
                roles: vec!["billing".into(), "reader".into()],
            }],
        };
        let Command::ChangeAccess(change) = decoded(Change::Replace(policy.clone())).unwrap()
        else {
            panic!("another command");
        };
        let [AccessChange::Replace(roles)] = &*change.changes else { panic!("{change:?}") };
        assert_eq!(access::policy(roles), policy);
        assert_eq!(access::show(&Access::default(), &[]).generation, 0);
    }

    #[test]
    fn what_is_wrong_has_its_reason_and_words() {
        let role = |rules| Change::PutRole(v1::AccessRole { name: "r".into(), rules });
        let token = |digest: &[u8]| {
            Change::PutToken(v1::NewAccessToken {
                info: Some(v1::AccessTokenInfo {
                    id: "0123456789abcdef".into(),
                    principal: "token:x".into(),
                    ..Default::default()
                }),
                digest: digest.to_vec(),
            })
        };
        let quota_of = |subject: &str, rate| v1::AccessQuota {
            subject: subject.into(),
            rate: Some(rate),
            ..Default::default()
        };
        let quotas = |quotas: &[v1::AccessQuota]| {
            Change::SetQuotas(v1::AccessQuotas { quotas: quotas.to_vec() })
        };
        assert!(decoded(quotas(&[quota_of("token:a", 1), quota_of("a/*", 2)])).is_ok());
        assert!(decoded(token(&[1; 32])).is_ok());
        for (wrong, words) in [
            (role(vec![rule_of(&["brake"], "a")]), "not a verb"),
            (role(vec![rule_of(&["read"], "")]), "without a pattern"),
            (role(vec![rule_of(&["connect"], "a")]), "with a pattern"),
            (role(vec![rule_of(&[], "a")]), "with a pattern"),
            (role(vec![rule_of(&["read"], "a*b")]), "end of a pattern"),
            (Change::DeleteRole("No".into()), "name of a role"),
            (Change::Ban("root".into()), "a principal is"),
            (Change::RevokeToken("1".into()), "16 lower-case"),
            (token(&[1; 31]), "32 bytes"),
            (Change::Grant(v1::AccessBinding::default()), "one at a time"),
            (quotas(&[quota_of("billing", 1)]), "a quota is for"),
            (quotas(&[quota_of("token:a", 0)]), "at least 1"),
            (quotas(&[quota_of("a/*", 1), quota_of("a/*", 2)]), "two quotas"),
        ] {
            let failure = decoded(wrong).unwrap_err();
            assert_eq!(failure.reason(), Reason::InvalidAccess);
            assert!(failure.message.contains(words), "{}", failure.message);
        }
        let empty = change_access(v1::ChangeAccessRequest::default(), "token:root").unwrap_err();
        assert_eq!(empty.reason(), Reason::AccessRefused);
    }
}
