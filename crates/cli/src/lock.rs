//! `holdfast lock`: run a command while holding a lock, and end it when the lock is lost.

use std::cell::Cell;
use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::Unary;
use holdfast_client::{AcquireError, Client, LossReason};
use tokio::time::Instant;

use crate::duration;
use crate::efficiency::EfficiencyArgs;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::held::Held;
use crate::leaderless;
use crate::name;
use crate::obstacle;
use crate::one_shot;
use crate::open_session::{self, OpenWait};
use crate::output;
use crate::owner::OwnerArgs;
use crate::queue_display;
use crate::renewal_warning::RenewalWarning;
use crate::signals::{self, Signals};
use crate::status_fd::StatusEvents;
use crate::supervise::{self, CommandArgs, SessionEnd};
use crate::terms::TermsArgs;
use crate::tier::TierArg;
use crate::traced::Traced;

const DEFAULT_WAIT: Duration = Duration::from_secs(60 * 60);

/// Runs a command while holding a lock.
///
/// The command finds the lock's name in HOLDFAST_LOCK, the number of the fencing token in HOLDFAST_TOKEN, and the full
/// token, which checkers take, in HOLDFAST_FENCE. A permit has no fencing token: HOLDFAST_FENCE is empty. With --all,
/// HOLDFAST_LOCK has all names, HOLDFAST_TOKENS and HOLDFAST_FENCES all tokens in the same order, separated by commas,
/// and HOLDFAST_TOKEN and HOLDFAST_FENCE those of the first name.
///
/// With --tier efficiency the lock is in the leader's memory only: it is fast, it ends when the leader changes or the
/// client cannot reach it, and for a moment two clients can hold it. With --efficiency-redis the lock is in Redis, and
/// no node has to run. Each tier has its own lock of a name.
///
/// The program passes SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the command, except those that were
/// ignored when it started. If a signal ends the command, the rest of its process group ends before the lock is
/// released. If the command exits, processes that it leaves continue without the lock.
///
/// If the lock is lost, the command's process group gets SIGTERM and, after --grace, SIGKILL. If the cluster does not
/// answer, the program warns on stderr, and SIGTERM comes before the lease ends and SIGKILL when it ends, so that no
/// process of the command runs beside the next holder. If this program is killed, the command is killed too, and then
/// the lock is freed. If it is suspended (SIGTSTP), so is the command, and it continues only if the lock is still held.
///
/// stdin, stdout and stderr belong to the command. While the program waits, it shows its place in the queue if stderr
/// is a terminal. Programs read the place with --status-fd.
#[derive(Debug, Args)]
#[command(
    override_usage = "holdfast lock [OPTIONS] <NAME> -- <CMD>...\n       holdfast lock [OPTIONS] --all <NAME,NAME> -- <CMD>...",
    after_help = "Exit codes: the command's own (128+N if signal N ended it, 126 or 127 if it cannot be run);
64 wrong usage; 69 the cluster is unavailable; 75 the lock is busy or frozen, the wait is over,
or to wait would be a deadlock; 77 denied; 79 the lock was lost.

Examples:
  holdfast lock nightly-report -- ./report.sh
  holdfast lock deploy --wait 0s -- ./deploy.sh     # try once, exit 75 if busy
  holdfast lock backup --ttl 10s --max-hold 2h -- ./backup.sh
  holdfast lock db -- sh -c 'psql -v ON_ERROR_STOP=1 -v fence=\"$HOLDFAST_FENCE\" -f migrate.sql'
  holdfast lock catalog --shared -- ./export.sh     # with other readers
  holdfast lock gpu --permits 4 -- ./train.sh       # at most four at a time
  holdfast lock thumbnails --tier efficiency -- ./thumbnails.sh   # two at once only waste time
  holdfast lock thumbnails --tier efficiency --when-down go-without -- ./thumbnails.sh
  holdfast lock --all account/1,account/2 -- ./transfer.sh
  holdfast lock deploy --wait 0s -E 0 -- ./deploy.sh   # exit 0 if busy
  holdfast lock nightly --wait 0s -q -E 0 --hold-at-least 5s -- ./report.sh
  holdfast lock deploy --status-fd 3 -- ./deploy.sh 3>deploy.status"
)]
pub(crate) struct LockArgs {
    /// The lock's name.
    #[arg(required_unless_present = "all", conflicts_with = "all", value_parser = name::parse_new)]
    name: Option<String>,
    /// Several locks, granted together or not at all. If one of them is lost, all are.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', conflicts_with = "permits",
          value_parser = name::parse_of_list)]
    all: Vec<String>,
    /// How long to wait for the lock, and for a cluster that does not answer; 0s tries once. Without --wait, the
    /// command waits 1h for the lock, and a few seconds for the cluster.
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse_wait)]
    wait: Option<Duration>,
    /// The session's TTL: how long the lock stays held after the last heartbeat, 100ms to 24h. With less than about 3s,
    /// a change of leader can end it.
    #[arg(long, value_name = "D", default_value = "30s", allow_hyphen_values = true,
          value_parser = duration::parse_ttl)]
    ttl: Duration,
    /// Ends the lock, and the command, after this time.
    #[arg(long, value_name = "D", allow_hyphen_values = true,
          value_parser = duration::parse_max_hold)]
    max_hold: Option<Duration>,
    /// Holds the lock for at least this long after the grant, even if the command ends sooner. The exit code is the
    /// command's. A signal ends the rest of the time.
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
    let began = Instant::now();
    let work = async |client: &Client, signals: &mut Signals, session_end: &Cell<SessionEnd>| {
        hold_and_run(client, &args, began, signals, global, session_end).await
    };
    let without = async |problem: Problem, signals: &mut Signals| {
        not_held(problem, &args, signals, &Cell::new(SessionEnd::Close)).await
    };
    let owner = args.owner.of("lock", args.child.note());
    let mut builder = Client::builder().ttl(args.ttl).owner(owner);
    if args.terms.tier == TierArg::Efficiency {
        builder = args.efficiency.on(builder);
    }
    let wait = OpenWait { wait: args.wait, retries: !args.goes_without_cluster() };
    supervise::with_session(&args.child, builder, wait, global, work, without).await
}

