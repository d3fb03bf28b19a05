//! Writes the histories of a run, one for each group.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use holdfast_core::{Batch, Command, LogIndex, LogicalTime, RequestId, SessionId};
use holdfast_replica::{GroupId, NodeId};

use crate::history::{
    Beginning, Believed, ClientOperation, Happening, History, Input, LeaderSpan, Output, RealTime,
    Replicated, Resume, StoreWrite, Violation,
};

/// A leader that has neither committed anything nor been seen to be followed for longer than this is not known to
/// have led.
const QUIET_MAX_US: u64 = 1_500_000;

/// The recorders of all groups.
#[derive(Debug)]
pub(crate) struct Recorders {
    groups: Vec<Recorder>,
    /// What the simulation itself finds wrong.
    pub(crate) violations: Vec<Violation>,
}

impl Recorders {
    pub(crate) fn new(groups: usize) -> Recorders {
        let groups = (0..groups).map(|_| Recorder::default()).collect();
        Recorders { groups, violations: Vec::new() }
    }

    pub(crate) fn of(&mut self, group: GroupId) -> &mut Recorder {
        &mut self.groups[place(group)]
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Recorder> {
        self.groups.iter_mut()
    }

    /// That of the root group.
    pub(crate) fn root(&mut self) -> &mut Recorder {
        &mut self.groups[0]
    }

    pub(crate) fn root_history(&self) -> &History {
        &self.groups[0].history
    }

    pub(crate) fn history(&self, group: GroupId) -> &History {
        &self.groups[place(group)].history
    }

    pub(crate) fn into_histories(self) -> Vec<History> {
        self.groups.into_iter().map(|recorder| recorder.history).collect()
    }

    pub(crate) fn violation(&mut self, checker: &'static str, what: String) {
        self.violations.push(Violation { checker, what });
    }
}

/// Where a group is in a list of all of them.
pub(crate) fn place(group: GroupId) -> usize {
    group.0 as usize - 1
}

#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) history: History,
    /// Those of clusters that are no more.
    pub(crate) epochs: Vec<History>,
    /// The span that goes on, per node and term.
    open_spans: Vec<OpenSpan>,
    /// Those that have ended since the last commit.
    quiet_spans: Vec<LeaderSpan>,
    /// Processes that have begun since.
    began_since: usize,
}

#[derive(Debug)]
struct OpenSpan {
    span: LeaderSpan,
    /// When something was last committed in it; none if it was only seen to be followed.
    committed: Option<RealTime>,
}

impl Recorder {
    /// A client sends something for the first time. Gives the operation's number.
    pub(crate) fn invoke(
        &mut self,
        at: RealTime,
        session: SessionId,
        request: RequestId,
        input: Input,
    ) -> usize {
        self.history.operations.push(ClientOperation {
            session,
            request,
            input,
            invoked: at,
            returned: None,
            last_sent: at,
        });
        self.history.operations.len() - 1
    }

    pub(crate) fn returned(
        &mut self,
        operation: usize,
        at: RealTime,
        sent: RealTime,
        output: Output,
    ) {
        if let Some(operation) = self.history.operations.get_mut(operation) {
            operation.returned = Some((at, output));
            operation.last_sent = sent;
        }
    }

    /// A client has resumed its session at this logical time, and believes in these holds.
    pub(crate) fn resumed(&mut self, session: SessionId, at: LogicalTime, holds: Vec<Believed>) {
        self.history.resumes.push(Resume { session, at, holds });
    }

    pub(crate) fn wrote(&mut self, write: StoreWrite) {
        self.history.writes.push(write);
    }

    pub(crate) fn replicated(
        &mut self,
        real: RealTime,
        node: NodeId,
        index: LogIndex,
        logical: LogicalTime,
        what: Happening,
    ) {
        self.history.replicated.push(Replicated { real, node, index, logical, what });
    }

