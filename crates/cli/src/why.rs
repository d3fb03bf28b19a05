//! `holdfast why`: what is in the way of a lock, and what to do about it.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::Unary;
use holdfast_proto::v1;
use serde::Serialize;

use crate::cli::Global;
use crate::exit::Problem;
use crate::obstacle::{self, Obstacle};
use crate::one_shot;
use crate::output::{self, Show, quoted};
use crate::status::{Holder, Waiter, holder_table, waiter_table};

/// Of the locks that an acquire-all needs besides, so many are looked at.
const OTHERS_MAX: usize = 32;

/// Tells what is in the way of a lock: who holds it and why, who waits, and what to do about it.
///
/// Also whether it is frozen and by whom, closed by a lock delay, or free but reserved for somebody who
/// needs other locks at the same moment; then those are looked at as well.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast why deploy
  holdfast why deploy --output json | jq -r '.obstacles[].next_step'")]
pub(crate) struct WhyArgs {
    /// The lock's name.
    name: String,
}

#[derive(Debug, Serialize)]
struct Why {
    name: String,
    /// Nothing is in the way: it would be granted now.
    available: bool,
    obstacles: Vec<Obstacle>,
    holders: Vec<Holder>,
    holder_count: u64,
    waiters: Vec<Waiter>,
    waiter_count: u64,
    /// What the first in line must get besides, and what is in the way of that.
    others: Vec<Other>,
}

#[derive(Debug, Serialize)]
struct Other {
    name: String,
    obstacles: Vec<Obstacle>,
}

impl Show for Why {
    fn to_table(&self) -> String {
        let mut text = String::new();
        if self.available {
            text += &format!("{} is free: nothing is in the way\n", self.name);
            text += &format!("  next: holdfast lock {} -- CMD\n", quoted(&self.name));
        }
        for obstacle in &self.obstacles {
            text += &in_lines(&self.name, obstacle, "");
        }
        for other in &self.others {
            match other.obstacles.first() {
                Some(obstacle) => text += &in_lines(&other.name, obstacle, "  "),
                None => text += &format!("  {} is not in the way\n", other.name),
            }
        }
        if !self.holders.is_empty() {
            text += &format!("\n{}", holder_table(&self.holders));
        }
        if self.waiter_count > 0 {
            text += &format!("\n{} waiting\n\n{}", self.waiter_count, waiter_table(&self.waiters));
        }
        text
    }
}

fn in_lines(name: &str, obstacle: &Obstacle, indent: &str) -> String {
    format!("{indent}{name} {}\n{indent}  next: {}\n", obstacle.words, obstacle.next_step)
}

pub(crate) async fn run(args: WhyArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let status = calls.status(&args.name).await?;
    let obstacles = obstacle::of(&status);
    let is_reserved = obstacles.iter().any(|obstacle| obstacle.kind == "reserved");
    let others = if is_reserved { others(&calls, &status).await? } else { Vec::new() };
    let why = Why {
        name: args.name,
        available: obstacles.is_empty(),
        obstacles,
        holders: status.holders.into_iter().map(Holder::from).collect(),
        holder_count: status.holder_count,
        waiters: status.waiters.into_iter().map(Waiter::from).collect(),
        waiter_count: status.waiter_count,
        others,
    };
    output::show(global.output, &why)
}

async fn others(calls: &Unary, status: &v1::StatusResponse) -> Result<Vec<Other>, Problem> {
    let Some(first) = status.waiters.first() else { return Ok(Vec::new()) };
    let mut others = Vec::new();
    for name in first.also.iter().take(OTHERS_MAX) {
        let status = calls.status(name).await?;
        others.push(Other { name: name.clone(), obstacles: obstacle::of(&status) });
    }
    Ok(others)
}
