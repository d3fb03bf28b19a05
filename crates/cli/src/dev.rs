//! `holdfast dev`: a whole cluster in one process, to try things out.

mod cluster_shape;
mod secure;

use std::fmt::{Display, Write};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_server::{Node, NodeConfig, StartError, StopReason, TracingConfig};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::exit::{Code, Problem};
use crate::otlp;
use crate::output;
use crate::server;
use crate::stop_signal::StopSignal;
use crate::text;

use self::cluster_shape::ClusterShape;
use self::secure::SecuredCluster;

/// Much longer than a first election takes.
const READY_PATIENCE: Duration = Duration::from_secs(10);

/// Runs a cluster in one process on loopback, to try things out.
///
/// Prints on stderr what it does while it starts, on stdout the endpoints and what to try next, and `ready` when it
/// serves. Ctrl-C stops it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast dev
  holdfast dev --nodes 1 --data-dir ./data     # keeps its locks over a restart
  holdfast dev --port 8420
  holdfast dev --groups 4                      # four Raft groups, each with a leader of its own
  holdfast dev --secure --data-dir ./secure    # then: HOLDFAST_CONFIG=./secure/client.toml holdfast ls")]
pub(crate) struct DevArgs {
    /// The number of nodes, 1 to 7. An odd number is best.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 3, value_parser = node_count)]
    nodes: usize,
    /// Where the nodes keep their data. Without it, they use a temporary directory and remove it at the end.
    #[arg(long, value_name = "D")]
    data_dir: Option<PathBuf>,
    /// The client port of node 1. Peers use the next port, HTTP the one after. Each further node uses ports 10 higher.
    #[arg(long, value_name = "PORT", default_value_t = 7420,
          value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Allows changes from the dashboard, with the secret on the first line of this file.
    #[arg(long, value_name = "FILE", conflicts_with = "no_http")]
    actions_secret_file: Option<PathBuf>,
    /// The OpenTelemetry collector (OTLP over gRPC) that gets the nodes' spans, such as http://127.0.0.1:4317.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// Opens no HTTP ports: no dashboard, health checks or metrics.
    #[arg(long)]
    no_http: bool,
    /// With TLS on all ports, and credentials that are demanded. Makes an authority, certificates and `client.toml` for
    /// clients in the data directory.
    #[arg(long)]
    secure: bool,
    /// Divides the locks over so many Raft groups, 1 to 64, each with a leader of its own. docs/scale.md says what is
    /// different with more than 1.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = group_count)]
    groups: u32,
}

fn group_count(text: &str) -> Result<u32, &'static str> {
    match text.parse() {
        Ok(count @ 1..=64) => Ok(count),
        _ => Err("must be 1 to 64, e.g. 4"),
    }
}

fn node_count(text: &str) -> Result<usize, &'static str> {
    match text.parse() {
        Ok(count @ 1..=7) => Ok(count),
        _ => Err("must be 1 to 7, e.g. 3"),
    }
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

    /// Says what became of the data.
    fn end(self) -> String {
        match self {
            DataDir::Named(path) => format!("stopped; the data stays in {}", path.display()),
            DataDir::Temporary(dir) => match dir.close() {
                Ok(()) => "stopped; temporary data removed".to_owned(),
                Err(error) => format!("stopped; cannot remove the temporary data: {error}"),
            },
        }
    }
}

