//! Backup, restore and quorum-loss recovery of a cluster with several groups: tokens never go back in any of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::backup::{NOWHERE, inspect, json, token_in};
use crate::membership::run;
use crate::recovery::token;
use crate::support::{Cluster, PlainClient, PlainSession, eventually, hold};

pub(crate) const GROUPS: u32 = 4;
const TTL: Duration = Duration::from_secs(120);

/// Names of locks by their group, so many of each.
pub(crate) async fn names_of_groups(
    client: &PlainClient,
    count: usize,
) -> BTreeMap<u32, Vec<String>> {
    let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for number in 0.. {
        let name = format!("lock {number}");
        let group = client.status(&name).await.group;
        let of_group = names.entry(group).or_default();
        if of_group.len() < count {
            of_group.push(name);
        }
        if names.len() == GROUPS as usize && names.values().all(|names| names.len() == count) {
            break;
        }
    }
    names
}

/// Takes a lock of each group; their tokens by group.
pub(crate) async fn hold_in_each(
    session: &PlainSession,
    names: &BTreeMap<u32, Vec<String>>,
    which: usize,
) -> BTreeMap<u32, u64> {
    let mut tokens = BTreeMap::new();
    for (group, names) in names {
        tokens.insert(*group, hold(session, &names[which]).await.token);
    }
    tokens
}

fn assert_rises(before: &BTreeMap<u32, u64>, after: &BTreeMap<u32, u64>) {
    for (group, token) in after {
        assert!(token > &before[group], "group {group}: {token} is not above {}", before[group]);
        assert!(*token < 1 << 63);
    }
}

