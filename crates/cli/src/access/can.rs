//! `holdfast access can`: may a user do something, and which rule decides?

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use holdfast_core::{Principal, RoleName, Rule, Scope, Verb, Verbs};
use holdfast_proto::v1;
use serde::Serialize;

use super::Policy;
use super::policy_file::in_words;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};

/// Tells whether a user may do something, and which rule decides.
///
/// What needs a session also needs the verb connect, and a user token:NAME needs a token. Roles in a JWT are not known
/// here.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 it may; 77 it may not.

Examples:
  holdfast access can token:billing exclusive billing/invoices
  holdfast access can token:billing read 'billing/*'
  holdfast access can cert:reports metrics")]
pub(crate) struct CanArgs {
    /// The user.
    #[arg(value_parser = super::parse_principal)]
    principal: Principal,
    /// The verb; `holdfast access role create --help` lists them.
    #[arg(value_parser = parse_verb)]
    verb: Verb,
    /// The name of a lock, or a prefix and * for all names that begin so. Not for verbs of the cluster.
    name: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Verdict {
    principal: String,
    verb: &'static str,
    name: Option<String>,
    is_allowed: bool,
    /// That allows the verb, though something else may be missing. Null if none allows it.
    role: Option<String>,
    rule: Option<String>,
    reason: String,
}

impl Show for Verdict {
    fn to_table(&self) -> String {
        format!("{}: {}\n", if self.is_allowed { "yes" } else { "no" }, self.reason)
    }
}

pub(super) async fn run(args: CanArgs, global: &Global) -> Result<ExitCode, Problem> {
    match (args.verb.scope(), &args.name) {
        (Scope::Names, None) => {
            let words = format!("{} is for locks: name one, or a prefix and *", args.verb.name());
            return Err(Problem::new(Code::Usage, words));
        }
        (Scope::Cluster, Some(_)) => {
            let words = format!("{} is for the whole cluster: leave out NAME", args.verb.name());
            return Err(Problem::new(Code::Usage, words));
        }
        _ => {}
    }
    let calls = global.calls()?;
    let policy = super::load(&calls).await?;
    let verdict = decide(&policy, &args, unix_ms());
    output::show(global.output, &verdict)?;
    let mode = calls.who_am_i().await?.mode;
    if mode != "required" {
        output::message(&format!(
            "the node that answered has auth.mode = {mode:?}, and denies nothing by this policy"
        ));
    }
    Ok(if verdict.is_allowed { ExitCode::SUCCESS } else { Code::Denied.into() })
}

/// A rule that allows something, and the role that has it.
type Deciding<'a> = (&'a RoleName, Rule);

fn decide(policy: &Policy, args: &CanArgs, unix_ms: u64) -> Verdict {
    let CanArgs { principal, verb, name } = args;
    let decided = |is_allowed: bool, deciding: Option<Deciding<'_>>, reason: String| Verdict {
        principal: principal.to_string(),
        verb: verb.name(),
        name: name.clone(),
        is_allowed,
        role: deciding.as_ref().map(|(role, _)| role.to_string()),
        rule: deciding.map(|(_, rule)| in_words(&rule)),
        reason,
    };
    if policy.banned.contains(principal) {
        let words = format!(
            "everything was taken from {principal}; `holdfast access user grant {principal} ROLE` lets it act again"
        );
        return decided(false, None, words);
    }
    let deciding = match allowed_by(policy, principal, *verb, name.as_deref()) {
        Ok(deciding) => deciding,
        Err(words) => return decided(false, None, words),
    };
    let allows = format!("the role {} allows {}", deciding.0, in_words(&deciding.1));
    if !can_prove_itself(policy, principal, unix_ms) {
        let words = format!(
            "{allows}, but {principal} has no token that counts; `holdfast access token create {principal} --to FILE` \
             creates one"
        );
        return decided(false, Some(deciding), words);
    }
    if !needs_session(*verb) {
        return decided(true, Some(deciding), allows);
    }
    match allowed_by(policy, principal, Verb::Connect, None) {
        Ok((role, _)) if role == deciding.0 => decided(true, Some(deciding), allows),
        Ok((role, rule)) => {
            let words = format!("{allows}, and the role {role} allows {}", in_words(&rule));
            decided(true, Some(deciding), words)
        }
        Err(_) => {
            let words = format!(
                "{allows}, but no role of {principal} allows connect for the cluster, and {} needs a session",
                verb.name()
            );
            decided(false, Some(deciding), words)
        }
    }
}

