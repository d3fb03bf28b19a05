//! The whole run in one value: nodes, clients, the network between them, and an agenda of what is to
//! happen. One thread takes one thing at a time from the agenda; nothing else makes time pass.

use std::collections::BTreeMap;

use holdfast_replica::NodeId;

use crate::agenda::Agenda;
use crate::client::{self, Client, Timer, Write};
use crate::clock::LocalClock;
use crate::coverage::Coverage;
use crate::fault::{ActiveFault, FaultKind, Undo};
use crate::history::{Happening, RealTime, StoreWrite};
use crate::message::{Body, Message, Place, Request};
use crate::names::Names;
use crate::network::Network;
use crate::node::{self, Incoming, Node, StartFailure};
use crate::operator::Operator;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::restore::Backup;
use crate::rng::Rng;
use crate::run::Options;
use crate::store::FencedStore;
use crate::trace::Trace;
use crate::workload::CommandKind;

/// A loop turn takes this long; what arrives meanwhile is taken in by the next one.
const TURN_US: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: RealTime,
    pub(crate) plan: Plan,
    pub(crate) agenda: Agenda<Due>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    pub(crate) network: Network,
    pub(crate) recorder: Recorder,
    pub(crate) trace: Trace,
    pub(crate) coverage: Option<Coverage>,
    pub(crate) fault_rng: Rng,
    pub(crate) fault_kinds: &'static [FaultKind],
    pub(crate) faults_begun: u64,
    pub(crate) faults: BTreeMap<FaultKind, u64>,
    pub(crate) active: Vec<ActiveFault>,
    pub(crate) operator: Operator,
    pub(crate) backup: Option<Backup>,
    pub(crate) disaster_announced: bool,
    /// Of the present cluster; those before it are lost.
    pub(crate) first_node: usize,
    /// No more faults.
    pub(crate) settling: bool,
    store: FencedStore,
    root: Rng,
    rng: Rng,
    /// When each node's loop turns next, and when it last did.
    wakes: Vec<Option<RealTime>>,
    turned: Vec<RealTime>,
    /// What happened to a client while it was paused.
    backlogs: Vec<Vec<Due>>,
    node_outputs: Vec<node::Output>,
    client_outputs: Vec<client::Output>,
}

/// Something to happen.
#[derive(Debug)]
pub(crate) enum Due {
    Deliver {
        from: Place,
        to: Place,
        message: Message,
    },
    /// For this process of the node, and not for one that comes after it.
    Tell {
        node: usize,
        process: u64,
        incoming: Incoming,
    },
    Think(usize),
    Timer(usize, Timer),
    Write(usize, Write),
    Restart(usize),
    Fault,
    FaultOver(u64),
    Repeat(u64),
    Disaster,
    Grow,
    /// The operator asks for a change, for the so-manieth time.
    Ask {
        change: u64,
        attempt: u64,
    },
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> World {
        let root = Rng::new(seed);
        let mut plan_rng = root.fork(1);
        let plan = Plan::new(&mut plan_rng);
        let mut nodes = Vec::new();
        for index in 0..plan.settings.nodes {
            let mut rng = root.fork(100 + index as u64);
            let wild = plan.wild_clock.filter(|(node, _)| *node == index);
            let drift = wild.map_or_else(|| Plan::drift_ppm(&mut rng), |(_, drift)| drift);
            let clock = LocalClock::new(rng.below(1 << 40), drift);
            nodes.push(Node::new(index, plan.settings.clone(), clock, rng));
        }
        let mut clients = Vec::new();
        for index in 0..plan.clients {
            let mut rng = root.fork(200 + index as u64);
            let clock = LocalClock::new(rng.below(1 << 40), Plan::drift_ppm(&mut rng));
            let [plain, mixed, semaphores] = plan.names;
            let names = Names::new(index, plain, mixed, semaphores);
            let nodes = (0..plan.settings.nodes).collect();
            clients.push(Client::new(index, clock, rng, nodes, names));
        }
        let network = Network::new(root.fork(2), clients.len(), plan.quality);
        let mut world = World {
            now: RealTime(0),
            agenda: Agenda::new(),
            wakes: vec![None; nodes.len()],
            turned: vec![RealTime(0); nodes.len()],
            backlogs: clients.iter().map(|_| Vec::new()).collect(),
            nodes,
            clients,
            network,
            recorder: Recorder::default(),
            trace: Trace::new(options.readable),
            coverage: options.coverage.then(Coverage::default),
            fault_rng: root.fork(3),
            fault_kinds: options.faults,
            faults_begun: 0,
            faults: BTreeMap::new(),
            active: Vec::new(),
            operator: Operator::new(plan.settings.nodes),
            backup: None,
            disaster_announced: false,
            first_node: 0,
            settling: false,
            store: FencedStore::default(),
            rng: root.fork(4),
            root,
            node_outputs: Vec::new(),
            client_outputs: Vec::new(),
            plan,
        };
        world.begin();
        world
    }

