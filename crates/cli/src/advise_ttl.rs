//! `holdfast advise-ttl`: how long a lease should be, from how long the work takes and how fast this cluster answers.

mod advice;
mod measure;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::duration;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output;

use advice::{Advice, Operation};

/// Computes a TTL for a lock that is not renewed: 2 x (operation + latency + drift).
///
/// The operation is the work under the lock: --operation says how long it takes, or the command is run once and timed.
/// To measure the latency, this program acquires, renews and releases a lock of its own. Drift is the clock error that
/// Holdfast allows for. The result is for `holdfast acquire --ttl`, and `.ttl()` in the library. `holdfast lock` and
/// the library send heartbeats, so their work may take longer than the TTL. There the TTL decides how soon the next
/// holder takes over after a crash.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast advise-ttl --operation 3s
  holdfast advise-ttl --operation 3s --output json | jq -r .ttl
  holdfast advise-ttl -- ./report.sh")]
pub(crate) struct AdviseTtlArgs {
    /// How long the longest operation under the lock takes.
    #[arg(
        long,
        value_name = "D",
        value_parser = duration::parse_above_zero,
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    operation: Option<Duration>,
    /// How many requests of each kind to time, 10 to 10000.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(10..=10_000))]
    samples: u32,
    /// The operation itself, to run once and time. Its output goes to stderr.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: AdviseTtlArgs, global: &Global) -> Result<ExitCode, Problem> {
    let measured = measure::round_trips(global, args.samples).await?;
    let operation = match args.operation {
        Some(takes) => Operation { takes, is_measured: false },
        None => Operation { takes: time(&args.command).await?, is_measured: true },
    };
    let advice = Advice::of(operation, measured);
    for warning in &advice.warnings {
        output::message(&format!("warning: {warning}"));
    }
    output::show(global.output, &advice)
}

/// How long the command takes.
async fn time(command: &[OsString]) -> Result<Duration, Problem> {
    use std::os::fd::AsFd;

    let Some((program, arguments)) = command.split_first() else {
        return Err(Problem::new(Code::Usage, "no command given"));
    };
    let words = program.display();
    let cannot_run =
        |error: std::io::Error| Problem::new(Code::Usage, format!("cannot run {words}: {error}"));
    // Our stdout is for the advice.
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(cannot_run)?;
    let mut timed = tokio::process::Command::new(program);
    let timed = timed.args(arguments).stdout(stderr).kill_on_drop(true);
    let began = Instant::now();
    let status = timed.status().await.map_err(cannot_run)?;
    if status.success() {
        return Ok(began.elapsed());
    }
    let words =
        format!("{words} failed ({status}): how long it takes when it succeeds is not known");
    Err(Problem::new(Code::Usage, words))
}
