//! What callers of the library feel of a cluster that is not there.

use std::time::{Duration, Instant};

use holdfast_client::{
    AcquireError, CircuitState, Client, ConnectError, LossReason, ReleaseError, UnavailableCause,
};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::{Cluster, Proxy, data, holdfast, output, text, words};

const LONG: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn while_no_node_is_of_use_calls_fail_at_once_and_the_state_of_the_circuit_is_told() {
    let mut cluster = Cluster::start(1).await;
    let client =
        Client::builder().ttl(Duration::from_secs(60)).connect(&cluster.endpoints()).await.unwrap();
    let mut circuit = client.circuit();
    assert_eq!(circuit.state(), CircuitState::Closed);
    let held = client.lock("a").acquire().await.unwrap();
    let given_up = client.lock("b").acquire().await.unwrap();

    cluster.kill(1);
    assert_eq!(timeout(LONG, circuit.changed()).await.unwrap(), CircuitState::Open);
    let asked = Instant::now();
    let refused = client.lock("c").wait(LONG).acquire().await.unwrap_err();
    assert!(refused.is_retryable() && !refused.may_have_happened(), "{refused:?}");
    let AcquireError::Unavailable(unavailable) = refused else { panic!("{refused:?}") };
    assert_eq!(unavailable.cause, UnavailableCause::NotReached);
    let refused = given_up.release().await.unwrap_err();
    assert!(matches!(&refused, ReleaseError::Unavailable(_)), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_secs(1), "told after {:?}", asked.elapsed());
    held.token().expect("nothing is lost yet");

    cluster.launch(1);
    timeout(LONG, circuit.closed()).await.expect("it closes");
    let guard = client.lock("c").wait(LONG).acquire().await.unwrap();
    // What was given up in the meantime was given up in the end.
    client.lock("b").wait(LONG).acquire().await.unwrap();
    assert!(held.token().unwrap() < guard.token().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_an_address_is_told_within_two_seconds() {
    // This name is reserved, and has no address anywhere.
    const NOWHERE: &str = "no-such-host.invalid:7420";
    for verb in [&["status", "a"][..], &["lock", "a", "--", "true"], &["acquire", "a"]] {
        let mut command = holdfast();
        command.args(["--endpoints", NOWHERE]).args(verb);
        let asked = Instant::now();
        let output = output(command).await;
        let words = text(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{verb:?}: {words}");
        assert!(words.contains(NOWHERE) && words.contains("lookup"), "{verb:?}: {words}");
        assert!(asked.elapsed() < Duration::from_secs(3), "{verb:?}: {:?}", asked.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_there_at_all_is_told_after_a_second_and_a_silent_one_is_waited_for()
{
    let cluster = Cluster::start(1).await;
    let closed_port = {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        free.local_addr().unwrap().to_string()
    };
    let asked = Instant::now();
    let refused = Client::connect(&format!("{closed_port},{closed_port}")).await.unwrap_err();
    let ConnectError::Unavailable(unavailable) = &refused else { panic!("{refused:?}") };
    assert_eq!(unavailable.cause, UnavailableCause::NotReached);
    assert!(unavailable.message.contains(&closed_port), "{unavailable}");
    assert!(!refused.may_have_happened());
    let took = asked.elapsed();
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(3), "{took:?}");
    let said = words(&cluster, 69, &["lock", "a", "--endpoints", &closed_port, "--", "true"]).await;
    assert!(said.contains(&closed_port), "{said}");

    // One that takes connections may be about to come up.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let patient = Client::builder().request_timeout(Duration::from_secs(4));
    let asked = Instant::now();
    let refused = patient.connect(&format!("{address},{closed_port}")).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Unavailable(_)), "{refused:?}");
    assert!(asked.elapsed() >= Duration::from_secs(4), "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_lost_while_the_circuit_was_open_does_not_keep_it_open() {
    let cluster = Cluster::start(1).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let builder = Client::builder().ttl(Duration::from_secs(60)).without_discovery();
    let client = builder.connect(proxy.address()).await.unwrap();
    let held = client.lock("a").acquire().await.unwrap();
    let session = cluster.client().status("a").await.holders[0].public_session_id.clone();
    proxy.cut();
    // A client has to ask for something, or nothing is missed before the next heartbeat.
    let asking = tokio::spawn(client.lock("b").acquire());
    assert_eq!(timeout(LONG, client.circuit().changed()).await.unwrap(), CircuitState::Open);
    data(&cluster, 0, &["kill-session", &session, "--reason", "a test"]).await;
    proxy.heal();
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::SessionExpired);
    timeout(LONG, client.circuit().closed()).await.expect("it closes");
    client.lock("a").wait(LONG).acquire().await.unwrap();
    // It had been sent, or would have been granted by the next session.
    let outcome = timeout(LONG, asking).await.unwrap().unwrap();
    assert!(
        outcome.is_ok() || outcome.as_ref().is_err_and(AcquireError::is_retryable),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circuit_that_opened_without_a_session_closes_though_no_client_asks() {
    let cluster = Cluster::start(1).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let builder = Client::builder().request_timeout(Duration::from_secs(5)).without_discovery();
    let client = builder.connect(proxy.address()).await.unwrap();
    let held = client.lock("a").acquire().await.unwrap();
    let session = cluster.client().status("a").await.holders[0].public_session_id.clone();
    data(&cluster, 0, &["kill-session", &session, "--reason", "a test"]).await;
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::SessionKilled);
    proxy.cut();
    // It asks for a new session, in vain, and then no client asks for anything any more.
    let refused = client.lock("a").acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Unavailable(_)), "{refused:?}");
    assert_ne!(client.circuit().state(), CircuitState::Closed);
    proxy.heal();
    timeout(LONG, client.circuit().closed()).await.expect("it closes");
    client.lock("a").wait(LONG).acquire().await.unwrap();
}
