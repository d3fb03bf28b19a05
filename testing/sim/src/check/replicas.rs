//! Identical replicas: the same events at the same index and logical time on every node, and equal digests.

use std::collections::BTreeMap;

use holdfast_core::{LogIndex, LogicalTime};
use holdfast_replica::NodeId;

use super::evidence::Evidence;
use super::findings::Findings;
use super::log::{Entry, LogRun};
use crate::history::{Happening, History, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("replicas");
    check_digests(history, &mut findings);
    check_events(history.log_runs(), &mut findings);
    findings.into_violations()
}

fn check_digests(history: &History, findings: &mut Findings) {
    let mut digests: BTreeMap<LogIndex, (NodeId, u64)> = BTreeMap::new();
    for record in &history.replicated {
        let Happening::Digest(digest) = record.what else { continue };
        let (node, first) = *digests.entry(record.index).or_insert((record.node, digest));
        if first != digest {
            findings.add(format!(
                "the tables differ after index {}: digest {first:016x} on node {}, {digest:016x} on \
                 node {}",
                record.index.0, node.0, record.node.0
            ));
        }
    }
}

fn check_events(log_runs: &[LogRun<'_>], findings: &mut Findings) {
    let mut seen: Vec<(NodeId, &Entry<'_>)> = log_runs
        .iter()
        .flat_map(|log_run| log_run.entries.iter().map(|entry| (log_run.node, entry)))
        .collect();
    seen.sort_by_key(|(_, entry)| entry.index);
    let mut first_seen = Vec::new();
    for versions in seen.chunk_by(|(_, a), (_, b)| a.index == b.index) {
        let (node, first) = versions[0];
        first_seen.push((node, first));
        for (_, entry) in versions.iter().filter(|(_, entry)| entry.logical != first.logical) {
            findings.add(format!(
                "index {} was applied at {} on node {} and at {} elsewhere",
                first.index.0, first.logical, node.0, entry.logical
            ));
        }
    }
    check_time(first_seen.iter().map(|(_, entry)| *entry), findings);
    for log_run in log_runs {
        let node = log_run.node.0;
        if let Some(index) = log_run.went_back_to {
            findings.add(format!("node {node} applied index {} after a later one", index.0));
        }
        let Some(last) = log_run.last() else { continue };
        if last <= log_run.after {
            findings.add(format!("node {node} applied index {} again", last.0));
            continue;
        }
        // One difference explains those that follow.
        let begin = first_seen.partition_point(|(_, entry)| entry.index <= log_run.after);
        let covered = first_seen[begin..].iter().take_while(|(_, entry)| entry.index <= last);
        for (other, first) in covered {
            let index = first.index;
            let here = log_run.entry(index).map_or(&[][..], |entry| &entry.events);
            if here != first.events {
                findings.add(format!(
                    "the replicas differ at index {}: node {} had {:?}, node {node} had {here:?}",
                    index.0, other.0, first.events
                ));
                break;
            }
        }
    }
}

/// Logical time does not go back along the log.
fn check_time<'a>(entries: impl Iterator<Item = &'a Entry<'a>>, findings: &mut Findings) {
    let mut now = LogicalTime::ZERO;
    for entry in entries {
        if entry.logical < now {
            findings.add(format!(
                "logical time went back from {now} to {} at index {}",
                entry.logical, entry.index.0
            ));
        }
        now = entry.logical;
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::{TestHistory, granted, queued, released};
    use crate::history::Happening;

    #[test]
    fn replicas_that_agree_up_to_restored_gaps_are_fine() {
        let mut story = TestHistory::default();
        for node in [1, 2] {
            story.applied(node, 1, [granted("a", 1, 1, 1)]);
            story.applied(node, 3, [released("a", 1, 1, 1)]);
            story.applied(node, 4, [granted("a", 2, 1, 2), queued("a", 1, 2)]);
            story.happened(node, 4, Happening::Digest(7));
        }
        // Node 3 missed 3, and restarts once from its disk.
        story.applied(3, 1, [granted("a", 1, 1, 1)]);
        story.happened(3, 3, Happening::Restored);
        story.applied(3, 4, [granted("a", 2, 1, 2), queued("a", 1, 2)]);
        story.happened(3, 3, Happening::Restored);
        story.applied(3, 4, [granted("a", 2, 1, 2), queued("a", 1, 2)]);
        story.happened(3, 4, Happening::Digest(7));
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn an_event_that_is_missing_on_one_node_is_found() {
        let mut story = TestHistory::default();
        story.applied(1, 1, [granted("a", 1, 1, 1)]);
        story.applied(1, 3, [granted("b", 1, 2, 2)]);
        story.applied(2, 3, [granted("b", 1, 2, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn events_in_another_order_are_found() {
        let mut story = TestHistory::default();
        story.applied(1, 1, [queued("a", 1, 1), queued("a", 2, 1)]);
        story.applied(2, 1, [queued("a", 2, 1), queued("a", 1, 1)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn digests_that_differ_are_found() {
        let mut story = TestHistory::default();
        story.happened(1, 8, Happening::Digest(1));
        story.happened(2, 8, Happening::Digest(2));
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn an_index_applied_twice_without_a_restore_is_found() {
        let mut story = TestHistory::default();
        story.applied(1, 1, [granted("a", 1, 1, 1)]);
        story.applied(1, 2, [released("a", 1, 1, 1)]);
        story.applied(1, 1, [granted("a", 1, 1, 1)]);
        assert!(!check(&story.evidence()).is_empty());
    }

    #[test]
    fn logical_time_that_goes_back_or_differs_is_found() {
        let mut story = TestHistory::default();
        story.log_at(1, 20, [granted("a", 1, 1, 1)]);
        story.log_at(2, 10, [released("a", 1, 1, 1)]);
        assert_eq!(check(&story.evidence()).len(), 1);
        let mut story = TestHistory::default();
        story.applied(1, 5, [granted("a", 1, 1, 1)]);
        story.applied(2, 5, [granted("a", 1, 1, 1)]);
        story.history.replicated[1].logical = holdfast_core::LogicalTime::from_ms(6);
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
