//! One lock, many waiters.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::v1::ReleaseOutcome;
use holdfast_proto::v1::acquire_response::Outcome;
use tokio::sync::mpsc;

use crate::support::{Cluster, eventually, hold};

const WAITERS: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn of_200_waiters_a_release_wakes_one_and_the_order_is_that_of_arrival() {
    let cluster = Cluster::start_alone(3).await;
    let client = cluster.client();
    let ttl = Duration::from_secs(120);
    let holder = client.open(ttl).await;
    let grant = hold(&holder, "hot").await;

    let (granted, mut grants) = mpsc::unbounded_channel();
    for place in 1..=WAITERS {
        let session = Arc::new(client.open(ttl).await);
        let granted = granted.clone();
        tokio::spawn(async move {
            let answer = session.acquire("hot", Duration::from_secs(100)).await.unwrap();
            let Some(Outcome::Granted(grant)) = answer.outcome else { panic!("{answer:?}") };
            granted.send((place, grant.token, session)).unwrap();
        });
        eventually("the waiter stands in line", Duration::from_secs(10), || async {
            (client.status("hot").await.waiter_count == place).then_some(())
        })
        .await;
    }

    let mut last_token = grant.token;
    assert_eq!(holder.release("hot", grant.token).await.unwrap(), ReleaseOutcome::Released);
    for expected in 1..=WAITERS {
        let (place, token, session) = grants.recv().await.unwrap();
        assert_eq!(place, expected, "out of turn");
        assert!(token > last_token);
        // One was woken: all others still stand in line, and no other client was told anything.
        let status = client.status("hot").await;
        assert_eq!(status.waiter_count, WAITERS - expected);
        assert_eq!(status.holders[0].token, token);
        assert!(grants.try_recv().is_err());
        last_token = token;
        session.release("hot", token).await.unwrap();
    }
    assert!(client.status("hot").await.holders.is_empty());
}
