//! Holdfast beside etcd, ZooKeeper and Redis: the same loads in one run, each service in its turn.
//!
//! All services run on this machine, on loopback, with their default durability. A task is done by one service after the
//! other, and then again, so that whatever changes on the machine meanwhile meets all of them. The figures are medians
//! of the repeats. docs/performance/method.md tells what the workloads are.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod figures;
mod goals;
mod machine;
mod measure;
mod peer;
mod plan;
mod plot;
mod programs;
mod result;
mod rows;
mod server;
mod service;
mod task;
mod text_table;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use holdfast_bench::Outcome;

use figures::Figures;
use machine::Machine;
use peer::{Peer, PeerName};
use plan::{Case, Scale, Workload, cases};
use programs::Programs;
use result::{Comparison, Turns};
use rows::rows;
use server::Installation;

/// The load is the same process for all services.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(
    about = "Compares Holdfast with etcd, ZooKeeper and Redis under the same loads",
    after_help = "Examples:
  cargo xtask compare
  cargo xtask compare --quick
  cargo xtask compare --only w1,w2 --peers holdfast,redis --repeats 5
  cargo xtask compare --only w1 --rows '256 clients over 8' --peers holdfast,holdfast-observed --repeats 10
  cargo xtask compare --etcd ~/etcd-v3.6/etcd --peers holdfast,etcd"
)]
struct Arguments {
    /// The `holdfast` that is compared.
    #[arg(long)]
    holdfast: PathBuf,
    /// Only these workloads.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    only: Vec<Workload>,
    /// Only rows whose title contains this, such as '256 clients over 8'.
    #[arg(long, value_name = "TEXT")]
    rows: Option<String>,
    /// Only these services.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    peers: Vec<PeerName>,
    /// How long each turn is measured; a third of it is its warm-up.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// How often each service has its turn.
    #[arg(long, value_name = "N")]
    repeats: Option<NonZeroUsize>,
    /// How long W3 looks whether any node is elected under load; 600 by default.
    #[arg(long, value_name = "SECONDS")]
    loaded_seconds: Option<u64>,
    /// Short turns, once each: whether all of it works, and a first impression.
    #[arg(long)]
    quick: bool,
    /// Where the table, the figures as JSON and the plot are written.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/compare")]
    out: PathBuf,
    /// Threads of the load; by default as many as there are processor cores.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    programs: Programs,
}

fn main() -> Outcome {
    let arguments = Arguments::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = arguments.threads {
        runtime.worker_threads(threads.get());
    }
    runtime.enable_all().build()?.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> Outcome {
    let seconds = arguments.seconds.unwrap_or(if arguments.quick { 0.6 } else { 3.0 });
    let repeats = arguments.repeats.map_or(if arguments.quick { 1 } else { 3 }, NonZeroUsize::get);
    let names = if arguments.peers.is_empty() { &PeerName::DEFAULT[..] } else { &arguments.peers };
    let all = Workload::value_variants();
    let wanted = if arguments.only.is_empty() { all } else { &arguments.only };
    let loaded = arguments.loaded_seconds.unwrap_or(if arguments.quick { 5 } else { 600 });
    let scale = Scale {
        turn: Duration::from_secs_f64(seconds),
        loaded: Duration::from_secs(loaded),
        quick: arguments.quick,
    };
    let mut cases: Vec<Case> = cases(wanted, scale);
    if let Some(text) = &arguments.rows {
        cases.retain(|case| case.title.contains(text));
        if cases.is_empty() {
            return Err(format!("no row's title contains '{text}'").into());
        }
    }

    let directory = tempfile::Builder::new().prefix("holdfast-compare-").tempdir()?;
    let holdfast = std::path::absolute(&arguments.holdfast)?;
    let installation = Installation { holdfast, directory: directory.path().to_owned() };
    let mut peers: Vec<(PeerName, Box<dyn Peer>)> = Vec::new();
    for name in names.iter().filter(|name| cases.iter().any(|case| case.takes_part(**name))) {
        eprintln!("compare: starting {name:?}");
        peers.push((
            *name,
            peer::start(*name, &installation, &arguments.programs, scale.held()).await?,
        ));
    }

    let services = peers.iter().map(|(_, peer)| peer.name()).collect();
    let mut comparison = Comparison {
        machine: Machine::this(),
        seconds_per_turn: seconds,
        repeats,
        services,
        rows: Vec::new(),
        goals: Vec::new(),
        turns: Vec::new(),
        failures: Vec::new(),
    };
    let began = Instant::now();
    for (number, case) in cases.iter().enumerate() {
        eprintln!(
            "compare: {} {} ({} of {}, {:.0} s so far)",
            case.workload_name(),
            case.title,
            number + 1,
            cases.len(),
            began.elapsed().as_secs_f64()
        );
        let by_service = interleaved(case, &mut peers, repeats, &mut comparison.failures).await?;
        comparison.rows.extend(rows(case, &by_service));
        let (workload, title) = (case.workload_name(), case.title.clone());
        comparison.turns.push(Turns { workload, title, by_service });
        comparison.goals = goals::check(&comparison.rows);
        // What is there is kept if something breaks off later.
        write(&arguments.out, &comparison)?;
    }
    print!("{}", comparison.to_table());
    eprintln!("compare: written to {}", arguments.out.display());
    match comparison.failures.len() {
        0 => Ok(()),
        failures => Err(format!("{failures} turns failed").into()),
    }
}

/// Every service once, then every service again.
async fn interleaved(
    case: &Case,
    peers: &mut [(PeerName, Box<dyn Peer>)],
    repeats: usize,
    failures: &mut Vec<String>,
) -> Outcome<BTreeMap<&'static str, Vec<Figures>>> {
    let mut by_service: BTreeMap<&'static str, Vec<Figures>> = BTreeMap::new();
    for _ in 0..case.repeats.unwrap_or(repeats) {
        for (_, peer) in peers.iter_mut().filter(|(name, _)| case.takes_part(*name)) {
            let figures = match peer.turn(&case.task).await {
                Ok(Some(figures)) => figures,
                Ok(None) => continue,
                Err(error) => {
                    let failure = format!("{}, {}: {error}", peer.name(), case.title);
                    eprintln!("compare:   FAILED: {failure}");
                    failures.push(failure);
                    continue;
                }
            };
            let words: Vec<String> = case
                .measures
                .iter()
                .filter_map(|measure| Some((measure, measure.of(&figures)?)))
                .map(|(measure, value)| {
                    format!("{} {}", text_table::in_short(value), measure.unit())
                })
                .collect();
            eprintln!("compare:   {:<20}{}", peer.name(), words.join(", "));
            by_service.entry(peer.name()).or_default().push(figures);
        }
    }
    Ok(by_service)
}

fn write(directory: &Path, comparison: &Comparison) -> Outcome {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("compare.txt"), comparison.to_table())?;
    std::fs::write(directory.join("compare.json"), serde_json::to_string_pretty(comparison)?)?;
    std::fs::write(directory.join("compare.svg"), plot::svg(comparison))?;
    if let Some(curve) = plot::curve::svg(comparison) {
        std::fs::write(directory.join("offered-load.svg"), curve)?;
    }
    Ok(())
}
