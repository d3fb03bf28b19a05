//! `holdfast server`: one node of a real cluster.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_server::{
    Address, AddressError, AuditConfig, CredentialReloader, LogFormat, Node, NodeConfig,
    StartError, StopReason, TracingConfig,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::exit::{Code, Problem};
use crate::log::{self, LogControl};
use crate::otlp;
use crate::output;
use crate::stop_signal::StopSignal;
use crate::systemd::{self, Systemd};

const DEFAULT_FILTER: &str = "info";

/// Runs one node of a cluster.
///
/// Prints `serving` on stderr when it serves. SIGTERM or Ctrl-C hands leadership over and stops the node. A node that
/// was removed from the cluster ends with exit code 77.
#[derive(Debug, Args)]
#[command(
    after_help = "Logs go to stderr. HOLDFAST_LOG sets the level, for example debug. SIGHUP reads `log` of the
configuration and the files of [tls] and [peer_tls] again.

Examples:
  holdfast server --example-config > node-1.toml
  holdfast server --config node-1.toml"
)]
pub(crate) struct ServerArgs {
    /// The node's configuration, in TOML.
    #[arg(long, value_name = "FILE", required_unless_present = "example_config")]
    config: Option<PathBuf>,
    /// The address of the HTTP port (health, metrics, dashboard), host:port, or `off`. Overrides the configuration.
    #[arg(long, value_name = "H:P", value_parser = http_address, requires = "config")]
    http: Option<HttpAddress>,
    /// The file that gets a JSON line for every event. Overrides the configuration.
    #[arg(long, value_name = "FILE", requires = "config")]
    audit_file: Option<PathBuf>,
    /// The OpenTelemetry collector (OTLP over gRPC) that gets spans, such as http://127.0.0.1:4317. Overrides the
    /// configuration.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// The format of log lines. Overrides the configuration.
    #[arg(long, value_name = "FORMAT", env = "HOLDFAST_LOG_FORMAT")]
    log_format: Option<LogStyle>,
    /// Prints a configuration file to start from.
    #[arg(long, conflicts_with = "config")]
    example_config: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogStyle {
    Text,
    Json,
}

impl From<LogStyle> for LogFormat {
    fn from(style: LogStyle) -> LogFormat {
        match style {
            LogStyle::Text => LogFormat::Text,
            LogStyle::Json => LogFormat::Json,
        }
    }
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
    if let Some(file) = args.audit_file {
        match &mut config.audit {
            Some(audit) => audit.file = file,
            None => config.audit = Some(AuditConfig::new(file)),
        }
    }
    if let Some(endpoint) = args.otlp_endpoint.filter(|endpoint| !endpoint.is_empty()) {
        let tls = otlp::tls(&endpoint, config.tracing.and_then(|tracing| tracing.tls));
        config.tracing = Some(TracingConfig { endpoint, tls });
    }
    let format = args.log_format.map_or(config.log_format, LogFormat::from);
    let filter = config.log.as_deref().unwrap_or(DEFAULT_FILTER);
    log::parse(filter)
        .map_err(|wrong| Problem::new(Code::Usage, format!("{}: log: {wrong}", path.display())))?;
    let log = log::start(filter, format);
    let config_joins = config.join;
    // Before the start, which may take a while: a signal then must not cut it off half way.
    let mut stop = StopSignal::listen()?;
    let hangup = signal(SignalKind::hangup()).map_err(|error| {
        Problem::new(Code::Unavailable, format!("cannot listen for signals: {error}"))
    })?;
    let systemd = Systemd::from_environment();
    let mut node = Node::start(config).await.map_err(cannot_start)?;
    tokio::spawn(read_again_on_hangup(hangup, path, log, node.credential_reloader()));
    // To wait for a leader could be in vain until other nodes are started.
    systemd.tell(systemd::READY);
    if config_joins {
        announce(
            format,
            "waiting for the leader to connect to this node; `holdfast cluster add` names it to the cluster",
        );
    }
    let liveness = node.liveness();
    let failure = tokio::select! {
        failure = run_until_stopped(&mut node, &mut stop, format) => failure,
        () = systemd.reassure(liveness) => None,
    };
    systemd.tell(systemd::STOPPING);
    node.shutdown().await;
    failure.map_or(Ok(ExitCode::SUCCESS), |reason| Err(stopped_by_itself(&reason)))
}

/// SIGHUP changes what is logged, by the configuration as it is then, and takes new certificates into use.
async fn read_again_on_hangup(
    mut hangup: Signal,
    path: PathBuf,
    log: LogControl,
    credentials: CredentialReloader,
) {
    while hangup.recv().await.is_some() {
        let config = match NodeConfig::load(&path) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "SIGHUP: nothing changes");
                continue;
            }
        };
        let filter = config.log.as_deref().unwrap_or(DEFAULT_FILTER);
        match log.set(filter) {
            Ok(()) => tracing::warn!(filter, "SIGHUP: what is logged has changed"),
            Err(error) => tracing::error!(error, "SIGHUP: what is logged stays as it was"),
        }
        let names_files =
            config.tls.is_some() || config.peer_tls.is_some() || config.auth.jwt.is_some();
        if !names_files && !credentials.has_files() {
            continue;
        }
        match credentials.reload(&config) {
            Ok(()) => tracing::warn!("SIGHUP: the certificates and keys were read again"),
            Err(error) => {
                tracing::error!(%error, "SIGHUP: the certificates and keys stay as they were");
            }
        }
    }
}

/// To people; where programs read the log, as a line of it.
fn announce(format: LogFormat, words: &str) {
    match format {
        LogFormat::Text => output::message(words),
        LogFormat::Json => tracing::info!("{words}"),
    }
}

async fn run_until_stopped(
    node: &mut Node,
    stop: &mut StopSignal,
    format: LogFormat,
) -> Option<StopReason> {
    let told_to_stop = tokio::select! {
        () = node.serving() => false,
        () = stop.received() => true,
    };
    if told_to_stop { None } else { serve(node, stop, format).await }
}

/// Until it fails, or is told to stop.
async fn serve(node: &mut Node, stop: &mut StopSignal, format: LogFormat) -> Option<StopReason> {
    // A node that has failed does not wait to serve any longer either.
    if let Ok(reason) = timeout(Duration::ZERO, node.stopped()).await {
        return Some(reason);
    }
    announce(format, &format!("serving clients on {}", node.client_address()));
    if let Some(url) = node.http_url() {
        announce(format, &format!("health and metrics on {url}"));
    }
    tokio::select! {
        reason = node.stopped() => Some(reason),
        () = stop.received() => None,
    }
}

pub(crate) fn cannot_start(error: StartError) -> Problem {
    let code = match error {
        StartError::Config(_)
        | StartError::Tls(_)
        | StartError::Spans(_)
        | StartError::Kafka(_) => Code::Usage,
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
