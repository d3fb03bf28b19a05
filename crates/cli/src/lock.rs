//! `holdfast lock`: run a command while holding a lock, and never after it is lost.

use std::cell::Cell;
use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::Unary;
use holdfast_client::{AcquireError, Client, LossReason};

use crate::cluster;
use crate::duration;
use crate::efficiency::EfficiencyArgs;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::held::Held;
use crate::leaderless;
use crate::name;
use crate::obstacle;
use crate::one_shot;
use crate::output;
use crate::owner::OwnerArgs;
use crate::queue_display;
use crate::signals::{self, Signals};
use crate::status_fd::Story;
use crate::supervise::{self, CommandArgs, Parting};
use crate::terms::TermsArgs;
use crate::tier::TierArg;
use crate::traced::Traced;

/// Runs a command while holding a lock.
///
/// The command finds the lock's name in HOLDFAST_LOCK, the fencing token in HOLDFAST_TOKEN and its
/// full form in HOLDFAST_FENCE, which is empty for a permit: that is not fenceable. With --all,
/// HOLDFAST_LOCK has all names, separated by commas, HOLDFAST_TOKENS and HOLDFAST_FENCES all tokens in
/// the same order, and HOLDFAST_TOKEN and HOLDFAST_FENCE those of the first.
///
/// With --tier efficiency the lock lives in the leader's memory alone: it is fast, it ends when the leader
/// changes or cannot be reached, and for a moment two can hold it. With --efficiency-redis it lives in Redis, and
/// no node has to run. It is another lock than the one of the same name in the other tier.
///
/// SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the command, unless they were ignored when
/// this program started. If a signal ends the command, the rest of its process group ends before the lock is released;
/// if the command exits, processes that it leaves run on without the lock. If the lock is lost the command's whole
/// process group gets SIGTERM and, after the grace, SIGKILL. If the cluster does not answer, they come before the
/// lease is over, so that nothing of the command runs beside the next holder. If this program is killed, the command
/// is killed too, and then the lock is freed; if it is suspended (SIGTSTP), so is the command, and it is continued
/// only if the lock is still held.
///
/// stdin, stdout and stderr belong to the command. While it waits this program shows its place in the
/// queue, if stderr is a terminal; a program hears of it with --status-fd.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: the command's own (128+N if signal N ended it, 126 or 127 if it \
cannot be run); 75 the lock was busy or frozen, the wait is over, or to wait would be a deadlock; 79 the \
lock was lost.

Examples:
  holdfast lock nightly-report -- ./report.sh
  holdfast lock deploy --wait 0s -- ./deploy.sh     # try once, exit 75 if busy
  holdfast lock backup --ttl 10s --max-hold 2h -- ./backup.sh
  holdfast lock db -- sh -c 'psql -v fence=\"$HOLDFAST_FENCE\" -f migrate.sql'
  holdfast lock catalog --shared -- ./export.sh     # together with other readers
  holdfast lock gpu --permits 4 -- ./train.sh       # at most four at a time
  holdfast lock thumbnails --tier efficiency -- ./thumbnails.sh   # twice would only be a waste
  holdfast lock thumbnails --tier efficiency --when-down go-without -- ./thumbnails.sh
  holdfast lock --all account/1,account/2 -- ./transfer.sh
  holdfast lock deploy --wait 0s -E 0 -- ./deploy.sh   # busy is as good as done
  holdfast lock nightly --wait 0s -q -E 0 --hold-at-least 5s -- ./report.sh
  holdfast lock deploy --status-fd 3 -- ./deploy.sh 3>deploy.status"
)]
pub(crate) struct LockArgs {
    /// The lock's name.
    #[arg(required_unless_present = "all", conflicts_with = "all", value_parser = name::parse_new)]
    name: Option<String>,
    /// Several locks, all at one moment or none; lost as soon as one of them is.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', conflicts_with = "permits",
          value_parser = name::parse_of_list)]
    all: Vec<String>,
    /// How long to wait for the lock; 0s tries once.
    #[arg(long, value_name = "D", default_value = "1h", allow_hyphen_values = true,
          value_parser = duration::parse_wait)]
    wait: Duration,
    /// How long the lock outlives the last sign of life of this program.
    #[arg(long, value_name = "D", default_value = "30s", allow_hyphen_values = true,
          value_parser = duration::parse_ttl)]
    ttl: Duration,
    /// The lock ends after this time even if the command still runs.
    #[arg(long, value_name = "D", allow_hyphen_values = true,
          value_parser = duration::parse_max_hold)]
    max_hold: Option<Duration>,
    /// Hold the lock for this long at least, counted from the grant, even if the command ends sooner. The exit code
    /// is the command's. A signal ends the rest of the time.
    #[arg(long, value_name = "D", allow_hyphen_values = true,
          value_parser = duration::parse_max_hold)]
    hold_at_least: Option<Duration>,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    terms: TermsArgs,
    #[command(flatten)]
    efficiency: EfficiencyArgs,
    #[command(flatten)]
    child: CommandArgs,
}

pub(crate) async fn run(mut args: LockArgs, global: &Global) -> Result<ExitCode, Problem> {
    args.check_hold_at_least()?;
    args.child.hold_at_least = args.hold_at_least;
    args.efficiency.check_for(args.terms.tier)?;
    name::check_once_each(&args.all)?;
    let work = async |client: &Client, signals: &mut Signals, parting: &Cell<Parting>| {
        hold_and_run(client, &args, signals, global, parting).await
    };
    let without = async |problem: Problem, signals: &mut Signals| {
        not_held(problem, &args, signals, &Cell::new(Parting::Close)).await
    };
    let owner = args.owner.of("lock", args.child.note());
    let mut builder = Client::builder().ttl(args.ttl).owner(owner);
    if args.terms.tier == TierArg::Efficiency {
        builder = args.efficiency.on(builder);
    }
    supervise::with_session(&args.child, builder, Some(args.wait), global, work, without).await
}

