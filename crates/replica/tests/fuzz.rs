//! Messages that no honest peer would send: arbitrary bytes, damaged bytes, and well-formed messages that
//! lie. Whatever comes, a replica refuses it, or takes it, or stops with an error. It never panics.
//!
//! `FUZZ_CASES=10000 cargo test -p holdfast-replica --test fuzz` runs for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, reason = "a failure says where its input is kept")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;
mod false_messages;
#[path = "../../../fuzz/support.rs"]
mod support;

use std::time::Duration;

use cluster::{Cluster, add, open, remove};
use holdfast_core::SessionId;
use holdfast_replica::{Fatal, NodeId};
use proptest::prelude::*;
use support::{Target, cases};

const CASES_USUAL: u32 = 150;
/// How many different states of a cluster an input of the corpus meets.
const MOMENTS: u64 = 200;

/// The first byte string of an input says at which moment the others are handed over.
const MESSAGES: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "messages", feed: hand_over };

/// Three nodes with some history: elections, grants, snapshots, a node that comes or goes, one that lags. The `moment`
/// says where it stops.
fn at_moment(moment: u64) -> Cluster {
    let mut cluster = Cluster::with_snapshots_every(3, 8);
    cluster.run_for(Duration::from_millis(10 * (moment % 60)));
    if !moment.is_multiple_of(4) {
        cluster.run_until_leader();
        for number in 1..=moment % 12 {
            let session = SessionId(u128::from(number));
            cluster.commit(open(session, 5_000));
            cluster.acquire(session, &format!("lock-{number}"));
        }
    }
    if moment % 5 == 2 {
        // In the middle of a change of the membership, or shortly after.
        let leader = cluster.run_until_leader();
        let change = if moment.is_multiple_of(2) { add(4) } else { remove(1 + moment % 3) };
        cluster.start_new(NodeId(4));
        cluster.change(leader, change);
        for _ in 0..moment % 11 {
            cluster.step();
        }
    }
    if moment % 3 == 1 {
        cluster.isolate(NodeId(1 + moment % 3));
        cluster.run_for(Duration::from_millis(10 * (moment % 150)));
        cluster.heal();
        cluster.run_for(Duration::from_millis(10 * (moment % 7)));
    }
    cluster
}

/// A message that was sent by then; an empty one if none was.
fn sent(moment: u64, which: &prop::sample::Index) -> Vec<u8> {
    let cluster = at_moment(moment);
    let messages = cluster.sent();
    if messages.is_empty() { Vec::new() } else { which.get::<Vec<u8>>(messages).clone() }
}

/// Hands the messages to each node, and lets the cluster go on for a while. A node that stops with an
/// error is as good as dead.
fn hand_over(input: &[Vec<u8>]) {
    let Some((moment, messages)) = input.split_first() else { return };
    let mut cluster = at_moment(u64::from(moment.first().copied().unwrap_or_default()));
    for message in messages {
        for node in [NodeId(1), NodeId(2), NodeId(3), NodeId(4)] {
            cluster.inject(node, message);
        }
    }
    for _ in 0..40 {
        cluster.step();
    }
    for (node, fatal) in cluster.stopped() {
        assert!(
            matches!(fatal, Fatal::UndecodableEntry { .. } | Fatal::ImpossibleChange { .. }),
            "node {node} lost its way: {fatal}"
        );
    }
}

fn input(moment: u64, messages: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    [vec![vec![moment as u8]], messages].concat()
}

#[test]
fn the_fuzz_corpus_is_handled_in_every_state() {
    let valid: Vec<_> = [1, 7, 40, 55]
        .map(|moment| {
            let messages = at_moment(moment).sent().to_vec();
            input(moment, messages.into_iter().rev().take(12).collect())
        })
        .into();
    MESSAGES.replay(&valid);
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn damaged_messages_never_panic(
        moment in 0..MOMENTS,
        which: prop::sample::Index,
        other: prop::sample::Index,
        damage in support::damage(),
    ) {
        let damaged = damage.of(&sent(moment, &which), &sent(moment, &other));
        MESSAGES.feed(&input(moment, vec![damaged]));
    }

    #[test]
    fn false_messages_never_cause_a_panic(
        moment in 0..MOMENTS,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), false_messages::false_message()), 1..4),
    ) {
        let sent = changes.iter().map(|(which, change)| change.apply_to(&sent(moment, which)));
        MESSAGES.feed(&input(moment, sent.collect()));
    }
}