    /// A leader has just committed something.
    pub(crate) fn committed(&mut self, at: RealTime, node: NodeId, term: u64) {
        if !self.followed(at, node, term) {
            let span = LeaderSpan { node, term, from: at, to: at };
            self.open_spans.push(OpenSpan { span, committed: None });
        }
        self.history.leaders.append(&mut self.quiet_spans);
        self.began_since = 0;
        for open in &mut self.open_spans {
            if open.span.node == node && open.span.term == term {
                open.committed = Some(at);
            }
        }
        if self.open_spans.len() > 8 {
            let (old, open): (Vec<_>, Vec<_>) =
                self.open_spans.drain(..).partition(|open| at.0 - open.span.to.0 > QUIET_MAX_US);
            self.history.leaders.extend(old.into_iter().map(|open| open.span));
            self.open_spans = open;
        }
    }

    /// A process has begun, and has heard nothing. If so many of them do since something was last committed, the time since
    /// then may be forgotten, so that it counts as if there had been no leader.
    pub(crate) fn process_began(&mut self, majority: usize) {
        self.began_since += 1;
        if self.began_since < majority {
            return;
        }
        self.quiet_spans.clear();
        self.open_spans.retain_mut(|open| match open.committed {
            Some(committed) => {
                open.span.to = committed;
                true
            }
            None => false,
        });
    }

    /// A majority follows this leader, and hears it. Nothing comes of that before it has committed something: then this
    /// gives false.
    pub(crate) fn followed(&mut self, at: RealTime, node: NodeId, term: u64) -> bool {
        let is_meant = |open: &&mut OpenSpan| open.span.node == node && open.span.term == term;
        let Some(open) = self.open_spans.iter_mut().find(is_meant) else { return false };
        if at.0 - open.span.to.0 <= QUIET_MAX_US {
            open.span.to = at;
        } else {
            let span = LeaderSpan { node, term, from: at, to: at };
            let ended = std::mem::replace(open, OpenSpan { span, committed: None });
            self.quiet_spans.push(ended.span);
        }
        true
    }

    /// A leader has written an entry into its log.
    pub(crate) fn proposed(&mut self, at: RealTime, batch: &Batch) {
        for session in batch.commands.iter().filter_map(Command::session) {
            self.history.contacts.entry(session).or_default().push(at);
        }
    }

    /// A node's table follows rules 2 at this time, and so do all tables from then on.
    pub(crate) fn rules_two_followed(&mut self, at: LogicalTime) {
        let adopted = self.history.rules_adopted.get_or_insert(at);
        *adopted = at.min(*adopted);
    }

    /// A replica has applied these entries in one go, and one of them used up the steps of its searches.
    pub(crate) fn searches_cut(&mut self, entries: RangeInclusive<LogIndex>) {
        self.history.searches_cut.push(entries);
    }

    /// The cluster is lost and another one takes its place. What has no answer may get one from the new one;
    /// gives where each of these operations was, and is now.
    pub(crate) fn begin_restored_cluster(
        &mut self,
        beginning: Beginning,
    ) -> BTreeMap<usize, usize> {
        self.finish(beginning.at);
        let before = std::mem::take(&mut self.history);
        let open = before.operations.iter().enumerate();
        let open = open.filter(|(_, operation)| operation.returned.is_none());
        let mut moved = BTreeMap::new();
        for (was, operation) in open {
            moved.insert(was, self.history.operations.len());
            self.history.operations.push(operation.clone());
        }
        self.history.beginning = Some(beginning);
        self.history.slow.clone_from(&before.slow);
        self.history.clocks.clone_from(&before.clocks);
        self.history.rates_broken = before.rates_broken;
        self.epochs.push(before);
        moved
    }

    pub(crate) fn finish(&mut self, at: RealTime) {
        self.history.leaders.append(&mut self.quiet_spans);
        let open = self.open_spans.drain(..).map(|open| open.span);
        self.history.leaders.extend(open);
        self.history.leaders.sort_by_key(|span| (span.from, span.term, span.node));
        self.history.end = at;
    }
}
