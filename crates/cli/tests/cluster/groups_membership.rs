//! Nodes come to a cluster with several groups, and go: `cluster add` and `cluster remove` concern all groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_client::{Client, Guard, ReleaseOutcome};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::backup::{NOWHERE, json};
use crate::groups_backup::{GROUPS, hold_in_each, names_of_groups};
use crate::membership::{arguments_for, bring_in, run};
use crate::support::{Cluster, eventually};

const WORKERS: usize = 3;
/// So many locks each worker takes again and again. They are in all groups.
const NAMES: usize = 16;
/// Every so many rounds a lock is kept, to be found again at the end.
const KEEP_EVERY: usize = 20;
const TTL: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    operations: AtomicUsize,
}

impl Load {
    /// The clients are served some more.
    async fn goes_on(&self) {
        let served = self.operations.load(Ordering::Relaxed) + 2 * NAMES * WORKERS;
        eventually("the clients are served", Duration::from_secs(60), || async {
            (self.operations.load(Ordering::Relaxed) >= served).then_some(())
        })
        .await;
    }
}

/// Its locks, and the client that keeps them.
type Kept = (Vec<(Guard, u64)>, Client);

fn start(endpoints: &str, worker: usize, load: &Arc<Load>) -> JoinHandle<Kept> {
    let (endpoints, load) = (endpoints.to_owned(), Arc::clone(load));
    tokio::spawn(async move {
        let client = Client::connect(&endpoints).await.unwrap();
        let (mut kept, mut tokens) = (Vec::new(), BTreeMap::new());
        for round in 0.. {
            if load.stop.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("load:{worker}:{}", round % NAMES);
            let guard = client.lock(&name).wait(TTL).acquire().await.unwrap();
            let token = guard.token().unwrap();
            let before = tokens.insert(name.clone(), token).unwrap_or_default();
            assert!(token > before, "{name}: a token went back: {before}, then {token}");
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "{name}");
            if round % KEEP_EVERY == 0 {
                let name = format!("kept:{worker}:{round}");
                let guard = client.lock(&name).acquire().await.unwrap();
                let token = guard.token().unwrap();
                kept.push((guard, token));
            }
            load.operations.fetch_add(1, Ordering::Relaxed);
        }
        (kept, client)
    })
}

/// The leaders of the groups, in their order; 0: none.
async fn leaders(cluster: &Cluster, asked: u64) -> Vec<u64> {
    let view = cluster.client_of(asked).own_view().await;
    let groups = view.map(|view| view.groups).unwrap_or_default();
    groups.iter().map(|group| group.leader).collect()
}

