//! `holdfast access show`, `diff` and `apply`: the policy as a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdfast_core::Quota;
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::{encode, v1};
use serde::Serialize;

use super::lockout::{self, ForceArgs};
use super::policy_file::{self, Difference, PolicyFile};
use super::quota;
use crate::exit::{Code, Problem};
use crate::global::{Format, Global};
use crate::output::{self, Show};
use crate::text::quoted;

/// The files differ, as diff(1) has it.
const DIFFERENT: u8 = 1;

/// The first line of the file, and its number.
const GENERATION: &str = "# generation ";

/// Prints the policy as a file for `diff` and `apply`: roles, the users that have them, and quotas.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access show > policy.toml
  holdfast access show --output json")]
pub(crate) struct ShowArgs {}

/// Compares a policy file with the policy of the cluster.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 they are the same; 1 they differ.

Examples:
  holdfast access diff policy.toml
  holdfast access diff policy.toml --output json")]
pub(crate) struct DiffArgs {
    /// The policy file.
    file: PathBuf,
}

/// Makes a policy file the policy of the cluster: all of it at once.
///
/// Roles and users that are not in the file lose what they have, and quotas that are not in it are deleted. Tokens stay.
/// If another administrator changes the policy at the same time, nothing is applied. Nor is a file that `show` wrote before
/// the policy was last changed: it would undo that change. The first line of such a file says `# generation N`; without it
/// the file is applied.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access diff policy.toml
  holdfast access apply policy.toml")]
pub(crate) struct ApplyArgs {
    /// The policy file.
    file: PathBuf,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(Debug, Serialize)]
struct Shown {
    generation: u64,
    #[serde(flatten)]
    policy: PolicyFile,
    #[serde(skip)]
    text: String,
}

impl Show for Shown {
    fn to_table(&self) -> String {
        format!("{GENERATION}{}\n{}", self.generation, self.text)
    }
}

#[derive(Debug, Serialize)]
struct Differences {
    /// Of the policy of the cluster, after the change if there is one.
    generation: u64,
    differences: Vec<Difference>,
}

impl Show for Differences {
    fn to_table(&self) -> String {
        if self.differences.is_empty() {
            return "nothing differs\n".to_owned();
        }
        self.differences.iter().map(|difference| format!("{difference}\n")).collect()
    }
}

pub(super) async fn show(global: &Global) -> Result<ExitCode, Problem> {
    let found = super::load(&global.calls()?).await?;
    let policy = PolicyFile::of(&found.content);
    let text = policy.to_toml()?;
    output::show(global.output, &Shown { generation: found.generation, policy, text })
}

pub(super) async fn diff(args: &DiffArgs, global: &Global) -> Result<ExitCode, Problem> {
    let wanted = policy_file::load(&args.file)?;
    let found = super::load(&global.calls()?).await?;
    let differences = policy_file::differences(&found.content, &wanted);
    let is_same = differences.is_empty();
    output::show(global.output, &Differences { generation: found.generation, differences })?;
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

pub(super) async fn apply(args: &ApplyArgs, global: &Global) -> Result<ExitCode, Problem> {
    let wanted = policy_file::load(&args.file)?;
    let calls = global.calls()?;
    let found = super::load(&calls).await?;
    let differences = policy_file::differences(&found.content, &wanted);
    let mut generation = found.generation;
    if !differences.is_empty() {
        check_generation(args, found.generation)?;
        let mut changes = vec![Change::Replace(encode::access::policy(&wanted.roles))];
        if found.content.quotas != wanted.quotas {
            let deleted = found.content.quotas.keys().map(|subject| (subject, Quota::default()));
            let mut quotas: BTreeMap<_, _> = deleted.collect();
            quotas.extend(wanted.quotas.iter().map(|(subject, quota)| (subject, *quota)));
            changes.push(quota::change(quotas.iter().map(|(subject, quota)| (*subject, quota))));
        }
        lockout::check(&args.force, global, &calls, &found, &changes).await?;
        let changes = changes.into_iter().map(|change| v1::AccessChange { change: Some(change) });
        let request = v1::ChangeAccessRequest {
            changes: changes.collect(),
            expected_generation: Some(found.generation),
            end_sessions: false,
        };
        generation = super::send(&calls, request).await?;
    }
    if global.output == Format::Table {
        let file = quoted(&args.file.to_string_lossy());
        output::message(&format!("{file} is the policy of the cluster, generation {generation}"));
    }
    output::show(global.output, &Differences { generation, differences })
}

/// A file that is older than the policy would undo what was changed since, a revocation for example.
fn check_generation(args: &ApplyArgs, now: u64) -> Result<(), Problem> {
    let text = std::fs::read_to_string(&args.file).unwrap_or_default();
    let first = text.lines().next().and_then(|line| line.strip_prefix(GENERATION));
    match first.and_then(|number| number.trim().parse::<u64>().ok()) {
        Some(of_file) if of_file < now => {
            let file = quoted(&args.file.to_string_lossy());
            let words = format!(
                "{file} is of generation {of_file}, and the policy is of generation {now}: to apply it would undo what was \
                 changed since. `holdfast access diff {file}` shows it. Take it up in the file, and write `{GENERATION}{now}` \
                 in its first line"
            );
            Err(Problem::new(Code::Usage, words))
        }
        _ => Ok(()),
    }
}
