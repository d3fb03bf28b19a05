//! A whole cluster in one thread and in virtual time: messages travel when the test says so, disks
//! are vectors, clocks are a number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use holdfast_core::{
    ActorId, Command, Event, FenceToken, Limits, LockName, LogicalTime, Outcome, PublicSessionId,
    RequestId, SessionId, Span,
    command::{Acquire, Call, Mode, OpenSession, Owner, Terms},
};
use holdfast_replica::{
    ChangeRefusal, Durable, Effect, Fatal, GroupId, HardState, LogEntry, Member, MembershipChange,
    NodeId, Replica, ReplicaConfig, SnapshotFile, Ticket, Turn, Unavailable,
};

pub(crate) const STEP: Duration = Duration::from_millis(10);

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Answer(LogicalTime, Outcome),
    Failed(Unavailable),
    Read,
    Changed(Result<(), ChangeRefusal>),
    BackedUp(SnapshotFile),
}

#[derive(Default)]
struct Disk {
    hard_state: HardState,
    snapshot: Option<SnapshotFile>,
    entries: Vec<LogEntry>,
}

impl Disk {
    fn write(&mut self, turn: &Turn) {
        if let Some(snapshot) = &turn.snapshot {
            self.snapshot = Some(snapshot.clone());
            self.entries.clear();
        }
        for entry in &turn.entries {
            self.entries.retain(|old| old.index < entry.index);
            self.entries.push(entry.clone());
        }
        if let Some(state) = turn.hard_state {
            self.hard_state = state;
        }
    }

    fn durable(&self) -> Durable {
        Durable {
            hard_state: self.hard_state,
            snapshot: self.snapshot.clone(),
            entries: self.entries.clone(),
        }
    }
}

pub(crate) struct Cluster {
    pub(crate) now: Duration,
    pub(crate) ended: BTreeMap<Ticket, Ended>,
    pub(crate) events: Vec<(NodeId, Event)>,
    replicas: BTreeMap<NodeId, Replica>,
    disks: BTreeMap<NodeId, Disk>,
    wires: VecDeque<(NodeId, NodeId, Vec<u8>, bool)>,
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Nodes whose loop does not turn.
    paused: BTreeSet<NodeId>,
    last_ticket: u64,
    last_request: u64,
    snapshot_every: u64,
    size: u64,
    /// All messages that were sent.
    sent: Vec<Vec<u8>>,
    snapshots_sent: u64,
    /// The test injects false messages: nodes may refuse them, and may stop.
    lied_to: bool,
    stopped: Vec<(NodeId, Fatal)>,
}

impl Cluster {
    pub(crate) fn new(size: u64) -> Cluster {
        Cluster::with_snapshots_every(size, 1_000_000)
    }

    pub(crate) fn with_snapshots_every(size: u64, snapshot_every: u64) -> Cluster {
        let mut cluster = Cluster {
            now: Duration::ZERO,
            ended: BTreeMap::new(),
            events: Vec::new(),
            replicas: BTreeMap::new(),
            disks: (1..=size).map(|id| (NodeId(id), Disk::default())).collect(),
            wires: VecDeque::new(),
            cut: BTreeSet::new(),
            paused: BTreeSet::new(),
            last_ticket: 0,
            last_request: 0,
            snapshot_every,
            size,
            sent: Vec::new(),
            snapshots_sent: 0,
            lied_to: false,
            stopped: Vec::new(),
        };
        for id in 1..=size {
            cluster.start(NodeId(id));
        }
        cluster
    }

    /// Node n has a fixed election timeout that rises with n, so that node 1 leads first.
    pub(crate) fn config(&self, node: NodeId) -> ReplicaConfig {
        let election = 8 + 2 * node.0 as usize;
        ReplicaConfig {
            group: GroupId(1),
            node,
            // A joining node knows no members.
            voters: (1..=self.size).map(NodeId).filter(|_| node.0 <= self.size).collect(),
            tick: Duration::from_millis(50),
            heartbeat_ticks: 2,
            election_ticks: (election, election + 1),
            grace: Span::from_ms(1_000),
            snapshot_every_entries: self.snapshot_every,
            snapshot_every_bytes: u64::MAX,
            snapshot_slice_entries: 2,
            snapshot_slice_pause: Duration::ZERO,
            keep_entries: 2,
            keep_bytes: u64::MAX,
            limits: Limits::default(),
        }
    }

