//! Runs a command for as long as something is held, and not longer: what `lock` and `elect` have in common.

use std::cell::Cell;
use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::{Client, ClientBuilder, LossReason};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::companion_link;
use crate::duration;
use crate::end_group::{self, Ended, GroupEnd, ProcessGroup, ask_to_end};
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::held::Held;
use crate::nonblocking_output::NonblockingOutput;
use crate::open_session::{self, OpenWait};
use crate::output;
use crate::renewal_warning::RenewalWarning;
use crate::running::Running;
use crate::signals::{self, Signals};
use crate::status_fd::{self, StatusEvents, StatusFd};
use crate::suspension::Suspensions;

const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);
/// How long after the grace the companion kills the command, if we have not.
const KILL_PATIENCE: Duration = Duration::from_secs(1);
/// The longest sleep of a task that waits for the end of a lease: timers stand still while the machine sleeps.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// At most one part in so many of a lease is kept for ending the command.
const NOTICE_SHARE: u32 = 6;
/// How often the companion hears from us at most.
const WORD_INTERVAL_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// The time between SIGTERM and SIGKILL when the lock is lost. If the cluster does not answer, SIGTERM comes this
    /// long before the lease ends, at most a sixth of the lease, and SIGKILL when it ends.
    #[arg(long, value_name = "D", default_value = "5s", allow_hyphen_values = true,
          value_parser = duration::parse)]
    grace: Duration,
    /// Prints nothing about the wait, nor that the lock is busy. Losses and failures are still printed.
    #[arg(short, long)]
    quiet: bool,
    /// Set by `lock`, from its own option.
    #[arg(skip)]
    pub(crate) hold_at_least: Option<Duration>,
    /// Writes what happens to this file descriptor, one JSON object per line. The command does not inherit it.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = status_fd::parse)]
    pub(crate) status_fd: Option<StatusFd>,
    /// The exit code instead of 75: the lock is busy, or the program was not elected in time.
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl CommandArgs {
    pub(crate) fn status_events(&self) -> StatusEvents {
        StatusEvents::on(self.status_fd.clone())
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The program's name only, for listings: arguments may hold secrets, and listings are public.
    pub(crate) fn note(&self) -> String {
        let program = self.command.first().map(|program| program.to_string_lossy());
        // At most 4 bytes each, and the cluster takes 256.
        program.unwrap_or_default().chars().take(60).collect()
    }
}

/// What becomes of the session when the work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// What it holds is given back.
    Close,
    /// What it holds ends as if we had been killed, by the companion: not by a release, so lock delays apply.
    Leave,
    /// Something of the command still runs. The companion ends the session after it has seen that dead.
    ToCompanion,
}

/// Connects as `builder` says, and does the work; or, if that cannot be, what is to be done `without` a session.
/// A signal before the work was meant for the command, which will not begin.
pub(crate) async fn with_session(
    args: &CommandArgs,
    builder: ClientBuilder,
    wait: OpenWait,
    global: &Global,
    work: impl AsyncFnOnce(&Client, &mut Signals, &Cell<SessionEnd>) -> Result<ExitCode, Problem>,
    without: impl AsyncFnOnce(Problem, &mut Signals) -> Result<ExitCode, Problem>,
) -> Result<ExitCode, Problem> {
    let mut signals = Signals::listen()?;
    // It starts while we connect, and knows the session before anything is asked for.
    let companion = companion_link::companion().map_err(cannot_start)?;
    let builder = builder.companion(companion.clone()).note(args.note());
    let progress = |line: &str| {
        if !args.quiet {
            output::message(line);
        }
    };
    let connected = tokio::select! {
        biased;
        signal = signals.next() => return Ok(signals::exit_code(signal)),
        connected = open_session::connect(builder, wait, global, progress) => connected,
    };
    let client = match connected {
        Ok(client) => client,
        Err(problem) => return without(problem, &mut signals).await,
    };
    let session_end = Cell::new(SessionEnd::Close);
    let outcome = work(&client, &mut signals, &session_end).await;
    match session_end.get() {
        // Whatever is left of the session goes now. If that is not answered, the companion goes on trying.
        SessionEnd::Close => drop(timeout(CLOSE_PATIENCE, client.close()).await),
        // To drop it would close the session. The companion leaves it alone as well: its holds end by themselves.
        SessionEnd::Leave => {
            companion.leave_sessions();
            std::mem::forget(client);
        }
        SessionEnd::ToCompanion => std::mem::forget(client),
    }
    outcome
}

