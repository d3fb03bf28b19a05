//! `holdfast elect`: stand for election, and run a command while leading.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::{AcquireError, CampaignError, Client, LossReason};

use crate::cluster;
use crate::duration;
use crate::exit::Problem;
use crate::global::Global;
use crate::held::Held;
use crate::leaderless;
use crate::name;
use crate::obstacle;
use crate::one_shot;
use crate::owner::OwnerArgs;
use crate::queue_display;
use crate::signals::{self, Signals};
use crate::supervise::{self, CommandArgs, Parting};
use crate::tier::TierArg;

/// Stands for election, and runs a command while leading.
///
/// Candidates are elected in the order in which they came. An election is an exclusive lock: the command
/// finds the same variables as under `holdfast lock`, and HOLDFAST_TOKEN is the epoch, which is higher than
/// that of every leader before. When the command ends this program resigns, and the next candidate leads. If
/// the leadership is lost the command's whole process group gets SIGTERM and, after the grace, SIGKILL.
///
/// `holdfast observe` tells who leads, with the value that was given here.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: as with `holdfast lock`; 75 not elected within --wait.

Examples:
  holdfast elect scheduler --value \"$HOSTNAME:8080\" -- ./scheduler.sh
  holdfast elect scheduler --value standby --wait 10s -- ./scheduler.sh
  holdfast elect scheduler -- sh -c 'echo \"epoch $HOLDFAST_TOKEN\"'")]
pub(crate) struct ElectArgs {
    /// The election's name; a lock of this name is what the leader holds.
    #[arg(value_parser = name::parse_new)]
    name: String,
    /// What observers are told about the leader, e.g. its address.
    #[arg(long, value_name = "V", default_value = "")]
    value: String,
    /// How long to stand for election; without it, until elected.
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse_wait)]
    wait: Option<Duration>,
    /// How long the leadership outlives the last sign of life of this program.
    #[arg(long, value_name = "D", default_value = "30s", allow_hyphen_values = true,
          value_parser = duration::parse_ttl)]
    ttl: Duration,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    child: CommandArgs,
}

pub(crate) async fn run(args: ElectArgs, global: &Global) -> Result<ExitCode, Problem> {
    let work = async |client: &Client, signals: &mut Signals, parting: &Cell<Parting>| {
        lead(client, &args, signals, parting, global).await
    };
    let without =
        async |problem: Problem, _: &mut Signals| supervise::not_held(&args.child, problem);
    let owner = args.owner.of("elect", args.child.note());
    let builder = Client::builder().ttl(args.ttl).owner(owner);
    supervise::with_session(&args.child, builder, args.wait, global, work, without).await
}

async fn lead(
    client: &Client,
    args: &ElectArgs,
    signals: &mut Signals,
    parting: &Cell<Parting>,
    global: &Global,
) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let story = args.child.story();
    let mut election = client.election(&args.name);
    if let Some(wait) = args.wait {
        election = election.wait(wait);
    }
    let names = std::slice::from_ref(&args.name);
    let elected = tokio::select! {
        biased;
        // It was meant for the command, which will not begin.
        signal = signals.next() => return Ok(signals::exit_code(signal)),
        elected = election.campaign(args.value.clone()) => elected,
        problem = leaderless::noticed(args.wait, global) => {
            return supervise::not_held(&args.child, problem);
        }
        never = queue_display::show(names, TierArg::Correctness, &calls, &story, args.child.is_quiet()) => {
            match never {}
        }
    };
    let problem = match elected {
        Ok(leadership) => {
            let why_lost = |reason| format!("no longer leads {}: {}", args.name, why(reason, args));
            return supervise::run(
                &args.child,
                Held::Leader(leadership),
                signals,
                parting,
                why_lost,
            )
            .await;
        }
        Err(CampaignError::Unavailable(unavailable)) => {
            cluster::why_unavailable(unavailable, global).await
        }
        Err(CampaignError::TimedOut) => {
            let wait = args.wait.unwrap_or_default();
            obstacle::why_not(AcquireError::TimedOut, &calls, TierArg::Correctness, names, wait)
                .await
        }
        Err(error) => error.into(),
    };
    supervise::not_held(&args.child, problem)
}

fn why(reason: LossReason, args: &ElectArgs) -> String {
    match reason {
        LossReason::Expired | LossReason::SessionExpired => format!(
            "the cluster heard nothing from us, or we from it, for the --ttl of {}",
            duration::as_written(args.ttl)
        ),
        _ => reason.to_string(),
    }
}