pub(crate) async fn run(args: DevArgs) -> Result<ExitCode, Problem> {
    let mut stop = StopSignal::listen()?;
    let steps = Steps(Instant::now());
    let data_dir = match args.data_dir {
        Some(path) => DataDir::Named(path),
        None => DataDir::Temporary(tempfile::tempdir().map_err(|error| {
            Problem::new(Code::Unavailable, format!("no temporary directory: {error}"))
        })?),
    };
    check_ports(args.port, args.nodes)?;
    let (nodes, port, secure, groups) = (args.nodes, args.port, args.secure, args.groups);
    let shape = ClusterShape { nodes, port, secure, groups };
    shape.check(data_dir.path())?;
    let mut configs = NodeConfig::dev_cluster(args.nodes, data_dir.path(), args.port)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    configs.iter_mut().for_each(|config| config.groups = args.groups);
    if args.no_http {
        configs.iter_mut().for_each(|config| config.set_http(None));
    }
    check_addresses(&configs)?;
    steps.say(&match &data_dir {
        DataDir::Named(path) => format!("the nodes keep their data in {}", path.display()),
        DataDir::Temporary(dir) => {
            format!("the nodes keep their data in {} until the end", dir.path().display())
        }
    });
    let secured = match args.secure {
        true => Some(secure::secure(&mut configs, data_dir.path())?),
        false => None,
    };
    let mut nodes = Vec::new();
    let tracing = args.otlp_endpoint.filter(|endpoint| !endpoint.is_empty());
    let tracing = tracing.map(|endpoint| {
        let tls = otlp::tls(&endpoint, None);
        TracingConfig { endpoint, tls }
    });
    for mut config in configs {
        config.tracing.clone_from(&tracing);
        config.http.actions_secret_file.clone_from(&args.actions_secret_file);
        let node = Node::start(config).await.map_err(cannot_start)?;
        steps.say(&format!("node {} listens on {}", nodes.len() + 1, node.client_address()));
        nodes.push(node);
    }
    steps.say(match args.groups {
        1 => "the nodes elect a leader",
        _ => "the nodes elect a leader for each group",
    });
    output::data_to_stdout(&welcome(&nodes, &data_dir, secured.as_ref(), args.groups))?;
    let is_ready = tokio::select! {
        () = all_serving(&nodes, &data_dir) => true,
        () = stop.received() => false,
    };
    if is_ready {
        shape.write(data_dir.path());
        if let Some(secured) = &secured {
            secured.make_administrators().await?;
        }
        steps.say(match args.groups {
            1 => "a leader is elected, and all nodes serve clients",
            _ => "all leaders are elected, and all nodes serve clients",
        });
        output::data_to_stdout("ready\n")?;
    }
    let outcome = run_until_stopped(nodes, stop).await;
    output::message(&data_dir.end());
    outcome
}

/// What `dev` does while it starts, on stderr: one line a step, with the time since the start.
struct Steps(Instant);

impl Steps {
    fn say(&self, step: &str) {
        output::message(&format!("{:.2} s  {step}", self.0.elapsed().as_secs_f64()));
    }
}

/// The last node needs three ports, 10 for each of the others below them.
fn check_ports(first: u16, nodes: usize) -> Result<(), Problem> {
    let highest_first = usize::from(u16::MAX) - 10 * (nodes - 1) - 2;
    if usize::from(first) <= highest_first {
        return Ok(());
    }
    let words = format!("--port must be at most {highest_first} to leave room for {nodes} nodes");
    Err(Problem::new(Code::Usage, words))
}

/// Before anything is written: a directory with the data of some of the nodes would be of no cluster.
fn check_addresses(configs: &[NodeConfig]) -> Result<(), Problem> {
    let of_node = |config: &NodeConfig| {
        let own = config.nodes.iter().find(|member| member.id == config.node)?;
        Some([Some(own.client.clone()), Some(own.peer.clone()), own.http.clone()])
    };
    for address in configs.iter().filter_map(of_node).flatten().flatten() {
        match TcpListener::bind(address.to_string()) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(in_use(&address)),
            // The node tells what else is wrong.
            _ => {}
        }
    }
    Ok(())
}

fn in_use(address: &impl Display) -> Problem {
    Problem::new(
        Code::Unavailable,
        format!(
            "{address} is in use; another node or program runs there: stop it, or choose other ports with --port"
        ),
    )
}

/// There is no configuration file to change here.
fn cannot_start(error: StartError) -> Problem {
    match error {
        StartError::AddressInUse { address, .. } => in_use(&address),
        error => server::cannot_start(error),
    }
}

