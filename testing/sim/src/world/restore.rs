//! A disaster: all nodes are lost, and the cluster begins again on one new node, from a backup that was saved some
//! time before. What was acknowledged after the backup is gone, and so are all sessions; what has to hold over
//! the gap is in `check::restore`.
//!
//! Often it strikes twice: the restored cluster is lost as well, and a third one begins with the same backup or with one
//! of the second cluster. Wall clocks are wrong in some of these restores, behind or years ahead. The operator does
//! what the refusals and the manual say.
//!
//! The history is cut there: the log that follows is that of another cluster. What operators had set is carried
//! into it, and that everything is closed at first.

use std::collections::BTreeMap;

use holdfast_core::command::{Action, Intervention};
use holdfast_core::{Event, LogIndex, LogicalTime, Span};
use holdfast_replica::{
    ClusterId, GroupId, GroupRestoreOptions, GroupRestoreSummary, Membership, NodeId, RestoreError,
    SnapshotFile, TOKENS_PER_TERM_BITS, read_snapshot, restore_group,
};

use crate::fault::Undo;
use crate::history::{Beginning, Happening, History, RealTime, Replicated};
use crate::node::{Incoming, member};
use crate::world::members::GroupMembers;
use crate::world::operator::Operator;
use crate::world::{Due, World};

const SECOND_US: u64 = 1_000_000;
/// What wall clocks showed when the run began.
const UNIX_MS_AT_START: u64 = 1_790_000_000_000;
/// A cluster of one node grows to this.
const VOTERS_WANTED: usize = 3;

const HOUR_MS: u64 = 3_600_000;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;
/// What the manual says to add to the numbers that an earlier restore printed.
const FLOOR_LEAP: u64 = 1 << 56;

/// A backup as an operator saved it.
#[derive(Clone, Debug)]
pub(crate) struct Backup {
    pub(crate) at: LogicalTime,
    pub(crate) file: SnapshotFile,
    /// By a clock that is right.
    pub(crate) written_unix_ms: u64,
    /// Of which cluster it is: there were so many before that one.
    pub(crate) clusters_before: usize,
}

/// What an operator remembers of a restore.
#[derive(Debug)]
pub(crate) struct Remembered {
    backup_index: u64,
    /// The numbers that it printed: new tokens of each tier are higher.
    last_token: u64,
    last_best_effort_token: u64,
}

impl World {
    /// An operator saves a backup; some time later it is needed.
    pub(crate) fn announce_disaster(&mut self) -> Option<Undo> {
        let leader = self.leader(GroupId::FIRST)?;
        if self.disaster_announced || !self.has_room_for_another_cluster() {
            return None;
        }
        self.disaster_announced = true;
        self.schedule_input(leader, Incoming::Backup, 0);
        let after = self.fault_rng.between(SECOND_US, 20 * SECOND_US);
        self.agenda.plan(RealTime(self.now.0 + after), Due::Disaster);
        Some(Undo::Nothing)
    }

    fn has_room_for_another_cluster(&self) -> bool {
        self.nodes.len() + VOTERS_WANTED <= crate::network::NODES_MAX
    }

    /// The restored cluster is lost as well, once it has granted something.
    fn announce_second_disaster(&mut self) {
        if self.restored.len() > 1 || self.fault_rng.percent(25) {
            return;
        }
        // Nothing is granted in the first half minute.
        let grants = self.fault_rng.between(35 * SECOND_US, 60 * SECOND_US);
        if self.fault_rng.percent(50) {
            self.agenda.plan(RealTime(self.now.0 + grants), Due::SaveBackup);
        }
        let after = grants + self.fault_rng.between(5 * SECOND_US, 20 * SECOND_US);
        self.agenda.plan(RealTime(self.now.0 + after), Due::Disaster);
    }

    pub(crate) fn save_backup(&mut self) {
        if let Some(leader) = self.leader(GroupId::FIRST) {
            self.schedule_input(leader, Incoming::Backup, 0);
        }
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        UNIX_MS_AT_START + self.now.0 / 1_000
    }

    /// What the clock of the machine shows on which the restore is run.
    fn clock_of_restore_ms(&mut self) -> u64 {
        let wall_ms = self.wall_ms();
        match self.fault_rng.below(4) {
            0 => wall_ms - self.fault_rng.between(HOUR_MS, YEAR_MS),
            1 => wall_ms + self.fault_rng.between(HOUR_MS, 20 * YEAR_MS),
            _ => wall_ms,
        }
    }

