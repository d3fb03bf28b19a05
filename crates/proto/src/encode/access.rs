//! The policy, for administrators.

use holdfast_core::{
    Access, Pattern, Principal, Quota, QuotaSubject, RoleName, Roles, Rule, TokenRecord, Used, Verb,
};

use crate::v1;

pub fn show(access: &Access, quotas: &[(QuotaSubject, Quota, Used)]) -> v1::ShowAccessResponse {
    v1::ShowAccessResponse {
        generation: access.generation(),
        policy: Some(policy(access.roles())),
        tokens: access.tokens().map(token).collect(),
        banned: access.banned().map(Principal::to_string).collect(),
        quotas: quotas.iter().map(quota_use).collect(),
    }
}

pub fn quota(subject: &QuotaSubject, quota: &Quota) -> v1::AccessQuota {
    let Quota { sessions, locks, waits, rate, burst } = *quota;
    v1::AccessQuota { subject: subject.to_string(), sessions, locks, waits, rate, burst }
}

fn quota_use((subject, limits, used): &(QuotaSubject, Quota, Used)) -> v1::AccessQuotaUse {
    let Used { sessions, locks, waits } = *used;
    v1::AccessQuotaUse { quota: Some(quota(subject, limits)), sessions, locks, waits }
}

pub fn policy(roles: &Roles) -> v1::AccessPolicy {
    let role = |(name, rules): (&RoleName, &Vec<Rule>)| v1::AccessRole {
        name: name.to_string(),
        rules: rules.iter().map(rule).collect(),
    };
    v1::AccessPolicy {
        roles: roles.roles.iter().map(role).collect(),
        bindings: roles
            .bindings
            .iter()
            .map(|(principal, roles)| v1::AccessBinding {
                principal: principal.to_string(),
                roles: roles.iter().map(RoleName::to_string).collect(),
            })
            .collect(),
    }
}

pub fn rule(rule: &Rule) -> v1::AccessRule {
    let (verbs, pattern) = match rule {
        Rule::Names { verbs, pattern } => (verbs, Pattern::to_string(pattern)),
        Rule::Cluster { verbs } => (verbs, String::new()),
    };
    v1::AccessRule { verbs: verbs.iter().map(Verb::name).map(String::from).collect(), pattern }
}

fn token(token: &TokenRecord) -> v1::AccessTokenInfo {
    v1::AccessTokenInfo {
        id: format!("{:016x}", token.id.0),
        principal: token.principal.to_string(),
        expires_at_unix_ms: token.expires_at_unix_ms,
        note: token.note.clone(),
    }
}
