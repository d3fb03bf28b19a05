//! Two of three nodes are lost for good: the third goes on alone, loudly, and the others cannot come back.

use std::time::Duration;

use crate::backup::{NOWHERE, inspect, json, token_in};
use crate::membership::{bring_in, run};
use crate::support::{Cluster, Load, PlainClient, eventually, hold};

const TTL: Duration = Duration::from_secs(120);

pub(crate) fn token(text: &serde_json::Value) -> u64 {
    text.as_str().unwrap().parse().unwrap()
}

/// Serves, as the only node.
async fn leads_alone(cluster: &Cluster, id: u64) {
    eventually("the survivor leads", Duration::from_secs(15), || async {
        cluster.view_of(id).await.filter(|view| view.leader == id)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_goes_on_alone_and_the_others_cannot_come_back() {
    let mut cluster = Cluster::start(3).await;
    let endpoints = cluster.endpoints();
    let survivor = cluster.follower().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != survivor).collect();
    let config = cluster.config_path(survivor);
    let recover = ["recover", "--config", &config, "--i-lost-the-majority", "--closed-for", "0s"];
    let recover = [&recover[..], &["--output", "json"]].concat();

    let load = Load::start(&cluster.client()).await;
    let session = cluster.client().open(TTL).await;
    let mut known = Vec::new();
    for number in 0..50 {
        let name = format!("known to all {number}");
        let grant = hold(&session, &name).await;
        known.push((name, grant.token));
    }
    let load = load.stop().await;
    known.extend(load.kept);
    cluster.converged().await;
    // Acknowledged by the two others alone, and lost with them.
    cluster.freeze(survivor);
    let two = PlainClient::new(others.iter().map(|id| cluster.client_address(*id)).collect());
    let session = two.open(TTL).await;
    let mut unknown = Vec::new();
    for number in 0..20 {
        let name = format!("unknown to the survivor {number}");
        let grant = hold(&session, &name).await;
        unknown.push((name, grant.token));
    }
    cluster.kill(survivor);
    let premature = run(&endpoints, &recover).await;
    assert_eq!(premature.status.code(), Some(64), "a majority lives: {premature:?}");
    for other in &others {
        cluster.kill(*other);
    }

    let warned = run(NOWHERE, &["recover", "--config", &config]).await;
    assert_eq!(warned.status.code(), Some(64));
    let said = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(said.contains("is LOST") && said.contains("--i-lost-the-majority"), "{said}");
    let recovered = json(&run(NOWHERE, &recover).await);
    let new = &recovered["new"];
    let last_token = token(&new["last_token_before"]);

    // Every grant that the survivor had is accounted for: in the file that it left, under its token.
    let state = inspect(recovered["state_file"].as_str().unwrap().as_ref()).await;
    for (name, token) in &known {
        assert_eq!(token_in(&state, name), Some(*token), "{name} was acknowledged");
    }
    let (here, lost): (Vec<_>, Vec<_>) =
        unknown.iter().partition(|(_, token)| *token <= last_token);
    assert!(!lost.is_empty(), "nothing was lost, so nothing was shown");
    for (name, token) in here {
        assert_eq!(token_in(&state, name), Some(*token), "{name} was in its log");
    }
    assert_eq!(new["holds_ended"].as_u64().unwrap(), state["locks"].as_u64().unwrap());
    let aside = std::path::PathBuf::from(recovered["aside"].as_str().unwrap());
    assert!(aside.join("old/log").is_dir() && aside.join("old/identity.toml").is_file());

    cluster.launch(survivor);
    leads_alone(&cluster, survivor).await;
    let running = run(NOWHERE, &recover).await;
    assert_eq!(running.status.code(), Some(75), "it runs: {running:?}");
    let client = cluster.client_of(survivor);
    assert!(client.sessions().await.is_empty());
    let session = client.open(TTL).await;
    let tokens = known.iter().chain(&unknown).map(|(_, token)| *token);
    let highest = tokens.chain(load.shared_tokens).max().unwrap();
    let grant = hold(&session, "load:shared").await;
    assert!(grant.token > highest, "{} is not above {highest}", grant.token);

    // One that comes back talks to no node.
    let old = others[0];
    cluster.launch(old);
    eventually("it is refused", Duration::from_secs(20), || async {
        // One that has not yet applied what its own cluster's id is shows none, and its id is not in use.
        let log = cluster.log_of(old);
        let other = log.contains("belongs to another cluster of that name");
        (other || log.contains("was removed from the cluster")).then_some(())
    })
    .await;
    assert_eq!(cluster.view_of(old).await.map_or(0, |view| view.leader), 0);
    let view = client.own_view().await.unwrap();
    assert_eq!(view.nodes.len(), 1, "{view:?}");
    cluster.kill(old);

    // The others are wiped, and join again.
    for other in others {
        cluster.wipe(other);
        cluster.forget(other);
    }
    let endpoints = cluster.endpoints();
    bring_in(&mut cluster, &endpoints, 4, &["cluster", "add"]).await;
    bring_in(&mut cluster, &endpoints, 5, &["cluster", "add"]).await;
    cluster.converged().await;
    cluster.kill(survivor);
    cluster.leader().await;
    assert_eq!(cluster.client().status("load:shared").await.holders[0].token, grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_that_was_interrupted_is_completed_and_no_node_starts_before() {
    let mut cluster = Cluster::start(1).await;
    let session = cluster.client().open(TTL).await;
    let held = hold(&session, "held").await;
    cluster.kill(1);
    let config = cluster.config_path(1);
    let recover = ["recover", "--config", &config, "--i-lost-the-majority", "--output", "json"];
    let recovered = json(&run(NOWHERE, &recover).await);
    assert!(token(&recovered["new"]["last_token"]) > held.token);
    let needless = run(NOWHERE, &recover).await;
    assert_eq!(needless.status.code(), Some(64), "it is the only voter: {needless:?}");
    // As if it had ended when the old files had made room and the new ones were not in place.
    let data_dir = cluster.data_dir(1);
    let aside = std::path::PathBuf::from(recovered["aside"].as_str().unwrap());
    let recovering = data_dir.join("recovering");
    std::fs::rename(&aside, &recovering).unwrap();
    std::fs::create_dir(recovering.join("new")).unwrap();
    for name in ["log", "identity.toml", "founders.toml"] {
        std::fs::rename(data_dir.join(name), recovering.join("new").join(name)).unwrap();
    }
    cluster.launch(1);
    let ended = cluster.ended_code(1).await;
    assert_eq!(ended, Some(69));
    assert!(cluster.log_of(1).contains("run `holdfast recover` again"), "{}", cluster.log_of(1));

    let completed = json(&run(NOWHERE, &recover).await);
    assert!(completed["new"].is_null(), "{completed}");
    cluster.launch(1);
    leads_alone(&cluster, 1).await;
    let view = cluster.view_of(1).await.unwrap();
    assert_eq!(recovered["new"]["last_token"], view.last_token.to_string());
}