    /// Starts a node from its disk.
    pub(crate) fn start(&mut self, node: NodeId) {
        let replica = Replica::new(self.config(node), self.disks[&node].durable()).unwrap();
        self.replicas.insert(node, replica);
    }

    /// Starts a node that has nothing, to be added.
    pub(crate) fn start_new(&mut self, node: NodeId) {
        self.disks.insert(node, Disk::default());
        self.start(node);
    }

    pub(crate) fn kill(&mut self, node: NodeId) {
        self.replicas.remove(&node);
        self.wires.retain(|(_, to, ..)| *to != node);
    }

    pub(crate) fn pause(&mut self, node: NodeId) {
        self.paused.insert(node);
    }

    pub(crate) fn resume(&mut self, node: NodeId) {
        self.paused.remove(&node);
    }

    /// Nothing passes between the node and the others.
    pub(crate) fn isolate(&mut self, node: NodeId) {
        for other in self.disks.keys().copied() {
            self.cut.insert((node, other));
            self.cut.insert((other, node));
        }
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(crate) fn replica(&self, node: NodeId) -> &Replica {
        &self.replicas[&node]
    }

    pub(crate) fn replica_mut(&mut self, node: NodeId) -> &mut Replica {
        self.replicas.get_mut(&node).unwrap()
    }

    pub(crate) fn first_log_index_on_disk(&self, node: NodeId) -> Option<u64> {
        self.disks[&node].entries.first().map(|entry| entry.index)
    }

    pub(crate) fn has_snapshot_on_disk(&self, node: NodeId) -> bool {
        self.disks[&node].snapshot.is_some()
    }

    pub(crate) fn snapshot_on_disk(&self, node: NodeId) -> Option<&SnapshotFile> {
        self.disks[&node].snapshot.as_ref()
    }

    pub(crate) fn is_snapshot_on_its_way(&self) -> bool {
        self.wires.iter().any(|(.., is_snapshot)| *is_snapshot)
    }

    /// The leader with the highest term.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.replicas
            .iter()
            .filter(|(_, replica)| replica.leadership().is_here)
            .max_by_key(|(_, replica)| replica.leadership().term)
            .map(|(node, _)| *node)
    }

