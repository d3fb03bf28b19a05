//! Quotas and rates of users and prefixes, as commands and programs meet them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_client::{AcquireError, Client};
use holdfast_proto::failure::{REASON_KEY, RETRY_AFTER_KEY};
use holdfast_proto::v1::StatusRequest;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use serde_json::{Value, json};
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use crate::access_command::Secured;
use crate::support::{metric, output, page, text};

const BUSY: i32 = 75;

impl Secured {
    async fn leader(&self) -> u64 {
        let status = self.data("admin", &["cluster", "status"]).await;
        status["groups"][0]["leader"].as_u64().expect("a leader")
    }

    async fn set_quota(&self, subject: &str, limits: &[&str]) {
        self.done("admin", &[&["access", "quota", "set", subject], limits].concat()).await;
    }

    async fn quotas(&self) -> Value {
        self.data("admin", &["access", "quota", "list"]).await["quotas"].take()
    }

    /// What the node counts of this kind.
    async fn refusals(&self, node: u64, kind: &str) -> f64 {
        let headers = format!("text/plain\r\nauthorization: Bearer {}", self.secret("admin"));
        let (_, page) = page(&self.cluster.http_address(node), "/metrics", &headers).await;
        metric(&page, &format!("holdfast_quota_refusals_total{{kind=\"{kind}\"}}"))
    }

    /// A command of the user that is sent to this node.
    async fn at(&self, node: u64, user: &str, args: &[&str]) -> (Option<i32>, String) {
        let endpoint = self.cluster.client_address(node);
        let mut command = self.command(user, args);
        command.args(["--endpoints", &endpoint]);
        let output = output(command).await;
        (output.status.code(), text(&output.stderr))
    }
}

