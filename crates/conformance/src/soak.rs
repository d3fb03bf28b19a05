//! Random faults for some minutes, while several clients of one driver compete for a few locks.
//!
//! Afterwards the audit files say whether a token was given after its hold's end, whether a call had several effects,
//! and whether a hold or a waiter stayed behind. The same seed makes the same choices; what comes of them is up to real
//! processes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_conformance::vectors::random::Random;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::audit::Event;
use crate::cluster::{Cluster, Ground};
use crate::driver::{Driver, Reply};
use crate::finding::{Checked, Finding, broken, ensure, violation};
use crate::judge::{TokenGiven, judge_tokens};
use crate::stage::RECOVERY;

const CLIENTS: u64 = 6;
const NAMES: u64 = 4;
/// Faults are longer and shorter than that.
const TTL_MS: u64 = 3_000;
/// What may come of an acquire under faults.
const ERRORS: [&str; 5] = ["busy", "timed_out", "cancelled", "lost", "unavailable"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The `holdfast` binary to run.
    #[arg(long)]
    holdfast: PathBuf,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let the driver misbehave in this way.
    #[arg(long)]
    misbehave: Option<String>,
    /// The driver, and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    driver: Vec<String>,
}

/// What the clients of the driver did.
#[derive(Debug, Default)]
struct Record {
    given: Vec<TokenGiven>,
    acquires: usize,
    granted: usize,
    tokens_refused: usize,
}

type Shared = Arc<Mutex<Record>>;

