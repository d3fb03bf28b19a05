//! Nodes come and go: `holdfast cluster add`, `remove`, `replace`, `promote`, `transfer`.

use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Cluster, ClusterOptions, eventually, hold, holdfast};

pub(crate) async fn run(endpoints: &str, args: &[&str]) -> Output {
    let mut command = holdfast();
    command.args(args).env("HOLDFAST_ENDPOINTS", endpoints);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What `cluster status` says.
async fn status(cluster: &Cluster) -> Value {
    let output = run(&cluster.endpoints(), &["cluster", "status", "--output", "json"]).await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Ids and roles.
fn roles(status: &Value) -> Vec<(u64, String)> {
    let nodes = status["nodes"].as_array().unwrap();
    let role = |node: &Value| node["role"].as_str().unwrap().to_owned();
    nodes.iter().map(|node| (node["id"].as_u64().unwrap(), role(node))).collect()
}

fn voters<const N: usize>(ids: [u64; N]) -> Vec<(u64, String)> {
    ids.map(|id| (id, "voter".to_owned())).into()
}

/// The arguments that bring in node `id`, at addresses that are its own from now on.
pub(crate) fn arguments_for(cluster: &mut Cluster, id: u64) -> Vec<String> {
    cluster.prepare(id);
    let data_dir = cluster.data_dir(id).to_str().unwrap().to_owned();
    [
        ("--id", id.to_string()),
        ("--peer-address", cluster.peer_address(id)),
        ("--client-address", cluster.client_address(id)),
        ("--data-dir", data_dir),
    ]
    .into_iter()
    .flat_map(|(option, value)| [option.to_owned(), value])
    .collect()
}

/// Adds the node, starts it with the configuration that was printed, and waits until it votes.
pub(crate) async fn bring_in(cluster: &mut Cluster, endpoints: &str, id: u64, verb: &[&str]) {
    let arguments = arguments_for(cluster, id);
    let arguments: Vec<&str> =
        verb.iter().copied().chain(arguments.iter().map(String::as_str)).collect();
    let added = run(endpoints, &[&arguments[..], &["--timeout", "0s"]].concat()).await;
    assert!(added.status.success(), "{added:?}");
    cluster.configure(id, std::str::from_utf8(&added.stdout).unwrap());
    cluster.launch(id);
    // The same again is no second addition, and waits this time.
    let voter = run(endpoints, &[&arguments[..], &["--timeout", "30s"]].concat()).await;
    assert!(voter.status.success(), "{voter:?}");
    assert!(words(&voter).contains(&format!("node {id} is a voter")), "{voter:?}");
    // A node that has nothing yet does not lag by all indexes: those of a restored cluster begin above 2^40.
    let told = words(&voter);
    let mut lags = told.split("lags by ").skip(1).filter_map(|rest| rest.split(' ').next());
    assert!(lags.all(|lag| lag.parse::<u64>().unwrap() < 1 << 32), "{voter:?}");
}

/// As a learner for the time being: no node waits until it has caught up.
async fn add_without_waiting(endpoints: &str, id: &str, addresses: [&str; 2]) -> Output {
    let [peer, client] = addresses;
    let node = ["cluster", "add", "--id", id, "--peer-address", peer, "--client-address", client];
    run(endpoints, &[&node[..], &["--timeout", "0s"]].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_added_removed_and_told_to_lead() {
    let mut cluster = Cluster::start(3).await;
    let session = cluster.client().open(Duration::from_secs(120)).await;
    let grant = hold(&session, "kept").await;
    let endpoints = cluster.endpoints();
    bring_in(&mut cluster, &endpoints, 4, &["cluster", "add"]).await;
    assert_eq!(roles(&status(&cluster).await), voters([1, 2, 3, 4]));
    cluster.converged().await;

    let led = run(&endpoints, &["cluster", "transfer", "--to", "4", "--output", "json"]).await;
    assert_eq!(serde_json::from_slice::<Value>(&led.stdout).unwrap()["leader"], 4, "{led:?}");
    assert_eq!(cluster.leader().await, 4);

    // The leader itself goes, and another node takes over.
    let removed = run(&cluster.endpoints(), &["cluster", "remove", "4"]).await;
    assert!(removed.status.success(), "{removed:?}");
    let ended = cluster.ends(4).await;
    assert_eq!(ended.code(), Some(77), "{ended}");
    assert_eq!(roles(&status(&cluster).await), voters([1, 2, 3]));
    let again = run(&endpoints, &["cluster", "remove", "4"]).await;
    assert!(again.status.success(), "what is so already is no error: {again:?}");

    // A follower goes, and is told.
    let follower = cluster.follower().await;
    let removed = run(&endpoints, &["cluster", "remove", &follower.to_string()]).await;
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(cluster.ends(follower).await.code(), Some(77));
    assert_eq!(cluster.client().status("kept").await.holders[0].token, grant.token);
    hold(&session, "served by two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_brought_up_to_date_later_change_nothing() {
    let settings = "election_ticks = 15".to_owned();
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let endpoints = cluster.endpoints();
    bring_in(&mut cluster, &endpoints, 4, &["cluster", "add"]).await;
    let removed = run(&endpoints, &["cluster", "remove", "1"]).await;
    assert!(removed.status.success(), "{removed:?}");
    cluster.ends(1).await;
    // An operator may list the nodes as they are now, though there is no snapshot yet that says so.
    let listed: String = [2, 3, 4]
        .map(|id| {
            let (client, peer) = (cluster.client_address(id), cluster.peer_address(id));
            format!("[[nodes]]\nid = {id}\nclient = \"{client}\"\npeer = \"{peer}\"\n")
        })
        .concat();
    for id in [2, 3, 4] {
        let data_dir = cluster.data_dir(id);
        let head = format!(
            "cluster = \"test\"\nnode = {id}\ndata_dir = {data_dir:?}\nelection_ticks = 15\n"
        );
        cluster.configure(id, &(head + &listed));
        cluster.terminate(id).await;
        cluster.launch(id);
        cluster.leader().await;
    }
    cluster.converged().await;
    assert_eq!(roles(&status(&cluster).await), voters([2, 3, 4]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_moved_tells_the_others_where_it_is() {
    let mut cluster = Cluster::start(3).await;
    let session = cluster.client().open(Duration::from_secs(60)).await;
    hold(&session, "kept").await;
    let moved = cluster.follower().await;
    cluster.terminate(moved).await;
    cluster.relocate(moved);
    cluster.launch(moved);
    eventually("all know its new address", Duration::from_secs(20), || async {
        let status = status(&cluster).await;
        let nodes = status["nodes"].as_array()?;
        let known = nodes.iter().find(|node| node["id"] == moved)?;
        let is_known = known["peer_address"] == cluster.peer_address(moved);
        (is_known && known["reachable"] == true).then_some(())
    })
    .await;
    cluster.converged().await;
    hold(&session, "more").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_that_starts_again_is_told_and_stops() {
    let mut cluster = Cluster::start(3).await;
    let endpoints = cluster.endpoints();
    let follower = cluster.follower().await;
    cluster.kill(follower);
    let removed = run(&endpoints, &["cluster", "remove", &follower.to_string()]).await;
    assert!(removed.status.success(), "{removed:?}");
    let term = cluster.view_of(cluster.leader().await).await.unwrap().term;
    cluster.launch(follower);
    eventually("it is told what happened to it", Duration::from_secs(20), || async {
        cluster.log_of(follower).contains("was removed from the cluster").then_some(())
    })
    .await;
    assert_eq!(cluster.ends(follower).await.code(), Some(77));
    // The others never noticed: no node stood for election because of it.
    let session = cluster.client().open(Duration::from_secs(60)).await;
    hold(&session, "served by two").await;
    assert_eq!(cluster.view_of(cluster.leader().await).await.unwrap().term, term);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_replaced_and_a_wiped_one_comes_back_under_a_new_id() {
    let mut cluster = Cluster::start(3).await;
    let session = cluster.client().open(Duration::from_secs(120)).await;
    let grant = hold(&session, "kept").await;
    let wiped = cluster.follower().await;
    cluster.kill(wiped);
    cluster.wipe(wiped);
    cluster.launch(wiped);
    eventually("it is told what to do", Duration::from_secs(20), || async {
        let advice = format!("holdfast cluster remove {wiped}");
        cluster.log_of(wiped).contains(&advice).then_some(())
    })
    .await;
    cluster.kill(wiped);
    let endpoints = cluster.endpoints();
    bring_in(&mut cluster, &endpoints, 4, &["cluster", "replace", &wiped.to_string()]).await;
    cluster.forget(wiped);
    let left: Vec<u64> = [1, 2, 3, 4].into_iter().filter(|id| *id != wiped).collect();
    let now: Vec<u64> = roles(&status(&cluster).await).iter().map(|(id, _)| *id).collect();
    assert_eq!(now, left);
    cluster.converged().await;
    assert_eq!(cluster.client().status("kept").await.holders[0].token, grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_stays_one_until_it_is_promoted() {
    let mut cluster = Cluster::start(3).await;
    let endpoints = cluster.endpoints();
    let arguments = arguments_for(&mut cluster, 7);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let add = [&["cluster", "add", "--learner"], &arguments[..]].concat();
    let added = run(&endpoints, &[&add[..], &["--timeout", "0s"]].concat()).await;
    assert!(added.status.success(), "{added:?}");
    let early = run(&endpoints, &["cluster", "promote", "7"]).await;
    assert_eq!(early.status.code(), Some(75), "{early:?}");
    let late = run(&endpoints, &[&add[..], &["--timeout", "500ms"]].concat()).await;
    assert_eq!(late.status.code(), Some(75), "it does not run: {late:?}");
    cluster.configure(7, std::str::from_utf8(&added.stdout).unwrap());
    cluster.launch(7);
    let json = run(&endpoints, &[&add[..], &["--output", "json"]].concat()).await;
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["id"], &json["role"]), (&Value::from(7), &Value::from("learner")));
    let promoted = run(&endpoints, &["cluster", "promote", "7", "--output", "json"]).await;
    assert_eq!(serde_json::from_slice::<Value>(&promoted.stdout).unwrap()["voter"], 7);
    assert_eq!(roles(&status(&cluster).await), voters([1, 2, 3, 7]));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_cannot_be_are_refused_with_words_and_leave_nothing_in_the_log() {
    let mut cluster = Cluster::start(3).await;
    let endpoints = cluster.endpoints();
    let (peer, client) = (cluster.peer_address(1), cluster.client_address(2));
    let leader = cluster.leader().await;
    eventually("the members are written down", Duration::from_secs(10), || async {
        let nodes = status(&cluster).await["nodes"].as_array()?.clone();
        nodes.iter().all(|node| node["directory_fingerprint"] != "").then_some(())
    })
    .await;
    let before = cluster.view_of(leader).await.unwrap();
    let add = |id: &str, peer: &str, client: &str| {
        let args = ["add", "--id", id, "--peer-address", peer, "--client-address", client];
        [&args[..], &["--timeout", "0s"]].concat().iter().map(|word| (*word).to_owned()).collect()
    };
    let cases: [(Vec<String>, i32, &str); 15] = [
        (add("3", "h:1", "h:2"), 64, "is a member already"),
        (add("0", "h:1", "h:2"), 64, "0"),
        (add("x", "h:1", "h:2"), 64, "invalid"),
        (add("4", &peer, "h:2"), 64, "node 1 has the address"),
        (add("4", "h:1", &client), 64, "node 2 has the address"),
        (add("4", "h:1", "h:1"), 64, "has the address"),
        (add("4", "nowhere", "h:1"), 64, "host:port"),
        (add("4", "0.0.0.0:1", "h:2"), 64, "cannot be dialled"),
        (add("4", "h:0", "h:2"), 64, "host:port"),
        (add("4", &format!("{}:1", "h".repeat(400)), "h:2"), 64, "host"),
        (vec!["remove".into(), "9".into()], 64, "no node 9"),
        (vec!["remove".into(), "0".into()], 64, "0"),
        (vec!["promote".into(), "9".into()], 64, "no node 9"),
        (vec!["transfer".into(), "--to".into(), "9".into()], 64, "no node 9"),
        (
            vec!["replace".into(), "9".into()]
                .into_iter()
                .chain(add("4", "h:1", "h:2").split_off(1))
                .collect(),
            64,
            "no node 9",
        ),
    ];
    for (args, code, expected) in cases {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let refused = run(&endpoints, &[&["cluster"], &args[..]].concat()).await;
        assert_eq!(refused.status.code(), Some(code), "{args:?}: {refused:?}");
        assert!(words(&refused).contains(expected), "{args:?}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
    // A removal that would leave too few: one of the three is dead, and a living one is to go.
    let followers: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    cluster.kill(followers[0]);
    let living = followers[1].to_string();
    let refused = eventually("the leader misses it", Duration::from_secs(10), || async {
        let dead =
            run(&endpoints, &["cluster", "transfer", "--to", &followers[0].to_string()]).await;
        (dead.status.code() == Some(69))
            .then_some(run(&endpoints, &["cluster", "remove", &living]).await)
    })
    .await;
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    assert!(words(&refused).contains("could not be completed"), "{refused:?}");
    let after = cluster.view_of(leader).await.unwrap();
    assert_eq!((after.term, after.commit_index), (before.term, before.commit_index));

    // One change at a time: the first node is never started.
    let added = add_without_waiting(&endpoints, "4", ["127.0.0.1:1", "127.0.0.1:2"]).await;
    assert!(added.status.success(), "{added:?}");
    let second = add_without_waiting(&endpoints, "5", ["127.0.0.1:3", "127.0.0.1:4"]).await;
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    assert!(words(&second).contains("node 4 is catching up"), "{second:?}");
    let removed = run(&endpoints, &["cluster", "remove", "4"]).await;
    assert!(removed.status.success(), "{removed:?}");
    let again = add_without_waiting(&endpoints, "4", ["127.0.0.1:1", "127.0.0.1:2"]).await;
    assert_eq!(again.status.code(), Some(64), "{again:?}");
    assert!(words(&again).contains("choose 5 or higher"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_voter_stays() {
    let cluster = Cluster::start(1).await;
    let refused = run(&cluster.endpoints(), &["cluster", "remove", "1"]).await;
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    assert!(words(&refused).contains("last voter"), "{refused:?}");
    let refused = run(&cluster.endpoints(), &["cluster", "transfer"]).await;
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
}