/// The command does not begin; or it runs without a lock, if that was asked for.
async fn not_held(
    problem: Problem,
    args: &LockArgs,
    signals: &mut Signals,
    parting: &Cell<Parting>,
) -> Result<ExitCode, Problem> {
    let is_down = problem.code == Code::Unavailable;
    if !is_down || args.terms.tier != TierArg::Efficiency || !args.efficiency.goes_without_cluster()
    {
        return supervise::not_held(&args.child, problem);
    }
    output::say(&problem.words);
    let why_lost = |reason: LossReason| reason.to_string();
    let nothing = Held::Nothing(args.names().to_vec());
    supervise::run(&args.child, nothing, signals, parting, why_lost).await
}

async fn hold_and_run(
    client: &Client,
    args: &LockArgs,
    signals: &mut Signals,
    global: &Global,
    parting: &Cell<Parting>,
) -> Result<ExitCode, Problem> {
    let mut traced = Traced::begin(&args.words());
    let ended = wait_and_run(client, args, signals, global, &mut traced, parting).await;
    traced.finish().await;
    ended
}

async fn wait_and_run(
    client: &Client,
    args: &LockArgs,
    signals: &mut Signals,
    global: &Global,
    traced: &mut Traced,
    parting: &Cell<Parting>,
) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let story = args.child.story();
    let acquired = tokio::select! {
        biased;
        // It was meant for the command, which will not begin.
        signal = signals.next() => return Ok(signals::exit_code(signal)),
        acquired = acquire(client, args, traced.traceparent()) => acquired,
        problem = leaderless::noticed(Some(args.wait).filter(|_| !args.is_outside()), global) => {
            return not_held(problem, args, signals, parting).await;
        }
        never = show_wait(args, &calls, &story) => match never {},
    };
    traced.answered(&acquired);
    let problem = match acquired {
        Ok(held) => {
            let why_lost = |reason| {
                // A lock that was lost is not given back as if the work under it had been finished.
                if args.terms.lock_delay.is_some() {
                    parting.set(Parting::Leave);
                }
                format!("lost the lock {}: {}", args.words(), why(reason, args))
            };
            return supervise::run(&args.child, held, signals, parting, why_lost).await;
        }
        Err(AcquireError::Unavailable(unavailable)) => {
            cluster::why_unavailable(unavailable, global).await
        }
        // Of that the cluster knows nothing.
        Err(error) if args.is_outside() => error.into(),
        Err(error) => {
            obstacle::why_not(error, &calls, args.terms.tier, args.names(), args.wait).await
        }
    };
    not_held(problem, args, signals, parting).await
}

/// Outside of the cluster there is no queue that could be shown.
async fn show_wait(args: &LockArgs, calls: &Unary, story: &Story) -> Infallible {
    match args.is_outside() {
        true => std::future::pending().await,
        false => {
            let is_quiet = args.child.is_quiet();
            queue_display::show(args.names(), args.terms.tier, calls, story, is_quiet).await
        }
    }
}

async fn acquire(
    client: &Client,
    args: &LockArgs,
    traceparent: String,
) -> Result<Held, AcquireError> {
    if let Some(name) = &args.name {
        let mut request = args.terms.on_one(client.lock(name)).wait(args.wait);
        request = request.traceparent(traceparent);
        if let Some(max_hold) = args.max_hold {
            request = request.max_hold(max_hold);
        }
        return request.acquire().await.map(Held::One);
    }
    let members = args.all.iter().map(|name| args.terms.member(name));
    let mut request = args.terms.on_all(client.lock_all(members)).wait(args.wait);
    request = request.traceparent(traceparent);
    if let Some(max_hold) = args.max_hold {
        request = request.max_hold(max_hold);
    }
    request.acquire().await.map(Held::All)
}

impl LockArgs {
    fn names(&self) -> &[String] {
        match &self.name {
            Some(name) => std::slice::from_ref(name),
            None => &self.all,
        }
    }

    /// Whether the lock is kept by somebody else than the cluster.
    fn is_outside(&self) -> bool {
        self.terms.tier == TierArg::Efficiency && self.efficiency.is_outside()
    }

    fn words(&self) -> String {
        self.names().join(",")
    }

    fn check_hold_at_least(&self) -> Result<(), Problem> {
        match (self.hold_at_least, self.max_hold) {
            (Some(least), Some(most)) if least > most => Err(Problem::new(
                Code::Usage,
                format!(
                    "--hold-at-least {} is longer than --max-hold {}; the lock would end before",
                    duration::as_written(least),
                    duration::as_written(most)
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// In terms of the arguments, where it was one of them that ended the lock.
fn why(reason: LossReason, args: &LockArgs) -> String {
    match (reason, args.max_hold) {
        // A maximum is the only time of its own that this hold can have.
        (LossReason::OwnTimeOver | LossReason::MaxHold, Some(max_hold)) => {
            format!("the --max-hold of {} is over", duration::as_written(max_hold))
        }
        (LossReason::Expired | LossReason::SessionExpired, _) if !args.is_outside() => format!(
            "the cluster heard nothing from us, or we from it, for the --ttl of {}",
            duration::as_written(args.ttl)
        ),
        _ => reason.to_string(),
    }
}
