//! Nodes that read their certificates again all the time, and get new ones, lose no session.

use std::time::Duration;

use holdfast_client::{Client, Tls};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::interval;

use crate::support::{PATIENCE, eventually};
use crate::tls_cluster::{TlsCluster, done};

const CLIENTS: usize = 4;
const ROUNDS: u64 = 100;
const ROUND: Duration = Duration::from_millis(100);
/// All nodes have other certificates after so many rounds.
const ROUNDS_FOR_A_CERTIFICATE: u64 = 25;
const RELOADED: &str = "SIGHUP: the certificates and keys were read again";

/// Takes and gives up a lock until it is told to end, and once more. Returns how often.
async fn work(client: Client, name: String, has_ended: watch::Receiver<bool>) -> u64 {
    let mut turns = 0;
    loop {
        let is_last = *has_ended.borrow();
        let guard = client.lock(&name).wait(PATIENCE).acquire().await.unwrap();
        guard.release().await.unwrap();
        turns += 1;
        if is_last {
            return turns;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_reload_all_the_time_and_get_new_certificates_lose_no_session() {
    let secured = TlsCluster::start(3, "").await;
    secured.user("worker", &["read,exclusive:*", "connect"]).await;
    let mut guards = Vec::new();
    let mut working = Vec::new();
    let (end, has_ended) = watch::channel(false);
    for number in 0..CLIENTS {
        let tls = Tls::new(secured.path("certs/ca.pem"));
        let builder = Client::builder().tls(tls).auth_file(secured.path("worker"));
        let client = builder.connect(&secured.cluster.endpoints()).await.unwrap();
        let guard = client.lock(format!("held/{number}")).acquire().await.unwrap();
        guards.push((guard.token().unwrap(), guard));
        working.push(tokio::spawn(work(client, format!("work/{number}"), has_ended.clone())));
    }

    let certs = secured.path("certs");
    let certs = certs.to_str().unwrap();
    let mut pace = interval(ROUND);
    for round in 1..=ROUNDS {
        pace.tick().await;
        for id in secured.cluster.ids() {
            if round % ROUNDS_FOR_A_CERTIFICATE == 0 {
                let id = id.to_string();
                let new = ["cert", "node", "--replace", "--id", &id, "--host", "127.0.0.1"];
                done(&[&new[..], &["--dir", certs]].concat()).await;
            }
            secured.cluster.send(id, Signal::HUP);
        }
        for (token, guard) in &guards {
            assert_eq!(guard.token().ok(), Some(*token), "a lock is lost in round {round}");
        }
    }
    end.send(true).unwrap();
    for work in working {
        assert!(work.await.unwrap() > 1);
    }
    for id in secured.cluster.ids() {
        // Signals that come together count once.
        eventually("the node has read its files many times", PATIENCE, || {
            let reloads = secured.cluster.log_of(id).matches(RELOADED).count();
            std::future::ready((reloads as u64 >= ROUNDS / 4).then_some(()))
        })
        .await;
    }
    // A connection that begins now sees the newest certificate.
    secured.done("worker", &["lock", "afterwards", "--", "true"]).await;
    for (token, guard) in guards {
        assert_eq!(guard.token().ok(), Some(token));
        guard.release().await.unwrap();
    }
}