/// The command does not begin.
pub(crate) fn not_held(args: &CommandArgs, problem: Problem) -> Result<ExitCode, Problem> {
    args.status_events().not_held(&problem.words);
    if problem.code != Code::Busy {
        return Err(problem);
    }
    if !args.quiet {
        output::message(&problem.words);
    }
    Ok(args.conflict_exit_code.map_or_else(|| Code::Busy.into(), ExitCode::from))
}

/// Runs the command under what is held, and releases that when nothing of it runs any more. `renewals` warns when the
/// lease is not renewed. `why_lost` tells a loss in words.
pub(crate) async fn run(
    args: &CommandArgs,
    held: Held,
    renewals: Option<RenewalWarning>,
    signals: &mut Signals,
    session_end: &Cell<SessionEnd>,
    why_lost: impl Fn(&Held, LossReason) -> String,
) -> Result<ExitCode, Problem> {
    let granted_at = Instant::now();
    let status_events = args.status_events();
    let stderr = NonblockingOutput::on(io::stderr()).map_err(cannot_start)?;
    let say = |words: &str| stderr.write(output::message_line(words));
    let proof = held.proof().map_err(|lost| {
        let words = why_lost(&held, lost.reason);
        status_events.lost(&words);
        Problem::new(Code::LockLost, words)
    })?;
    if held.is_nothing() {
        say("the efficiency tier is down; running the command without a lock");
    }
    status_events.held(&proof);
    let mut suspensions = Suspensions::listen().map_err(cannot_start)?;
    let not_inherited = args.status_fd.as_ref().map(StatusFd::number);
    let started =
        Running::start(&args.command, &proof.environment(), not_inherited, stderr.clone());
    let mut running = started.map_err(cannot_start)?;
    status_events.started(running.pid());
    let tell_loss = |reason| {
        let words = why_lost(&held, reason);
        say(&format!("{words}; the command ends"));
        words
    };
    let lease = Lease { held: &held, renewals, grace: args.grace };
    let outcome = watch_over(&mut running, &lease, signals, &mut suspensions, tell_loss, say).await;
    if let Ok(Outcome::Lost { rest: GroupEnd::StillRunning, .. }) = &outcome {
        // The cluster may still keep the lock for us. The end of our session must not free it.
        running.leave_to_companion();
        session_end.set(SessionEnd::ToCompanion);
    }
    // It gives the terminal back, before anything is said.
    drop(running);
    let exit_code = match outcome.map_err(cannot_start)? {
        Outcome::Ended(exit_code) => exit_code,
        Outcome::Lost { words, .. } => {
            status_events.lost(&words);
            status_events.ended(Code::LockLost as u8);
            // The rest ends with the session, and the cluster may not answer. A release would say that the
            // work was finished.
            std::mem::forget(held);
            return Ok(Code::LockLost.into());
        }
    };
    if let Some(span) = args.hold_at_least
        && let Some(reason) = hold_on(&held, granted_at + span, signals).await
    {
        // The command ran under the lock to its end.
        say(&format!("{}, before --hold-at-least was over", why_lost(&held, reason)));
        status_events.ended(exit_code);
        std::mem::forget(held);
        return Ok(ExitCode::from(exit_code));
    }
    match timeout(RELEASE_PATIENCE, held.release()).await {
        Ok(Ok(true)) => status_events.released(),
        Ok(Ok(false)) => {
            let words = "the lock ended before the command did";
            say(words);
            status_events.lost(words);
            status_events.ended(Code::LockLost as u8);
            return Ok(Code::LockLost.into());
        }
        Ok(Err(error)) => say(&error.to_string()),
        Err(_) => say("no node answered the release; the lock ends with its session"),
    }
    status_events.ended(exit_code);
    Ok(ExitCode::from(exit_code))
}

