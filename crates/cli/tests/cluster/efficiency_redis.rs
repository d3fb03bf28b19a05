//! The efficiency tier over Redis beside a real cluster: what each has to do with the other.

use std::process::{Command, Output};
use std::time::Duration;

use holdfast_client::{
    AcquireError, CircuitState, Client, Efficiency, Guarantee, LockRequest, LossReason,
    ReleaseOutcome, ServedBy, Tier, WhenDown,
};
use tokio::time::timeout;

use crate::servers::redis::{Durability, RedisServer};
use crate::support::{Cluster, build_examples, output, run, text, words};

const LONG: Duration = Duration::from_secs(30);

fn fast(client: &Client, name: &str) -> LockRequest {
    client.lock(name).tier(Tier::Efficiency)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_loses_everything_leaves_the_correctness_tier_alone_and_calls_fall_back_to_it()
{
    let Some(mut server) = RedisServer::start(Durability::None).await else { return };
    let cluster = Cluster::start(1).await;
    let builder = Client::builder()
        .efficiency(Efficiency::Redis { url: server.url() })
        .when_down(WhenDown::FallBack);
    let client = builder.connect(&cluster.endpoints()).await.unwrap();
    let correct = client.lock("a").acquire().await.unwrap();
    let first = correct.token().unwrap();
    assert_eq!(correct.served_by(), ServedBy::LockTable);
    // Two locks of one name that know nothing of each other.
    let held = fast(&client, "a").acquire().await.unwrap();
    assert_eq!(
        (held.guarantee(), held.served_by()),
        (Some(Guarantee::BestEffort), ServedBy::Redis)
    );

    let mut exists = redis::cmd("EXISTS");
    exists.arg("holdfast:lock:a");
    assert!(exists.query_async::<bool>(&mut server.connect().await).await.unwrap());

    server.crash();
    let fallen_back = fast(&client, "b").wait(LONG).acquire().await.unwrap();
    assert_eq!(fallen_back.guarantee(), Some(Guarantee::Linearizable));
    assert_eq!(fallen_back.served_by(), ServedBy::LockTable);
    assert_eq!(fallen_back.token(), Ok(first + 1), "of the lock table's counter");
    assert!(fallen_back.fence().unwrap().starts_with("hf1.L."));
    assert_eq!(cluster.client().status("b").await.holders.len(), 1);
    let mut circuit = client.efficiency_circuit();
    if client.efficiency().circuit == CircuitState::Closed {
        assert_eq!(timeout(LONG, circuit.changed()).await.unwrap(), CircuitState::Open);
    }
    assert_eq!(client.circuit().state(), CircuitState::Closed, "the cluster's is another one");
    // What the table refuses it refuses here as well.
    let busy = fast(&client, "b").acquire().await.unwrap_err();
    assert_eq!(busy, AcquireError::Busy);
    assert_eq!(fallen_back.release().await, Ok(ReleaseOutcome::Released));
    let counts = client.efficiency().counts;
    assert_eq!((counts.granted, counts.down, counts.fell_back), (1, 2, 2));

    server.launch().await;
    timeout(LONG, circuit.closed()).await.expect("it closes");
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::Gone);
    let again = fast(&client, "b").acquire().await.unwrap();
    assert_eq!(again.served_by(), ServedBy::Redis);
    assert_eq!(correct.token(), Ok(first), "nothing of this touched it");
    let next = client.lock("c").acquire().await.unwrap();
    assert_eq!(next.token(), Ok(first + 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_costs_no_lock_in_redis_and_the_policy_is_that_of_the_embedded_tier_too()
 {
    let Some(redis) = RedisServer::start(Durability::None).await else { return };
    let mut cluster = Cluster::start(1).await;
    let builder = Client::builder().efficiency(Efficiency::Redis { url: redis.url() });
    let outside = builder.connect(&cluster.endpoints()).await.unwrap();
    let builder = Client::builder().when_down(WhenDown::GoWithout);
    let embedded = builder.connect(&cluster.endpoints()).await.unwrap();
    let held = fast(&outside, "a").acquire().await.unwrap();
    let served = fast(&embedded, "a").acquire().await.unwrap();
    assert_eq!(served.served_by(), ServedBy::Embedded);
    assert_eq!(embedded.efficiency().backend, ServedBy::Embedded);

    cluster.kill(1);
    let without = timeout(LONG, fast(&embedded, "b").acquire()).await.unwrap().unwrap();
    assert_eq!((without.guarantee(), without.served_by()), (None, ServedBy::NoStore));
    assert_eq!(embedded.efficiency().counts.went_without, 1);
    assert_ne!(embedded.efficiency().circuit, CircuitState::Closed);
    held.token().unwrap();
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    fast(&outside, "a").acquire().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_under_a_lock_in_redis_and_without_one_only_if_that_was_said() {
    let Some(mut redis) = RedisServer::start(Durability::None).await else { return };
    let cluster = Cluster::start(1).await;
    let url = redis.url();
    let lock = async |options: &[&str], command: &[&str]| -> Output {
        let tier = ["lock", "a", "--tier", "efficiency", "--efficiency-redis", &url];
        run(&cluster, &[&tier, options, &["--"], command].concat()).await
    };
    let show = ["sh", "-c", "echo \"$HOLDFAST_LOCK [$HOLDFAST_FENCE] [$HOLDFAST_TOKEN]\""];
    let ran = lock(&[], &show).await;
    assert!(ran.status.success(), "{ran:?}");
    assert!(text(&ran.stdout).starts_with("a [hf1.B."), "{ran:?}");

    // Within it the lock is busy, for the same program in another process.
    let program = env!("CARGO_BIN_EXE_holdfast");
    let inner = format!(
        "{program} lock a --wait 0s --tier efficiency --efficiency-redis {url} -- true; echo $?"
    );
    let ran = lock(&[], &["sh", "-c", &inner]).await;
    assert_eq!(text(&ran.stdout), "75\n", "{ran:?}");
    for refused in [&["--shared"][..], &["--reason", "nightly"]] {
        let ran = lock(refused, &["true"]).await;
        assert_eq!(ran.status.code(), Some(64), "{ran:?}");
        assert!(text(&ran.stderr).contains("served by: redis"), "{ran:?}");
    }
    let two = format!("{url},{url}");
    let args = ["lock", "a", "--tier", "efficiency", "--efficiency-redis", &two, "--", "true"];
    assert!(words(&cluster, 64, &args).await.contains("3 to 15"));

    redis.crash();
    let ran = lock(&["--wait", "0s"], &["true"]).await;
    assert_eq!(ran.status.code(), Some(69), "{ran:?}");
    assert!(text(&ran.stderr).contains("the efficiency tier is down"), "{ran:?}");
    let ran = lock(&["--when-down", "go-without"], &show).await;
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(text(&ran.stdout), "a [] []\n");
    assert!(text(&ran.stderr).contains("without a lock"), "{ran:?}");
    let ran = lock(&["--when-down", "fall-back"], &show).await;
    assert!(text(&ran.stdout).starts_with("a [hf1.L."), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_library_runs_over_redis() {
    let Some(redis) = RedisServer::start(Durability::None).await else { return };
    let directory = build_examples();
    let cluster = Cluster::start(1).await;
    let mut command = Command::new(directory.join("cache_refresh"));
    command.env("HOLDFAST_ENDPOINTS", cluster.endpoints()).env("HOLDFAST_EFFICIENCY", redis.url());
    let said = text(&output(command).await.stdout);
    assert!(said.contains("served by: redis"), "{said}");
    assert!(said.contains("8 workers, refreshes: 1"), "{said}");
}
