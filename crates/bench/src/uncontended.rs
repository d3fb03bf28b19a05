//! Many clients over a few connections, each with a lock of its own: the plainest load there is.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_client::Client;

use crate::Outcome;
use crate::cluster::{Cluster, processor_time};

#[derive(Debug, Args)]
pub(crate) struct UncontendedArgs {
    #[arg(long, default_value_t = 256)]
    clients: usize,
    #[arg(long, default_value_t = 8)]
    connections: usize,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

pub(crate) async fn run(binary: &Path, args: UncontendedArgs) -> Outcome {
    let cluster = Cluster::start(binary, "").await?;
    let leader = cluster.leader().await?;
    let mut connections = Vec::new();
    for _ in 0..args.connections {
        connections.push(Client::connect(&leader).await?);
    }
    let before = cluster.processor_time()?;
    let own_before = processor_time("self")?;
    let began = Instant::now();
    let deadline = began + Duration::from_secs(args.seconds);
    let mut tasks = Vec::new();
    for number in 0..args.clients {
        let client = connections[number % args.connections].clone();
        tasks.push(tokio::spawn(async move {
            let name = format!("wallet:user_{number:08}");
            let mut seen = Vec::new();
            while Instant::now() < deadline {
                let asked = Instant::now();
                let Ok(guard) = client.lock(&name).acquire().await else { break };
                seen.push(asked.elapsed());
                if guard.release().await.is_err() {
                    break;
                }
            }
            seen
        }));
    }
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await?);
    }
    let took = began.elapsed();
    let operations = 2 * seen.len() as u32;
    println!("client: {:?} of a core for each operation", (processor_time("self")? - own_before) / operations);
    for (after, before) in cluster.processor_time()?.iter().zip(before) {
        println!("node: {:?} of a core for each operation", (*after - before) / operations);
    }
    seen.sort();
    let rate = f64::from(operations) / took.as_secs_f64();
    let at = |per_mille: usize| seen[(seen.len() - 1) * per_mille / 1_000];
    println!("{rate:.0} operations a second; acquire p50 {:?}, p99 {:?}", at(500), at(990));
    Ok(())
}
