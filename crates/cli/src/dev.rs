//! `holdfast dev`: a whole cluster in one process, to try things out.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use holdfast_server::{Node, NodeConfig, StopReason};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::exit::{Code, Problem};
use crate::output;
use crate::server;
use crate::stop_signal::StopSignal;

/// Runs a whole cluster in one process on loopback.
///
/// Prints the endpoints, what to try next, and `ready` when it serves. Ctrl-C stops it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast dev
  holdfast dev --nodes 1 --data-dir ./data     # keeps its locks over a restart
  holdfast dev --port 8420")]
pub(crate) struct DevArgs {
    /// How many nodes; an odd number is best.
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: usize,
    /// Where the nodes keep their data; without it they forget everything at the end.
    #[arg(long, value_name = "D")]
    data_dir: Option<PathBuf>,
    /// The first node's client port; its peers use the next, the next node the port 10 higher.
    #[arg(long, value_name = "PORT", default_value_t = 7420)]
    port: u16,
}

/// Removed when it is dropped, unless the user named it.
enum DataDir {
    Named(PathBuf),
    Temporary(TempDir),
}

impl DataDir {
    fn path(&self) -> &Path {
        match self {
            DataDir::Named(path) => path,
            DataDir::Temporary(dir) => dir.path(),
        }
    }
}

pub(crate) async fn run(args: DevArgs) -> Result<ExitCode, Problem> {
    let mut stop = StopSignal::listen()?;
    let data_dir = match args.data_dir {
        Some(path) => DataDir::Named(path),
        None => DataDir::Temporary(tempfile::tempdir().map_err(|error| {
            Problem::new(Code::Unavailable, format!("no temporary directory: {error}"))
        })?),
    };
    let configs = NodeConfig::dev_cluster(args.nodes, data_dir.path(), args.port)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let mut nodes = Vec::new();
    for config in configs {
        nodes.push(Node::start(config).await.map_err(server::cannot_start)?);
    }

    output::data_to_stdout(&welcome(&nodes, &data_dir))?;
    tokio::select! {
        () = all_serving(&nodes) => output::data_to_stdout("ready\n")?,
        () = stop.received() => {}
    }
    run_until_stopped(nodes, stop).await
}

async fn all_serving(nodes: &[Node]) {
    for node in nodes {
        node.serving().await;
    }
}

/// One task per node, so that all of them hand over and stop at the same time.
async fn run_until_stopped(nodes: Vec<Node>, mut stop: StopSignal) -> Result<ExitCode, Problem> {
    let stopping = watch::Sender::new(false);
    let mut tasks: JoinSet<Option<StopReason>> = JoinSet::new();
    for mut node in nodes {
        let mut told_to_stop = stopping.subscribe();
        tasks.spawn(async move {
            let failure = tokio::select! {
                reason = node.stopped() => Some(reason),
                _ = told_to_stop.wait_for(|stopping| *stopping) => None,
            };
            node.shutdown().await;
            failure
        });
    }
    let failure = tokio::select! {
        () = stop.received() => None,
        ended = tasks.join_next() => ended.and_then(Result::ok).flatten(),
    };
    stopping.send_replace(true);
    while tasks.join_next().await.is_some() {}
    failure.map_or(Ok(ExitCode::SUCCESS), |reason| Err(server::stopped_by_itself(&reason)))
}

fn welcome(nodes: &[Node], data_dir: &DataDir) -> String {
    let mut text = String::new();
    let addresses: Vec<String> =
        nodes.iter().map(|node| node.client_address().to_string()).collect();
    for (position, address) in addresses.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "node {}  {address}", position + 1);
    }
    let kept = match data_dir {
        DataDir::Named(path) => format!("data in {}", path.display()),
        DataDir::Temporary(_) => "data is temporary".to_owned(),
    };
    let endpoints = addresses.join(",");
    text + &format!(
        "{kept}\n\nTry in another terminal:\n  export HOLDFAST_ENDPOINTS={endpoints}\n  \
         holdfast lock demo -- sleep 5\n  holdfast status demo\n  holdfast cluster status\n\n"
    )
}
