//! Many sessions that end in the same second, while another client goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_bench::{Cluster, Outcome};
use holdfast_proto::SessionId;
use holdfast_proto::v1::OpenSessionRequest;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::transport::Endpoint;

use crate::NODES;
use crate::probe::Probe;

const CALLERS: usize = 256;
const CONNECTIONS: usize = 8;
const QUIET: Duration = Duration::from_secs(5);
/// Sessions of which the probe's is one.
const OTHERS: u64 = 1;

#[derive(Debug, Args)]
pub(crate) struct MassExpiryArgs {
    #[arg(long, default_value_t = 1_000_000)]
    sessions: usize,
    /// How long to open them; their TTLs are such that all end after it.
    #[arg(long, default_value_t = 180)]
    opening_seconds: u64,
}

pub(crate) async fn run(binary: &Path, args: MassExpiryArgs) -> Outcome {
    let cluster = Cluster::start(binary, NODES, "").await?;
    let leader = Cluster::leader_of(cluster.calls()).await?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let channel = Endpoint::from_shared(format!("http://{leader}"))?.connect().await?;
        clients.push(LockServiceClient::new(channel));
    }
    let probe = Probe::start(&cluster.endpoints).await?;
    sleep(QUIET).await;
    println!("before: {}", probe.take());

    let started = Instant::now();
    let end = started + Duration::from_secs(args.opening_seconds);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let share = args.sessions / CALLERS + usize::from(caller < args.sessions % CALLERS);
        let mut client = clients[caller % CONNECTIONS].clone();
        callers.spawn(async move {
            for _ in 0..share {
                let left = end.saturating_duration_since(Instant::now());
                let request = OpenSessionRequest {
                    session_id: SessionId::random()
                        .map_err(|error| error.to_string())?
                        .to_secret_text(),
                    ttl_ms: u64::try_from(left.as_millis())?.max(100),
                    ..Default::default()
                };
                client.open_session(request).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    println!("{} sessions opened in {:?}: {}", args.sessions, started.elapsed(), probe.take());
    if Instant::now() > end {
        return Err("opening took longer than --opening-seconds: some have ended already".into());
    }
    println!("open: {}", sessions(&cluster).await?);
    sleep(end.saturating_duration_since(Instant::now())).await;
    probe.take();
    let due = Instant::now();
    while sessions(&cluster).await? > OTHERS {
        sleep(Duration::from_millis(100)).await;
    }
    println!("all ended {:?} after they were due: {}", due.elapsed(), probe.take());
    println!("operations of the other client that failed: {}", probe.stop().await?);
    Ok(())
}

async fn sessions(cluster: &Cluster) -> Outcome<u64> {
    let view = cluster.calls().cluster_status().await?;
    Ok(view.groups.first().map_or(0, |group| group.sessions))
}