    pub(crate) fn run_until_leader(&mut self) -> NodeId {
        for _ in 0..1_000 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.step();
        }
        panic!("no leader after ten seconds");
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.step();
        }
    }

    pub(crate) fn run_until_ended(&mut self, ticket: Ticket) -> Ended {
        for _ in 0..1_000 {
            if let Some(ended) = self.ended.get(&ticket) {
                return ended.clone();
            }
            self.step();
        }
        panic!("{ticket:?} has not ended after ten seconds");
    }

    pub(crate) fn run_until_snapshot_is_sent(&mut self) {
        for _ in 0..1_000 {
            if self.snapshots_sent > 0 {
                return;
            }
            self.step();
        }
        panic!("no snapshot was sent in ten seconds");
    }

    /// One step of time: what is on the wires arrives, and every loop turns once.
    pub(crate) fn step(&mut self) {
        self.now += STEP;
        for (from, to, message, is_snapshot) in std::mem::take(&mut self.wires) {
            let arrives = !self.cut.contains(&(from, to)) && self.replicas.contains_key(&to);
            if arrives && self.paused.contains(&to) {
                // It waits in the socket of a paused process.
                self.wires.push_back((from, to, message, is_snapshot));
                continue;
            }
            if arrives {
                let taken = self.replica_mut(to).handle_message(&message);
                let is_stranger = !self.replica(to).membership().is_member(from);
                assert!(self.lied_to || is_stranger || taken.is_ok(), "refused: {taken:?}");
            }
            if is_snapshot && self.replicas.contains_key(&from) {
                self.replica_mut(from).handle_snapshot_sent(to, arrives);
            }
        }
        for node in self.replicas.keys().copied().collect::<Vec<_>>() {
            if !self.paused.contains(&node) {
                self.turn(node);
            }
        }
    }

    fn send(&mut self, wire: (NodeId, NodeId, Vec<u8>, bool)) {
        self.sent.push(wire.2.clone());
        self.snapshots_sent += u64::from(wire.3);
        self.wires.push_back(wire);
    }

    /// All messages that were sent so far.
    pub(crate) fn sent(&self) -> &[Vec<u8>] {
        &self.sent
    }

    pub(crate) fn snapshots_sent(&self) -> u64 {
        self.snapshots_sent
    }

    /// Injects a message that no node sent, and runs one turn of the node.
    pub(crate) fn inject(&mut self, node: NodeId, message: &[u8]) {
        self.lied_to = true;
        if self.replicas.contains_key(&node) {
            let _ = self.replica_mut(node).handle_message(message);
            self.turn(node);
        }
    }

    /// Nodes that stopped because going on could break a promise.
    pub(crate) fn stopped(&self) -> &[(NodeId, Fatal)] {
        &self.stopped
    }

    fn turn(&mut self, node: NodeId) {
        let now = self.now;
        self.replica_mut(node).handle_time(now);
        loop {
            let turn = self.replica_mut(node).begin_turn();
            let busy = turn.is_some();
            if let Some(turn) = turn {
                for message in &turn.messages {
                    let wire = (node, message.to, message.message.clone(), message.is_snapshot);
                    self.send(wire);
                }
                let read = turn.reads.iter().map(|ticket| (*ticket, Ended::Read));
                self.ended.extend(read);
                if !self.apply(node, Replica::answer_committed) {
                    return;
                }
                self.disks.get_mut(&node).unwrap().write(&turn);
            }
            for message in self.replica_mut(node).acknowledge() {
                self.send((node, message.to, message.message, message.is_snapshot));
            }
            if !self.apply(node, Replica::finish_turn) || !busy {
                return;
            }
        }
    }

    /// False if the node has stopped.
    fn apply(
        &mut self,
        node: NodeId,
        step: fn(&mut Replica, &mut Vec<Effect>) -> Result<(), Fatal>,
    ) -> bool {
        let mut effects = Vec::new();
        if let Err(fatal) = step(self.replica_mut(node), &mut effects) {
            assert!(self.lied_to, "node {node} stops: {fatal}");
            self.stopped.push((node, fatal));
            self.kill(node);
            return false;
        }
        for effect in effects {
            self.carry_out(node, effect);
        }
        true
    }

    fn carry_out(&mut self, node: NodeId, effect: Effect) {
        match effect {
            Effect::Send(message) => {
                self.send((node, message.to, message.message, message.is_snapshot));
            }
            Effect::Answer { ticket, at, outcome } => {
                self.ended.insert(ticket, Ended::Answer(at, outcome));
            }
            Effect::Failed { ticket, reason } => {
                self.ended.insert(ticket, Ended::Failed(reason));
            }
            Effect::Read { ticket } => {
                self.ended.insert(ticket, Ended::Read);
            }
            Effect::Happened { event, .. } => self.events.push((node, event)),
            Effect::LeadershipChanged(_) | Effect::MembershipChanged { .. } => {}
            Effect::ChangeEnded { ticket, result } => {
                self.ended.insert(ticket, Ended::Changed(result));
            }
            Effect::BackupMade { ticket, file, .. } => {
                self.ended.insert(ticket, Ended::BackedUp(file));
            }
            Effect::SaveSnapshot(file) => {
                let index = file.index;
                let disk = self.disks.get_mut(&node).unwrap();
                disk.entries.retain(|entry| entry.index > index);
                disk.snapshot = Some(file);
                self.replica_mut(node).handle_snapshot_saved(index);
            }
        }
    }

    pub(crate) fn call(&mut self, node: NodeId, command: Command) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.replica_mut(node).handle_call(Some(ticket), command);
        ticket
    }

    pub(crate) fn change(&mut self, node: NodeId, change: MembershipChange) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.replica_mut(node).propose_membership(ticket, change);
        ticket
    }

    /// Sends to the leader, follows it, and waits for the end.
    pub(crate) fn changed(&mut self, change: MembershipChange) -> Result<(), ChangeRefusal> {
        for _ in 0..10 {
            let leader = self.run_until_leader();
            let ticket = self.change(leader, change.clone());
            match self.run_until_ended(ticket) {
                Ended::Changed(result) => return result,
                Ended::Failed(_) => self.run_for(Duration::from_millis(200)),
                other => panic!("not a change: {other:?}"),
            }
        }
        panic!("the membership change does not end");
    }

    pub(crate) fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&Cluster) -> bool) {
        for _ in 0..2_000 {
            if is_so(self) {
                return;
            }
            self.step();
        }
        panic!("not within twenty seconds: {what}");
    }

    pub(crate) fn read(&mut self, node: NodeId) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.replica_mut(node).handle_read(ticket);
        ticket
    }

    /// Sends to the leader and waits for the answer.
    pub(crate) fn commit(&mut self, command: Command) -> (LogicalTime, Outcome) {
        let leader = self.run_until_leader();
        let ticket = self.call(leader, command);
        match self.run_until_ended(ticket) {
            Ended::Answer(at, outcome) => (at, outcome),
            other => panic!("not committed: {other:?}"),
        }
    }

    pub(crate) fn request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }

    /// An acquire without waiting for its answer.
    pub(crate) fn acquire_soon(&mut self, node: NodeId, session: SessionId, name: &str) {
        let command = acquire(session, self.request(), name);
        self.call(node, command);
    }

    pub(crate) fn acquire(&mut self, session: SessionId, name: &str) -> (LogicalTime, FenceToken) {
        let command = acquire(session, self.request(), name);
        match self.commit(command) {
            (at, Outcome::Granted(grant)) => (at, grant.token),
            other => panic!("not granted: {other:?}"),
        }
    }
}