    /// A machine more, with nothing on its disk.
    pub(crate) fn furnish_node(&mut self) -> usize {
        let index = self.nodes.len();
        let mut rng = self.root.fork(100 + index as u64);
        let clock = LocalClock::new(rng.below(1 << 40), Plan::drift_ppm(&mut rng));
        self.nodes.push(Node::new(index, self.plan.settings.clone(), clock, rng));
        self.wakes.push(None);
        self.turned.push(self.now);
        index
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.restart(node);
        }
        for client in 0..self.clients.len() {
            let first = RealTime(self.rng.below(self.plan.pace_us));
            self.agenda.plan(first, Due::Think(client));
        }
        if self.plan.wild_clock.is_some() {
            self.recorder.history.rates_broken = true;
            self.faults.insert(FaultKind::WildClock, 1);
            let (number, kind) = (0, FaultKind::WildClock);
            self.active.push(ActiveFault { number, kind, undo: Undo::Nothing });
        }
        let first_fault = RealTime(self.plan.fault_pace_us / 2);
        self.agenda.plan(first_fault, Due::Fault);
    }

    /// Lets everything happen that is due until then.
    pub(crate) fn run_until(&mut self, end: RealTime) {
        loop {
            let planned = self.agenda.next_due();
            let turn = self.next_turn();
            match (planned, turn) {
                // What arrives at the moment of a turn arrives before it.
                (Some(due), turn) if due <= end && turn.is_none_or(|(at, _)| due <= at) => {
                    self.now = due;
                    if let Some(what) = self.agenda.next() {
                        self.happen(what);
                    }
                }
                (_, Some((at, node))) if at <= end => {
                    self.now = at;
                    self.wakes[node] = None;
                    self.turn(node);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Which loop turns next, and when.
    fn next_turn(&self) -> Option<(RealTime, usize)> {
        let planned = self.wakes.iter().enumerate();
        planned.filter_map(|(node, at)| Some(((*at)?, node))).min()
    }

    fn happen(&mut self, what: Due) {
        match what {
            Due::Deliver { from, to, message } => self.deliver(from, to, message),
            Due::Tell { node, process, incoming } => {
                if self.nodes[node].starts == process {
                    self.nodes[node].receive(incoming);
                    self.wake(node, self.now);
                }
            }
            Due::Think(client) => {
                if self.may_act(client, Due::Think(client)) {
                    self.think(client);
                }
            }
            Due::Timer(client, timer) => {
                if self.may_act(client, Due::Timer(client, timer)) {
                    let mut outputs = std::mem::take(&mut self.client_outputs);
                    self.clients[client].timer(self.now, timer, &mut outputs);
                    self.carry_out_for_client(client, outputs);
                }
            }
            Due::Write(client, write) => {
                if self.clients[client].paused > 0 {
                    self.backlogs[client].push(Due::Write(client, write));
                } else {
                    self.write(client, write);
                }
            }
            Due::Restart(node) => self.restart(node),
            Due::Fault if self.settling => {}
            Due::Fault => self.strike(),
            Due::FaultOver(number) => self.end_fault(number),
            Due::Repeat(number) => self.repeat(number),
            Due::Disaster => self.disaster(),
            Due::Grow => self.grow(),
            Due::Ask { change, attempt } => self.ask_for_change(change, attempt),
        }
    }

    /// A paused client acts when it goes on; a dead one never.
    fn may_act(&mut self, client: usize, what: Due) -> bool {
        if self.clients[client].dead {
            return false;
        }
        if self.clients[client].paused > 0 {
            self.backlogs[client].push(what);
            return false;
        }
        true
    }

    pub(crate) fn catch_up(&mut self, client: usize) {
        if self.clients[client].paused == 0 {
            for what in std::mem::take(&mut self.backlogs[client]) {
                self.agenda.plan(self.now, what);
            }
        }
    }

    fn think(&mut self, client: usize) {
        let mut outputs = std::mem::take(&mut self.client_outputs);
        let pause = self.clients[client].think(
            self.now,
            self.plan.pace_us,
            &mut self.recorder,
            &mut outputs,
        );
        self.carry_out_for_client(client, outputs);
        self.agenda.plan(RealTime(self.now.0 + pause), Due::Think(client));
    }

    fn carry_out_for_client(&mut self, client: usize, mut outputs: Vec<client::Output>) {
        for output in outputs.drain(..) {
            match output {
                client::Output::Send { to, request } => {
                    self.note_in_flight(&request);
                    self.trace
                        .line(self.now, || format!("client {client} -> node {to}: {request:?}"));
                    self.send(Place::Client(client), Place::Node(to), Message::Request(request));
                }
                client::Output::Timer { after_us, timer } => {
                    self.agenda.plan(RealTime(self.now.0 + after_us), Due::Timer(client, timer));
                }
                client::Output::Write { after_us, write } => {
                    self.agenda.plan(RealTime(self.now.0 + after_us), Due::Write(client, write));
                }
                client::Output::StreamBroke { node, broken } => {
                    let after_us = self.rng.between(1_000, 2_000_000);
                    self.tell(node, Incoming::StreamBroke(broken), after_us);
                }
            }
        }
        self.client_outputs = outputs;
    }

    fn write(&mut self, client: usize, write: Write) {
        let Write { believed, session, name, token, clock_stood_still } = write;
        let accepted = self.store.write(&name, token);
        self.trace.number(token.0 << 1 | u64::from(accepted));
        self.trace.line(self.now, || {
            format!("client {client} writes under {name} with token {token}: accepted {accepted}")
        });
        let at = self.now;
        self.recorder.wrote(StoreWrite {
            at,
            believed,
            session,
            name,
            token,
            clock_stood_still,
            accepted,
        });
    }

    fn send(&mut self, from: Place, to: Place, message: Message) {
        let arrivals = self.network.arrivals_us(from, to);
        if let (Message::Consensus { is_snapshot: true, .. }, [None, _]) = (&message, arrivals) {
            self.snapshot_sent(from, to, false);
        }
        let [first, second] = arrivals;
        if let Some(after_us) = second {
            let message = message.clone();
            let due = RealTime(self.now.0 + after_us);
            self.agenda.plan(due, Due::Deliver { from, to, message });
        }
        if let Some(after_us) = first {
            let due = RealTime(self.now.0 + after_us);
            self.agenda.plan(due, Due::Deliver { from, to, message });
        }
    }

    fn deliver(&mut self, from: Place, to: Place, message: Message) {
        if matches!(from, Place::Node(node) if node < self.first_node) {
            // What a cluster had said is lost with it; or else its answers would count as those of the next.
            return;
        }
        let passes = !self.network.is_cut(from, to);
        match (to, message) {
            (Place::Node(node), Message::Consensus { bytes, is_snapshot }) => {
                let Place::Node(sender) = from else { return };
                let arrives = passes && self.nodes[node].is_up();
                self.trace.number(self.now.0 ^ (node as u64) << 56);
                self.trace.bytes(&bytes);
                if is_snapshot {
                    self.snapshot_sent(from, to, arrives);
                }
                if arrives {
                    let from = self.nodes[sender].id;
                    self.nodes[node].receive(Incoming::Consensus { from, bytes });
                    self.wake(node, self.now);
                } else if self.rng.percent(5) {
                    let unreachable = Incoming::PeerUnreachable(self.nodes[node].id);
                    self.tell(sender, unreachable, 1_000);
                }
            }
            (Place::Node(node), Message::Request(request)) => {
                if passes {
                    self.nodes[node].receive(Incoming::Request(request));
                    self.wake(node, self.now);
                }
            }
            // An answer to a request that this node passed on.
            (Place::Node(node), Message::Answer(answer)) => {
                if passes && self.nodes[node].listens(self.now) {
                    let client = Place::Client(answer.reply_to.client);
                    self.send(to, client, Message::Answer(answer));
                }
            }
            (Place::Node(_), Message::Notice { .. }) => {}
            (Place::Client(client), message) => {
                if passes {
                    self.deliver_to_client(from, client, message);
                }
            }
        }
    }

    fn deliver_to_client(&mut self, from: Place, client: usize, message: Message) {
        if self.clients[client].dead {
            return;
        }
        if self.clients[client].paused > 0 {
            let to = Place::Client(client);
            return self.backlogs[client].push(Due::Deliver { from, to, message });
        }
        self.trace.number(self.now.0 ^ (client as u64) << 48);
        self.trace.line(self.now, || format!("{from:?} -> client {client}: {message:?}"));
        match message {
            Message::Answer(answer) => {
                let mut outputs = std::mem::take(&mut self.client_outputs);
                self.clients[client].receive(self.now, *answer, &mut self.recorder, &mut outputs);
                self.carry_out_for_client(client, outputs);
            }
            Message::Notice { session, notice } => {
                self.clients[client].notice(session, &notice);
            }
            Message::Consensus { .. } | Message::Request(_) => {}
        }
    }

    /// The sender of a snapshot hears what became of it.
    fn snapshot_sent(&mut self, from: Place, to: Place, delivered: bool) {
        if let (Place::Node(from), Place::Node(to)) = (from, to) {
            let incoming = Incoming::SnapshotSent { to: self.nodes[to].id, delivered };
            let after_us = if delivered { 2_000 } else { 1_500_000 };
            self.tell(from, incoming, after_us);
        }
    }

    pub(crate) fn tell(&mut self, node: usize, incoming: Incoming, after_us: u64) {
        let process = self.nodes[node].starts;
        self.agenda.plan(RealTime(self.now.0 + after_us), Due::Tell { node, process, incoming });
    }

    /// The node's loop turns at that time, or sooner if it was going to.
    pub(crate) fn wake(&mut self, node: usize, at: RealTime) {
        let ready = RealTime(self.turned[node].0 + TURN_US).max(self.nodes[node].busy_until);
        let at = at.max(ready);
        if self.wakes[node].is_none_or(|planned| planned > at) {
            self.wakes[node] = Some(at);
        }
    }

    fn turn(&mut self, node: usize) {
        if !self.nodes[node].is_up() || self.nodes[node].is_paused() {
            return;
        }
        self.turned[node] = self.now;
        let mut outputs = std::mem::take(&mut self.node_outputs);
        self.nodes[node].turn(self.now, &mut outputs);
        for output in outputs.drain(..) {
            self.carry_out_for_node(node, output);
        }
        self.node_outputs = outputs;
        let busy_until = self.nodes[node].busy_until;
        let next = if busy_until > self.now {
            busy_until
        } else {
            RealTime(self.now.0 + self.nodes[node].tick_us())
        };
        self.wake(node, next);
    }

    fn carry_out_for_node(&mut self, node: usize, output: node::Output) {
        let (from, id, now) = (Place::Node(node), self.nodes[node].id, self.now);
        match output {
            node::Output::Send(outgoing) => {
                let (to, is_snapshot) = (place_of(outgoing.to), outgoing.is_snapshot);
                let bytes = outgoing.message;
                self.send(from, to, Message::Consensus { bytes, is_snapshot });
            }
            node::Output::Answer(answer) => {
                let to = match answer.reply_to.via {
                    Some(via) if via != node => Place::Node(via),
                    _ => Place::Client(answer.reply_to.client),
                };
                self.send(from, to, Message::Answer(answer));
            }
            node::Output::Forward { to, request } => {
                self.send(from, place_of(to), Message::Request(request));
            }
            node::Output::Notice { client, session, notice } => {
                let message = Message::Notice { session, notice };
                self.send(from, Place::Client(client), message);
            }
            node::Output::SnapshotToSave(file) => {
                let after_us = self.rng.between(0, 500_000);
                self.tell(node, Incoming::SnapshotDue(file), after_us);
            }
            node::Output::Happened { index, at, event } => {
                self.trace.number(index.0 << 8 | node as u64);
                self.trace
                    .line(now, || format!("node {id} applies {} at {at}: {event:?}", index.0));
                self.recorder.replicated(now, id, index, at, Happening::Event(event));
            }
            node::Output::Restored { index, at } => {
                self.trace.line(now, || format!("node {id} has a table restored at {}", index.0));
                self.recorder.replicated(now, id, index, at, Happening::Restored);
            }
            node::Output::Digest { index, at, digest } => {
                self.trace.number(digest);
                self.recorder.replicated(now, id, index, at, Happening::Digest(digest));
            }
            node::Output::Committed { term } => self.recorder.committed(now, id, term),
            node::Output::Proposed(entry) => {
                self.recorder.proposed(now, &entry);
                if let Some(coverage) = &mut self.coverage {
                    coverage.proposed(&entry, &self.active);
                }
            }
            node::Output::Leadership(leadership) => {
                self.trace.line(now, || format!("node {id}: {leadership:?}"));
            }
            node::Output::Members { index, members } => self.note_members(node, index, *members),
            node::Output::Backup { at, file } => self.backup = Some(Backup { at, file }),
            node::Output::ChangeEnded { number, answer } => self.change_ended(number, answer),
            node::Output::FromRemoved(removed) => {
                self.tell(index_of(removed), Incoming::Removed, 1_000);
            }
            node::Output::Removed => {
                self.trace.line(now, || format!("node {id} was removed"));
                self.nodes[node].stop();
                self.nodes[node].ruined = true;
            }
            node::Output::Stopped { why } => {
                self.trace.line(now, || format!("node {id} stops: {why}"));
                self.power_off_or_not(node);
            }
            node::Output::Crashed => {
                self.trace.line(now, || format!("node {id} crashes while it writes"));
            }
            node::Output::Broken { what } => {
                let what = format!("at {} s node {id}: {what}", now.0 / 1_000_000);
                self.trace.line(now, || what.clone());
                self.recorder.violation("replica", what);
            }
        }
    }

    /// A process that stopped because of its disk may take the machine with it.
    fn power_off_or_not(&mut self, node: usize) {
        if self.rng.percent(50) { self.nodes[node].crash() } else { self.nodes[node].stop() }
    }

    /// Starts a node that is down, if it can start.
    pub(crate) fn restart(&mut self, node: usize) {
        if self.nodes[node].is_up() || self.nodes[node].ruined {
            return;
        }
        let mut outputs = std::mem::take(&mut self.node_outputs);
        let started = self.nodes[node].start(&mut outputs);
        for output in outputs.drain(..) {
            self.carry_out_for_node(node, output);
        }
        self.node_outputs = outputs;
        if let Err(StartFailure::Log(why) | StartFailure::Replica(why)) = started {
            let what = format!("at {} s node {node} cannot start: {why}", self.now.0 / 1_000_000);
            self.recorder.violation("recovery", what);
            self.nodes[node].ruined = true;
            return;
        }
        self.trace.line(self.now, || format!("node {} starts", node + 1));
        self.nodes[node].busy_until = self.now;
        self.wake(node, self.now);
    }

    /// The leader with the highest term.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leading = (0..self.nodes.len()).filter(|node| self.nodes[*node].leads());
        leading.max_by_key(|node| {
            self.nodes[*node].replica().map_or(0, |replica| replica.leadership().term)
        })
    }

    fn note_in_flight(&mut self, request: &Request) {
        if let (Some(coverage), Body::Command(command)) = (&mut self.coverage, &request.body) {
            coverage.in_flight(CommandKind::of(command), &self.active);
        }
    }
}

fn place_of(node: NodeId) -> Place {
    Place::Node(index_of(node))
}

pub(crate) fn index_of(node: NodeId) -> usize {
    node.0 as usize - 1
}