pub(crate) async fn run(options: &Options) -> Checked<bool> {
    let mut cluster = Cluster::start(&options.holdfast, Ground::Plain).await?;
    let driver = Arc::new(Driver::start(&options.driver, options.misbehave.as_deref()).await?);
    let until = Instant::now() + Duration::from_secs_f64(options.minutes.max(0.05) * 60.0);
    let record = Shared::default();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = format!("c{number}");
        let endpoints = cluster.endpoints();
        let request =
            json!({"op": "connect", "as": client, "endpoints": endpoints, "ttl_ms": TTL_MS});
        driver.ok(request).await?;
        let (driver, record) = (Arc::clone(&driver), Arc::clone(&record));
        let random = Random(options.seed ^ (number + 1) << 32);
        clients.spawn(compete(driver, client, random, record, until));
    }
    let faults = make_faults(&mut cluster, &driver, Random(options.seed), until).await?;
    let mut outcome = Ok(());
    while let Some(client) = clients.join_next().await {
        outcome = outcome.and(client.map_err(broken)?);
    }
    let outcome = match outcome {
        Ok(()) => judge(&cluster, &driver, &record).await,
        other => other,
    };
    let record = locked(&record);
    println!(
        "{faults} faults, {} acquires, {} granted, {} tokens given, {} refused",
        record.acquires,
        record.granted,
        record.given.len(),
        record.tokens_refused
    );
    match outcome {
        Ok(()) => {
            println!("pass  L3 seed {}", options.seed);
            Ok(true)
        }
        Err(Finding::Violation(words)) => {
            println!("FAIL  L3 seed {}: {words}", options.seed);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// One client: takes locks, asks for tokens, gives them back, and sometimes goes away before.
async fn compete(
    driver: Arc<Driver>,
    client: String,
    mut random: Random,
    record: Shared,
    until: Instant,
) -> Checked {
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        let (name, guard) = (format!("soak/{}", random.below(NAMES)), format!("{client}-{round}"));
        let mode = if random.below(5) == 0 { "shared" } else { "exclusive" };
        let request = json!({
            "op": "acquire", "client": client, "name": name, "mode": mode, "wait_ms": random.below(1_500), "as": guard,
        });
        let pending = driver.send(request).await?;
        locked(&record).acquires += 1;
        let asked = pending.asked;
        if random.below(6) == 0 && !driver.lacks("cancel") {
            tokio::time::sleep(Duration::from_millis(random.below(300))).await;
            driver.call(json!({"op": "cancel", "call": pending.id})).await?;
        }
        match pending.reply().await? {
            Reply::Ok(granted) => {
                let mut record = locked(&record);
                record.granted += 1;
                record.given.push(token_given(&name, &granted, asked));
            }
            Reply::Err(error) if ERRORS.iter().any(|kind| error["kind"] == *kind) => {
                // A circuit that is open fails at once.
                tokio::time::sleep(Duration::from_millis(10 + random.below(50))).await;
                continue;
            }
            other => return violation(format!("an acquire under faults ended with {other}")),
        }
        hold(&driver, &name, &guard, &mut random, &record).await?;
        match driver.call(json!({"op": "release", "guard": guard})).await? {
            Reply::Err(error) if error["kind"] != "unavailable" => {
                return violation(format!("a release under faults ended with {error}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Asks for the token again and again, until the hold is lost or was held long enough.
async fn hold(
    driver: &Driver,
    name: &str,
    guard: &str,
    random: &mut Random,
    record: &Shared,
) -> Checked {
    let until = Instant::now() + Duration::from_millis(random.below(900));
    let mut is_lost = false;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5 + random.below(40))).await;
        let pending = driver.send(json!({"op": "token", "guard": guard})).await?;
        let asked = pending.asked;
        match pending.reply().await? {
            Reply::Ok(given) => {
                ensure(!is_lost, || format!("{guard} was lost, and gave a token again"))?;
                locked(record).given.push(token_given(name, &given, asked));
            }
            Reply::Err(error) if error["kind"] == "lost" => {
                is_lost = true;
                locked(record).tokens_refused += 1;
            }
            other => return violation(format!("the token of {guard}: {other}")),
        }
    }
    Ok(())
}

fn token_given(name: &str, told: &Value, asked: crate::driver::Asked) -> TokenGiven {
    let token = told["token"].as_str().unwrap_or_default().to_owned();
    TokenGiven { name: name.to_owned(), token, asked }
}

/// One fault after the other. In the end there is none. Returns how many there were.
async fn make_faults(
    cluster: &mut Cluster,
    driver: &Driver,
    mut random: Random,
    until: Instant,
) -> Checked<usize> {
    let mut count = 0;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(200 + random.below(1_300))).await;
        let wires = |change: fn(&holdfast_cluster_kit::Wire)| {
            cluster.network.client_wires().for_each(change);
        };
        count += 1;
        match random.below(8) {
            0 => cluster.network.break_clients(),
            1 => {
                wires(|wire| wire.cut());
                pause(random.below(4_500)).await;
            }
            2 => {
                wires(|wire| wire.cut_answers());
                pause(50 + random.below(450)).await;
                cluster.network.break_clients();
            }
            3 => {
                wires(|wire| wire.cut_requests());
                pause(50 + random.below(2_000)).await;
            }
            4 => {
                let leader = cluster.leader().await?;
                cluster.nodes.kill(&[leader])?;
                pause(random.below(2_000)).await;
                cluster.nodes.start(leader)?;
                cluster.leader().await?;
            }
            5 => drop(cluster.calls()?.transfer_leadership(None).await),
            6 => {
                driver.stop()?;
                pause(random.below(4_500)).await;
                driver.go_on()?;
            }
            _ => {
                wires(|wire| wire.delay(Duration::from_millis(150)));
                pause(1_000).await;
            }
        }
        cluster.network.heal();
    }
    Ok(count)
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn judge(cluster: &Cluster, driver: &Driver, record: &Shared) -> Checked {
    cluster.leader().await?;
    for number in 0..CLIENTS {
        // A session that is lost at this moment is closed by its end.
        driver.call(json!({"op": "close", "client": format!("c{number}")})).await?;
    }
    let give_up = Instant::now() + RECOVERY + Duration::from_millis(TTL_MS);
    for name in (0..NAMES).map(|number| format!("soak/{number}")) {
        loop {
            let status = cluster.calls()?.status(&name).await.map_err(broken)?;
            let (holders, waiters) = (status.holder_count, status.waiter_count);
            if holders == 0 && waiters == 0 {
                break;
            }
            ensure(Instant::now() < give_up, || {
                format!("{holders} holders and {waiters} waiters of {name} stayed behind")
            })?;
            pause(100).await;
        }
    }
    // What ended by now is in the files a moment later.
    pause(500).await;
    let events = cluster.audit.events();
    let record = locked(record);
    judge_tokens(&record.given, &events)?;
    one_effect(&record, &events)
}

/// Each acquire has one grant at most, and each exclusive token belongs to one.
fn one_effect(record: &Record, events: &[Event]) -> Checked {
    let granted = events.iter().filter(|event| event.kind == "granted");
    let queued = events.iter().filter(|event| event.kind == "queued");
    let (granted, queued) = (granted.count(), queued.count());
    ensure(granted <= record.acquires && queued <= record.acquires, || {
        format!("{granted} grants and {queued} places in queues for {} acquires", record.acquires)
    })?;
    ensure(record.granted <= granted, || {
        format!("{} calls were granted, and the cluster granted {granted}", record.granted)
    })
}

fn locked(record: &Shared) -> std::sync::MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