pub(crate) fn open(session: SessionId, ttl_ms: u64) -> Command {
    Command::OpenSession(OpenSession {
        session,
        public: PublicSessionId(session.0 as u64),
        stream: None,
        ttl: Span::from_ms(ttl_ms),
        linger: Span::from_ms(ttl_ms),
        owner: Owner::default(),
        identity: None,
    })
}

pub(crate) fn touch(session: SessionId) -> Command {
    Command::Touch { session, acked_through: RequestId(0) }
}

pub(crate) fn acquire(session: SessionId, request: RequestId, name: &str) -> Command {
    Command::Acquire(Acquire {
        call: Call { session, request, acked_through: RequestId(0) },
        actor: ActorId(0),
        name: LockName::new(name).unwrap(),
        mode: Mode::Exclusive,
        terms: Terms::default(),
    })
}

impl Cluster {
    /// Like `commit`, but to a leader other than this one.
    pub(crate) fn commit_elsewhere(&mut self, not: NodeId, command: Command) {
        for _ in 0..1_000 {
            let others = self.replicas.iter().filter(|(node, _)| **node != not);
            let leader = others
                .filter(|(_, replica)| replica.leadership().is_here)
                .map(|(node, _)| *node)
                .next();
            if let Some(leader) = leader {
                let ticket = self.call(leader, command.clone());
                assert!(matches!(self.run_until_ended(ticket), Ended::Answer(..)));
                return;
            }
            self.step();
        }
        panic!("no other leader after ten seconds");
    }
}

/// A node that is to become a voter.
pub(crate) fn add(node: u64) -> MembershipChange {
    MembershipChange::Add { node: NodeId(node), member: member(node) }
}

pub(crate) fn remove(node: u64) -> MembershipChange {
    MembershipChange::Remove { node: NodeId(node) }
}

pub(crate) fn member(node: u64) -> Member {
    Member {
        peer_address: format!("host-{node}:7421"),
        client_address: format!("host-{node}:7420"),
        ..Member::default()
    }
}
