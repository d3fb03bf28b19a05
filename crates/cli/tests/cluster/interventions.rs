//! What an operator does by hand, with the command line.

use std::time::Duration;

use holdfast_client::{AcquireError, LossReason};
use tokio::sync::oneshot;

use crate::support::{Cluster, data, eventually, run, text, words};

const LONG: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lock_goes_to_the_next_in_line_and_its_holder_is_told() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let held = alice.lock("deploy").acquire().await.unwrap();
    let token = held.token().unwrap();
    let (queued, when_queued) = oneshot::channel();
    let request = bob.lock("deploy").wait(LONG).on_queued(|_| queued.send(()).unwrap());
    let waiting = tokio::spawn(request.acquire());
    when_queued.await.unwrap();

    let other_token = (token + 1).to_string();
    let stale = ["break", "deploy", "--token", &other_token, "--reason", "a test"];
    assert!(words(&cluster, 79, &stale).await.contains("not held under token"));
    held.token().expect("a break of another hold changes nothing");

    let broken = data(&cluster, 0, &["break", "deploy", "--reason", "a test"]).await;
    assert_eq!(broken["holds"], 1, "{broken}");
    assert_eq!(broken["holders"][0]["token"], token.to_string(), "{broken}");
    assert_eq!(tokio::time::timeout(LONG, held.lost()).await.unwrap(), LossReason::Broken);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token().unwrap() > token);
    next.release().await.unwrap();
    assert!(words(&cluster, 79, &["break", "deploy", "--reason", "x"]).await.contains("is free"));
    words(&cluster, 64, &["break", "deploy"]).await;
    words(&cluster, 64, &["break", "deploy", "--reason", ""]).await;

    // All permits of a semaphore, each under its own token.
    let permits = [
        alice.lock("gpu").permits(3).acquire().await.unwrap(),
        bob.lock("gpu").permits(3).acquire().await.unwrap(),
    ];
    let table = run(&cluster, &["break", "gpu", "--reason", "a test"]).await;
    assert!(text(&table.stdout).starts_with("broke 2 holds of gpu"), "{table:?}");
    for permit in &permits {
        tokio::time::timeout(LONG, permit.lost()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_handed_to_the_waiter_that_was_chosen() {
    let cluster = Cluster::start(3).await;
    let (alice, bob, carol) =
        (cluster.library().await, cluster.library().await, cluster.library().await);
    let held = alice.lock("leader").acquire().await.unwrap();
    let mut waiting = Vec::new();
    for client in [&bob, &carol] {
        let (queued, when_queued) = oneshot::channel();
        let request = client.lock("leader").wait(LONG).on_queued(|_| queued.send(()).unwrap());
        waiting.push(tokio::spawn(request.acquire()));
        when_queued.await.unwrap();
    }
    let status = data(&cluster, 0, &["status", "leader"]).await;
    let carols = status["waiters"][1]["session"].as_str().unwrap();
    let moved =
        data(&cluster, 0, &["transfer", "leader", "--to", carols, "--reason", "a test"]).await;
    let leader = waiting.pop().unwrap().await.unwrap().unwrap();
    assert_eq!(moved["token"], leader.token().unwrap().to_string());
    assert_eq!(tokio::time::timeout(LONG, held.lost()).await.unwrap(), LossReason::Transferred);
    assert!(!waiting[0].is_finished());

    let unknown = ["transfer", "leader", "--to", "0123456789abcdef", "--reason", "a test"];
    words(&cluster, 64, &unknown).await;
    let free = ["transfer", "nothing", "--to", carols, "--reason", "a test"];
    words(&cluster, 79, &free).await;
    words(&cluster, 64, &["transfer", "leader", "--to", "carol", "--reason", "a test"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_frozen_prefix_nothing_is_granted_until_it_is_thawed() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let held = client.lock("billing/a").acquire().await.unwrap();
    let freeze = ["freeze", "billing/", "--for", "1h", "--reason", "migration"];
    assert_eq!(data(&cluster, 0, &freeze).await["for_ms"], 3_600_000);
    let freezes = data(&cluster, 0, &["freezes"]).await;
    assert_eq!(freezes["freezes"][0]["prefix"], "billing/", "{freezes}");
    assert_eq!(freezes["freezes"][0]["reason"], "migration", "{freezes}");
    let by = freezes["freezes"][0]["by"].as_str().unwrap();
    assert!(by.contains('@') && by.len() > 2, "{by}");

    // Nothing new; but what is held is renewed and released as ever.
    let refused = words(&cluster, 75, &["acquire", "billing/b"]).await;
    assert!(refused.contains(by) && refused.contains("migration"), "{refused}");
    let tried = client.lock("billing/b").acquire().await.unwrap_err();
    assert!(matches!(tried, AcquireError::Rejected(_)) && tried.is_retryable(), "{tried:?}");
    let status = data(&cluster, 0, &["status", "billing/a"]).await;
    assert_eq!(status["frozen"]["by"], by, "{status}");
    let listed = data(&cluster, 0, &["ls"]).await;
    assert_eq!(listed["locks"][0]["frozen"], true, "{listed}");
    held.release().await.unwrap();
    let why = data(&cluster, 0, &["why", "billing/a"]).await;
    assert_eq!(why["obstacles"][0]["kind"], "frozen", "{why}");
    let next = why["obstacles"][0]["next_step"].as_str().unwrap();
    assert!(next.contains("holdfast thaw billing/"), "{next}");
    run(&cluster, &["acquire", "elsewhere"]).await.status.success().then_some(()).unwrap();

    let (queued, when_queued) = oneshot::channel();
    let request = client.lock("billing/a").wait(LONG).on_queued(|_| queued.send(()).unwrap());
    let waiting = tokio::spawn(request.acquire());
    when_queued.await.unwrap();
    data(&cluster, 0, &["thaw", "billing/", "--reason", "done"]).await;
    waiting.await.unwrap().unwrap();
    words(&cluster, 64, &["thaw", "billing/", "--reason", "done"]).await;
    assert_eq!(text(&run(&cluster, &["freezes"]).await.stdout), "nothing is frozen\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_permits_is_set_for_those_who_leave_it_to_the_operator() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let unset = client.lock("gpu").permits(0).acquire().await.unwrap_err();
    assert!(matches!(unset, AcquireError::Rejected(_)), "{unset:?}");
    data(&cluster, 0, &["set-permits", "gpu", "1", "--reason", "a test"]).await;
    let one = client.lock("gpu").permits(0).acquire().await.unwrap();
    let (queued, when_queued) = oneshot::channel();
    let request = client.lock("gpu").permits(0).wait(LONG).on_queued(|_| queued.send(()).unwrap());
    let waiting = tokio::spawn(request.acquire());
    when_queued.await.unwrap();
    let status = data(&cluster, 0, &["status", "gpu"]).await;
    assert_eq!((&status["permits"], &status["waiter_count"]), (&1.into(), &1.into()), "{status}");

    // More of them go to those who wait, at once.
    data(&cluster, 0, &["set-permits", "gpu", "2", "--reason", "a test"]).await;
    let two = waiting.await.unwrap().unwrap();
    let stated = client.lock("cpu").permits(4).acquire().await.unwrap();
    data(&cluster, 0, &["set-permits", "cpu", "8", "--reason", "a test"]).await;
    let listed = data(&cluster, 0, &["ls"]).await;
    let permits = |at: usize| (&listed["locks"][at]["name"], &listed["locks"][at]["permits"]);
    assert_eq!(permits(0), (&"cpu".into(), &8.into()), "{listed}");
    assert_eq!(permits(1), (&"gpu".into(), &2.into()), "{listed}");
    stated.release().await.unwrap();
    words(&cluster, 75, &["set-permits", "gpu", "--forget", "--reason", "a test"]).await;
    one.release().await.unwrap();
    two.release().await.unwrap();
    let forgotten = data(&cluster, 0, &["set-permits", "gpu", "--forget", "--reason", "x"]).await;
    assert!(forgotten["permits"].is_null(), "{forgotten}");
    for wrong in [
        &["set-permits", "gpu", "--reason", "x"][..],
        &["set-permits", "gpu", "0", "--reason", "x"],
        &["set-permits", "gpu", "3", "--forget", "--reason", "x"],
        &["set-permits", "gpu", "3"],
    ] {
        words(&cluster, 64, wrong).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_loses_all_it_has_and_its_client_is_told() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let held = alice.lock("a").acquire().await.unwrap();
    let blocker = bob.lock("b").acquire().await.unwrap();
    let (queued, when_queued) = oneshot::channel();
    let request = alice.lock("b").wait(LONG).on_queued(|_| queued.send(()).unwrap());
    let waiting = tokio::spawn(request.acquire());
    when_queued.await.unwrap();

    let session = cluster.client().status("a").await.holders[0].public_session_id.clone();
    data(&cluster, 0, &["kill-session", &session, "--reason", "a test"]).await;
    assert_eq!(tokio::time::timeout(LONG, held.lost()).await.unwrap(), LossReason::SessionKilled);
    let ended = waiting.await.unwrap().unwrap_err();
    assert_eq!(ended, AcquireError::SessionLost(LossReason::SessionKilled));
    eventually("all of it is gone", Duration::from_secs(10), || async {
        let (a, b) = (cluster.client().status("a").await, cluster.client().status("b").await);
        (a.holder_count == 0 && b.waiter_count == 0).then_some(())
    })
    .await;
    blocker.token().unwrap();
    for (name, ended) in [("a", "killed"), ("b", "wait_ended")] {
        let history = data(&cluster, 0, &["history", name]).await;
        let last = history["events"].as_array().unwrap().last().unwrap();
        assert_eq!(last["event"], ended, "{history}");
        assert!(last["detail"].as_str().unwrap().contains("a test"), "{history}");
        assert!(!last["by"].as_str().unwrap().is_empty(), "{history}");
    }
    // The client opens another session when it needs one.
    alice.lock("a").wait(LONG).acquire().await.unwrap();
    words(&cluster, 64, &["kill-session", &session, "--reason", "again"]).await;
    words(&cluster, 64, &["kill-session", "xyz", "--reason", "a test"]).await;
}
