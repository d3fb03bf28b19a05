//! `holdfast status`: who holds one lock, and who waits for it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::Unary;
use holdfast_proto::v1;
use serde::Serialize;

use crate::cli::Global;
use crate::duration::{as_written, in_words};
use crate::exit::{Code, Problem};
use crate::one_shot;
use crate::output::{self, Show, table};

/// Whoever is told that a lock is busy does not wait long to hear who has it.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Shows who holds a lock, and who waits for it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast status deploy
  holdfast status deploy --output json | jq '.holders[0].token'")]
pub(crate) struct StatusArgs {
    /// The lock's name.
    name: String,
}

#[derive(Debug, Serialize)]
struct LockStatus {
    name: String,
    held: bool,
    holders: Vec<Holder>,
    waiters: Vec<Waiter>,
    waiter_count: u64,
    group: u32,
    applied_index: u64,
    logical_time_ms: u64,
}

#[derive(Debug, Serialize)]
struct Holder {
    session: String,
    owner: OwnerInfo,
    actor: u64,
    token: u64,
    held_for_ms: u64,
    /// Null if only the session bounds the hold.
    remaining_ms: Option<u64>,
    session_remaining_ms: u64,
    metadata: String,
}

#[derive(Debug, Serialize)]
struct Waiter {
    session: String,
    owner: OwnerInfo,
    actor: u64,
    position: u64,
    waiting_for_ms: u64,
    remaining_ms: u64,
}

/// Who is behind a session, for all listings.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OwnerInfo {
    application: String,
    host: String,
    pid: u32,
    note: String,
}

impl From<Option<v1::Owner>> for OwnerInfo {
    fn from(owner: Option<v1::Owner>) -> OwnerInfo {
        let v1::Owner { application, host, pid, note } = owner.unwrap_or_default();
        OwnerInfo { application, host, pid, note }
    }
}

impl OwnerInfo {
    /// `application@host:pid`, as far as it is known.
    pub(crate) fn in_words(&self) -> String {
        let mut words = self.application.clone();
        if !self.host.is_empty() {
            words += &format!("@{}", self.host);
        }
        if self.pid != 0 {
            words += &format!(":{}", self.pid);
        }
        words
    }
}

impl From<v1::StatusResponse> for LockStatus {
    fn from(answer: v1::StatusResponse) -> LockStatus {
        LockStatus {
            name: answer.name,
            held: !answer.holders.is_empty(),
            holders: answer.holders.into_iter().map(Holder::from).collect(),
            waiters: answer.waiters.into_iter().map(Waiter::from).collect(),
            waiter_count: answer.waiter_count,
            group: answer.group,
            applied_index: answer.applied_index,
            logical_time_ms: answer.logical_time_ms,
        }
    }
}

impl From<v1::Holder> for Holder {
    fn from(holder: v1::Holder) -> Holder {
        Holder {
            session: holder.public_session_id,
            owner: holder.owner.into(),
            actor: holder.actor,
            token: holder.token,
            held_for_ms: holder.held_for_ms,
            remaining_ms: holder.remaining_ms,
            session_remaining_ms: holder.session_remaining_ms,
            metadata: String::from_utf8_lossy(&holder.metadata).into_owned(),
        }
    }
}

impl From<v1::Waiter> for Waiter {
    fn from(waiter: v1::Waiter) -> Waiter {
        Waiter {
            session: waiter.public_session_id,
            owner: waiter.owner.into(),
            actor: waiter.actor,
            position: waiter.position,
            waiting_for_ms: waiter.waiting_for_ms,
            remaining_ms: waiter.remaining_ms,
        }
    }
}

impl Show for LockStatus {
    fn to_table(&self) -> String {
        if !self.held && self.waiter_count == 0 {
            return format!("{} is free\n", self.name);
        }
        let holders: Vec<Vec<String>> = self.holders.iter().map(Holder::to_row).collect();
        let mut text = format!("{} is {}\n\n", self.name, if self.held { "held" } else { "free" });
        text += &table(&["HOLDER", "OWNER", "TOKEN", "HELD FOR", "ENDS IN"], &holders);
        if self.waiter_count > 0 {
            let waiters: Vec<Vec<String>> = self.waiters.iter().map(Waiter::to_row).collect();
            text += &format!("\n{} waiting\n\n", self.waiter_count);
            text += &table(&["PLACE", "WAITER", "OWNER", "WAITS FOR", "GIVES UP IN"], &waiters);
        }
        text
    }
}

impl Holder {
    fn to_row(&self) -> Vec<String> {
        let ends_in_ms = self.remaining_ms.unwrap_or(u64::MAX).min(self.session_remaining_ms);
        vec![
            self.session.clone(),
            self.owner.in_words(),
            self.token.to_string(),
            in_words(self.held_for_ms),
            in_words(ends_in_ms),
        ]
    }
}

impl Waiter {
    fn to_row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.session.clone(),
            self.owner.in_words(),
            in_words(self.waiting_for_ms),
            in_words(self.remaining_ms),
        ]
    }
}

/// For whoever did not get the lock, at once or within the wait. The holder is named if the cluster
/// tells it quickly; it may have changed since.
pub(crate) async fn busy(calls: &Unary, name: &str, waited: Option<Duration>) -> Problem {
    let status = calls.clone().timeout(BUSY_PATIENCE).status(name).await.ok();
    let holder = status.map(|status| status.holders.into_iter().next().map(Holder::from));
    let words = match waited {
        None => name.to_owned(),
        Some(wait) => format!("{name} did not become free within {}; it", as_written(wait)),
    };
    let words = match holder {
        Some(Some(Holder { owner, token, .. })) => {
            format!("{words} is held by {} under token {token}", owner.in_words())
        }
        Some(None) => format!("{words} was held by somebody else until a moment ago"),
        None => format!("{words} is held by somebody else"),
    };
    let hint = format!("see `holdfast status {}`", output::quoted(name));
    Problem::new(Code::Busy, format!("{words}; {hint}"))
}

pub(crate) async fn run(args: StatusArgs, global: &Global) -> Result<ExitCode, Problem> {
    let answer = one_shot::calls(global)?.status(&args.name).await?;
    output::show(global.output, &LockStatus::from(answer))
}
