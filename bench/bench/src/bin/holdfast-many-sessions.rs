//! Many sessions of the client library on a cluster that runs already, each with a connection and a lock of its own; then
//! one node is killed, and each session takes one lock more. Tells when they got it, and how many sessions were lost.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use holdfast_bench::Outcome;
use holdfast_client::{Client, ClientBuilder, Guard, Tls};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(
    about = "Opens many sessions on a running cluster, kills a node, and tells when all sessions are answered again",
    after_help = "Examples:
  cargo run --profile dist -p holdfast-bench --bin holdfast-many-sessions -- --endpoints 127.0.0.1:7420 --kill 4711
  cargo run --profile dist -p holdfast-bench --bin holdfast-many-sessions -- \\
    --endpoints 127.0.0.1:7420 --ca certs/ca.pem --cert certs/client-a.pem --key certs/client-a-key.pem --kill 4711"
)]
struct Arguments {
    #[arg(long)]
    endpoints: String,
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// Opened at the same time.
    #[arg(long, default_value_t = 64)]
    opening: usize,
    #[arg(long)]
    ca: Option<PathBuf>,
    #[arg(long, requires = "ca", requires = "key")]
    cert: Option<PathBuf>,
    #[arg(long, requires = "cert")]
    key: Option<PathBuf>,
    /// The process id of the node that gets SIGKILL once all sessions are open.
    #[arg(long)]
    kill: Option<u32>,
    /// How long to wait for all sessions.
    #[arg(long, default_value_t = 60)]
    patience_seconds: u64,
}

struct Open {
    client: Client,
    guard: Guard,
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments = Arguments::parse();
    let began = Instant::now();
    let open = open_all(&arguments).await?;
    println!("{} sessions with a lock each, opened in {:.1?}", open.len(), began.elapsed());
    let tokens = tokens(&open)?;
    let struck = Instant::now();
    if let Some(node) = arguments.kill {
        let killed = Command::new("kill").args(["-KILL", &node.to_string()]).status()?;
        if !killed.success() {
            return Err(format!("the process {node} could not be killed").into());
        }
    }
    let patience = Duration::from_secs(arguments.patience_seconds);
    let mut waits = JoinSet::new();
    for (number, Open { client, guard }) in open.into_iter().enumerate() {
        waits.spawn(async move {
            let after =
                client.lock(format!("{}/after", guard.name())).wait(patience).acquire().await;
            let token = if after.is_ok() { guard.token().ok() } else { None };
            (number, struck.elapsed(), token, client, guard)
        });
    }
    let (mut silences, mut lost, mut kept) = (Vec::new(), 0, Vec::new());
    while let Some(answered) = waits.join_next().await {
        let (number, silence, token, client, guard) = answered?;
        lost += usize::from(token != Some(tokens[number]));
        silences.push(silence);
        kept.push((client, guard));
    }
    silences.sort();
    let at = |share: usize| silences[(silences.len() - 1) * share / 100];
    println!(
        "answered again: half after {:.2?}, 99 % after {:.2?}, all after {:.2?}",
        at(50),
        at(99),
        at(100)
    );
    println!("sessions lost or not answered in time: {lost}");
    if lost == 0 { Ok(()) } else { Err("sessions were lost".into()) }
}

async fn open_all(arguments: &Arguments) -> Outcome<Vec<Open>> {
    let places = Arc::new(Semaphore::new(arguments.opening));
    let mut opening = JoinSet::new();
    for number in 0..arguments.sessions {
        let (places, endpoints) = (places.clone(), arguments.endpoints.clone());
        let builder = builder(arguments);
        opening.spawn(async move {
            let _place = places.acquire().await?;
            let client = builder.connect(&endpoints).await?;
            let name = format!("many-sessions/{}/{number}", std::process::id());
            let guard = client.lock(name).acquire().await?;
            Outcome::Ok(Open { client, guard })
        });
    }
    let mut open = Vec::new();
    while let Some(opened) = opening.join_next().await {
        open.push(opened??);
    }
    Ok(open)
}

fn builder(arguments: &Arguments) -> ClientBuilder {
    let Some(ca) = &arguments.ca else { return Client::builder() };
    let tls = match (&arguments.cert, &arguments.key) {
        (Some(cert), Some(key)) => Tls::new(ca).certificate(cert, key),
        _ => Tls::new(ca),
    };
    Client::builder().tls(tls)
}

fn tokens(open: &[Open]) -> Outcome<Vec<u64>> {
    Ok(open.iter().map(|it| it.guard.token()).collect::<Result<_, _>>()?)
}
