//! Locks in Redis or Redlock without any node of Holdfast.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use holdfast_client::{
    AcquireError, CircuitState, Client, ConnectError, Efficiency, Guarantee, LockRequest,
    ReleaseOutcome, ServedBy, Tier,
};
use tokio::time::timeout;

use crate::backup::NOWHERE;
use crate::servers::redis::{Durability, RedisServer};
use crate::support::{Cluster, holdfast, output, text};

const LONG: Duration = Duration::from_secs(30);

fn fast(client: &Client, name: &str) -> LockRequest {
    client.lock(name).tier(Tier::Efficiency)
}

async fn lock(url: &str, options: &[&str], command: &[&str]) -> Output {
    let mut program: Command = holdfast();
    program.args(["--endpoints", NOWHERE, "lock", "a", "--tier", "efficiency"]);
    program.args(["--efficiency-redis", url]).args(options).arg("--").args(command);
    timeout(LONG, output(program)).await.expect("it ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_a_lock_in_redis_though_no_node_runs() {
    let Some(mut redis) = RedisServer::start(Durability::None).await else { return };
    let url = redis.url();
    let show = ["sh", "-c", "echo \"$HOLDFAST_LOCK [$HOLDFAST_FENCE]\""];
    let began = Instant::now();
    let ran = lock(&url, &[], &show).await;
    assert!(ran.status.success(), "{ran:?}");
    assert!(text(&ran.stdout).starts_with("a [hf1.B."), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

    // Another program holds it meanwhile.
    let builder = Client::builder().efficiency(Efficiency::Redis { url: url.clone() });
    let client = builder.connect_when_needed().connect(NOWHERE).await.unwrap();
    let held = fast(&client, "a").acquire().await.unwrap();
    let busy = lock(&url, &["--wait", "0s"], &["true"]).await;
    assert_eq!(busy.status.code(), Some(75), "{busy:?}");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let code = lock(&url, &[], &["sh", "-c", "exit 7"]).await.status.code();
    assert_eq!(code, Some(7));

    redis.crash();
    let down = lock(&url, &["--wait", "0s"], &["true"]).await;
    assert_eq!(down.status.code(), Some(69), "{down:?}");
    assert!(text(&down.stderr).contains("the efficiency tier is down"), "{down:?}");
    let without = lock(&url, &["--when-down", "go-without"], &show).await;
    assert!(without.status.success(), "{without:?}");
    assert_eq!(text(&without.stdout), "a []\n");
    // This policy does need the cluster, once Redis is down.
    let refused = lock(&url, &["--when-down", "fall-back", "--wait", "1s"], &["true"]).await;
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn falling_back_is_possible_and_a_cluster_is_not_needed_while_redis_serves() {
    let Some(redis) = RedisServer::start(Durability::None).await else { return };
    let ran = lock(&redis.url(), &["--when-down", "fall-back"], &["true"]).await;
    assert!(ran.status.success(), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redlock_needs_no_node_either() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        let Some(server) = RedisServer::start(Durability::None).await else { return };
        servers.push(server);
    }
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let ran = lock(&urls.join(","), &[], &["sh", "-c", "echo $HOLDFAST_FENCE"]).await;
    assert!(text(&ran.stdout).starts_with("hf1.B."), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_cluster_is_not_there_serves_the_efficiency_tier_from_redis() {
    let Some(redis) = RedisServer::start(Durability::None).await else { return };
    let backend = Efficiency::Redis { url: redis.url() };
    let client = Client::builder()
        .efficiency(backend)
        .request_timeout(Duration::from_secs(2))
        .connect_when_needed()
        .connect(NOWHERE)
        .await
        .unwrap();
    let held = fast(&client, "a").acquire().await.unwrap();
    assert_eq!(
        (held.guarantee(), held.served_by()),
        (Some(Guarantee::BestEffort), ServedBy::Redis)
    );
    held.token().unwrap();
    assert_eq!(client.circuit().state(), CircuitState::Closed, "no node was asked for anything");
    let refused = timeout(LONG, client.lock("a").acquire()).await.unwrap().unwrap_err();
    assert!(matches!(refused, AcquireError::Unavailable(_)), "{refused}");
    held.token().unwrap();
    timeout(LONG, client.close()).await.unwrap().unwrap();
    assert!(fast_is_free(&redis).await, "what was held was given back");

    let wrong = Client::builder().connect_when_needed().connect("no port").await.unwrap_err();
    assert!(matches!(wrong, ConnectError::InvalidEndpoints(_)), "{wrong}");
}

async fn fast_is_free(redis: &RedisServer) -> bool {
    let mut exists = redis::cmd("EXISTS");
    exists.arg("holdfast:lock:a");
    !exists.query_async::<bool>(&mut redis.connect().await).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_connects_when_needed_opens_its_session_with_the_first_call_that_needs_one() {
    let cluster = Cluster::start(1).await;
    let builder = Client::builder().connect_when_needed();
    let client = builder.connect(&cluster.endpoints()).await.unwrap();
    assert!(cluster.client().sessions().await.is_empty());
    let held = client.lock("a").acquire().await.unwrap();
    assert_eq!(held.served_by(), ServedBy::LockTable);
    assert_eq!(cluster.client().sessions().await.len(), 1);
    let embedded = fast(&client, "a").acquire().await.unwrap();
    assert_eq!(embedded.served_by(), ServedBy::Embedded);
}