/// The rule that allows it; or why there is none.
fn allowed_by<'a>(
    policy: &'a Policy,
    principal: &Principal,
    verb: Verb,
    name: Option<&str>,
) -> Result<Deciding<'a>, String> {
    let roles: Vec<&RoleName> =
        policy.content.roles.bindings.get(principal).into_iter().flatten().collect();
    let mut near = Vec::new();
    for role in &roles {
        let rules = policy.content.roles.rules_of(role);
        for rule in rules.into_iter().filter(|rule| allows(verbs_of(rule), verb)) {
            if covers(&rule, name) {
                return Ok((role, rule));
            }
            near.push(format!("the role {role} allows {}", in_words(&rule)));
        }
    }
    let asked = match name {
        Some(name) => format!("{} for {name}", verb.name()),
        None => verb.name().to_owned(),
    };
    let roles: Vec<&str> = roles.into_iter().map(RoleName::as_str).collect();
    Err(match (roles.is_empty(), near.is_empty()) {
        (true, _) if principal.as_str().starts_with("jwt:") => {
            format!(
                "the policy gives no role to {principal}; which roles its JWT names is not known here"
            )
        }
        (true, _) => format!("the policy gives no role to {principal}"),
        (false, true) => format!("no role of {principal} ({}) allows {asked}", roles.join(", ")),
        (false, false) => {
            format!("no rule of {principal} covers {asked}; the nearest: {}", near.join("; "))
        }
    })
}

/// What a session does. The rest are single calls, and the nodes do not ask for the verb connect.
fn needs_session(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::Shared
            | Verb::Exclusive
            | Verb::Permit
            | Verb::Elect
            | Verb::Wound
            | Verb::Transfer
            | Verb::Efficiency
    )
}

/// Whether there can be a client that proves to be this user. Certificates and JWTs are not known to the cluster.
fn can_prove_itself(policy: &Policy, principal: &Principal, unix_ms: u64) -> bool {
    let counts = |token: &v1::AccessTokenInfo| {
        token.principal == principal.as_str()
            && token.expires_at_unix_ms.is_none_or(|end| end > unix_ms)
    };
    !principal.is_token() || policy.tokens.iter().any(counts)
}

fn unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// An election is an exclusive lock, so each of the two verbs is enough for both.
fn allows(verbs: Verbs, verb: Verb) -> bool {
    match verb {
        Verb::Exclusive | Verb::Elect => {
            verbs.contains(Verb::Exclusive) || verbs.contains(Verb::Elect)
        }
        _ => verbs.contains(verb),
    }
}

fn verbs_of(rule: &Rule) -> Verbs {
    match rule {
        Rule::Names { verbs, .. } | Rule::Cluster { verbs } => *verbs,
    }
}

fn covers(rule: &Rule, name: Option<&str>) -> bool {
    match (rule, name) {
        (Rule::Cluster { .. }, None) => true,
        (Rule::Names { pattern, .. }, Some(name)) => match name.strip_suffix('*') {
            Some(prefix) => pattern.covers_prefix(prefix),
            None => pattern.matches(name),
        },
        _ => false,
    }
}

