//! What a real broker of Kafka gets to see of a cluster with several groups: every event of each group, in order for each
//! lock, though the leader of a group is killed while events flow; and a gap only of the group that has one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use holdfast_client::Client;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::groups_backup::names_of_groups;
use crate::kafka::{LONG, PATIENT, TTL, settings};
use crate::kafka_judge::{Events, Published, events_of, group, judge, position};
use crate::servers::kafka::KafkaServer;
use crate::support::{
    Cluster, ClusterOptions, PlainSession, eventually, hold, json_lines, metric, metrics,
};

const GROUPS: u32 = 4;
/// The group with the leader that is killed.
const KILLED: u32 = 3;
/// The group that has a gap.
const BUSY: u32 = 2;
const RING: u64 = 400;

/// All tests of several groups share one broker, which takes seconds to start.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_gets_the_events_of_each_group_in_order_and_a_gap_only_of_the_group_that_has_one() {
    let Some(kafka) = KafkaServer::start().await else { return };
    let dir = tempfile::tempdir().unwrap();
    a_killed_leader_of_one_group_loses_nothing_of_any_group(&kafka, dir.path()).await;
    a_gap_of_one_group_is_exact_and_a_restarted_node_continues_each_group(&kafka, dir.path()).await;
}

/// Programs that take locks and give them back all the time, under each leader.
struct Load {
    stop: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Two programs for each lock.
    fn start(endpoints: &str, names: impl Iterator<Item = String>) -> Load {
        let stop = watch::Sender::new(false);
        let twice = names.flat_map(|name| [name.clone(), name]);
        let work =
            |name: String| tokio::spawn(take_turns(endpoints.to_owned(), name, stop.subscribe()));
        let workers = twice.map(work).collect();
        Load { stop, workers }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        for worker in self.workers {
            worker.await.unwrap();
        }
    }
}

async fn take_turns(endpoints: String, name: String, stop: watch::Receiver<bool>) {
    let client = Client::connect(&endpoints).await.unwrap();
    while !*stop.borrow() {
        // While there is no leader, a turn fails.
        if let Ok(guard) = client.lock(&name).wait(Duration::from_secs(5)).acquire().await {
            let _ = guard.release().await;
        }
        // So that the broker and the other tests have some of the processor.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = client.close().await;
}

async fn read(kafka: &KafkaServer, topic: &str) -> Vec<Vec<Published>> {
    let partitions = kafka.read_if_there(topic).await.unwrap_or_default();
    partitions.iter().map(|records| records.iter().map(Published::of).collect()).collect()
}

/// How many events of each group there are, by their numbers.
async fn counts(kafka: &KafkaServer, topic: &str) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for record in read(kafka, topic).await.iter().flatten() {
        let highest: &mut u64 = counts.entry(record.group()).or_default();
        *highest = record.sequence.unwrap_or_default().max(*highest);
    }
    counts
}

/// Waits until each group has published so many events since.
async fn more_events(
    kafka: &KafkaServer,
    topic: &str,
    since: &BTreeMap<u64, u64>,
    more: u64,
) -> BTreeMap<u64, u64> {
    eventually("events of all groups are published", LONG, || async {
        let now = counts(kafka, topic).await;
        let reaches = |group: u64| {
            let before = since.get(&group).copied().unwrap_or_default();
            now.get(&group).is_some_and(|count| *count >= before + more)
        };
        (1..=u64::from(GROUPS)).all(reaches).then_some(now)
    })
    .await
}

/// Waits until the grants of these locks are published.
async fn are_published(kafka: &KafkaServer, topic: &str, names: &[&String]) {
    eventually("the locks are in the topic", LONG, || async {
        let partitions = read(kafka, topic).await;
        let keys: BTreeSet<&String> =
            partitions.iter().flatten().filter_map(|record| record.key.as_ref()).collect();
        names.iter().all(|name| keys.contains(name)).then_some(())
    })
    .await;
}

/// Takes a lock in each group, and waits until this is published.
async fn hold_and_publish(
    kafka: &KafkaServer,
    topic: &str,
    session: &PlainSession,
    names: &BTreeMap<u32, Vec<String>>,
    which: usize,
) {
    let names: Vec<&String> = names.values().map(|names| &names[which]).collect();
    for name in &names {
        hold(session, name).await;
    }
    are_published(kafka, topic, &names).await;
}