async fn all_serving(nodes: &[Node], data_dir: &DataDir) {
    let all = async {
        for node in nodes {
            node.serving().await;
        }
    };
    tokio::pin!(all);
    if timeout(READY_PATIENCE, &mut all).await.is_err() {
        let hint = match data_dir {
            DataDir::Named(path) => format!(
                "; if the data in {} was made with other --nodes or another --port, start it with these",
                path.display()
            ),
            DataDir::Temporary(_) => String::new(),
        };
        output::message(&format!("not ready yet: the nodes have not elected a leader{hint}"));
        all.await;
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

fn welcome(
    nodes: &[Node],
    data_dir: &DataDir,
    secured: Option<&SecuredCluster>,
    groups: u32,
) -> String {
    let mut text = String::new();
    let addresses: Vec<String> =
        nodes.iter().map(|node| node.client_address().to_string()).collect();
    let scheme = if secured.is_some() { "https" } else { "http" };
    for (position, node) in nodes.iter().enumerate() {
        let http = node.http_address().map(|address| format!("  {scheme}://{address}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "node {}  {}{}",
            position + 1,
            node.client_address(),
            http.unwrap_or_default()
        );
    }
    let kept = match data_dir {
        DataDir::Named(path) => format!("data in {}", path.display()),
        DataDir::Temporary(_) => "data is temporary".to_owned(),
    };
    let shown = |path: &Path| text::quoted(&path.to_string_lossy());
    let login = secured.map(|secured| {
        format!("the dashboard's login is the token in {}\n", shown(&secured.dashboard_token))
    });
    let variable = match secured {
        // The endpoints of another cluster would go before those of the file.
        Some(secured) => {
            format!(
                "unset HOLDFAST_ENDPOINTS\n  export HOLDFAST_CONFIG={}",
                shown(&secured.client_config)
            )
        }
        None => format!("export HOLDFAST_ENDPOINTS={}", addresses.join(",")),
    };
    // A program of a secured cluster needs three files more: the guide shows it.
    let of_programs = match secured {
        Some(_) => {
            "Programs show the certificate that this file names: see docs/security.md\n".to_owned()
        }
        None => lines_of_programs(addresses.first().map_or("", String::as_str)),
    };
    let of_groups = match groups {
        1 => String::new(),
        groups => format!(
            "{groups} groups: a lock belongs to the group of its name, and `lock --all` takes locks of one group: see \
             docs/scale.md\n"
        ),
    };
    let programs = of_programs + &of_groups;
    text + &format!(
        "{kept}\n{}\nTry in another terminal:\n  {variable}\n  \
         holdfast lock demo -- sleep 5\n  holdfast status demo\n  holdfast cluster status\n\n{programs}\n",
        login.unwrap_or_default()
    )
}

/// How a program of each language takes a lock. `ADDRESS` is that of a node; libraries find the others.
const PROGRAMS: [(&str, &str); 5] = [
    (
        "Python",
        "import holdfast; print(holdfast.Client(\"ADDRESS\").lock(\"demo\", wait=10).acquire().fence)",
    ),
    ("Rust", "Client::connect(\"ADDRESS\").await?.lock(\"demo\").acquire().await?.fence()?"),
    (
        "Go",
        "client, err := holdfast.Connect(ctx, \"ADDRESS\"); guard, err := client.Lock(ctx, \"demo\")",
    ),
    ("TypeScript", "console.log((await new Client(\"ADDRESS\").lock(\"demo\")).fence)"),
    ("Java", "System.out.println(Client.connect(\"ADDRESS\").lock(\"demo\").acquire().fence());"),
];

fn lines_of_programs(address: &str) -> String {
    let mut text = "From a program (docs/start.md):\n".to_owned();
    for (language, code) in PROGRAMS {
        let _ = writeln!(text, "  {language:<11}{}", code.replace("ADDRESS", address));
    }
    text
}
