//! Many held locks: what they cost, and whether others notice.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::sleep;
use tonic::transport::Endpoint;

use holdfast_bench::frames::Session;
use holdfast_bench::{Cluster, Outcome};

use crate::NODES;
use crate::probe::Probe;

/// Given back by one frame.
const FRAME: usize = 1_000;
const QUIET: Duration = Duration::from_secs(10);
/// The probe goes on all the time.
const LAG_OF_ONE_WHO_IS_BACK: u64 = 100;
const TTL_MS: u64 = 3_600_000;

#[derive(Debug, Args)]
pub(crate) struct CapacityArgs {
    #[arg(long, default_value_t = 500_000)]
    locks: usize,
    #[arg(long, default_value_t = 100)]
    sessions: usize,
    /// After how many log entries each node takes a snapshot; usually so many that none is taken.
    #[arg(long, default_value_t = 100_000_000)]
    snapshot_every: u64,
    /// One node is away while the locks are taken, so that it must be sent a snapshot of them.
    #[arg(long)]
    away: bool,
}

pub(crate) async fn run(binary: &Path, args: CapacityArgs) -> Outcome {
    let settings = format!("snapshot_every_entries = {}", args.snapshot_every);
    let mut cluster = Cluster::start(binary, NODES, &settings).await?;
    let leader = Cluster::leader_of(cluster.calls()).await?;
    let mut sessions = Vec::new();
    for _ in 0..args.sessions {
        let channel = Endpoint::from_shared(format!("http://{leader}"))?.connect().await?;
        sessions.push(Session::open(channel, TTL_MS).await?);
    }
    let before = cluster.resident_bytes()?;
    let probe = Probe::start(&cluster.endpoints).await?;
    sleep(QUIET).await;
    println!("empty: {}", probe.take());

    let away = if args.away { Some(cluster.follower().await?) } else { None };
    if let Some(away) = away {
        cluster.kill(away)?;
        probe.take();
    }
    let started = Instant::now();
    let per_session = args.locks / args.sessions;
    for (number, session) in sessions.iter_mut().enumerate() {
        let first = number * per_session;
        session.acquire_numbered(first..first + per_session).await?;
    }
    let held: usize = sessions.iter().map(|session| session.held.len()).sum();
    println!("{held} locks taken in {:?}: {}", started.elapsed(), probe.take());
    sleep(QUIET).await;
    println!("held: {}", probe.take());
    if let Some(away) = away {
        let started = Instant::now();
        cluster.start_again(away)?;
        // It reads its own disk first.
        while cluster.lag(away).await? > LAG_OF_ONE_WHO_IS_BACK {
            sleep(Duration::from_millis(20)).await;
        }
        println!("node {away} came back in {:?}: {}", started.elapsed(), probe.take());
    }
    for (node, (after, before)) in cluster.resident_bytes()?.iter().zip(&before).enumerate() {
        let grown = after.saturating_sub(*before);
        println!("node {}: {} bytes of memory for each lock", node + 1, grown / held as u64);
    }

    let started = Instant::now();
    for session in &mut sessions {
        while !session.held.is_empty() {
            session.release(FRAME).await?;
        }
    }
    println!("given back in {:?}: {}", started.elapsed(), probe.take());
    let failures = probe.stop().await?;
    println!("operations of the other client that failed: {failures}");
    Ok(())
}
