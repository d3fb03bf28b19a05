//! Leader election, through the library and through single calls, against a real cluster.

use std::time::Duration;

use holdfast_client::{CampaignError, Client, Leadership, LossReason, Observed, Observer};
use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::election_service_client::ElectionServiceClient;
use holdfast_proto::v1::observe_response::Change;
use holdfast_proto::v1::{CampaignRequest, ObserveRequest, ReleaseOutcome, ResignRequest};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Cluster, data, eventually};

const LONG: Duration = Duration::from_secs(30);

async fn reported(observer: &mut Observer) -> String {
    match timeout(LONG, observer.next()).await.expect("nothing is told").unwrap() {
        Observed::Leader(leader) => {
            format!("{} {}", leader.epoch, String::from_utf8(leader.value).unwrap())
        }
        Observed::Vacant => "vacant".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Campaigns in a task of its own; returns when it is a candidate.
async fn candidate(
    client: &Client,
    value: &'static str,
) -> JoinHandle<Result<Leadership, CampaignError>> {
    let election = client.election("boss");
    let campaigning = tokio::spawn({
        let election = election.clone();
        async move { election.campaign(value).await }
    });
    eventually("it is a candidate", LONG, || async {
        let candidates = election.candidates().await.unwrap();
        candidates.iter().any(|candidate| candidate.value == value.as_bytes()).then_some(())
    })
    .await;
    campaigning
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_follow_each_other_and_observers_are_told_of_each_of_every_value_and_of_vacancy() {
    let cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let mut observer = bob.election("boss").observe();
    assert_eq!(reported(&mut observer).await, "vacant");
    assert_eq!(bob.election("boss").leader().await.unwrap(), None);

    let first = alice.election("boss").campaign("alice").await.unwrap();
    let first_epoch = first.epoch().unwrap();
    assert_eq!(reported(&mut observer).await, format!("{first_epoch} alice"));
    // Who comes later is told who leads.
    let mut late = alice.election("boss").observe();
    assert_eq!(reported(&mut late).await, format!("{first_epoch} alice"));
    // A longer name is another election, also for those who watch.
    let _other = alice.election("boss2").campaign("another client").await.unwrap();
    first.proclaim("alice, port 2").await.unwrap();
    assert_eq!(reported(&mut observer).await, format!("{first_epoch} alice, port 2"));

    let impatient = bob.election("boss").wait(Duration::from_millis(100)).campaign("bob").await;
    assert_eq!(impatient.unwrap_err(), CampaignError::TimedOut);
    let bobs = candidate(&bob, "bob").await;
    first.resign().await.unwrap();
    let second = bobs.await.unwrap().unwrap();
    let second_epoch = second.epoch().unwrap();
    assert!(second_epoch > first_epoch);
    assert_eq!(reported(&mut observer).await, format!("{second_epoch} bob"));
    let leader = alice.election("boss").leader().await.unwrap().unwrap();
    assert_eq!((leader.epoch, leader.value), (second_epoch, b"bob".to_vec()));

    data(&cluster, 0, &["break", "boss", "--reason", "a test"]).await;
    assert_eq!(timeout(LONG, second.lost()).await.unwrap(), LossReason::Broken);
    assert_eq!(reported(&mut observer).await, "vacant");
    for expected in
        [format!("{first_epoch} alice, port 2"), format!("{second_epoch} bob"), "vacant".to_owned()]
    {
        assert_eq!(reported(&mut late).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_hands_over_to_the_candidate_of_its_choice_without_a_gap() {
    let cluster = Cluster::start(3).await;
    let (alice, bob, carol) =
        (cluster.library().await, cluster.library().await, cluster.library().await);
    let mut leadership = alice.election("boss").campaign("alice").await.unwrap();
    let first_epoch = leadership.epoch().unwrap();
    let mut observer = alice.election("boss").observe();
    assert_eq!(reported(&mut observer).await, format!("{first_epoch} alice"));

    let bobs = candidate(&bob, "bob").await;
    let carols = candidate(&carol, "carol").await;
    let candidates = alice.election("boss").candidates().await.unwrap();
    let values: Vec<_> = candidates.iter().map(|candidate| candidate.value.as_slice()).collect();
    assert_eq!(values, [b"bob".as_slice(), b"carol"]);
    assert_eq!(candidates[1].owner.pid, std::process::id());

    let epoch = leadership.hand_over(candidates[1].session).await.unwrap();
    assert_eq!(leadership.epoch().unwrap_err().reason, LossReason::Transferred);
    let second = carols.await.unwrap().unwrap();
    assert_eq!(second.epoch(), Ok(epoch));
    assert_eq!(reported(&mut observer).await, format!("{epoch} carol"), "no vacancy in between");
    drop(leadership);
    assert!(second.epoch().is_ok() && !bobs.is_finished());

    // A candidate that changes its mind leaves nothing behind.
    bobs.abort();
    eventually("there is no candidate", LONG, || async {
        carol.election("boss").candidates().await.unwrap().is_empty().then_some(())
    })
    .await;
    // Dropping a leadership resigns.
    drop(second);
    assert_eq!(reported(&mut observer).await, "vacant");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_misses_no_leader_when_the_nodes_that_tell_it_are_killed() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let mut observer = client.election("boss").observe();
    assert_eq!(reported(&mut observer).await, "vacant");
    let mut expected = Vec::new();
    for round in 0..3 {
        let killed = cluster.leader().await;
        cluster.kill(killed);
        // While the observer is cut off, or finds its way.
        for number in 0..20 {
            let value = format!("{round}.{number}");
            let leadership = client.election("boss").campaign(value.as_str()).await.unwrap();
            expected.push(format!("{} {value}", leadership.epoch().unwrap()));
            leadership.resign().await.unwrap();
        }
        cluster.launch(killed);
        cluster.leader().await;
    }
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let news = reported(&mut observer).await;
        if news != "vacant" {
            seen.push(news);
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(reported(&mut observer).await, "vacant");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_calls_campaign_observe_and_resign_at_any_node_and_a_silent_leader_is_replaced() {
    let cluster = Cluster::start(3).await;
    let follower = cluster.client_address(cluster.follower().await);
    let mut node = ElectionServiceClient::connect(format!("http://{follower}")).await.unwrap();
    let observe = ObserveRequest { name: "boss".into(), ..Default::default() };
    let mut changes = node.observe(observe).await.unwrap().into_inner();
    let mut next = async || loop {
        let reported = timeout(LONG, changes.message()).await.unwrap().unwrap().unwrap();
        if let Some(change) = reported.change {
            return change;
        }
    };
    assert!(matches!(next().await, Change::Vacancy(vacancy) if vacancy.last_epoch == 0));

    // No client keeps this one's session alive.
    let silent = cluster.client().open(Duration::from_secs(2)).await;
    let lasting = cluster.client().open(LONG).await;
    let campaign = |session: &crate::support::PlainSession, value: &str| CampaignRequest {
        session_id: session.id.clone(),
        request_id: session.next_request(),
        name: "boss".into(),
        value: value.into(),
        ..Default::default()
    };
    let mut epochs = Vec::new();
    for (session, value) in [(&silent, "silent"), (&lasting, "lasting")] {
        // The second waits until the first is gone.
        let answer = node.campaign(campaign(session, value)).await.unwrap().into_inner();
        let Some(Outcome::Granted(grant)) = answer.outcome else { panic!("{answer:?}") };
        let Change::Leader(leader) = next().await else { panic!("no leader is told") };
        assert_eq!((leader.epoch, leader.value.as_slice()), (grant.token, value.as_bytes()));
        epochs.push(grant.token);
    }
    assert!(epochs[0] < epochs[1]);

    let resign = |epoch| ResignRequest {
        session_id: lasting.id.clone(),
        request_id: lasting.next_request(),
        name: "boss".into(),
        epoch,
        ..Default::default()
    };
    let late = node.resign(resign(epochs[0])).await.unwrap().into_inner();
    assert_ne!(late.outcome(), ReleaseOutcome::Released);
    let in_time = node.resign(resign(epochs[1])).await.unwrap().into_inner();
    assert_eq!(in_time.outcome(), ReleaseOutcome::Released);
    assert!(matches!(next().await, Change::Vacancy(vacancy) if vacancy.last_epoch == epochs[1]));
}