/// By a node that answers, and that knows a leader.
async fn leader_of(cluster: &Cluster, group: u32) -> u64 {
    eventually("the group has a leader", LONG, || async {
        for id in cluster.running() {
            let Some(view) = cluster.client_of(id).own_view().await else { continue };
            let of_group = view.groups.into_iter().find(|view| view.group == group);
            if let Some(view) = of_group.filter(|view| view.leader == id) {
                return Some(view.leader);
            }
        }
        None
    })
    .await
}

fn happened(file: &Path) -> Events {
    events_of(json_lines(&std::fs::read(file).unwrap()))
}

/// After a restart, the audit file of a node does not tell the owners of sessions that were opened before.
fn without_owner(line: &mut Value) {
    if let Some(fields) = line.as_object_mut() {
        fields.remove("owner");
    }
}

/// Waits until the topic has all that happened, by the file; fails with what is wrong.
async fn acquit(kafka: &KafkaServer, topic: &str, file: &Path, groups: &[u64]) {
    let last_words = std::cell::RefCell::new(Vec::new());
    eventually("the topic is as the events were", LONG, || async {
        let is_judged = |group: u64| groups.contains(&group);
        let mut partitions = read(kafka, topic).await;
        for partition in &mut partitions {
            partition.retain(|record| is_judged(record.group()));
            partition.iter_mut().for_each(|record| without_owner(&mut record.value));
        }
        let mut happened = happened(file);
        happened.retain(|(group, _), _| is_judged(*group));
        happened.values_mut().for_each(without_owner);
        let wrong = judge(&partitions, &happened);
        if *last_words.borrow() != wrong {
            println!("{}", wrong.join("\n"));
            last_words.replace(wrong);
        }
        last_words.borrow().is_empty().then_some(())
    })
    .await;
}

async fn a_killed_leader_of_one_group_loses_nothing_of_any_group(kafka: &KafkaServer, dir: &Path) {
    let topic = "groups";
    let options = ClusterOptions { nodes: 3, settings: settings(kafka, topic, dir, PATIENT) };
    let mut cluster = Cluster::start_divided_with(GROUPS, options).await;
    let client = cluster.client();
    let names = names_of_groups(&client, 3).await;
    let load = Load::start(&cluster.endpoints(), names.values().map(|names| names[0].clone()));
    let first = more_events(kafka, topic, &BTreeMap::new(), 40).await;

    // What it published in its last moments it cannot tell any more.
    let killed = leader_of(&cluster, KILLED).await;
    cluster.kill(killed);
    let second = more_events(kafka, topic, &first, 100).await;
    assert_ne!(leader_of(&cluster, KILLED).await, killed);
    cluster.launch(killed);
    cluster.ready(killed).await;
    more_events(kafka, topic, &second, 100).await;
    load.stop().await;
    let session = client.open(TTL).await;
    hold_and_publish(kafka, topic, &session, &names, 1).await;

    let survivor = cluster.ids().into_iter().find(|id| *id != killed).unwrap();
    let file = dir.join(format!("{topic}-{survivor}.jsonl"));
    eventually("the last events are in the audit file", LONG, || {
        let happened = happened(&file);
        let is_there = |name: &String| happened.values().any(|line| line["names"][0] == **name);
        let all = names.values().all(|names| is_there(&names[1]));
        std::future::ready(all.then_some(()))
    })
    .await;
    acquit(kafka, topic, &file, &[1, 2, 3, 4]).await;

    let published = read(kafka, topic).await;
    let published: Vec<&Published> = published.iter().flatten().collect();
    assert!(!published.iter().any(|record| record.kind() == "gap"), "nothing is lost");
    // Each lock is in the group that serves it.
    for (group, names) in &names {
        let of_lock = published.iter().filter(|record| record.key.as_ref() == Some(&names[0]));
        let groups: BTreeSet<u64> = of_lock.map(|record| record.group()).collect();
        assert_eq!(groups, BTreeSet::from([u64::from(*group)]), "{}", names[0]);
    }
    // The elections of each group, also those of the leader that was killed.
    let elected = |group: u32| -> BTreeSet<u64> {
        let elections = published.iter().filter(|record| record.kind() == "leadership");
        let of_group = elections.filter(|record| record.group() == u64::from(group));
        of_group.map(|record| record.value["leader"].as_u64().unwrap()).collect()
    };
    assert!((1..=GROUPS).all(|group| !elected(group).is_empty()));
    assert!(elected(KILLED).len() > 1 && elected(KILLED).contains(&killed));
    cluster.converged_in_all_groups().await;
}

