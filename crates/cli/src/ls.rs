//! `holdfast ls`: the locks that are held or waited for.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1;
use serde::Serialize;

use crate::cli::Global;
use crate::duration::in_words;
use crate::exit::Problem;
use crate::one_shot;
use crate::output::{self, Show, table};
use crate::status::OwnerInfo;

/// Lists the locks that are held or waited for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast ls
  holdfast ls billing/
  holdfast ls --output json | jq -r '.locks[].name'")]
pub(crate) struct LsArgs {
    /// Only names that start with this.
    #[arg(default_value = "")]
    prefix: String,
}

#[derive(Debug, Serialize)]
struct Locks {
    locks: Vec<Lock>,
}

#[derive(Debug, Serialize)]
struct Lock {
    name: String,
    holder_count: u64,
    waiter_count: u64,
    token: u64,
    session: String,
    owner: OwnerInfo,
    held_for_ms: u64,
}

impl From<v1::LockSummary> for Lock {
    fn from(lock: v1::LockSummary) -> Lock {
        Lock {
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
            return "no locks are held\n".to_owned();
        }
        let rows: Vec<Vec<String>> = self.locks.iter().map(Lock::to_row).collect();
        table(&["NAME", "TOKEN", "HOLDER", "OWNER", "HELD FOR", "WAITING"], &rows)
    }
}

impl Lock {
    fn to_row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.token.to_string(),
            self.session.clone(),
            self.owner.in_words(),
            in_words(self.held_for_ms),
            self.waiter_count.to_string(),
        ]
    }
}

pub(crate) async fn run(args: LsArgs, global: &Global) -> Result<ExitCode, Problem> {
    let locks = one_shot::calls(global)?.list(&args.prefix).await?;
    output::show(global.output, &Locks { locks: locks.into_iter().map(Lock::from).collect() })
}
