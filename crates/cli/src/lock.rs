//! `holdfast lock`: run a command while holding a lock, and never after it is lost.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::{AcquireError, Client, ConnectError, LossReason};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::cli::Global;
use crate::cluster;
use crate::duration;
use crate::exit::{Code, Problem};
use crate::held::Held;
use crate::obstacle;
use crate::one_shot;
use crate::output;
use crate::running::{Ended, Running};
use crate::terms::TermsArgs;

/// A session whose program was killed should not hold others up for its TTL.
const LINGER: Duration = Duration::from_millis(500);
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs a command while holding a lock.
///
/// The command finds the lock's name in HOLDFAST_LOCK, the fencing token in HOLDFAST_TOKEN and its
/// full form in HOLDFAST_FENCE, which is empty for a permit: that is not fenceable. With --all,
/// HOLDFAST_LOCK has all names, separated by commas, HOLDFAST_TOKENS and HOLDFAST_FENCES all tokens in
/// the same order, and HOLDFAST_TOKEN and HOLDFAST_FENCE those of the first.
///
/// SIGTERM, SIGINT and SIGHUP are passed on to the command. If the lock is lost the command's whole
/// process group gets SIGTERM and, after the grace, SIGKILL. If this program is killed, the command is
/// killed too.
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
  holdfast lock --all account/1,account/2 -- ./transfer.sh"
)]
pub(crate) struct LockArgs {
    /// The lock's name.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    name: Option<String>,
    /// Several locks, all at one moment or none; lost as soon as one of them is.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', conflicts_with = "permits")]
    all: Vec<String>,
    /// How long to wait for the lock; 0s tries once.
    #[arg(long, value_name = "D", default_value = "1h", allow_hyphen_values = true,
          value_parser = duration::parse)]
    wait: Duration,
    /// How long the lock outlives the last sign of life of this program.
    #[arg(long, value_name = "D", default_value = "30s", allow_hyphen_values = true,
          value_parser = duration::parse_ttl)]
    ttl: Duration,
    /// The lock ends after this time even if the command still runs.
    #[arg(long, value_name = "D", allow_hyphen_values = true,
          value_parser = duration::parse_above_zero)]
    max_hold: Option<Duration>,
    /// How long the command may take to end after the lock is lost.
    #[arg(long, value_name = "D", default_value = "5s", allow_hyphen_values = true,
          value_parser = duration::parse)]
    grace: Duration,
    #[command(flatten)]
    terms: TermsArgs,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: LockArgs, global: &Global) -> Result<ExitCode, Problem> {
    let connected = Client::builder()
        .ttl(args.ttl)
        .linger(LINGER)
        .note(note_of(&args.command))
        .connect(&global.endpoints)
        .await;
    let client = match connected {
        Ok(client) => client,
        Err(ConnectError::Unavailable(unavailable)) => {
            return Err(cluster::why_unavailable(unavailable, global).await);
        }
        Err(error) => return Err(error.into()),
    };
    let outcome = hold_and_run(&client, &args, global).await;
    // Whatever is left of the session goes now and not when its linger time is over.
    let _ = timeout(RELEASE_PATIENCE, client.close()).await;
    outcome
}

async fn hold_and_run(
    client: &Client,
    args: &LockArgs,
    global: &Global,
) -> Result<ExitCode, Problem> {
    let held = match acquire(client, args).await {
        Ok(held) => held,
        Err(AcquireError::Unavailable(unavailable)) => {
            return Err(cluster::why_unavailable(unavailable, global).await);
        }
        Err(error) => {
            let calls = one_shot::calls(global)?;
            return Err(obstacle::why_not(error, &calls, args.names(), args.wait).await);
        }
    };
    let lost = |lost: holdfast_client::Lost| {
        let why = why_lost(lost.reason, args);
        Problem::new(Code::LockLost, format!("lost the lock {}: {why}", args.words()))
    };
    let environment = held.environment().map_err(lost)?;
    let mut running = Running::start(&args.command, &environment).map_err(cannot_start)?;
    let outcome = supervise(&mut running, &held, args).await.map_err(cannot_start);
    drop(running);
    if held.is_lost() {
        // What is left goes with the session, and perhaps there is nobody to hear it.
        return outcome;
    }
    match timeout(RELEASE_PATIENCE, held.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => output::say(&error.to_string()),
        Err(_) => output::say("the release was not answered; the lock ends with its session"),
    }
    outcome
}

async fn acquire(client: &Client, args: &LockArgs) -> Result<Held, AcquireError> {
    let told = {
        let words = args.words();
        move |position| {
            output::say_to_terminal(&format!("waiting for {words}, position {position}"))
        }
    };
    if let Some(name) = &args.name {
        let mut request = args.terms.on_one(client.lock(name)).wait(args.wait).on_queued(told);
        if let Some(max_hold) = args.max_hold {
            request = request.max_hold(max_hold);
        }
        return request.acquire().await.map(Held::One);
    }
    let members = args.all.iter().map(|name| args.terms.member(name));
    let mut request = args.terms.on_all(client.lock_all(members)).wait(args.wait).on_queued(told);
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

    fn words(&self) -> String {
        self.names().join(",")
    }
}

/// Until the command ends, or the lock does.
async fn supervise(
    running: &mut Running,
    held: &Held,
    args: &LockArgs,
) -> std::io::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            ended = running.ended() => return ended.map(|ended| ExitCode::from(ended.exit_code())),
            reason = held.lost() => {
                end_after_loss(running, reason, args).await?;
                return Ok(Code::LockLost.into());
            }
            _ = terminate.recv() => running.send(Signal::SIGTERM),
            _ = interrupt.recv() => running.send(Signal::SIGINT),
            _ = hangup.recv() => running.send(Signal::SIGHUP),
        }
    }
}

/// The command itself may end in good time; what it leaves behind in its group does not outlive it.
async fn end_after_loss(
    running: &mut Running,
    reason: LossReason,
    args: &LockArgs,
) -> std::io::Result<Option<Ended>> {
    let why = why_lost(reason, args);
    output::say(&format!("lost the lock {}: {why}; ending the command", args.words()));
    running.send(Signal::SIGTERM);
    // One that was stopped could not even see the signal.
    running.send(Signal::SIGCONT);
    let ended = timeout(args.grace, running.ended()).await;
    running.send(Signal::SIGKILL);
    match ended {
        Ok(ended) => ended.map(Some),
        Err(_) => running.ended().await.map(Some),
    }
}

/// In terms of the arguments, where it was one of them that ended the lock.
fn why_lost(reason: LossReason, args: &LockArgs) -> String {
    match (reason, args.max_hold) {
        // A maximum is the only time of its own that this hold can have.
        (LossReason::OwnTimeOver | LossReason::MaxHold, Some(max_hold)) => {
            format!("the --max-hold of {} is over", duration::as_written(max_hold))
        }
        (LossReason::Expired | LossReason::SessionExpired, _) => format!(
            "the cluster heard nothing from us, or we from it, for the --ttl of {}",
            duration::as_written(args.ttl)
        ),
        _ => reason.to_string(),
    }
}

fn cannot_start(error: std::io::Error) -> Problem {
    Problem::new(Code::Unavailable, format!("cannot run the command: {error}"))
}

/// The program's name only: arguments may hold secrets, and listings are public.
fn note_of(command: &[OsString]) -> String {
    let program = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    // At most 4 bytes each, and the cluster takes 256.
    program.chars().take(60).collect()
}
