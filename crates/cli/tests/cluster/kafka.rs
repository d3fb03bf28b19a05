//! What a real broker of Kafka gets to see: every event, in order for each lock, though the leader is killed and the
//! broker is away; and if it is away for too long, exactly how many it did not get.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::v1::acquire_response::Outcome;
use rskafka::record::Record;
use serde_json::Value;

use crate::audit::is_event;
use crate::servers::kafka::KafkaServer;
use crate::support::{
    Cluster, ClusterOptions, PlainSession, data, eventually, hold, json_lines, metric, metrics,
    wait_in_line,
};

/// A JVM on a busy machine is slow to come back.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// Longer than any of it takes.
pub(crate) const TTL: Duration = Duration::from_secs(3_600);
const RING: u64 = 100;
/// Of [`take_turns`].
const EVENTS_PER_TURN: f64 = 7.0;
/// Elections only when a node is killed, however busy the machine is with the broker.
pub(crate) const PATIENT: &str = "tick_ms = 100\nelection_ticks = 30";

type Position = (u64, u64);

/// An event as one who reads a partition has it.
#[derive(Clone, Debug)]
struct Published {
    key: Option<String>,
    sequence: u64,
    value: Value,
}

/// Of one partition, without what was sent twice: each reader can do this, knowing only what it has read.
fn first_copies(partition: &[Record]) -> Vec<Published> {
    let mut seen = BTreeSet::new();
    let published = partition.iter().map(|record| Published {
        key: record.key.as_ref().map(|key| String::from_utf8(key.clone()).unwrap()),
        sequence: record
            .headers
            .get("sequence")
            .map_or(0, |number| String::from_utf8(number.clone()).unwrap().parse().unwrap()),
        value: serde_json::from_slice(record.value.as_ref().unwrap()).unwrap(),
    });
    let is_first = |published: &Published| {
        let kind = published.value["event"].as_str().unwrap().to_owned();
        seen.insert((kind, published.key.clone(), position(&published.value)))
    };
    published.filter(is_first).collect()
}

fn position(line: &Value) -> Position {
    (line["index"].as_u64().unwrap(), line["number"].as_u64().unwrap())
}

/// Each node has its own wall clock, and knows from where clients came to it; the rest is the same on all.
pub(crate) fn without_own_fields(line: &Value) -> Value {
    let mut line = line.clone();
    let fields = line.as_object_mut().unwrap();
    for field in ["time", "unix_ms"] {
        assert!(fields.remove(field).is_some(), "{field} is missing");
    }
    for field in ["principal", "credential", "address", "protocol", "forwarded_by"] {
        fields.remove(field);
    }
    line
}

fn audit(file: &Path) -> BTreeMap<Position, Value> {
    let lines = json_lines(&std::fs::read(file).unwrap());
    lines.into_iter().filter(is_event).map(|line| (position(&line), line)).collect()
}

pub(crate) fn settings(kafka: &KafkaServer, topic: &str, dir: &Path, more: &str) -> String {
    format!(
        "{more}\n[audit]\nfile = \"{}/{topic}-{{node}}.jsonl\"\n[kafka]\nbrokers = [\"{}\"]\n\
         topic = \"{topic}\"\npartitions = 3\ntimeout_ms = 2000\n",
        dir.display(),
        kafka.address()
    )
}

async fn value_of(cluster: &Cluster, series: &str) -> f64 {
    let leader = cluster.leader().await;
    metric(&metrics(&cluster.http_address(leader)).await, series)
}

async fn until(cluster: &Cluster, what: &str, series: &str, is_so: impl Fn(f64) -> bool) {
    eventually(what, LONG, || async { is_so(value_of(cluster, series).await).then_some(()) }).await;
}

async fn until_connected(cluster: &Cluster) {
    until(cluster, "Kafka is reached", "holdfast_kafka_connected", |connected| connected == 1.0)
        .await;
}

/// Takes a lock, and waits until this and all before it is published.
async fn publish_up_to(
    name: &str,
    cluster: &Cluster,
    session: &PlainSession,
    kafka: &KafkaServer,
    topic: &str,
) {
    hold(session, name).await;
    let index = eventually("the lock is in the topic", LONG, || async {
        let records = kafka.read(topic).await.into_iter().flatten();
        let granted = first_copies(&records.collect::<Vec<_>>())
            .into_iter()
            .find(|record| record.key.as_deref() == Some(name));
        granted.map(|record| position(&record.value).0)
    })
    .await;
    let published = "holdfast_kafka_published_index";
    until(cluster, "so is all before it", published, |now| now >= index as f64).await;
}

