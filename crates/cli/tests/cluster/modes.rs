//! Shared locks, semaphores, conversions, re-entry, ages: through the client library, against a real
//! cluster.

use std::time::Duration;

use holdfast_client::{
    AcquireError, Client, ConvertError, Guard, LossReason, Lost, PublicSessionId, ReleaseOutcome,
};
use holdfast_proto::v1::StatusResponse;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Cluster, data, eventually, run, text, words};

const LONG: Duration = Duration::from_secs(30);

/// Asks for a lock in a task of its own; returns when it stands in line.
async fn stand_in_line(
    request: holdfast_client::LockRequest,
) -> JoinHandle<Result<Guard, AcquireError>> {
    let (queued, when_queued) = oneshot::channel();
    let asking = tokio::spawn(request.wait(LONG).on_queued(|_| queued.send(()).unwrap()).acquire());
    when_queued.await.unwrap();
    asking
}

async fn status_when(
    cluster: &Cluster,
    name: &str,
    what: &str,
    is_so: impl Fn(&StatusResponse) -> bool,
) -> StatusResponse {
    eventually(what, Duration::from_secs(10), || async {
        let status = cluster.client().status(name).await;
        is_so(&status).then_some(status)
    })
    .await
}

async fn is_free(cluster: &Cluster, name: &str) {
    status_when(cluster, name, "the lock is free", |status| {
        status.holder_count == 0 && status.waiter_count == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_a_lock_and_a_writer_gets_a_higher_token_than_theirs() {
    let cluster = Cluster::start(3).await;
    let (alice, bob, carol) =
        (cluster.library().await, cluster.library().await, cluster.library().await);
    let first = alice.lock("config").shared().acquire().await.unwrap();
    let second = bob.lock("config").shared().acquire().await.unwrap();
    assert_eq!(first.token(), second.token());
    assert_eq!(carol.lock("config").acquire().await.unwrap_err(), AcquireError::Busy);
    let writing = stand_in_line(carol.lock("config")).await;
    // A reader that comes behind the writer waits its turn.
    assert_eq!(alice.lock("config").shared().acquire().await.unwrap_err(), AcquireError::Busy);
    let readers_token = first.token().unwrap();
    first.release().await.unwrap();
    assert!(!writing.is_finished());
    second.release().await.unwrap();
    let writer = writing.await.unwrap().unwrap();
    assert!(writer.token().unwrap() > readers_token);
    assert!(writer.is_exclusive());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_shared_holds_of_one_session_the_one_that_is_meant_is_released() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let take = |actor| client.lock("config").shared().actor(actor).acquire();
    let (one, two, three) =
        (take(1).await.unwrap(), take(2).await.unwrap(), take(3).await.unwrap());
    assert_eq!(one.token(), three.token());
    assert_eq!(two.release().await.unwrap(), ReleaseOutcome::Released);
    let status = cluster.client().status("config").await;
    let mut actors: Vec<_> = status.holders.iter().map(|holder| holder.actor).collect();
    actors.sort_unstable();
    assert_eq!(actors, [1, 3]);
    drop(one);
    status_when(&cluster, "config", "actor 1 is gone", |status| status.holder_count == 1).await;
    three.token().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_lets_so_many_in_and_is_not_fenceable() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let take = || client.lock("gpu").permits(2).acquire();
    let (one, _two) = (take().await.unwrap(), take().await.unwrap());
    assert_eq!(take().await.unwrap_err(), AcquireError::Busy);
    assert_eq!(one.fence().unwrap(), "");
    let other_number = client.lock("gpu").permits(3).acquire().await.unwrap_err();
    assert!(matches!(other_number, AcquireError::Rejected(_)), "{other_number:?}");
    one.release().await.unwrap();

    // The third permit goes to a command, which finds no fence, not even an inherited one.
    let script =
        "echo \"$HOLDFAST_LOCK:${HOLDFAST_TOKEN:+token}:$HOLDFAST_FENCE:$HOLDFAST_FENCES\"";
    let mut command = crate::support::holdfast();
    command
        .args(["lock", "gpu", "--permits", "2", "--", "sh", "-c", script])
        .env("HOLDFAST_ENDPOINTS", cluster.endpoints())
        .env("HOLDFAST_FENCE", "hf1.L.inherited.1");
    let output = crate::support::output(command).await;
    assert_eq!(text(&output.stdout), "gpu:token::\n", "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_converted_without_being_given_up_and_the_guard_gives_the_new_token() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let mut guard = alice.lock("config").acquire().await.unwrap();
    let written = guard.token().unwrap();
    guard.convert_to_shared().await.unwrap();
    assert_eq!(guard.token(), Ok(written));
    assert!(!guard.is_exclusive());
    let reader = bob.lock("config").shared().acquire().await.unwrap();

    assert_eq!(guard.convert_to_exclusive(Duration::ZERO).await, Err(ConvertError::Busy));
    let late = guard.convert_to_exclusive(Duration::from_millis(100)).await;
    assert_eq!(late, Err(ConvertError::TimedOut));
    let converting = tokio::spawn(async move {
        guard.convert_to_exclusive(LONG).await.unwrap();
        guard
    });
    status_when(&cluster, "config", "it waits to convert", |status| {
        status.waiters.first().is_some_and(|waiter| waiter.converts)
    })
    .await;
    // Neither of two could ever be alone.
    let mut reader = reader;
    let second = reader.convert_to_exclusive(LONG).await;
    assert!(matches!(second, Err(ConvertError::Deadlock(_))), "{second:?}");
    reader.release().await.unwrap();
    let guard = converting.await.unwrap();
    let token = guard.token().unwrap();
    assert!(token > written && guard.is_exclusive());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    is_free(&cluster, "config").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_that_is_dropped_at_any_moment_leaves_nothing_behind() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    for round in 0..40u64 {
        let mut guard = alice.lock("config").shared().acquire().await.unwrap();
        let other = (round % 2 == 0).then_some(());
        let other = match other {
            Some(()) => Some(bob.lock("config").shared().acquire().await.unwrap()),
            None => None,
        };
        // From "never sent" to "long since done"; the times differ from round to round, not the end.
        let patience = Duration::from_micros(round * 150);
        let converted =
            tokio::time::timeout(patience, guard.convert_to_exclusive(LONG)).await.is_ok();
        assert!(!converted || other.is_none());
        // Whatever became of it, the guard knows its token and gives the lock back.
        drop(guard);
        drop(other);
        is_free(&cluster, "config").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_same_task_enters_a_lock_again_and_each_guard_is_released_on_its_own() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let in_one_task = {
        let client = client.clone();
        async move {
            let outer = client.lock("tree").reentrant().acquire().await.unwrap();
            let inner = client.lock("tree").reentrant().acquire().await.unwrap();
            assert_eq!(outer.token(), inner.token());
            // Without `reentrant` no acquire is re-entrant, not even by accident.
            let accidental = client.lock("tree").acquire().await.unwrap_err();
            assert_eq!(accidental, AcquireError::Busy);
            outer.release().await.unwrap();
            inner
        }
    };
    let inner = tokio::spawn(in_one_task).await.unwrap();
    inner.token().unwrap();
    let stranger = tokio::spawn(client.lock("tree").reentrant().acquire()).await.unwrap();
    assert_eq!(stranger.unwrap_err(), AcquireError::Busy);
    assert_eq!(inner.release().await.unwrap(), ReleaseOutcome::Released);
    is_free(&cluster, "tree").await;

    // A loss is told to all who entered.
    let shared = |actor| client.lock("tree").shared().reentrant().actor(actor).acquire();
    let (first, again, other) =
        (shared(1).await.unwrap(), shared(1).await.unwrap(), shared(2).await.unwrap());
    drop(first);
    status_when(&cluster, "tree", "it is entered once", |status| {
        status.holders.iter().all(|holder| holder.reentries == 0)
    })
    .await;
    data(&cluster, 0, &["break", "tree", "--reason", "a test"]).await;
    for guard in [&again, &other] {
        let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
        assert_eq!(lost, LossReason::Broken);
    }
}

async fn take_two(client: &Client, first: &str, second: &str) -> Result<(), AcquireError> {
    let _first = client.lock(first).wait(LONG).acquire().await?;
    let _second = client.lock(second).wait(LONG).acquire().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_told_with_its_cycle_and_two_tasks_of_one_session_are_two() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);

    // Tasks of one session, in line for two locks in opposite orders: a cycle only if they were one.
    let a = alice.lock("a").actor(1).acquire().await.unwrap();
    let b = bob.lock("b").actor(1).acquire().await.unwrap();
    let alice_waits = stand_in_line(alice.lock("b").actor(2)).await;
    let bob_waits = stand_in_line(bob.lock("a").actor(2)).await;
    a.release().await.unwrap();
    b.release().await.unwrap();
    bob_waits.await.unwrap().unwrap().release().await.unwrap();
    alice_waits.await.unwrap().unwrap().release().await.unwrap();

    // One task each, by the numbers of the tasks: this is one.
    let a = alice.lock("a").actor(7).acquire().await.unwrap();
    let b = bob.lock("b").actor(7).acquire().await.unwrap();
    let waiting = stand_in_line(alice.lock("b").actor(7)).await;
    let refused = bob.lock("a").actor(7).wait(LONG).acquire().await.unwrap_err();
    let AcquireError::Deadlock(cycle) = refused else { panic!("{refused:?}") };
    let waits_for: Vec<_> = cycle.0.iter().map(|link| link.waits_for.as_str()).collect();
    assert_eq!(waits_for, ["a", "b"]);
    assert_eq!(cycle.0[0].actor, 7);
    b.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    drop(a);

    // And so it is without any numbers: of two tasks that take both in opposite orders, again and
    // again, each either gets them or is told.
    let one = tokio::spawn({
        let client = alice.clone();
        async move {
            let mut reported = 0;
            for _ in 0..30 {
                reported += u32::from(take_two(&client, "c", "d").await.is_err());
            }
            reported
        }
    });
    let mut reported = 0;
    for _ in 0..30 {
        reported += u32::from(take_two(&bob, "d", "c").await.is_err());
    }
    let _ = (reported, tokio::time::timeout(LONG, one).await.expect("they never end").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_actor_takes_a_preemptible_hold_away_and_a_younger_one_dies() {
    let cluster = Cluster::start(3).await;
    let old = cluster.library().await;
    let young = cluster.library().await;
    let held = young.lock("a").preemptible().acquire().await.unwrap();
    let taken = old.lock("a").wound_wait().wait(LONG).acquire().await.unwrap();
    assert!(taken.token().is_ok());
    assert_eq!(tokio::time::timeout(LONG, held.lost()).await.unwrap(), LossReason::Wounded);
    assert_eq!(held.token(), Err(Lost { reason: LossReason::Wounded }));

    let refused = young.lock("a").wait_die().wait(LONG).acquire().await.unwrap_err();
    let AcquireError::Died { since } = refused else { panic!("{refused:?}") };
    // The age is kept: with it, it dies again as long as the older one is there, and no longer.
    let again = young.lock("a").wait_die().since(since).wait(LONG).acquire().await.unwrap_err();
    assert_eq!(again, AcquireError::Died { since });
    taken.release().await.unwrap();
    young.lock("a").wait_die().since(since).acquire().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_not_given_back_stays_closed_for_its_delay() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let delay = Duration::from_secs(3600);
    let guard = client.lock("disk").lock_delay(delay).acquire().await.unwrap();
    guard.release().await.unwrap();
    let guard = client.lock("disk").lock_delay(delay).acquire().await.expect("it was given back");
    data(&cluster, 0, &["break", "disk", "--reason", "a test"]).await;
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await.unwrap(), LossReason::Broken);
    assert_eq!(client.lock("disk").acquire().await.unwrap_err(), AcquireError::Busy);
    let status = data(&cluster, 0, &["status", "disk"]).await;
    assert!(status["closed_for_ms"].as_u64().unwrap() > 3_500_000, "{status}");
    let why = data(&cluster, 0, &["why", "disk"]).await;
    assert_eq!(why["obstacles"][0]["kind"], "closed", "{why}");
    let listed = data(&cluster, 0, &["ls"]).await;
    assert_eq!(listed["locks"][0]["state"], "closed", "{listed}");
    assert!(words(&cluster, 75, &["acquire", "disk"]).await.contains("lock delay"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_reopens_what_a_lock_delay_keeps_closed_and_why_names_the_remedy() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let delay = Duration::from_secs(3600);
    let guard = client.lock("disk").lock_delay(delay).acquire().await.unwrap();
    data(&cluster, 0, &["break", "disk", "--reason", "a test"]).await;
    // A client that changes its connection at that moment is told later, without the reason.
    let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert!(matches!(lost, LossReason::Broken | LossReason::Ended), "{lost:?}");
    let why = data(&cluster, 0, &["why", "disk"]).await;
    let remedy = why["obstacles"][0]["next_step"].as_str().unwrap();
    assert!(remedy.contains("holdfast reopen disk --reason"), "{remedy}");
    let reopened = data(&cluster, 0, &["reopen", "disk", "--reason", "the host is off"]).await;
    assert_eq!(reopened["name"], "disk", "{reopened}");
    client.lock("disk").acquire().await.expect("it is open");
    let again = words(&cluster, 64, &["reopen", "disk", "--reason", "again"]).await;
    assert!(again.contains("no lock delay"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_proclaims_and_hands_over_to_whom_it_chooses() {
    let cluster = Cluster::start(3).await;
    let (alice, bob, carol) =
        (cluster.library().await, cluster.library().await, cluster.library().await);
    let mut guard = alice.lock("leader").metadata("alice:1").acquire().await.unwrap();
    guard.proclaim("alice:2").await.unwrap();
    assert_eq!(cluster.client().status("leader").await.holders[0].metadata, b"alice:2");

    let bob_waits = stand_in_line(bob.lock("leader")).await;
    let carol_waits = stand_in_line(carol.lock("leader")).await;
    let status = cluster.client().status("leader").await;
    let waiter = |at: usize| status.waiters[at].public_session_id.parse().unwrap();
    let (bobs, carols): (PublicSessionId, PublicSessionId) = (waiter(0), waiter(1));
    let refused = guard.transfer("0123456789abcdef".parse().unwrap()).await.unwrap_err();
    assert_eq!(refused, holdfast_client::TransferError::NoSuchWaiter);
    guard.token().expect("a transfer that was refused changes nothing");

    // Past Bob, who came first.
    let before = guard.token().unwrap();
    let token = guard.transfer(carols).await.unwrap();
    assert!(token > before && bobs != carols);
    assert_eq!(guard.token(), Err(Lost { reason: LossReason::Transferred }));
    let leader = carol_waits.await.unwrap().unwrap();
    assert_eq!(leader.token(), Ok(token));
    // Nothing that the first guard does is taken for the newer hold.
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Expired);
    assert!(leader.token().is_ok() && !bob_waits.is_finished());
    leader.release().await.unwrap();
    bob_waits.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_modes_holders_and_reasons() {
    let cluster = Cluster::start(3).await;
    let held = ["--ttl", "60s", "--output", "json", "--reason", "month end"];
    for _ in 0..2 {
        let acquired =
            run(&cluster, &[&["acquire", "report", "--shared"][..], &held].concat()).await;
        assert!(acquired.status.success(), "{acquired:?}");
    }
    let status = data(&cluster, 0, &["status", "report"]).await;
    assert_eq!(
        (&status["holder_count"], &status["holders"][1]["mode"]),
        (&2.into(), &"shared".into())
    );
    assert_eq!(status["holders"][0]["metadata"], "month end");
    let table = text(&run(&cluster, &["status", "report"]).await.stdout);
    assert!(table.contains("held shared by 2") && table.contains("month end"), "{table}");
    let busy = words(&cluster, 75, &["lock", "report", "--wait", "0s", "--", "true"]).await;
    assert!(busy.contains("held shared by 2") && busy.contains("holdfast why report"), "{busy}");
    let listed = data(&cluster, 0, &["ls"]).await;
    assert_eq!(listed["locks"][0]["mode"], "shared", "{listed}");
    assert_eq!(listed["locks"][0]["holder_count"], 2, "{listed}");
    for wrong in [
        &["lock", "a", "--shared", "--permits", "2", "--", "true"][..],
        &["lock", "a", "--all", "b,c", "--", "true"],
        &["lock", "--all", "b,c", "--permits", "2", "--", "true"],
        &["lock", "--all", "b,b", "--", "true"],
        &["lock", "--all", "b,", "--", "true"],
        &["lock", "a", "--policy", "hope", "--", "true"],
        &["acquire", "a", "--permits", "1000001"],
        &["acquire", "a", "--permits", "0"],
    ] {
        words(&cluster, 64, wrong).await;
    }
}
