//! Several locks at one moment, or none of them.

use std::time::Duration;

use holdfast_client::{AcquireError, LossReason, Member};
use tokio::sync::oneshot;

use crate::support::{Cluster, data, eventually, run, text, words};

const LONG: Duration = Duration::from_secs(30);

async fn are_free(cluster: &Cluster, names: &[&str]) {
    for name in names {
        eventually("the lock is free", Duration::from_secs(10), || async {
            let status = cluster.client().status(name).await;
            (status.holder_count == 0 && status.waiter_count == 0).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_granted_together_and_the_tokens_come_in_the_order_of_asking() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let all = alice.lock_all(["c", "a", "b"]).acquire().await.unwrap();
    assert_eq!(all.names().collect::<Vec<_>>(), ["c", "a", "b"]);
    let tokens = all.tokens().unwrap();
    for (name, token) in ["c", "a", "b"].into_iter().zip(&tokens) {
        assert_eq!(all.token(name), Ok(Some(*token)));
        assert_eq!(cluster.client().status(name).await.holders[0].token, *token);
    }
    assert_eq!(all.token("d"), Ok(None));
    let busy = bob.lock_all(["d", "a"]).acquire().await.unwrap_err();
    assert_eq!(busy, AcquireError::Busy);
    are_free(&cluster, &["d"]).await;
    all.release().await.unwrap();
    are_free(&cluster, &["a", "b", "c"]).await;

    // Members of all modes.
    let reader = bob.lock("a").shared().acquire().await.unwrap();
    let members = [Member::shared("a"), Member::permit("gpu", 2), Member::exclusive("b")];
    let all = alice.lock_all(members).acquire().await.unwrap();
    let fences = all.fences().unwrap();
    assert!(fences[1].is_empty() && fences[2].starts_with("hf1.L."), "{fences:?}");
    drop((reader, all));
    are_free(&cluster, &["a", "b", "gpu"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_held_in_part_while_it_waits_and_why_tells_what_for() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let held = alice.lock("b").metadata("month end").acquire().await.unwrap();
    let (queued, when_queued) = oneshot::channel();
    let request = bob.lock_all(["a", "b"]).wait(LONG);
    let waiting = tokio::spawn(request.on_queued(|_| queued.send(()).unwrap()).acquire());
    when_queued.await.unwrap();
    let status = cluster.client().status("a").await;
    assert_eq!((status.holder_count, status.waiter_count), (0, 1));

    let why = data(&cluster, 0, &["why", "a"]).await;
    assert_eq!(why["available"], false, "{why}");
    assert_eq!(why["obstacles"][0]["kind"], "reserved", "{why}");
    let link = &why["chain"][0];
    assert_eq!((&link["in_the_way_of"], &link["waits_for"]), (&"a".into(), &"b".into()), "{why}");
    assert_eq!(link["holders"][0]["metadata"], "month end", "{why}");
    let both = data(&cluster, 0, &["why", "b"]).await;
    assert_eq!(both["reserved"][0]["name"], "a", "{both}");
    let table = text(&run(&cluster, &["why", "a"]).await.stdout);
    assert!(table.contains("reserved") && table.contains("holdfast why b"), "{table}");
    let late = words(&cluster, 75, &["acquire", "a", "--wait", "200ms"]).await;
    assert!(late.contains("within 200ms") && late.contains("reserved"), "{late}");

    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(data(&cluster, 0, &["why", "a"]).await["available"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_one_is_lost_none_gives_a_token_and_the_rest_is_given_back() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let all = client.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    data(&cluster, 0, &["break", "b", "--reason", "a test"]).await;
    assert_eq!(tokio::time::timeout(LONG, all.lost()).await.unwrap(), LossReason::Broken);
    assert!(all.tokens().is_err() && all.token("a").is_err());
    assert_eq!(cluster.client().status("a").await.holder_count, 1);
    // Another client has it by now, and keeps it.
    let newer = cluster.library().await.lock("b").acquire().await.unwrap();
    drop(all);
    are_free(&cluster, &["a", "c"]).await;
    newer.token().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_dropped_at_any_moment_leaves_no_hold_and_no_waiter() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    for round in 0..40u64 {
        let in_the_way =
            if round % 2 == 0 { Some(bob.lock("b").acquire().await.unwrap()) } else { None };
        // From "never sent" to "long since granted".
        let patience = Duration::from_micros(round * 150);
        let request = alice.lock_all(["a", "b", "c"]).wait(LONG);
        let granted = tokio::time::timeout(patience, request.acquire()).await;
        assert!(granted.is_err() || in_the_way.is_none());
        drop((granted, in_the_way));
        are_free(&cluster, &["a", "b", "c"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_all_of_them_and_ends_when_one_is_lost() {
    let cluster = Cluster::start(3).await;
    let script = "echo $HOLDFAST_LOCK; echo $HOLDFAST_TOKEN; echo $HOLDFAST_TOKENS; \
                  echo $HOLDFAST_FENCE; echo $HOLDFAST_FENCES";
    let output = run(&cluster, &["lock", "--all", "y,x", "--", "sh", "-c", script]).await;
    assert!(output.status.success(), "{output:?}");
    let lines = text(&output.stdout);
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(',').collect()).collect();
    let [names, token, tokens, fence, fences] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(names, &["y", "x"]);
    assert_eq!((tokens.len(), fences.len()), (2, 2));
    assert_eq!((token[0], fence[0]), (tokens[0], fences[0]));
    for (token, fence) in tokens.iter().zip(fences) {
        let fence: holdfast_proto::Fence = fence.parse().unwrap();
        assert_eq!(fence.number().to_string(), *token);
    }
    are_free(&cluster, &["x", "y"]).await;

    let mut command = crate::support::holdfast();
    command
        .args(["lock", "--all", "y,x", "--grace", "1s", "--", "sleep", "60"])
        .env("HOLDFAST_ENDPOINTS", cluster.endpoints());
    let running = tokio::spawn(crate::support::output(command));
    eventually("the command holds both", Duration::from_secs(10), || async {
        (cluster.client().status("x").await.holder_count == 1).then_some(())
    })
    .await;
    data(&cluster, 0, &["break", "x", "--reason", "a test"]).await;
    let ended = tokio::time::timeout(LONG, running).await.unwrap().unwrap();
    assert_eq!(ended.status.code(), Some(79), "{ended:?}");
    are_free(&cluster, &["x", "y"]).await;
}
