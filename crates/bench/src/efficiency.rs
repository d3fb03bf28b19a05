//! The efficiency tier beside one Redis in memory, in turn, under the same load: many clients over a few
//! connections, each taking and giving back a lock of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_client::{Client, Tier};

use crate::Outcome;
use crate::cluster::Cluster;
use crate::redis_server::{RedisLocks, RedisServer};

#[derive(Debug, Args)]
pub(crate) struct EfficiencyArgs {
    #[arg(long, default_value_t = 256)]
    clients: usize,
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Of each turn.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How often each has its turn; the medians are told.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Measure Holdfast alone.
    #[arg(long)]
    without_redis: bool,
}

/// What one turn has shown.
#[derive(Debug)]
struct Turn {
    /// An acquire is one, a release is another.
    operations_per_second: f64,
    acquire_p50: Duration,
    acquire_p99: Duration,
}

pub(crate) async fn run(binary: &Path, args: EfficiencyArgs) -> Outcome {
    let cluster = Cluster::start(binary, "").await?;
    let mut holdfast = Vec::new();
    for _ in 0..args.connections {
        holdfast.push(Client::connect(&cluster.endpoints).await?);
    }
    let server = if args.without_redis { None } else { Some(RedisServer::start().await?) };
    let mut redis = Vec::new();
    if let Some(server) = &server {
        for _ in 0..args.connections {
            redis.push(server.connect().await?);
        }
    }
    println!(
        "{} clients over {} connections, {} turns of {} s each, in turn",
        args.clients, args.connections, args.repeats, args.seconds
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..args.repeats {
        ours.push(turn(&args, &holdfast, of_holdfast).await?);
        if server.is_some() {
            theirs.push(turn(&args, &redis, of_redis).await?);
        }
    }
    let ours = tell("holdfast, efficiency tier", &ours);
    if server.is_some() {
        let theirs = tell("redis, SET NX PX", &theirs);
        println!("ratio: {:.2}", ours / theirs);
    }
    Ok(())
}

/// One acquire and release, timed up to the grant.
async fn of_holdfast(client: Client, name: String) -> Outcome<Duration> {
    let asked = Instant::now();
    let guard = client.lock(&name).tier(Tier::Efficiency).acquire().await?;
    let took = asked.elapsed();
    guard.release().await?;
    Ok(took)
}

async fn of_redis(locks: RedisLocks, name: String) -> Outcome<Duration> {
    let asked = Instant::now();
    let owner = locks.acquire(&name).await?;
    let took = asked.elapsed();
    locks.release(&name, &owner).await?;
    Ok(took)
}

async fn turn<C, F>(
    args: &EfficiencyArgs,
    connections: &[C],
    once: impl Fn(C, String) -> F + Copy + Send + 'static,
) -> Outcome<Turn>
where
    C: Clone + Send + Sync + 'static,
    F: Future<Output = Outcome<Duration>> + Send,
{
    let began = Instant::now();
    let deadline = began + Duration::from_secs(args.seconds);
    let mut tasks = Vec::new();
    for (number, connection) in (0..args.clients).zip(connections.iter().cycle()) {
        let connection = connection.clone();
        tasks.push(tokio::spawn(async move {
            let name = format!("wallet:user_{number:08}");
            let mut seen = Vec::new();
            while Instant::now() < deadline {
                seen.push(once(connection.clone(), name.clone()).await?);
            }
            Outcome::Ok(seen)
        }));
    }
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await??);
    }
    let took = began.elapsed();
    seen.sort();
    let at = |per_mille: usize| seen.get(seen.len() * per_mille / 1_000).copied();
    let at = |per_mille| at(per_mille).ok_or("nothing was done within the turn");
    Ok(Turn {
        operations_per_second: (2 * seen.len()) as f64 / took.as_secs_f64(),
        acquire_p50: at(500)?,
        acquire_p99: at(990)?,
    })
}

/// Says the medians, and returns that of the throughput.
fn tell(who: &str, turns: &[Turn]) -> f64 {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    let of = |value: fn(&Turn) -> f64| middle(turns.iter().map(value).collect());
    let throughput = of(|turn| turn.operations_per_second);
    let p50 = of(|turn| turn.acquire_p50.as_secs_f64() * 1_000.0);
    let p99 = of(|turn| turn.acquire_p99.as_secs_f64() * 1_000.0);
    println!(
        "{who}: {throughput:.0} operations a second; acquire p50 {p50:.3} ms, p99 {p99:.3} ms"
    );
    throughput
}