    /// Everything is lost but the backup.
    pub(crate) fn disaster(&mut self) {
        let backup = self.backup.clone();
        let Some(backup) = backup.filter(|_| !self.settling && self.has_room_for_another_cluster())
        else {
            return;
        };
        self.trace.line(self.now, || format!("all is lost but a backup at {}", backup.file.index));
        for node in &mut self.nodes {
            node.stop();
            node.ruined = true;
        }
        let index = self.add_empty_node();
        self.first_node = index;
        let made = self.restore_as_operators_do(&backup, self.nodes[index].id);
        let restored = made.map_err(|error| error.to_string()).and_then(|(made, account)| {
            self.nodes[index].init_data_dir(&[(GroupId::FIRST, made.clone())])?;
            let (members, _) = read_snapshot(&made.data).map_err(|error| error.to_string())?;
            Ok((made, account.closed_for, members))
        });
        match restored {
            Ok((made, closed_for, members)) => {
                self.begin_restored_history(&backup, LogIndex(made.index), index, closed_for);
                self.go_on_with(LogIndex(made.index), members);
                let after = self.fault_rng.between(0, 3 * SECOND_US);
                self.agenda.plan(RealTime(self.now.0 + after), Due::Restart(index));
                self.announce_second_disaster();
            }
            Err(what) => self.recorder.violation("restore", what),
        }
    }

    /// Runs `snapshot restore`. If that is refused, the operator does what the refusal says.
    fn restore_as_operators_do(
        &mut self,
        backup: &Backup,
        node: NodeId,
    ) -> Result<(SnapshotFile, GroupRestoreSummary), RestoreError> {
        let member = member(node);
        let directory = member.directory.map_or([0; 16], |directory| directory.0);
        let clock_unix_ms = self.clock_of_restore_ms();
        let mut terms = GroupRestoreOptions {
            node,
            member,
            cluster: ClusterId(directory),
            clock_unix_ms,
            written_unix_ms: Some(backup.written_unix_ms),
            token_floor: self.floor_by_the_manual(backup, clock_unix_ms),
            closed_for: None,
            by: "operator".to_owned(),
            reason: "the nodes are lost".to_owned(),
        };
        let mut made = restore_group(&backup.file, terms.clone());
        if let Err(
            RestoreError::ClockBelowTokens { safe, .. }
            | RestoreError::ClockBehind { safe }
            | RestoreError::ClockAhead { safe, .. },
        ) = &made
        {
            terms.token_floor = Some(*safe);
            made = restore_group(&backup.file, terms.clone());
        }
        if let Ok((_, account)) = &made {
            let (clock, floor) = (terms.clock_unix_ms, terms.token_floor);
            self.trace.line(self.now, || {
                format!("restored by the clock {clock} and the floor {floor:?}: {account:?}")
            });
            self.restored.push(Remembered {
                backup_index: backup.file.index,
                last_token: account.last_token,
                last_best_effort_token: (account.last_term + 1) << TOKENS_PER_TERM_BITS,
            });
        }
        made
    }

    /// A cluster was restored from this backup before, and the clock is not ahead of what it printed.
    fn floor_by_the_manual(&self, backup: &Backup, clock_unix_ms: u64) -> Option<u64> {
        let of_this = self.restored.iter().filter(|made| made.backup_index == backup.file.index);
        let printed = of_this.last().filter(|made| made.last_token >= clock_unix_ms << 20)?;
        Some(printed.last_token.max(printed.last_best_effort_token) + FLOOR_LEAP)
    }

    fn go_on_with(&mut self, index: LogIndex, members: Membership) {
        self.group_members = vec![GroupMembers::of(members.clone(), index)];
        self.operator = Operator::of(members);
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

    fn begin_restored_history(
        &mut self,
        backup: &Backup,
        index: LogIndex,
        node: usize,
        closed_for: Span,
    ) {
        // A stop is written down when it is over, which is too late for the history that ends here.
        let stopped = self.nodes.iter().filter_map(|node| node.clock.stopped_since());
        let stops = stopped.map(|since| (since, self.now)).collect::<Vec<_>>();
        self.recorder.root().history.clocks.stops.extend(stops);
        let (at, backup_of) = (self.now, backup.clusters_before);
        let beginning = Beginning { at, closed_for, backup_of };
        let moved = self.recorder.root().begin_restored_cluster(beginning);
        for client in &mut self.clients {
            client.operations_moved(&moved);
        }
        let Some(before) = self.recorder.root().epochs.get(backup.clusters_before) else { return };
        let mut kept = what_operators_set(before, backup);
        if closed_for > Span::ZERO {
            kept.push(Action::Freeze { prefix: "".into(), ttl: closed_for });
        }
        let (now, id, at) = (self.now, self.nodes[node].id, backup.at);
        let before = LogIndex(index.0 - 1);
        self.recorder.root().replicated(now, id, before, at, Happening::Restored);
        for (number, action) in kept.into_iter().enumerate() {
            let (by, reason) = ("operator".into(), format!("as before, {number}").into());
            let event = Event::Intervened(Intervention { by, reason, action, identity: None });
            self.recorder.root().replicated(now, id, index, at, Happening::Event(event));
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
