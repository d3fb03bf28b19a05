//! `holdfast demo`: why a lock needs a fence, shown on a cluster of its own.
//!
//! Nothing of it is staged: three nodes run as processes, the workers use the client library, the money is in a store,
//! and what the end says is computed from what that store has. A story that ends in another way than it is told is an
//! error.

mod bank;
mod cluster;
mod failover;
mod late_write;
mod narrator;
mod worker;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::{Format, Global};
use crate::output::{self, Show};
use crate::stop_signal::StopSignal;

use cluster::DemoCluster;
use failover::Failover;
use late_write::LateWrite;
use narrator::{Narrator, Style};

/// 128 + SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// Shows a late write with a fencing token and without one, and a failover, on a cluster of its own.
///
/// Worker A takes a lock and stops for longer than its lease. B takes the lock and writes. A continues and writes too.
/// With a fence the bank refuses A's write; without one, money is lost. Then the demo kills the leader, and tokens keep
/// rising. The demo starts three nodes on free ports of this machine and removes them at the end.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the outcome is the expected one; 1 it is not; 130 interrupted.

Examples:
  holdfast demo
  holdfast demo --fast --output json"
)]
pub(crate) struct DemoArgs {
    /// Prints lines without animation, as without a terminal or with NO_COLOR.
    #[arg(long)]
    plain: bool,
    /// Uses short leases, and does not pause between lines.
    #[arg(long)]
    fast: bool,
}

/// What happened.
#[derive(Debug, Serialize)]
struct DemoOutcome {
    fenced: LateWrite,
    unfenced: LateWrite,
    failover: Failover,
    as_told: bool,
}

impl Show for DemoOutcome {
    /// All was said when it happened.
    fn to_table(&self) -> String {
        String::new()
    }
}

pub(crate) async fn run(args: DemoArgs, global: &Global) -> Result<ExitCode, Problem> {
    let mut stop = StopSignal::listen()?;
    let style = Style::of(global.output == Format::Json, args.plain, args.fast);
    let outcome = tokio::select! {
        outcome = tell(&args, Narrator::new(style)) => outcome?,
        // The story is dropped, and its processes and files go with it.
        () = stop.received() => {
            output::message("interrupted; the demo stopped its nodes and removed its data");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    output::show(global.output, &outcome)?;
    if outcome.as_told {
        return Ok(ExitCode::SUCCESS);
    }
    output::message("the outcome is not the expected one; please report it, with the output above");
    Ok(ExitCode::FAILURE)
}

async fn tell(args: &DemoArgs, mut narrator: Narrator) -> Result<DemoOutcome, Problem> {
    let ttl = narrator.lease(args.fast);
    narrator.heading("A lock alone is not enough").await;
    let mut cluster = DemoCluster::start().await?;
    narrator.say("cluster", "three nodes run, each a process of its own").await;
    let fenced = late_write::play(&cluster, true, ttl, &mut narrator).await?;
    let unfenced = late_write::play(&cluster, false, ttl, &mut narrator).await?;
    let failover = failover::play(&mut cluster, &mut narrator).await?;
    narrator.heading("What you saw").await;
    for (words, act) in [("with the fence", &fenced), ("without it", &unfenced)] {
        narrator.sum_up(words, &act.in_short()).await;
    }
    narrator.sum_up("the tokens", &failover.in_short()).await;
    narrator.sum_up("read on", "docs/fencing.md, docs/choosing.md, docs/stories").await;
    let as_told = fenced.is_as_expected() && unfenced.is_as_expected() && failover.is_as_expected();
    cluster.stop().await?;
    Ok(DemoOutcome { fenced, unfenced, failover, as_told })
}

/// Of the demo itself, not of what it shows.
fn broke(what: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Unavailable, format!("cannot complete the demo: {what}"))
}
