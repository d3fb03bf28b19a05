//! The library in a program without a runtime of its own.

use std::time::Duration;

use holdfast_client::blocking::Client;
use holdfast_client::{AcquireError, LossReason, ReleaseOutcome};

use crate::support::{Cluster, data, eventually};

const LONG: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_threads_locks_waits_shares_and_is_told_of_losses() {
    let cluster = Cluster::start(3).await;
    let endpoints = cluster.endpoints();
    let threads = tokio::task::spawn_blocking(move || {
        let client = Client::connect(&endpoints).unwrap();
        let guard = client.lock("a").metadata("month end").acquire().unwrap();
        let token = guard.token().unwrap();
        assert!(guard.is_valid_for(Duration::from_secs(1)));
        // Another thread is another actor, and waits its turn.
        let other = client.clone();
        let (queued, when_queued) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            assert_eq!(other.lock("a").acquire().unwrap_err(), AcquireError::Busy);
            let reported = move |_| queued.send(()).unwrap();
            other.lock("a").wait(LONG).on_queued(reported).acquire().unwrap().token().unwrap()
        });
        when_queued.recv().unwrap();
        assert_eq!(guard.release().unwrap(), ReleaseOutcome::Released);
        assert!(waiting.join().unwrap() > token);

        let mut reader = client.lock("b").shared().acquire().unwrap();
        reader.convert_to_exclusive(LONG).unwrap();
        let both = client.lock_all(["c", "d"]).acquire().unwrap();
        assert_eq!(both.tokens().unwrap().len(), 2);
        both.release().unwrap();
        assert_eq!(reader.run_while_held(async { 7 }), Ok(7));
        assert_eq!(reader.wait_for_loss(Duration::from_millis(1)), None);
        (client, reader)
    });
    let (client, guard) = threads.await.unwrap();
    data(&cluster, 0, &["break", "b", "--reason", "a test"]).await;
    let watching = tokio::task::spawn_blocking(move || (guard.wait_for_loss(LONG), guard));
    let (loss, guard) = watching.await.unwrap();
    assert_eq!(loss, Some(LossReason::Broken));
    assert!(guard.token().is_err());

    // The last one that is dropped closes the session, and so frees what was only dropped.
    let kept = client.lock("kept").acquire().unwrap();
    drop((kept, guard, client));
    eventually("the session is closed", Duration::from_secs(5), || async {
        let status = cluster.client().status("kept").await;
        (status.holder_count == 0 && cluster.client().sessions().await.is_empty()).then_some(())
    })
    .await;
}
