//! A node that listens elsewhere than where it is reached, as in a container or behind NAT.

use crate::support::{Cluster, PATIENCE, Proxy, data, eventually, metrics, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_listens_at_one_address_and_is_reached_by_all_at_another() {
    let mut cluster = Cluster::start(3).await;
    let moved = cluster.follower().await;
    let listening =
        [cluster.client_address(moved), cluster.peer_address(moved), cluster.http_address(moved)];
    let mut forwards = Vec::new();
    for address in &listening {
        forwards.push(Proxy::to(address.clone()).await);
    }
    let mut text = std::fs::read_to_string(cluster.config_path(moved)).unwrap();
    for (address, forward) in listening.iter().zip(&forwards) {
        text = text.replace(address.as_str(), forward.address());
    }
    let [client, peer, http] = &listening;
    let listen = format!("[listen]\nclient = {client:?}\npeer = {peer:?}\nhttp = {http:?}\n");
    cluster.configure(moved, &text.replacen("[[nodes]]", &format!("{listen}[[nodes]]"), 1));
    cluster.terminate(moved).await;
    cluster.launch(moved);

    let [client_forward, peer_forward, http_forward] = &forwards[..] else { panic!("three ports") };
    let node_now = || async {
        let status = data(&cluster, 0, &["cluster", "status"]).await;
        status["nodes"].as_array().unwrap().iter().find(|node| node["id"] == moved).cloned()
    };
    eventually("the others know where it is reached, and reach it", PATIENCE, || async {
        let node = node_now().await?;
        let announced = (node["client_address"].as_str()?, node["peer_address"].as_str()?);
        let is_known = announced == (client_forward.address(), peer_forward.address());
        (is_known && node["reachable"] == true).then_some(())
    })
    .await;
    // Both ways lead to it.
    for endpoint in [client_forward.address(), client] {
        let held = run(&cluster, &["--endpoints", endpoint, "lock", "a", "--", "true"]).await;
        assert!(held.status.success(), "{held:?}");
    }
    for address in [http_forward.address(), http] {
        assert!(metrics(address).await.contains("holdfast_build_info"));
    }
    // The other nodes use the one that was announced.
    peer_forward.cut();
    peer_forward.break_connections();
    eventually("it is cut off where it was announced", PATIENCE, || async {
        (node_now().await?["reachable"] == false).then_some(())
    })
    .await;
    peer_forward.heal();
    eventually("it is back", PATIENCE, || async {
        (node_now().await?["reachable"] == true).then_some(())
    })
    .await;
}