/// Of a node without an HTTP port, which cannot say that it is ready.
async fn knows_leaders(cluster: &Cluster, id: u64) {
    eventually("the node knows the leaders of all groups", Duration::from_secs(20), || async {
        let leaders = leaders(cluster, id).await;
        (leaders.len() == GROUPS as usize && !leaders.contains(&0)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_cluster_grows_from_one_node_to_three_under_load() {
    let mut cluster = Cluster::start_divided(3, GROUPS).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locks.holdfast");
    let path = file.to_str().unwrap();
    let names = names_of_groups(&cluster.client(), 2).await;
    let session = cluster.client().open(TTL).await;
    hold_in_each(&session, &names, 0).await;
    json(&run(&cluster.endpoints(), &["snapshot", "save", path, "--output", "json"]).await);
    for id in [1, 2, 3] {
        cluster.kill(id);
        cluster.wipe(id);
    }
    let config = cluster.config_path(1);
    let restore = ["snapshot", "restore", path, "--config", &config, "--closed-for", "0s"];
    let restored = run(NOWHERE, &restore).await;
    let told = String::from_utf8_lossy(&restored.stdout);
    assert!(told.contains("holdfast cluster add --id 4"), "{restored:?}");
    assert!(told.contains("the cluster grants locks at once"), "{restored:?}");
    cluster.forget(2);
    cluster.forget(3);
    cluster.launch(1);
    cluster.ready(1).await;

    let session = cluster.client().open(TTL).await;
    let held = hold_in_each(&session, &names, 1).await;
    let load = Arc::new(Load::default());
    let endpoints = cluster.endpoints();
    let workers: Vec<_> = (0..WORKERS).map(|worker| start(&endpoints, worker, &load)).collect();
    for id in [4, 5] {
        bring_in(&mut cluster, &endpoints, id, &["cluster", "add"]).await;
        knows_leaders(&cluster, id).await;
        load.goes_on().await;
    }
    let shown = run(&endpoints, &["cluster", "status", "--output", "json"]).await;
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    for group in shown["groups"].as_array().unwrap() {
        let members = group["members"].as_array().unwrap();
        let roles = members.iter().map(|member| (member["node"].as_u64(), member["role"].as_str()));
        let voters = [1, 4, 5].map(|node| (Some(node), Some("voter")));
        assert_eq!(roles.collect::<Vec<_>>(), voters, "{shown}");
    }

    // The leader of one group is killed.
    let killed = eventually("leaders are spread", Duration::from_secs(30), || async {
        let leaders = leaders(&cluster, 1).await;
        leaders.into_iter().skip(1).find(|leader| [4, 5].contains(leader))
    })
    .await;
    cluster.kill(killed);
    load.goes_on().await;
    let to = killed.to_string();
    let premature = eventually("the leader misses it", Duration::from_secs(20), || async {
        let dead = run(&endpoints, &["cluster", "transfer", "--to", &to]).await;
        let is_missed = dead.status.code() == Some(69);
        is_missed.then_some(run(&endpoints, &["cluster", "remove", "1"]).await)
    })
    .await;
    assert_eq!(premature.status.code(), Some(69), "too few would be left: {premature:?}");
    cluster.launch(killed);
    knows_leaders(&cluster, killed).await;
    let endpoints = cluster.endpoints();
    eventually("node 1 is removed from all groups", Duration::from_secs(30), || async {
        run(&endpoints, &["cluster", "remove", "1"]).await.status.success().then_some(())
    })
    .await;
    assert_eq!(cluster.ends(1).await.code(), Some(77));
    load.goes_on().await;

    load.stop.store(true, Ordering::Relaxed);
    let client = cluster.client_of(4);
    for worker in workers {
        let (kept, _client) = worker.await.unwrap();
        assert!(!kept.is_empty());
        for (guard, token) in &kept {
            assert_eq!(guard.token(), Ok(*token), "{} was lost", guard.name());
            let holders = client.status(guard.name()).await.holders;
            let held: Vec<u64> = holders.iter().map(|holder| holder.token).collect();
            assert_eq!(held, [*token], "{} was acknowledged under {token}", guard.name());
        }
    }
    for (group, names) in &names {
        let status = client.status(&names[1]).await;
        let tokens: Vec<u64> = status.holders.iter().map(|holder| holder.token).collect();
        assert_eq!((status.group, tokens), (*group, vec![held[group]]));
    }
    cluster.converged_in_all_groups().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_groups_is_that_of_the_file_and_of_the_directory() {
    let mut cluster = Cluster::start_divided(1, GROUPS).await;
    let path = cluster.config_path(1);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("groups = 4\n"), "{text}");
    for (line, code, words) in [
        // As for every data directory that does not belong to the configuration.
        ("groups = 2\n", 69, "the configuration says groups = 2"),
        ("groups = 1\n", 69, "the configuration says groups = 1"),
        ("groups = 65\n", 64, "groups = 65 is out of range; choose a number from 1 to 64"),
        ("groups = 0\n", 64, "groups = 0 is out of range"),
    ] {
        cluster.terminate(1).await;
        cluster.configure(1, &text.replace("groups = 4\n", line));
        cluster.launch(1);
        assert_eq!(cluster.ended_code(1).await, Some(code), "{line}");
        assert!(cluster.log_of(1).contains(words), "{line}: {}", cluster.log_of(1));
        cluster.configure(1, &text);
        cluster.launch(1);
        cluster.ready(1).await;
    }
    // A file that names none takes the number of the directory, as of one that a backup was restored into.
    cluster.terminate(1).await;
    cluster.configure(1, &text.replace("groups = 4\n", ""));
    cluster.launch(1);
    cluster.ready(1).await;
    assert_eq!(leaders(&cluster, 1).await, [1; GROUPS as usize]);

    // A node with another number is told so. It has not been noted, so its directory may be another one next time.
    let endpoints = cluster.endpoints();
    let arguments = arguments_for(&mut cluster, 2);
    let add = ["cluster", "add"].into_iter().chain(arguments.iter().map(String::as_str));
    let add: Vec<&str> = add.collect();
    let added = run(&endpoints, &[&add[..], &["--timeout", "0s"]].concat()).await;
    let printed = String::from_utf8(added.stdout).unwrap();
    assert!(printed.contains("groups = 4\n"), "{printed}");
    cluster.configure(2, &printed.replace("groups = 4\n", "groups = 3\n"));
    cluster.launch(2);
    eventually("it refuses the leader", Duration::from_secs(20), || async {
        let words = "with groups = 3; the other side has groups = 4";
        cluster.log_of(2).contains(words).then_some(())
    })
    .await;
    cluster.kill(2);
    cluster.wipe(2);
    cluster.configure(2, &printed);
    cluster.launch(2);
    let voter = run(&endpoints, &[&add[..], &["--timeout", "30s"]].concat()).await;
    assert!(voter.status.success(), "{voter:?}");
    knows_leaders(&cluster, 2).await;
}
