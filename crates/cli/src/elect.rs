//! `holdfast elect`: stand for election, and run a command while leading.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::{AcquireError, CampaignError, Client};
use tokio::time::Instant;

use crate::duration;
use crate::exit::Problem;
use crate::global::Global;
use crate::held::Held;
use crate::leaderless;
use crate::name;
use crate::obstacle;
use crate::one_shot;
use crate::open_session::{self, OpenWait};
use crate::owner::OwnerArgs;
use crate::queue_display;
use crate::renewal_warning::RenewalWarning;
use crate::signals::{self, Signals};
use crate::supervise::{self, CommandArgs, SessionEnd};
use crate::tier::TierArg;

/// Runs a command while this program is the leader of an election.
///
/// The cluster elects candidates in the order in which they came. An election is an exclusive lock: the command finds
/// the same variables as under `holdfast lock`, and HOLDFAST_TOKEN is the epoch, higher than that of every leader
/// before. When the command ends, the program resigns, and the next candidate leads. If the leadership is lost, the
/// command's process group gets SIGTERM and, after --grace, SIGKILL.
///
/// `holdfast observe` shows the leader and its --value.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: as with `holdfast lock`; 75 the program was not elected within --wait.

Examples:
  holdfast elect scheduler --value \"$HOSTNAME:8080\" -- ./scheduler.sh
  holdfast elect scheduler --value standby --wait 10s -- ./scheduler.sh
  holdfast elect scheduler -- sh -c 'echo \"epoch $HOLDFAST_TOKEN\"'"
)]
pub(crate) struct ElectArgs {
    /// The election's name. The leader holds the lock of this name.
    #[arg(value_parser = name::parse_new)]
    name: String,
    /// What observers see of the leader, for example its address.
    #[arg(long, value_name = "V", default_value = "")]
    value: String,
    /// How long to wait to be elected. Without --wait, until elected.
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse_wait)]
    wait: Option<Duration>,
    /// The lease: how long the leadership lasts after the last renewal, 100ms to 24h.
    #[arg(long, value_name = "D", default_value = "30s", allow_hyphen_values = true,
          value_parser = duration::parse_ttl)]
    ttl: Duration,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    child: CommandArgs,
}

pub(crate) async fn run(args: ElectArgs, global: &Global) -> Result<ExitCode, Problem> {
    let began = Instant::now();
    let work = async |client: &Client, signals: &mut Signals, session_end: &Cell<SessionEnd>| {
        lead(client, &args, began, signals, session_end, global).await
    };
    let without =
        async |problem: Problem, _: &mut Signals| supervise::not_held(&args.child, problem);
    let owner = args.owner.of("elect", args.child.note());
    let builder = Client::builder().ttl(args.ttl).owner(owner);
    let wait = OpenWait { wait: args.wait, retries: true };
    supervise::with_session(&args.child, builder, wait, global, work, without).await
}

async fn lead(
    client: &Client,
    args: &ElectArgs,
    began: Instant,
    signals: &mut Signals,
    session_end: &Cell<SessionEnd>,
    global: &Global,
) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let status_events = args.child.status_events();
    let mut election = client.election(&args.name);
    if let Some(wait) = args.wait {
        election = election.wait(open_session::wait_left(wait, began));
    }
    let names = std::slice::from_ref(&args.name);
    let (tier, is_quiet) = (TierArg::Correctness, args.child.is_quiet());
    let show_wait = queue_display::show(names, tier, client, &calls, &status_events, is_quiet);
    let elected = tokio::select! {
        biased;
        // The signal was meant for the command, which will not begin.
        signal = signals.next() => return Ok(signals::exit_code(signal)),
        elected = election.campaign(args.value.clone()) => elected,
        problem = leaderless::noticed(args.wait, global) => {
            return supervise::not_held(&args.child, problem);
        }
        never = show_wait => match never {},
    };
    let problem = match elected {
        Ok(leadership) => {
            let why_lost = |_: &Held, reason| {
                format!(
                    "lost the leadership of {}: {}",
                    args.name,
                    supervise::why_lease_ended(reason, args.ttl)
                )
            };
            return supervise::run(
                &args.child,
                Held::Leader(leadership),
                Some(RenewalWarning::new(client, &calls)),
                signals,
                session_end,
                why_lost,
            )
            .await;
        }
        Err(CampaignError::Unavailable(unavailable)) => {
            open_session::why_unavailable(unavailable, global).await
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
