//! A disaster: all nodes are lost, and the cluster begins anew on one new node, from a backup that was saved some
//! time before. What was acknowledged after the backup is gone, and so are all sessions; what has to hold over
//! the gap is in `check::restore`.
//!
//! The history is cut there: the log that follows is that of another cluster. What operators had set is carried
//! into it, and that everything is closed at first.

use std::collections::BTreeMap;

use holdfast_core::command::{Action, Intervention};
use holdfast_core::{Event, LogIndex, LogicalTime, Span};
use holdfast_replica::{
    ClusterId, Membership, NodeId, SnapshotFile, Terms, begin_anew, read_snapshot,
};

use crate::fault::Undo;
use crate::history::{Happening, History, RealTime, Replicated};
use crate::node::{Incoming, member};
use crate::operator::Operator;
use crate::world::{Due, World};

const SECOND_US: u64 = 1_000_000;
/// What wall clocks showed when the run began.
const UNIX_MS_AT_START: u64 = 1_790_000_000_000;
/// A cluster of one node grows to this.
const VOTERS_WANTED: usize = 3;

/// A backup as an operator saved it.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) at: LogicalTime,
    pub(crate) file: SnapshotFile,
}

impl World {
    /// Somebody saves a backup; some time later it is needed. Once in a run is enough.
    pub(crate) fn announce_disaster(&mut self) -> Option<Undo> {
        let leader = self.leader()?;
        if self.disaster_announced || self.nodes.len() + VOTERS_WANTED > crate::network::NODES_MAX {
            return None;
        }
        self.disaster_announced = true;
        self.tell(leader, Incoming::Backup, 0);
        let after = self.fault_rng.between(SECOND_US, 20 * SECOND_US);
        self.agenda.plan(RealTime(self.now.0 + after), Due::Disaster);
        Some(Undo::Nothing)
    }

    /// Everything is lost but the backup.
    pub(crate) fn disaster(&mut self) {
        let Some(backup) = self.backup.take().filter(|_| !self.settling) else { return };
        self.trace.line(self.now, || format!("all is lost but a backup at {}", backup.file.index));
        for node in &mut self.nodes {
            node.stop();
            node.ruined = true;
        }
        let index = self.furnish_node();
        self.first_node = index;
        let node = self.nodes[index].id;
        let member = member(node);
        let directory = member.directory.map_or([0; 16], |directory| directory.0);
        let wall_ms = UNIX_MS_AT_START + self.now.0 / 1_000;
        let terms = Terms {
            node,
            member,
            cluster: ClusterId(directory),
            token_floor: wall_ms << 20,
            closed_for: None,
            by: "operator".to_owned(),
            reason: "the nodes are lost".to_owned(),
        };
        let made = begin_anew(&backup.file, terms).map_err(|error| error.to_string());
        let restored = made.and_then(|(made, account)| {
            self.nodes[index].furnish(&made)?;
            let (members, _) = read_snapshot(&made.data).map_err(|error| error.to_string())?;
            Ok((made, account.closed_for, members))
        });
        match restored {
            Ok((made, closed_for, members)) => {
                self.begin_history_anew(&backup, LogIndex(made.index), index, closed_for);
                self.go_on_with(LogIndex(made.index), members);
                let after = self.fault_rng.between(0, 3 * SECOND_US);
                self.agenda.plan(RealTime(self.now.0 + after), Due::Restart(index));
            }
            Err(what) => self.recorder.violation("restore", what),
        }
    }

    fn go_on_with(&mut self, index: LogIndex, members: Membership) {
        self.operator = Operator::of(members, index);
        let nodes: Vec<usize> = vec![self.nodes.len() - 1];
        for client in &mut self.clients {
            client.nodes.clone_from(&nodes);
        }
        self.agenda.plan(RealTime(self.now.0 + 5 * SECOND_US), Due::Grow);
    }

    /// One node is no cluster: others join.
    pub(crate) fn grow(&mut self) {
        if self.operator.members.configuration.voters.len() < VOTERS_WANTED {
            self.add_voter();
            self.agenda.plan(RealTime(self.now.0 + 5 * SECOND_US), Due::Grow);
        }
    }

    fn begin_history_anew(
        &mut self,
        backup: &Backup,
        index: LogIndex,
        node: usize,
        closed_for: Span,
    ) {
        // A stop is written down when it is over, which is too late for the history that ends here.
        let stopped = self.nodes.iter().filter_map(|node| node.clock.stopped_since());
        let stops = stopped.map(|since| (since, self.now)).collect::<Vec<_>>();
        self.recorder.history.clocks.stops.extend(stops);
        let moved = self.recorder.begin_anew(self.now, closed_for);
        for client in &mut self.clients {
            client.operations_moved(&moved);
        }
        let Some(before) = self.recorder.epochs.last() else { return };
        let mut kept = what_operators_set(before, backup);
        if closed_for > Span::ZERO {
            kept.push(Action::Freeze { prefix: "".into(), ttl: closed_for });
        }
        let (now, id, at) = (self.now, self.nodes[node].id, backup.at);
        let before = LogIndex(index.0 - 1);
        self.recorder.replicated(now, id, before, at, Happening::Restored);
        for action in kept {
            let (by, reason) = ("operator".into(), "it was so before".into());
            let event = Event::Intervened(Intervention { by, reason, action });
            self.recorder.replicated(now, id, index, at, Happening::Event(event));
        }
    }
}

/// Numbers of permits and freezes that the backup has.
fn what_operators_set(before: &History, backup: &Backup) -> Vec<Action> {
    // In the order of the log, whichever node recorded it first.
    let mut log: BTreeMap<LogIndex, (NodeId, Vec<&Replicated>)> = BTreeMap::new();
    for record in before.replicated.iter().filter(|record| record.index.0 <= backup.file.index) {
        let (node, records) = log.entry(record.index).or_insert((record.node, Vec::new()));
        if *node == record.node {
            records.push(record);
        }
    }
    let (mut permits, mut freezes) = (BTreeMap::new(), BTreeMap::new());
    for record in log.into_values().flat_map(|(_, records)| records) {
        match &record.what {
            Happening::Event(Event::Intervened(intervention)) => match &intervention.action {
                Action::SetPermits { name, limit } => drop(permits.insert(name, limit)),
                Action::Freeze { prefix, ttl } => {
                    freezes.insert(prefix.to_string(), record.logical.after(*ttl));
                }
                _ => {}
            },
            Happening::Event(Event::Thawed { prefix }) => drop(freezes.remove(prefix)),
            _ => {}
        }
    }
    let permits = permits
        .into_iter()
        .map(|(name, limit)| Action::SetPermits { name: name.clone(), limit: *limit });
    let freezes = freezes.into_iter().map(|(prefix, until)| Action::Freeze {
        prefix: prefix.into(),
        ttl: until.since(backup.at),
    });
    permits.chain(freezes).collect()
}