/// The command does not begin; or it runs without a lock, if that was asked for.
async fn not_held(
    problem: Problem,
    args: &LockArgs,
    signals: &mut Signals,
    session_end: &Cell<SessionEnd>,
) -> Result<ExitCode, Problem> {
    if problem.code != Code::Unavailable || !args.goes_without_cluster() {
        return supervise::not_held(&args.child, problem);
    }
    output::message(&problem.words);
    let why_lost = |reason: LossReason| reason.to_string();
    let nothing = Held::Nothing(args.names().to_vec());
    supervise::run(&args.child, nothing, None, signals, session_end, why_lost).await
}

async fn hold_and_run(
    client: &Client,
    args: &LockArgs,
    began: Instant,
    signals: &mut Signals,
    global: &Global,
    session_end: &Cell<SessionEnd>,
) -> Result<ExitCode, Problem> {
    let mut traced = Traced::begin(&args.words());
    let ended = wait_and_run(client, args, began, signals, global, &mut traced, session_end).await;
    traced.finish().await;
    ended
}

async fn wait_and_run(
    client: &Client,
    args: &LockArgs,
    began: Instant,
    signals: &mut Signals,
    global: &Global,
    traced: &mut Traced,
    session_end: &Cell<SessionEnd>,
) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls_within(global, args.total_wait())?;
    let status_events = args.child.status_events();
    let wait = open_session::wait_left(args.total_wait(), began);
    let acquired = tokio::select! {
        biased;
        // The signal was meant for the command, which will not begin.
        signal = signals.next() => return Ok(signals::exit_code(signal)),
        acquired = acquire(client, args, wait, traced.traceparent()) => acquired,
        problem = leaderless::noticed(args.wait.filter(|_| !args.uses_external_store()), global) => {
            return not_held(problem, args, signals, session_end).await;
        }
        never = show_wait(args, client, &calls, &status_events) => match never {},
    };
    traced.answered(&acquired);
    let problem = match acquired {
        Ok(held) => {
            let why_lost = |reason| {
                // A lock that was lost is not given back as if the work under it had been finished.
                if args.terms.lock_delay.is_some() {
                    session_end.set(SessionEnd::Leave);
                }
                format!("lost the lock {}: {}", args.words(), why(reason, args))
            };
            let renewals =
                (!args.uses_external_store()).then(|| RenewalWarning::new(client, &calls));
            return supervise::run(&args.child, held, renewals, signals, session_end, why_lost)
                .await;
        }
        Err(AcquireError::Unavailable(unavailable)) => {
            open_session::why_unavailable(unavailable, global).await
        }
        // The cluster does not know about locks in Redis.
        Err(error) if args.uses_external_store() => error.into(),
        Err(error) => {
            obstacle::why_not(error, &calls, args.terms.tier, args.names(), args.total_wait()).await
        }
    };
    not_held(problem, args, signals, session_end).await
}

/// A lock in Redis has no queue that could be shown.
async fn show_wait(
    args: &LockArgs,
    client: &Client,
    calls: &Unary,
    status_events: &StatusEvents,
) -> Infallible {
    if args.uses_external_store() {
        return std::future::pending().await;
    }
    let (names, tier, is_quiet) = (args.names(), args.terms.tier, args.child.is_quiet());
    queue_display::show(names, tier, client, calls, status_events, is_quiet).await
}

async fn acquire(
    client: &Client,
    args: &LockArgs,
    wait: Duration,
    traceparent: String,
) -> Result<Held, AcquireError> {
    if let Some(name) = &args.name {
        let mut request = args.terms.on_one(client.lock(name)).wait(wait);
        request = request.traceparent(traceparent);
        if let Some(max_hold) = args.max_hold {
            request = request.max_hold(max_hold);
        }
        return request.acquire().await.map(Held::One);
    }
    let members = args.all.iter().map(|name| args.terms.member(name));
    let mut request = args.terms.on_all(client.lock_all(members)).wait(wait);
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

    fn total_wait(&self) -> Duration {
        self.wait.unwrap_or(DEFAULT_WAIT)
    }

    /// Whether the command runs without a lock if no node serves it.
    fn goes_without_cluster(&self) -> bool {
        self.terms.tier == TierArg::Efficiency && self.efficiency.goes_without_cluster()
    }

    /// Whether the lock is kept by another service than the cluster.
    fn uses_external_store(&self) -> bool {
        self.terms.tier == TierArg::Efficiency && self.efficiency.uses_external_store()
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

/// Names the argument that ended the lock, if one did.
fn why(reason: LossReason, args: &LockArgs) -> String {
    match (reason, args.max_hold) {
        // `lock` sets no TTL of the hold's own, so the maximum is the only time that can be over.
        (LossReason::OwnTimeOver | LossReason::MaxHold, Some(max_hold)) => {
            format!("the --max-hold of {} is over", duration::as_written(max_hold))
        }
        _ if args.uses_external_store() => reason.to_string(),
        _ => supervise::why_lease_ended(reason, args.ttl),
    }
}