fn groups_of_directory(data_dir: &Path) -> bool {
    let identity = std::fs::read_to_string(data_dir.join("identity.toml")).unwrap();
    identity.contains("version = 2") && identity.contains(&format!("groups = {GROUPS}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn all_groups_of_a_cluster_that_was_saved_and_destroyed_go_on_as_another_one() {
    let mut cluster = Cluster::start_divided(3, GROUPS).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locks.holdfast");
    let path = file.to_str().unwrap();
    let names = names_of_groups(&cluster.client(), 3).await;
    let session = cluster.client().open(TTL).await;
    let saved_tokens = hold_in_each(&session, &names, 0).await;
    // One node is asked for the backup, also for groups that it does not lead.
    let asked = cluster.client_address(2);
    let saved = json(&run(&asked, &["snapshot", "save", path, "--output", "json"]).await);
    assert_eq!(saved["bytes"], file.metadata().unwrap().len());
    assert!(saved["index"].is_null(), "{saved}");
    let groups: Vec<u64> = saved["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|saved| saved["group"].as_u64().unwrap())
        .collect();
    assert_eq!(groups, [1, 2, 3, 4]);
    let lost_tokens = hold_in_each(&session, &names, 1).await;

    let snapshot = inspect(&file).await;
    for (group, names) in &names {
        assert_eq!(token_in(&snapshot, &names[0]), Some(saved_tokens[group]), "group {group}");
        assert_eq!(token_in(&snapshot, &names[1]), None, "after the backup");
    }
    assert_eq!(snapshot["locks"], GROUPS);
    assert_eq!(snapshot["sessions"], GROUPS, "the client has one in each group");
    let slots = snapshot["groups"].as_array().unwrap().iter();
    assert_eq!(slots.map(|group| group["slots"].as_u64().unwrap()).sum::<u64>(), 4_096);
    let shown = run(NOWHERE, &["snapshot", "inspect", path]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("groups       4") && shown.contains("LAST TOKEN"), "{shown}");

    for id in [1, 2, 3] {
        cluster.kill(id);
        cluster.wipe(id);
    }
    let config = cluster.config_path(1);
    let restore = ["snapshot", "restore", path, "--config", &config, "--closed-for", "0s"];
    let good = std::fs::read(&file).unwrap();
    for (length, words) in [(good.len() - 1, "ends too early"), (good.len() / 2, "")] {
        let cut = dir.path().join("cut");
        std::fs::write(&cut, &good[..length]).unwrap();
        let args = ["snapshot", "restore", cut.to_str().unwrap(), "--config", &config];
        let refused = run(NOWHERE, &args).await;
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(words), "{refused:?}");
        assert!(!cluster.data_dir(1).exists(), "nothing was made");
    }
    let restored = json(&run(NOWHERE, &[&restore[..], &["--output", "json"]].concat()).await);
    assert_eq!(restored["groups"], GROUPS);
    assert_eq!(restored["old_cluster_id"], snapshot["cluster_id"]);
    assert_ne!(restored["cluster_id"], snapshot["cluster_id"]);
    assert_eq!(restored["holds_ended"], GROUPS);
    assert!(groups_of_directory(&cluster.data_dir(1)));
    let twice = run(NOWHERE, &restore).await;
    assert_eq!(twice.status.code(), Some(64), "the directory is not empty: {twice:?}");

    cluster.forget(2);
    cluster.forget(3);
    cluster.launch(1);
    cluster.ready(1).await;
    let client = cluster.client();
    assert!(client.sessions().await.is_empty());
    for (group, names) in &names {
        let status = client.status(&names[0]).await;
        assert_eq!((status.group, status.holders.len()), (*group, 0), "{}", names[0]);
    }
    let session = client.open(TTL).await;
    for which in 0..3 {
        let tokens = hold_in_each(&session, &names, which).await;
        assert_rises(&lost_tokens, &tokens);
        let above = token(&restored["last_token"]);
        assert!(tokens.values().all(|token| *token > above), "{tokens:?} above {above}");
    }
    // The new cluster can be saved, and restarted.
    let again = dir.path().join("again");
    let save = ["snapshot", "save", again.to_str().unwrap(), "--output", "json"];
    json(&run(&cluster.endpoints(), &save).await);
    assert_eq!(inspect(&again).await["cluster_id"], restored["cluster_id"]);
    cluster.kill(1);
    cluster.launch(1);
    cluster.ready(1).await;
    assert_eq!(cluster.client().status(&names[&2][0]).await.holders.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_groups_of_the_one_node_that_is_left_go_on_alone() {
    let mut cluster = Cluster::start_divided(3, GROUPS).await;
    let endpoints = cluster.endpoints();
    let survivor = 3;
    let config = cluster.config_path(survivor);
    let recover = ["recover", "--config", &config, "--i-lost-the-majority", "--closed-for", "0s"];
    let recover = [&recover[..], &["--output", "json"]].concat();
    let names = names_of_groups(&cluster.client(), 2).await;
    let session = cluster.client().open(TTL).await;
    let known = hold_in_each(&session, &names, 0).await;
    cluster.converged_in_all_groups().await;
    // Acknowledged by the two others alone, and lost with them.
    cluster.freeze(survivor);
    let two = PlainClient::new([1, 2].map(|id| cluster.client_address(id)).into());
    let session = two.open(TTL).await;
    let unknown = hold_in_each(&session, &names, 1).await;
    cluster.kill(survivor);
    let premature = run(&endpoints, &recover).await;
    assert_eq!(premature.status.code(), Some(64), "a majority lives: {premature:?}");
    cluster.kill(1);
    cluster.kill(2);

    let recovered = json(&run(NOWHERE, &recover).await);
    assert_eq!(recovered["new"]["groups"], GROUPS);
    let state = inspect(recovered["state_file"].as_str().unwrap().as_ref()).await;
    for (group, names) in &names {
        assert_eq!(token_in(&state, &names[0]), Some(known[group]), "group {group}");
    }
    let aside = std::path::PathBuf::from(recovered["aside"].as_str().unwrap());
    assert!(aside.join("old/log").is_dir() && groups_of_directory(&aside.join("old")));
    assert!(groups_of_directory(&cluster.data_dir(survivor)));

    cluster.launch(survivor);
    cluster.ready(survivor).await;
    let running = run(NOWHERE, &recover).await;
    assert_eq!(running.status.code(), Some(75), "it runs: {running:?}");
    let client = cluster.client_of(survivor);
    assert!(client.sessions().await.is_empty());
    let session = client.open(TTL).await;
    for which in 0..2 {
        let tokens = hold_in_each(&session, &names, which).await;
        assert_rises(&known, &tokens);
        assert_rises(&unknown, &tokens);
    }
    // One that comes back talks to no node.
    cluster.launch(1);
    eventually("it is refused", Duration::from_secs(20), || async {
        let log = cluster.log_of(1);
        let other = log.contains("belongs to another cluster of that name");
        (other || log.contains("was removed from the cluster")).then_some(())
    })
    .await;
    assert_eq!(client.own_view().await.unwrap().nodes.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_cluster_without_leaders_leaves_no_file() {
    let mut cluster = Cluster::start_divided(3, GROUPS).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks");
    cluster.kill(1);
    cluster.kill(2);
    let args = ["snapshot", "save", path.to_str().unwrap()];
    let refused = run(&cluster.client_address(3), &args).await;
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of it");
}
