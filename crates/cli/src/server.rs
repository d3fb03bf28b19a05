//! `holdfast server`: one node of a real cluster.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_server::{Address, AddressError, Node, NodeConfig, StartError, StopReason};
use tokio::time::timeout;

use crate::exit::{Code, Problem};
use crate::output;
use crate::stop_signal::StopSignal;

/// Runs one node of a cluster.
///
/// Says `serving` on stderr once it can serve. SIGTERM or Ctrl-C hands leadership over and stops it. A node
/// that was removed from the cluster ends with exit code 77.
#[derive(Debug, Args)]
#[command(after_help = "Logs go to stderr; HOLDFAST_LOG says which, for example debug.

Examples:
  holdfast server --example-config > node-1.toml
  holdfast server --config node-1.toml")]
pub(crate) struct ServerArgs {
    /// The node's configuration, in TOML.
    #[arg(long, value_name = "FILE", required_unless_present = "example_config")]
    config: Option<PathBuf>,
    /// Where probes and scrapers reach the node, host:port, or `off`; the configuration says so otherwise.
    #[arg(long, value_name = "H:P", value_parser = http_address, requires = "config")]
    http: Option<HttpAddress>,
    /// Prints a configuration file to start from.
    #[arg(long, conflicts_with = "config")]
    example_config: bool,
}

/// Where the HTTP port is to be, if anywhere.
#[derive(Clone, Debug)]
struct HttpAddress(Option<Address>);

fn http_address(text: &str) -> Result<HttpAddress, String> {
    match text {
        "off" => Ok(HttpAddress(None)),
        text => text
            .parse()
            .map(|address| HttpAddress(Some(address)))
            .map_err(|error: AddressError| error.to_string()),
    }
}

pub(crate) async fn run(args: ServerArgs) -> Result<ExitCode, Problem> {
    let Some(path) = args.config else {
        return output::data_to_stdout(NodeConfig::EXAMPLE).map(|()| ExitCode::SUCCESS);
    };
    let mut config =
        NodeConfig::load(&path).map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    if let Some(HttpAddress(address)) = args.http {
        config.set_http(address);
    }
    let config_joins = config.join;
    // Before the start, which may take a while: a signal then must not cut it off half way.
    let mut stop = StopSignal::listen()?;
    let mut node = Node::start(config).await.map_err(cannot_start)?;
    if config_joins {
        output::say(
            "waiting for the cluster to come to this node, if `holdfast cluster add` was told",
        );
    }
    let told_to_stop = tokio::select! {
        () = node.serving() => false,
        () = stop.received() => true,
    };
    let failure = if told_to_stop { None } else { serve(&mut node, &mut stop).await };
    node.shutdown().await;
    failure.map_or(Ok(ExitCode::SUCCESS), |reason| Err(stopped_by_itself(&reason)))
}

/// Until it fails, or is told to stop.
async fn serve(node: &mut Node, stop: &mut StopSignal) -> Option<StopReason> {
    // A node that has failed does not wait to serve any longer either.
    if let Ok(reason) = timeout(Duration::ZERO, node.stopped()).await {
        return Some(reason);
    }
    output::say(&format!("serving clients on {}", node.client_address()));
    if let Some(address) = node.http_address() {
        output::say(&format!("health and metrics on http://{address}"));
    }
    tokio::select! {
        reason = node.stopped() => Some(reason),
        () = stop.received() => None,
    }
}

pub(crate) fn cannot_start(error: StartError) -> Problem {
    let code = match error {
        StartError::Config(_) => Code::Usage,
        _ => Code::Unavailable,
    };
    Problem::new(code, error.to_string())
}

/// To start a node again that was removed would be in vain, and its exit code says so.
pub(crate) fn stopped_by_itself(reason: &StopReason) -> Problem {
    let code = match reason {
        StopReason::Removed => Code::Denied,
        _ => Code::Unavailable,
    };
    Problem::new(code, format!("the node stopped because {reason}"))
}