/// All that tests of Kafka need is one broker, which takes seconds to start.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_gets_every_event_in_order_for_each_lock_and_knows_exactly_what_it_did_not_get() {
    let Some(mut kafka) = KafkaServer::start().await else { return };
    let dir = tempfile::tempdir().unwrap();
    a_killed_leader_and_a_broker_that_comes_back_in_time_lose_nothing(&mut kafka, dir.path()).await;
    an_outage_longer_than_the_ring_is_counted_exactly(&kafka, dir.path()).await;
}

/// Each turn takes a lock of its own, and hands a shared one over to one who waits for it.
async fn take_turns(alice: &PlainSession, bob: &Arc<PlainSession>, turns: Range<u64>) {
    for turn in turns {
        let own = format!("own/{turn}");
        let grant = hold(alice, &own).await;
        alice.release(&own, grant.token).await.unwrap();
        let grant = hold(alice, "shared").await;
        let waiting = wait_in_line(Arc::clone(bob), "shared", LONG);
        eventually("bob waits", LONG, || async {
            (alice.client.status("shared").await.waiter_count == 1).then_some(())
        })
        .await;
        alice.release("shared", grant.token).await.unwrap();
        let answer = waiting.await.unwrap().unwrap();
        let Some(Outcome::Granted(grant)) = answer.outcome else { panic!("{answer:?}") };
        bob.release("shared", grant.token).await.unwrap();
    }
}

async fn a_killed_leader_and_a_broker_that_comes_back_in_time_lose_nothing(
    kafka: &mut KafkaServer,
    dir: &Path,
) {
    let settings = settings(kafka, "all", dir, PATIENT);
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    until_connected(&cluster).await;
    let client = cluster.client();
    let alice = client.open(TTL).await;
    let bob = Arc::new(client.open(TTL).await);
    hold(&alice, "the first").await;
    take_turns(&alice, &bob, 0..10).await;
    publish_up_to("mark/1", &cluster, &alice, kafka, "all").await;

    // What it published in its last moments it cannot tell any more.
    take_turns(&alice, &bob, 10..20).await;
    let killed = cluster.leader().await;
    cluster.kill(killed);
    let second = cluster.leader().await;
    take_turns(&alice, &bob, 20..30).await;
    publish_up_to("mark/2", &cluster, &alice, kafka, "all").await;

    kafka.crash();
    take_turns(&alice, &bob, 30..60).await;
    let behind = "holdfast_kafka_behind_events";
    until(&cluster, "events wait", behind, |count| count >= 30.0 * EVENTS_PER_TURN).await;
    data(&cluster, 0, &["break", "the first", "--reason", "for Kafka"]).await;
    cluster.launch(killed);
    assert!(kafka.launch().await, "the broker comes back where it was");
    publish_up_to("the last", &cluster, &alice, kafka, "all").await;

    // A node that was never killed wrote down all that happened.
    let survivor = cluster.ids().into_iter().find(|id| *id != killed).unwrap();
    let file = dir.join(format!("all-{survivor}.jsonl"));
    eventually("the last event is in the audit file", LONG, || {
        let lines = audit(&file);
        let last = lines.values().any(|line| line["names"][0] == "the last");
        std::future::ready(last.then_some(()))
    })
    .await;
    let happened = audit(&file);
    let partitions: Vec<Vec<Published>> =
        kafka.read("all").await.iter().map(|records| first_copies(records)).collect();
    let published: Vec<&Published> = partitions.iter().flatten().collect();
    assert!(!published.iter().any(|record| record.value["event"] == "gap"), "nothing is lost");

    // Every event: those from before publishing began, and no other, are missing.
    let events: BTreeMap<Position, &Published> = published
        .iter()
        .filter(|record| is_event(&record.value))
        .map(|record| (position(&record.value), *record))
        .collect();
    let first = events.values().find(|record| record.sequence == 1).expect("the first of all");
    let begun = position(&first.value);
    assert!(happened.range(..begun).all(|(_, line)| line["names"][0] != "the first"));
    let expected: Vec<Value> =
        happened.range(begun..).map(|(_, line)| without_own_fields(line)).collect();
    let found: Vec<Value> =
        events.values().map(|record| without_own_fields(&record.value)).collect();
    assert!(found.len() as f64 >= 60.0 * EVENTS_PER_TURN, "{}", found.len());
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    let sequences: Vec<u64> = events.values().map(|record| record.sequence).collect();
    assert!(sequences.iter().copied().eq(1..=found.len() as u64), "counted one by one, in order");

    // In order for each lock, and all of a lock in one partition.
    let mut homes = BTreeMap::new();
    for (number, partition) in partitions.iter().enumerate() {
        let mut last: BTreeMap<&str, Position> = BTreeMap::new();
        for record in partition {
            let Some(key) = &record.key else { continue };
            assert!(record.value["names"].as_array().unwrap().contains(&Value::from(key.as_str())));
            assert_eq!(*homes.entry(key).or_insert(number), number, "{key} moved");
            let now = position(&record.value);
            assert!(last.insert(key, now).is_none_or(|before| before < now), "{key} at {now:?}");
        }
    }
    assert!(homes.values().collect::<BTreeSet<_>>().len() > 1, "locks are spread");
    let broken = published.iter().find(|record| record.value["event"] == "broken").unwrap();
    assert_eq!(broken.key.as_deref(), Some("the first"));

    // Who led, of which the killed one could tell before.
    let leaders: BTreeSet<u64> = published
        .iter()
        .filter(|record| record.value["event"] == "leadership")
        .map(|record| record.value["leader"].as_u64().unwrap())
        .collect();
    assert!(leaders.contains(&killed) && leaders.contains(&second), "{leaders:?}");
    cluster.converged().await;
}