/// Keeps what is held until then, or until a signal comes. Some: it was lost before.
async fn hold_on(held: &Held, until: Instant, signals: &mut Signals) -> Option<LossReason> {
    if held.is_nothing() {
        return None;
    }
    tokio::select! {
        biased;
        reason = held.lost() => Some(reason),
        _ = signals.next() => None,
        () = sleep_until(until) => None,
    }
}

enum Outcome {
    /// The command ended while the lock was held. If a signal ended it, its whole group is gone.
    Ended(u8),
    Lost {
        words: String,
        rest: GroupEnd,
    },
}

/// What a command runs under.
struct Lease<'a> {
    held: &'a Held,
    renewals: Option<RenewalWarning>,
    /// Between SIGTERM and SIGKILL.
    grace: Duration,
}

async fn watch_over(
    running: &mut Running,
    lease: &Lease<'_>,
    signals: &mut Signals,
    suspensions: &mut Suspensions,
    tell_loss: impl Fn(LossReason) -> String,
    say: impl Fn(&str),
) -> io::Result<Outcome> {
    let Lease { held, renewals, grace } = lease;
    let (held, grace) = (*held, *grace);
    // Nothing of the command may run when the lease is over: the next holder may start then.
    let notice = grace.min(held.valid_for() / NOTICE_SHARE);
    let warnings = async {
        match renewals {
            Some(renewals) => renewals.watch(held, notice, &say).await,
            None => pending().await,
        }
    };
    tokio::pin!(warnings);
    // On the clock of the companion, which runs on while the machine sleeps.
    let mut lease_ends_ns = 0;
    loop {
        let now_ns = companion_link::now()?;
        let left = held.valid_for();
        if !left.is_zero() {
            lease_ends_ns = now_ns.saturating_add(companion_link::nanos(left));
        }
        running.may_run_for(held.valid_for(), notice);
        // Long before that span is over.
        let next_word = sleep((held.valid_for() / 4).max(WORD_INTERVAL_MIN));
        tokio::select! {
            // The loss first: a command that ended after it did not run under the lock to its end.
            biased;
            reason = held.lost() => {
                // First the deed, then the word. The time for a notice passed while we stood still: the next holder may
                // have started.
                if is_by_time(reason) {
                    running.send(Signal::SIGKILL);
                    let words = tell_loss(reason);
                    return Ok(Outcome::Lost { words, rest: end_group::kill(running).await? });
                }
                let grace = if reason == LossReason::Denied {
                    let end = EndOfDenied::of(grace, companion_link::now()?, lease_ends_ns);
                    running.must_end_at(end.kill_at_ns);
                    end.grace
                } else {
                    running.must_end_within(grace.saturating_add(KILL_PATIENCE));
                    grace
                };
                ask_to_end(running);
                let words = tell_loss(reason);
                let rest = end_group::end_within(grace, running).await?;
                return Ok(Outcome::Lost { words, rest });
            }
            () = runs_out(held, notice) => {
                running.must_end_within(held.valid_for());
                ask_to_end(running);
                let words = tell_loss(held.ends_by());
                let lost = held.lost();
                let (rest, _) = end_group::end_while_held(grace, running, lost, &say).await?;
                return Ok(Outcome::Lost { words, rest });
            }
            ended = running.ended() => {
                let ended = ended?;
                return Ok(match end_rest(ended, grace, running, held, &say).await? {
                    (_, None) => Outcome::Ended(ended.exit_code()),
                    (rest, Some(reason)) => Outcome::Lost { words: tell_loss(reason), rest },
                });
            }
            signal = signals.next() => running.send(signal),
            () = suspensions.asked() => if running.suspend().await {
                suspensions.stop_ourselves().await;
                // If it was lost in the meantime the command is not continued but ended.
                if held.proof().is_ok() {
                    running.may_run_for(held.valid_for(), notice);
                    running.send(Signal::SIGCONT);
                }
            },
            () = next_word => {}
            never = &mut warnings => match never {},
        }
    }
}

