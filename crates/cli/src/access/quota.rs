//! `holdfast access quota`: how much a user, or all that use the names with a prefix, may take, and what is taken.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use holdfast_core::{Quota, QuotaSubject};
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::{encode, v1};
use serde::Serialize;

use super::Changed;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};
use crate::text::table;

#[derive(Debug, Subcommand)]
pub(crate) enum QuotaVerb {
    Set(SetArgs),
    List(ListArgs),
    Delete(DeleteArgs),
}

/// Sets a quota, instead of the one that there is.
///
/// SUBJECT is a user, such as token:billing, or a prefix and *, such as 'billing/*'. The quota of a user counts all its
/// sessions. The quota of a prefix counts all users. What is taken already stays. A quota of a user is in force on nodes
/// with auth.mode = "required".
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("limit").required(true).multiple(true).args(["sessions", "locks", "waits", "rate"]))]
#[command(after_help = "Examples:
  holdfast access quota set token:billing --sessions 50 --locks 200 --waits 100
  holdfast access quota set token:billing --rate 100 --burst 500
  holdfast access quota set 'reports/*' --locks 20")]
pub(crate) struct SetArgs {
    /// The user, or the prefix and *.
    #[arg(value_parser = parse_subject)]
    subject: QuotaSubject,
    /// Sessions that are open. Only for a user.
    #[arg(long, value_name = "N")]
    sessions: Option<u64>,
    /// Holds and places in queues together.
    #[arg(long, value_name = "N")]
    locks: Option<u64>,
    /// Places in queues.
    #[arg(long, value_name = "N")]
    waits: Option<u64>,
    /// Requests in a second, on average. Heartbeats, renewals and releases do not count.
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// Requests at once, after a silence. Without it, as many as in a second.
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u64>,
}

/// Lists the quotas, with what is taken of them.
///
/// In a cluster with several groups each group counts for itself, and this is what group 1 has counted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access quota list
  holdfast access quota list --output json")]
pub(crate) struct ListArgs {}

/// Deletes a quota. Nothing limits its subject any more.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access quota delete token:billing
  holdfast access quota delete 'reports/*'")]
pub(crate) struct DeleteArgs {
    /// The user, or the prefix and *.
    #[arg(value_parser = parse_subject)]
    subject: QuotaSubject,
}

#[derive(Debug, Serialize)]
struct QuotaList {
    quotas: Vec<QuotaUse>,
}

/// What is not limited is not there.
#[derive(Debug, Serialize)]
struct QuotaUse {
    subject: String,
    sessions: Option<Use>,
    locks: Option<Use>,
    waits: Option<Use>,
    rate: Option<u64>,
    burst: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Use {
    used: u64,
    limit: u64,
}

impl QuotaUse {
    fn of(found: &v1::AccessQuotaUse) -> QuotaUse {
        let quota = found.quota.clone().unwrap_or_default();
        let part = |used, limit: Option<u64>| limit.map(|limit| Use { used, limit });
        QuotaUse {
            subject: quota.subject,
            sessions: part(found.sessions, quota.sessions),
            locks: part(found.locks, quota.locks),
            waits: part(found.waits, quota.waits),
            rate: quota.rate,
            burst: quota.burst.or(quota.rate),
        }
    }
}

impl Show for QuotaList {
    fn to_table(&self) -> String {
        if self.quotas.is_empty() {
            return "there are no quotas\n".to_owned();
        }
        let part = |part: &Option<Use>| match part {
            Some(Use { used, limit }) => format!("{used} of {limit}"),
            None => "-".to_owned(),
        };
        let number =
            |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let row = |it: &QuotaUse| {
            let counted = [&it.sessions, &it.locks, &it.waits].map(part);
            let rates = [number(it.rate), number(it.burst)];
            [it.subject.clone()].into_iter().chain(counted).chain(rates).collect()
        };
        let rows: Vec<Vec<String>> = self.quotas.iter().map(row).collect();
        table(&["FOR", "SESSIONS", "LOCKS", "WAITS", "RATE", "BURST"], &rows)
    }
}

pub(super) async fn run(verb: QuotaVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        QuotaVerb::Set(SetArgs { subject, sessions, locks, waits, rate, burst }) => {
            let quota = Quota { sessions, locks, waits, rate, burst };
            quota.check(&subject).map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
            let calls = global.calls()?;
            let before = super::load(&calls).await?.content.quotas.get(&subject).copied();
            let generation =
                super::change(&calls, vec![change([(&subject, &quota)])], false).await?;
            let mode = calls.who_am_i().await?.mode;
            let words = changed_in_words(&subject, before, &quota, &mode);
            output::show(global.output, &Changed { generation, words })
        }
        QuotaVerb::List(_) => {
            let policy = super::load(&global.calls()?).await?;
            let quotas = policy.quota_use.iter().map(QuotaUse::of).collect();
            output::show(global.output, &QuotaList { quotas })
        }
        QuotaVerb::Delete(DeleteArgs { subject }) => {
            let policy = super::load(&global.calls()?).await?;
            if !policy.content.quotas.contains_key(&subject) {
                let words = format!(
                    "there is no quota for {subject}, and nothing was changed; `holdfast access quota list` shows the quotas"
                );
                return Err(Problem::new(Code::Usage, words));
            }
            let words = format!("deleted the quota of {subject}");
            super::make(global, vec![change([(&subject, &Quota::default())])], false, words).await
        }
    }
}

/// What was changed, what is in force now, and where.
fn changed_in_words(
    subject: &QuotaSubject,
    before: Option<Quota>,
    now: &Quota,
    mode: &str,
) -> String {
    let changed = match before {
        None => format!("{subject} has the quota {now}, and had none"),
        Some(before) if before == *now => format!("{subject} has the quota {now}, as before"),
        Some(before) => format!("{subject} has the quota {now}, and had {before}"),
    };
    let is_of_user = matches!(subject, QuotaSubject::Principal(_));
    match is_of_user && mode != "required" {
        false => format!("{changed}; it is in force now"),
        true => format!(
            "{changed}; it is not in force on the node that answered, which has auth.mode = {mode:?}: quotas of users need \
             \"required\""
        ),
    }
}

pub(super) fn change<'a>(
    quotas: impl IntoIterator<Item = (&'a QuotaSubject, &'a Quota)>,
) -> Change {
    let quotas = quotas.into_iter().map(|(subject, quota)| encode::access::quota(subject, quota));
    Change::SetQuotas(v1::AccessQuotas { quotas: quotas.collect() })
}

fn parse_subject(text: &str) -> Result<QuotaSubject, String> {
    QuotaSubject::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_set_is_told_with_the_one_before_and_whether_it_is_in_force() {
        let quota = |locks| Quota { locks: Some(locks), ..Quota::default() };
        let user = parse_subject("token:a").unwrap();
        let told = |before, mode| changed_in_words(&user, before, &quota(2), mode);
        assert_eq!(
            told(None, "required"),
            "token:a has the quota 2 locks, and had none; it is in force now"
        );
        assert_eq!(
            told(Some(quota(9)), "required"),
            "token:a has the quota 2 locks, and had 9 locks; it is in force now"
        );
        assert!(told(Some(quota(2)), "required").contains("as before"));
        let off = told(None, "permissive");
        assert!(off.contains("not in force") && off.contains("\"permissive\""), "{off}");
        let prefix = parse_subject("jobs/*").unwrap();
        assert!(changed_in_words(&prefix, None, &quota(2), "off").ends_with("in force now"));
    }
}