async fn an_outage_longer_than_the_ring_is_counted_exactly(kafka: &KafkaServer, dir: &Path) {
    let settings = settings(kafka, "some", dir, &format!("{PATIENT}\nevents_kept = {RING}"));
    let cluster = Cluster::start_with(ClusterOptions { nodes: 1, settings }).await;
    until_connected(&cluster).await;
    let session = cluster.client().open(TTL).await;
    publish_up_to("before", &cluster, &session, kafka, "some").await;

    // A broker that hangs, rather than one that is gone: no node waits for it.
    kafka.freeze();
    for number in 0..2 * RING {
        let name = format!("meanwhile/{number}");
        let grant = hold(&session, &name).await;
        session.release(&name, grant.token).await.unwrap();
    }
    let behind = "holdfast_kafka_behind_events";
    until(&cluster, "it is known how many wait", behind, |count| count == (4 * RING) as f64).await;
    kafka.thaw();
    publish_up_to("after", &cluster, &session, kafka, "some").await;

    let partitions: Vec<Vec<Published>> =
        kafka.read("some").await.iter().map(|records| first_copies(records)).collect();
    let gaps: Vec<Vec<&Published>> = partitions
        .iter()
        .map(|partition| partition.iter().filter(|record| record.value["event"] == "gap").collect())
        .collect();
    assert!(gaps.iter().all(|gaps| gaps.len() == 1), "each partition tells of it once: {gaps:?}");
    let gap = &gaps[0][0].value;
    let (lost, after_index, index) =
        ["lost", "after_index", "index"].map(|field| gap[field].as_u64().unwrap()).into();

    let happened = audit(&dir.join("some-1.jsonl"));
    let events: BTreeMap<Position, &Published> = partitions
        .iter()
        .flatten()
        .filter(|record| is_event(&record.value))
        .map(|record| (position(&record.value), record))
        .collect();
    let begun = *events.keys().next().unwrap();
    let missing: Vec<Position> =
        happened.range(begun..).map(|(at, _)| *at).filter(|at| !events.contains_key(at)).collect();
    assert!(lost >= 2 * RING, "{lost}");
    assert_eq!(missing.len() as u64, lost, "as many as it says");
    assert!(missing.iter().all(|(at, _)| *at > after_index && *at < index), "{gap}: {missing:?}");
    assert!(
        events.keys().any(|(at, _)| *at == after_index)
            && events.keys().any(|(at, _)| *at == index)
    );
    let last = events.values().map(|record| record.sequence).max().unwrap();
    assert_eq!(last - events.len() as u64, lost, "the numbers of the events leave out as many");
    let page = metrics(&cluster.http_address(1)).await;
    assert_eq!(metric(&page, "holdfast_kafka_dropped_events_total"), lost as f64);
    let log = cluster.log_of(1);
    let reported = log.lines().find(|line| line.contains("events are lost to Kafka")).unwrap();
    assert!(
        reported.contains(&lost.to_string()) && reported.contains(&index.to_string()),
        "{reported}"
    );
}