/// How a command ends whose client was denied. The client no longer renews the lease, and the cluster may keep the lock
/// until the lease is over. The next holder may start then, so nothing of the command may run by that time.
#[derive(Debug, PartialEq, Eq)]
struct EndOfDenied {
    /// Between SIGTERM and SIGKILL.
    grace: Duration,
    /// When the companion kills the command, on its clock. It is never later than the end of the lease, which the
    /// companion has been told before.
    kill_at_ns: u64,
}

impl EndOfDenied {
    fn of(grace: Duration, now_ns: u64, lease_ends_ns: u64) -> EndOfDenied {
        let left = Duration::from_nanos(lease_ends_ns.saturating_sub(now_ns));
        let grace = grace.min(left.saturating_sub(KILL_PATIENCE));
        let killed_after = companion_link::nanos(grace.saturating_add(KILL_PATIENCE));
        let kill_at_ns = now_ns.saturating_add(killed_after).min(lease_ends_ns);
        EndOfDenied { grace, kill_at_ns }
    }
}

/// Returns when no more than the notice is left of the lease. Safe to drop and call again.
async fn runs_out(held: &Held, notice: Duration) {
    loop {
        let left = held.valid_for().saturating_sub(notice);
        if left.is_zero() {
            return;
        }
        sleep(left.min(PAUSE_CHECK_INTERVAL)).await;
    }
}

/// Whether the lease is over, and not something that an operator or another actor did.
fn is_by_time(reason: LossReason) -> bool {
    matches!(
        reason,
        LossReason::Expired
            | LossReason::OwnTimeOver
            | LossReason::HoldTtl
            | LossReason::MaxHold
            | LossReason::SessionExpired
            | LossReason::Disconnected
    )
}

/// A command that a signal ended had no time to end the processes that it started. They end before the lock is free:
/// at once after SIGKILL, else within the grace. Processes that a command leaves when it exits are left alone.
///
/// Tells as well why the lock was lost meanwhile, if it was.
async fn end_rest(
    ended: Ended,
    grace: Duration,
    running: &mut Running,
    held: &Held,
    say: impl Fn(&str),
) -> io::Result<(GroupEnd, Option<LossReason>)> {
    let Ended::BySignal(number) = ended else { return Ok((GroupEnd::Gone, None)) };
    running.must_end_within(held.valid_for());
    if i32::from(number) == Signal::SIGKILL as i32 {
        running.send(Signal::SIGKILL);
    } else {
        ask_to_end(running);
    }
    if held.is_nothing() {
        return Ok((end_group::end_within(grace, running).await?, None));
    }
    end_group::end_while_held(grace, running, held.lost(), say).await
}

/// Why a lease is over, in terms of the arguments.
pub(crate) fn why_lease_ended(reason: LossReason, ttl: Duration) -> String {
    let ttl = duration::as_written(ttl);
    match reason {
        LossReason::Expired => {
            format!(
                "no renewal of the lease was answered within its --ttl of {ttl}: the cluster did not answer, or this \
                 program stood still"
            )
        }
        LossReason::SessionExpired => {
            format!("the cluster heard nothing from this program for the --ttl of {ttl}")
        }
        _ => reason.to_string(),
    }
}

fn cannot_start(error: io::Error) -> Problem {
    Problem::new(Code::Unavailable, format!("cannot run the command: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Grace and kill time in seconds. The grace that was asked for is 5 s.
    fn end_of_denied(now: u64, lease_ends: u64) -> (u64, u64) {
        let grace = Duration::from_secs(5);
        let end = EndOfDenied::of(grace, now * SECOND_NS, lease_ends * SECOND_NS);
        (end.grace.as_secs(), end.kill_at_ns / SECOND_NS)
    }

    #[test]
    fn the_command_of_a_denied_client_ends_before_the_lease_does() {
        assert_eq!(end_of_denied(100, 130), (5, 106));
        assert_eq!(end_of_denied(100, 104), (3, 104));
        assert_eq!(end_of_denied(100, 101), (0, 101));
    }

    #[test]
    fn after_a_sleep_of_the_machine_the_companion_gets_no_later_time_to_kill_than_it_had() {
        for now in [100, 101, 3_600] {
            assert_eq!(end_of_denied(now, 100), (0, 100), "at {now} s");
        }
    }
}