fn parse_verb(text: &str) -> Result<Verb, String> {
    Verb::parse(text).ok_or_else(|| format!("the verbs are {}", Verbs::of(Verb::ALL)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::policy_file::PolicyContent;

    const NOW: u64 = 1_000;

    fn policy() -> Policy {
        let rule = |verbs: &[&str], pattern: &str| v1::AccessRule {
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            pattern: pattern.to_owned(),
        };
        let roles = vec![v1::AccessRole {
            name: "billing".to_owned(),
            rules: vec![rule(&["read", "exclusive"], "billing/*"), rule(&["connect"], "")],
        }];
        let silent = v1::AccessRole {
            name: "silent".to_owned(),
            rules: vec![rule(&["read", "exclusive", "transfer"], "billing/*")],
        };
        let roles = [roles, vec![silent]].concat();
        let binding = |principal: &str, role: &str| v1::AccessBinding {
            principal: principal.to_owned(),
            roles: vec![role.to_owned()],
        };
        let bindings = vec![
            binding("cert:a", "billing"),
            binding("cert:b", "admin"),
            binding("cert:e", "silent"),
            binding("token:f", "admin"),
        ];
        let policy = v1::AccessPolicy { roles, bindings };
        let content = PolicyContent::of(policy, Vec::new()).unwrap();
        let banned = [Principal::parse("cert:c").unwrap()].into();
        Policy { generation: 1, content, quota_use: Vec::new(), tokens: Vec::new(), banned }
    }

    fn verdict(principal: &str, verb: Verb, name: Option<&str>) -> Verdict {
        let principal = Principal::parse(principal).unwrap();
        decide(&policy(), &CanArgs { principal, verb, name: name.map(str::to_owned) }, NOW)
    }

    #[test]
    fn the_rule_that_decides_is_named() {
        let yes = verdict("cert:a", Verb::Exclusive, Some("billing/x"));
        assert_eq!(yes.reason, "the role billing allows read exclusive for billing/*");
        assert_eq!((yes.is_allowed, yes.role.as_deref()), (true, Some("billing")));
        assert!(verdict("cert:a", Verb::Connect, None).is_allowed);
        assert!(verdict("cert:b", Verb::Break, Some("*")).is_allowed);
    }

    #[test]
    fn a_refusal_names_what_comes_near() {
        let near = verdict("cert:a", Verb::Read, Some("bill*"));
        assert!(
            !near.is_allowed && near.reason.contains("the nearest: the role billing"),
            "{near:?}"
        );
        let none = verdict("cert:a", Verb::Break, Some("billing/x"));
        assert!(none.reason.contains("no role of cert:a (billing) allows break"), "{none:?}");
        assert!(verdict("cert:c", Verb::Connect, None).reason.contains("everything was taken"));
        assert!(verdict("cert:d", Verb::Connect, None).reason.contains("gives no role"));
    }

    #[test]
    fn what_needs_a_session_needs_the_verb_connect_too() {
        for verb in [Verb::Exclusive, Verb::Elect, Verb::Transfer] {
            let no = verdict("cert:e", verb, Some("billing/x"));
            assert!(!no.is_allowed && no.reason.contains("allows connect"), "{no:?}");
            assert_eq!(no.role.as_deref(), Some("silent"), "{no:?}");
        }
        assert!(verdict("cert:e", Verb::Read, Some("billing/x")).is_allowed);
    }

    #[test]
    fn a_user_without_a_token_that_counts_may_do_nothing() {
        let mut policy = policy();
        let args = CanArgs {
            principal: Principal::parse("token:f").unwrap(),
            verb: Verb::Metrics,
            name: None,
        };
        let token = |expires_at_unix_ms| v1::AccessTokenInfo {
            principal: "token:f".to_owned(),
            expires_at_unix_ms,
            ..Default::default()
        };
        assert!(decide(&policy, &args, NOW).reason.contains("has no token that counts"));
        policy.tokens = vec![token(Some(NOW))];
        assert!(!decide(&policy, &args, NOW).is_allowed);
        policy.tokens.push(token(None));
        assert!(decide(&policy, &args, NOW).is_allowed);
    }

    /// The explanation must not differ from what the cluster does.
    #[test]
    fn the_explanation_decides_as_the_cluster_does() {
        let grants = |principal: &str| {
            let roles = policy().content.roles;
            let bound = roles.bindings.get(&Principal::parse(principal).unwrap());
            roles.grants(bound.into_iter().flatten())
        };
        for principal in ["cert:a", "cert:b", "cert:d", "cert:e"] {
            let grants = grants(principal);
            let may_connect = grants.allow_cluster(Verb::Connect);
            for verb in Verb::ALL.iter().copied() {
                // An election is an exclusive lock.
                let enough = match verb {
                    Verb::Exclusive | Verb::Elect => vec![Verb::Exclusive, Verb::Elect],
                    _ => vec![verb],
                };
                if verb.scope() == Scope::Cluster {
                    let found = verdict(principal, verb, None).is_allowed;
                    assert_eq!(found, grants.allow_cluster(verb), "{principal} {verb:?}");
                    continue;
                }
                for name in ["billing/x", "billing/", "billing", "other"] {
                    let found = verdict(principal, verb, Some(name)).is_allowed;
                    let allows = |verb: &Verb| grants.allow(Verbs::of(&[*verb]), name);
                    let has_session = may_connect || !needs_session(verb);
                    let expected = has_session && enough.iter().any(allows);
                    assert_eq!(found, expected, "{principal} {verb:?} {name}");
                    let prefix = format!("{name}*");
                    let found = verdict(principal, verb, Some(&prefix)).is_allowed;
                    let covers = |verb: &Verb| grants.cover(Verbs::of(&[*verb]), name);
                    let expected = has_session && enough.iter().any(covers);
                    assert_eq!(found, expected, "{principal} {verb:?} {prefix}");
                }
            }
        }
    }
}
