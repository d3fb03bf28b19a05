//! `holdfast bench`: how much a cluster bears, and how soon it answers.
//!
//! The loads are those of `bench/bench`, which `cargo xtask compare` runs against other lock services as well.

mod report;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use holdfast_bench::holdfast::Holdfast;
use holdfast_bench::{
    Cluster, Length, Outcome, Servers, Turn, clients_over, close_all, median, workload,
};

use crate::duration;
use crate::exit::{Code, Problem};
use crate::global::{Format, Global};
use crate::one_shot;
use crate::output;
use crate::stop_signal::StopSignal;
use crate::tier::TierArg;

use report::{Figures, Report};

/// 128 + SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// Puts load on a cluster, and prints operations per second and latencies.
///
/// One operation is one acquire or one release. Each client sends its next request when the last is answered. All locks
/// are below `bench/`, and are released at the end. The cluster is that of --endpoints, or with --nodes one that the
/// command starts on this machine, with fsync, and removes at the end.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast bench --nodes 3
  holdfast bench uncontended --clients 1 --connections 1 --nodes 5
  holdfast bench hot reads --clients 64 --seconds 10s --output json
  holdfast --endpoints 10.0.0.1:7420,10.0.0.2:7420 bench mixed --clients 1024 --repeats 5")]
pub(crate) struct BenchArgs {
    /// The loads, one after another.
    #[arg(value_enum, value_name = "WORKLOAD", default_values_t = [Workload::Uncontended])]
    workloads: Vec<Workload>,
    /// Number of clients at the same time.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = at_least(256), value_parser = count)]
    clients: NonZeroUsize,
    /// Number of connections, each with one session, that the clients share.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = at_least(8), value_parser = count)]
    connections: NonZeroUsize,
    /// How long to measure each repeat.
    #[arg(long, value_name = "D", default_value = "5s", value_parser = duration::parse_above_zero)]
    seconds: Duration,
    /// How long to run the load before each measurement.
    #[arg(long, value_name = "D", default_value = "1s", value_parser = duration::parse)]
    warm_up: Duration,
    /// Number of repeats. Each figure is their median.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = at_least(3), value_parser = count)]
    repeats: NonZeroUsize,
    /// Starts a cluster of N nodes on this machine, in a temporary directory.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=9))]
    nodes: Option<u64>,
    /// The tier of the locks.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Correctness)]
    tier: TierArg,
    /// Number of threads of the load. The default is the number of processor cores.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The same as --output json.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    Uncontended,
    Hot,
    Mixed,
    Reads,
}

impl ValueEnum for Workload {
    fn value_variants<'a>() -> &'a [Workload] {
        &[Workload::Uncontended, Workload::Hot, Workload::Mixed, Workload::Reads]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (alias, help) = match self {
            Workload::Uncontended => ("w1", "Each client takes and gives back a lock of its own"),
            Workload::Hot => ("w2", "All clients want the same lock; hand-overs are counted"),
            Workload::Mixed => ("w5", "80 % own locks, 20 % on 100 hot ones, 5 % two at once"),
            Workload::Reads => ("w6", "Linearizable reads of a held lock"),
        };
        Some(PossibleValue::new(self.name()).alias(alias).help(help))
    }
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Uncontended => "uncontended",
            Workload::Hot => "hot",
            Workload::Mixed => "mixed",
            Workload::Reads => "reads",
        }
    }

    fn counts(self) -> &'static str {
        match self {
            Workload::Uncontended | Workload::Mixed => "operations",
            Workload::Hot => "hand-overs",
            Workload::Reads => "reads",
        }
    }
}

fn count(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "must be a whole number from 1 on")
}

fn at_least(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN)
}

pub(crate) async fn run(args: BenchArgs, global: &Global) -> Result<ExitCode, Problem> {
    let mut stop = StopSignal::listen()?;
    let report = tokio::select! {
        report = measure(&args, global) => report?,
        // Sessions and nodes that were started end with us.
        () = stop.received() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    output::show(if args.json { Format::Json } else { global.output }, &report)
}

async fn measure(args: &BenchArgs, global: &Global) -> Result<Report, Problem> {
    let cluster = match args.nodes {
        Some(nodes) => {
            let program = std::env::current_exe().map_err(broke)?;
            output::message(&format!("starting {nodes} nodes"));
            Some(Cluster::start(&program, nodes, "").await.map_err(broke)?)
        }
        None => {
            // A cluster that does not answer is told as by every other command.
            one_shot::calls(global)?.cluster_status().await?;
            None
        }
    };
    let servers = cluster.as_ref().map(Cluster::servers).unwrap_or_default();
    let endpoints = cluster.as_ref().map_or(&global.endpoints, |cluster| &cluster.endpoints);
    // A cluster that was started here speaks plaintext.
    let tls = global.tls.clone().filter(|_| cluster.is_none());
    let service = Holdfast { endpoints: endpoints.clone(), tier: args.tier.to_tier(), tls };
    let mut report = Report::of(args);
    for workload in &args.workloads {
        let mut turns = Vec::new();
        for repeat in 1..=args.repeats.get() {
            let turn = turn(*workload, args, &service, &servers).await.map_err(broke)?;
            output::message(&format!(
                "{} {repeat}/{}: {:.0} {} a second, p50 {:.0} us, p99 {:.0} us",
                workload.name(),
                args.repeats,
                turn.per_second,
                workload.counts(),
                turn.latency.p50_us,
                turn.latency.p99_us
            ));
            turns.push(turn);
        }
        report.workloads.extend(median(&turns).map(|median| Figures {
            workload: workload.name(),
            counts: workload.counts(),
            median,
            repeats: turns,
        }));
    }
    Ok(report)
}

async fn turn(
    workload: Workload,
    args: &BenchArgs,
    service: &Holdfast,
    servers: &Servers,
) -> Outcome<Turn> {
    let (clients, connections) = (args.clients.get(), args.connections.get());
    let clients = clients_over(service, clients, connections).await?;
    let length = Length { warm_up: args.warm_up, measured: args.seconds };
    let turn = match workload {
        Workload::Uncontended => workload::uncontended(&clients, length, servers).await?,
        Workload::Hot => workload::hot(&clients, length, servers).await?,
        Workload::Mixed => workload::mixed(&clients, length, servers).await?,
        Workload::Reads => workload::reads(&clients, length, servers)
            .await?
            .ok_or("locks of this tier are not read")?,
    };
    close_all(clients).await?;
    Ok(turn)
}

fn broke(error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Unavailable, format!("cannot complete the measurement: {error}"))
}
