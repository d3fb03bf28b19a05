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

/// Computes a TTL: 2 x (operation + latency + drift).
///
/// The operation is what is done under the lock; it is given, or measured by running a command once. The
/// latency is measured: a lock of its own is taken, renewed and released again and again. Drift is what clocks may be
/// off by, as far as Holdfast trusts them. The TTL is one for a lock that is not renewed (`holdfast
/// acquire --ttl`, `.ttl()` in the library). `holdfast lock` and the library send heartbeats, so that work
/// may take longer than their TTL; what it decides there is how soon somebody else takes over.
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
    /// How many of each request are timed, 10 to 10000.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(10..=10_000))]
    samples: u32,
    /// The operation itself: it is run once, and timed. What it prints goes to stderr.
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
        output::say(&format!("warning: {warning}"));
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
