//! Chaos: real `holdfast server` processes on loopback, real clients, and faults from a seeded
//! schedule. What the clients saw is judged by the same checkers as the simulation's runs.
//!
//! The same seed makes the same schedule; what happens under it is up to real processes and a real
//! kernel. A run is bounded in time, and every process that it started is stopped at its end, also
//! when it fails or is interrupted.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its terminal")]

mod answers;
mod audited;
mod availability;
mod clients;
mod cluster;
mod division;
mod event_order;
mod fault;
mod health;
mod late_expiry;
mod random;
mod recorder;
mod report;
mod run;
mod schedule;
mod verdict;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::report::{Report, transcript};
use crate::run::{Plan, run};

/// Runs a cluster under faults and judges what its clients saw.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long faults and clients are at work; starting, settling and checking come on top.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The same seed makes the same schedule of faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(3..=7))]
    nodes: u64,
    /// How many Raft groups the cluster has.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    groups: u32,
    /// The `holdfast` binary to run.
    #[arg(long)]
    holdfast: PathBuf,
    /// Keep data, logs and history also if nothing is wrong.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Cluster(#[from] cluster::ClusterError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("interrupted")]
    Interrupted,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match chaos(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("chaos: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every promise was kept.
async fn chaos(arguments: &Arguments) -> Result<bool, Failure> {
    let plan = Plan {
        seed: arguments.seed,
        nodes: arguments.nodes,
        groups: arguments.groups,
        length: Duration::from_secs_f64(arguments.minutes.clamp(0.1, 24.0 * 60.0) * 60.0),
    };
    let dir = tempfile::Builder::new().prefix("holdfast-chaos-").tempdir()?;
    eprintln!("chaos: seed {}; data and logs are in {}", plan.seed, dir.path().display());
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let result = tokio::select! {
        result = run(&plan, &arguments.holdfast, dir.path()) => result,
        // The run is dropped, and its processes are killed with it.
        _ = interrupted.recv() => return Err(Failure::Interrupted),
        _ = terminated.recv() => return Err(Failure::Interrupted),
    };
    let report = match result {
        Ok(report) => report,
        Err(error) => {
            keep(dir)?;
            return Err(error.into());
        }
    };
    println!("{report}");
    let is_sound = report.violations.is_empty();
    if arguments.keep || !is_sound {
        keep_with(dir, &report)?;
    }
    Ok(is_sound)
}

fn keep_with(dir: TempDir, report: &Report) -> io::Result<()> {
    std::fs::write(dir.path().join("report.txt"), report.to_string())?;
    std::fs::write(dir.path().join("history.txt"), transcript(&report.history))?;
    keep(dir)
}

fn keep(dir: TempDir) -> io::Result<()> {
    println!("kept for you: {}", dir.keep().display());
    Ok(())
}