async fn a_gap_of_one_group_is_exact_and_a_restarted_node_continues_each_group(
    kafka: &KafkaServer,
    dir: &Path,
) {
    let topic = "gap-of-one";
    let settings = settings(kafka, topic, dir, &format!("{PATIENT}\nevents_kept = {RING}"));
    let options = ClusterOptions { nodes: 1, settings };
    let mut cluster = Cluster::start_divided_with(GROUPS, options).await;
    let client = cluster.client();
    let names = names_of_groups(&client, 5).await;
    let session = client.open(TTL).await;
    hold_and_publish(kafka, topic, &session, &names, 0).await;

    // A broker that hangs, rather than one that is gone.
    kafka.freeze();
    for (group, names) in &names {
        let turns = if *group == BUSY { 2 * RING } else { 10 };
        for _ in 0..turns {
            let grant = hold(&session, &names[1]).await;
            session.release(&names[1], grant.token).await.unwrap();
        }
    }
    let address = cluster.http_address(1);
    eventually("the metrics name the group that is furthest behind", LONG, || async {
        let page = metrics(&address).await;
        let behind = metric(&page, "holdfast_kafka_behind_events");
        let group = metric(&page, "holdfast_kafka_behind_group");
        (group == f64::from(BUSY) && behind == (4 * RING) as f64).then_some(())
    })
    .await;
    kafka.thaw();
    hold_and_publish(kafka, topic, &session, &names, 2).await;
    let dropped = eventually("all that comes with the gap has arrived", LONG, || async {
        let page = metrics(&address).await;
        Some(metric(&page, "holdfast_kafka_dropped_events_total")).filter(|dropped| *dropped > 0.0)
    })
    .await;
    let log = cluster.log_of(1);
    let reported: Vec<&str> =
        log.lines().filter(|line| line.contains("events are lost to Kafka")).collect();
    assert!(!reported.is_empty() && reported.iter().all(|line| line.contains("group=2")), "{log}");

    let file = dir.join(format!("{topic}-1.jsonl"));
    let published = read(kafka, topic).await;
    let gaps: Vec<Vec<&Value>> = published
        .iter()
        .map(|partition| {
            let gaps = partition.iter().filter(|record| record.kind() == "gap");
            gaps.map(|record| &record.value).collect()
        })
        .collect();
    assert!(gaps.iter().all(|gaps| gaps.len() == 1), "each partition tells of it once: {gaps:?}");
    let gap = gaps[0][0];
    assert_eq!(group(gap), u64::from(BUSY));
    let field = |name: &str| gap[name].as_u64().unwrap();
    let (lost, after_index, index) = (field("lost"), field("after_index"), field("index"));

    let of_busy = |record: &&Published| record.sequence.is_some() && record.group() == group(gap);
    let events: BTreeMap<(u64, u64), &Published> = published
        .iter()
        .flatten()
        .filter(of_busy)
        .map(|record| (position(&record.value), record))
        .collect();
    let begun = *events.keys().next().unwrap();
    let happened = happened(&file);
    let of_group = happened.keys().filter(|(of, at)| *of == group(gap) && *at >= begun);
    let missing: Vec<(u64, u64)> =
        of_group.map(|(_, at)| *at).filter(|at| !events.contains_key(at)).collect();
    assert!(lost >= RING, "{lost}");
    assert_eq!((missing.len() as u64, dropped), (lost, lost as f64), "as many as it says");
    assert!(missing.iter().all(|(at, _)| *at > after_index && *at < index), "{gap}: {missing:?}");
    let last = events.values().filter_map(|record| record.sequence).max().unwrap();
    assert_eq!(last - events.len() as u64, lost, "the numbers of the events leave out as many");

    // What was published in the last second may be lost to the position of the busy group: that is no gap of the others.
    cluster.terminate(1).await;
    cluster.launch(1);
    cluster.ready(1).await;
    hold_and_publish(kafka, topic, &session, &names, 3).await;
    cluster.kill(1);
    cluster.launch(1);
    cluster.ready(1).await;
    hold_and_publish(kafka, topic, &session, &names, 4).await;
    acquit(kafka, topic, &file, &[1, 3, 4]).await;
}
