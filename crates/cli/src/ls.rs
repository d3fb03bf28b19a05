//! `holdfast ls`: the locks that are held, waited for or closed.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1;
use serde::Serialize;

use crate::duration::in_words;
use crate::exit::Problem;
use crate::global::Global;
use crate::mode;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::status::OwnerInfo;
use crate::text::{quoted, table};
use crate::token;

/// Lists the locks that are held, waited for, or closed by a lock delay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast ls
  holdfast ls billing/
  holdfast ls --output json | jq -r '.locks[].name'")]
pub(crate) struct LsArgs {
    /// Only names that start with this; 'billing/*' is the same as billing/.
    #[arg(default_value = "", value_parser = name::parse_prefix)]
    prefix: String,
}

#[derive(Debug, Serialize)]
struct Locks {
    locks: Vec<Lock>,
    /// What was asked for.
    #[serde(skip)]
    prefix: String,
}

#[derive(Debug, Serialize)]
struct Lock {
    name: String,
    /// `held`, `awaited` (free, with a queue) or `closed` (by a lock delay).
    state: &'static str,
    /// The mode of the first holder; empty if there is none.
    mode: &'static str,
    /// Of a semaphore, else 0.
    permits: u32,
    frozen: bool,
    holder_count: u64,
    waiter_count: u64,
    #[serde(serialize_with = "token::as_text")]
    token: u64,
    session: String,
    owner: OwnerInfo,
    held_for_ms: u64,
}

impl Lock {
    fn new(lock: v1::LockSummary, freezes: &[v1::Frozen]) -> Lock {
        let state = match (lock.holder_count, lock.waiter_count) {
            (0, 0) => "closed",
            (0, _) => "awaited",
            _ => "held",
        };
        Lock {
            state,
            mode: if lock.holder_count > 0 { mode::as_word(lock.mode()) } else { "" },
            permits: lock.permits,
            frozen: freezes.iter().any(|freeze| lock.name.starts_with(&freeze.prefix)),
            name: lock.name,
            holder_count: lock.holder_count,
            waiter_count: lock.waiter_count,
            token: lock.token,
            session: lock.public_session_id,
            owner: lock.owner.into(),
            held_for_ms: lock.held_for_ms,
        }
    }
}

impl Show for Locks {
    fn to_table(&self) -> String {
        if self.locks.is_empty() {
            let scope = match self.prefix.as_str() {
                "" => String::new(),
                prefix => format!(" under {}", quoted(prefix)),
            };
            return format!("no locks{scope} are held or waited for\n");
        }
        let rows: Vec<Vec<String>> = self.locks.iter().map(Lock::to_row).collect();
        let headers = [
            "NAME", "STATE", "MODE", "HOLDERS", "TOKEN", "HOLDER", "OWNER", "COMMAND", "HELD FOR",
            "WAITING",
        ];
        table(&headers, &rows)
    }
}

impl Lock {
    fn to_row(&self) -> Vec<String> {
        let election = if self.owner.is_of_election() { ", election" } else { "" };
        let frozen = if self.frozen { ", frozen" } else { "" };
        let of_holder = |text: String| if self.holder_count > 0 { text } else { "-".to_owned() };
        vec![
            self.name.clone(),
            format!("{}{frozen}", self.state),
            of_holder(mode::in_cell(self.mode, self.permits) + election),
            self.holder_count.to_string(),
            of_holder(self.token.to_string()),
            of_holder(self.session.clone()),
            of_holder(self.owner.in_words()),
            of_holder(self.owner.command()),
            of_holder(in_words(self.held_for_ms)),
            self.waiter_count.to_string(),
        ]
    }
}

pub(crate) async fn run(args: LsArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let locks = calls.list(&args.prefix).await?;
    let freezes = calls.freezes().await?;
    let locks = locks.into_iter().map(|lock| Lock::new(lock, &freezes)).collect();
    output::show(global.output, &Locks { locks, prefix: args.prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_there_are_none_is_said_of_what_was_asked_for() {
        let none = |prefix: &str| Locks { locks: Vec::new(), prefix: prefix.to_owned() }.to_table();
        assert_eq!(none(""), "no locks are held or waited for\n");
        assert_eq!(none("zzz/"), "no locks under zzz/ are held or waited for\n");
    }
}