fn percentile_99(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() * 99 / 100], times[times.len() - 1])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_reached_at_every_node_and_what_is_released_can_be_taken_again() {
    let secured = Secured::start(3).await;
    secured.user("worker", "user").await;
    secured.user("other", "user").await;
    secured.set_quota("token:worker", &["--locks", "2"]).await;
    secured.set_quota("jobs/*", &["--locks", "1"]).await;

    let leader = secured.leader().await;
    let follower = secured.cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let held = secured.data("worker", &["acquire", "a", "--ttl", "10m"]).await;
    secured.data("worker", &["acquire", "jobs/1", "--ttl", "10m"]).await;
    for node in [leader, follower] {
        for verb in [&["lock", "c", "--", "true"][..], &["acquire", "c"]] {
            let (code, words) = secured.at(node, "worker", verb).await;
            assert_eq!(code, Some(BUSY), "{verb:?} at {node}: {words}");
            assert!(
                words.contains("the quota of this user is 2 locks")
                    && words.contains("access quota"),
                "{words}"
            );
        }
        // The quota of a user is its own; that of a prefix is for all.
        let (code, words) = secured.at(node, "other", &["lock", "c", "--", "true"]).await;
        assert_eq!(code, Some(0), "{words}");
        let (code, words) = secured.at(node, "other", &["lock", "jobs/2", "--", "true"]).await;
        assert_eq!(
            (code, words.contains("the quota of these names is 1 locks")),
            (Some(BUSY), true),
            "{words}"
        );
    }
    let of = |subject: &str, used: u64, limit: u64| {
        json!({
            "subject": subject, "locks": { "used": used, "limit": limit },
            "sessions": null, "waits": null, "rate": null, "burst": null,
        })
    };
    assert_eq!(secured.quotas().await, json!([of("token:worker", 2, 2), of("jobs/*", 1, 1)]));

    let (session, token) = (held["session"].as_str().unwrap(), held["token"].as_str().unwrap());
    secured.done("worker", &["release", "a", "--session", session, "--token", token]).await;
    let (code, words) = secured.at(follower, "worker", &["lock", "c", "--", "true"]).await;
    assert_eq!(code, Some(0), "{words}");

    let counted = secured.refusals(leader, "locks").await;
    assert!(counted >= 6.0, "{counted}");
    secured.denied("worker", &["access", "quota", "set", "token:worker", "--locks", "9"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_are_a_part_of_the_policy_file() {
    let secured = Secured::start(1).await;
    secured.set_quota("token:worker", &["--sessions", "3", "--rate", "50", "--burst", "99"]).await;
    let shown = secured.done("admin", &["access", "show"]).await;
    assert!(shown.contains("[quotas.\"token:worker\"]") && shown.contains("burst = 99"), "{shown}");
    let file = secured.token_file("policy.toml");
    let policy = file.to_str().unwrap();
    std::fs::write(&file, &shown).unwrap();
    assert_eq!(secured.done("admin", &["access", "diff", policy]).await, "nothing differs\n");

    let other = shown.replace("burst = 99", "burst = 200") + "\n[quotas.\"jobs/*\"]\nwaits = 5\n";
    std::fs::write(&file, other).unwrap();
    let applied = secured.done("admin", &["access", "apply", policy]).await;
    assert_eq!(
        applied,
        "- quota of token:worker: 3 sessions, 50 requests a second, 99 requests at once\n\
         + quota of jobs/*: 5 waits\n\
         + quota of token:worker: 3 sessions, 50 requests a second, 200 requests at once\n"
    );
    // A file that is older than the policy would undo what was changed since.
    let older = shown.split("[quotas").next().unwrap();
    std::fs::write(&file, older).unwrap();
    let refused = secured.run("admin", &["access", "apply", policy]).await;
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("would undo"), "{refused:?}");
    // What is not in the file is deleted.
    std::fs::write(&file, older.split_once('\n').unwrap().1).unwrap();
    secured.done("admin", &["access", "apply", policy]).await;
    assert_eq!(secured.quotas().await, json!([]));
    let unknown = secured.run("admin", &["access", "quota", "delete", "jobs/*"]).await;
    assert_eq!(unknown.status.code(), Some(64), "{unknown:?}");
}

/// Reads as fast as a node answers, and counts the answers.
async fn flood(address: String, secret: String, stop: Arc<AtomicBool>, refused: Arc<AtomicU64>) {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = LockServiceClient::new(channel.connect().await.unwrap());
    while !stop.load(Ordering::Relaxed) {
        let mut request = Request::new(StatusRequest { name: "x".into(), ..Default::default() });
        let bearer = format!("Bearer {secret}").parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        if let Err(status) = client.status(request).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
            assert_eq!(status.metadata().get(REASON_KEY).unwrap(), "rate_limited");
            let told = status.metadata().get(RETRY_AFTER_KEY).unwrap().to_str().unwrap();
            assert!((1..=1_000).contains(&told.parse::<u64>().unwrap()), "{told}");
            refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn lock_times(client: &Client, rounds: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begun = Instant::now();
        let guard = client.lock("own").acquire().await.unwrap();
        times.push(begun.elapsed());
        guard.release().await.unwrap();
    }
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_floods_is_slowed_down_and_others_are_not_kept_waiting() {
    const ROUNDS: usize = 300;
    let secured = Secured::start(3).await;
    secured.user("greedy", "user").await;
    secured.user("other", "user").await;
    secured.set_quota("token:greedy", &["--rate", "10"]).await;
    let other = secured.client("other").await;
    let (p99_before, slowest_before) = percentile_99(lock_times(&other, ROUNDS).await);

    let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut floods = Vec::new();
    for id in secured.cluster.ids() {
        for _ in 0..4 {
            let (stop, refused) = (Arc::clone(&stop), Arc::clone(&refused));
            let (address, secret) = (secured.cluster.client_address(id), secured.secret("greedy"));
            floods.push(tokio::spawn(flood(address, secret, stop, refused)));
        }
    }
    let begun = Instant::now();
    let (p99, slowest) = percentile_99(lock_times(&other, ROUNDS).await);
    let took = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    for flood in floods {
        flood.await.unwrap();
    }
    let refused = refused.load(Ordering::Relaxed);
    println!(
        "{ROUNDS} locks of another user: p99 {p99_before:?}, slowest {slowest_before:?}; beside {} refused requests a \
         second: p99 {p99:?}, slowest {slowest:?}",
        (refused as f64 / took.as_secs_f64()).round()
    );
    assert!(refused > 100, "{refused}");
    let mut counted = 0.0;
    for id in secured.cluster.ids() {
        counted += secured.refusals(id, "rate").await;
    }
    assert!(counted >= refused as f64, "{counted} of {refused}");
    assert!(slowest < slowest_before * 10 + Duration::from_secs(1), "{slowest:?}");

    // The library waits as long as it is told, if its caller does.
    let greedy = secured.client("greedy").await;
    let begun = Instant::now();
    for _ in 0..25 {
        greedy.lock("g").acquire().await.unwrap().release().await.unwrap();
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1_400), "10 at once, and 10 a second: {took:?}");

    // A caller that does not wait so long is told.
    let hurried = Client::builder()
        .auth_file(secured.token_file("greedy"))
        .request_timeout(Duration::from_millis(300))
        .connect(&secured.cluster.endpoints())
        .await
        .unwrap();
    secured.set_quota("token:greedy", &["--rate", "1"]).await;
    let error = loop {
        match hurried.lock("g").acquire().await {
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => break error,
        };
    };
    let AcquireError::Rejected(rejection) = error else { panic!("{error:?}") };
    assert!(rejection.retry_after.is_some(), "{rejection:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_tries_once_does_not_wait_for_a_rate() {
    let secured = Secured::start(1).await;
    secured.user("worker", "user").await;
    secured.set_quota("jobs/*", &["--rate", "1", "--burst", "1"]).await;
    // Each name of an acquire-all counts, so there is no room for a minute.
    let names: Vec<String> = (0..60).map(|number| format!("jobs/{number}")).collect();
    secured.done("worker", &["lock", "--all", &names.join(","), "--", "true"]).await;
    for verb in [
        &["lock", "jobs/1", "--wait", "0s", "--", "true"][..],
        &["lock", "--all", "jobs/1,jobs/2", "--wait", "0s", "--", "true"],
        &["acquire", "jobs/1", "--wait", "0s"],
    ] {
        let begun = Instant::now();
        let output = secured.run("worker", verb).await;
        let words = text(&output.stderr);
        assert_eq!(output.status.code(), Some(BUSY), "{verb:?}: {words}");
        assert!(words.contains("1 requests a second") && words.contains("ask again in"), "{words}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{verb:?}: {:?}", begun.elapsed());
    }
    // So it is with the session itself. The first command uses the room of the user.
    secured.set_quota("token:worker", &["--rate", "1", "--burst", "1"]).await;
    let refused = async || {
        let output = secured.run("worker", &["lock", "other", "--wait", "0s", "--", "true"]).await;
        let words = text(&output.stderr);
        (output.status.code() == Some(BUSY) && words.contains("the quota of token:worker"))
            .then_some(())
    };
    refused().await.expect("a session and a lock are two requests");
}
