//! The whole run in one value: nodes, clients, the network between them, and an agenda of what is to happen. One thread
//! takes whatever is due first: a thing of the agenda, or a turn of a node's loop (`wakes`). Only that makes time pass.

mod administrator;
mod clients;
mod members;
mod messages;
mod operator;
mod restore;
mod slot_controller;
mod strike;
mod turns;

use std::collections::BTreeMap;

use holdfast_core::LogIndex;
use holdfast_replica::{GroupId, NodeId};

use self::administrator::Administrator;
use self::members::GroupMembers;
use self::operator::Operator;
use self::restore::{Backup, Remembered};
use self::slot_controller::{SlotController, SlotMap};
use crate::agenda::Agenda;
use crate::client::{self, Client, Write};
use crate::clock::LocalClock;
use crate::coverage::Coverage;
use crate::fault::{ActiveFault, FaultKind, Undo};
use crate::history::RealTime;
use crate::message::{Endpoint, Message};
use crate::names::Names;
use crate::network::Network;
use crate::node::{self, Build, Incoming, Node};
use crate::options::Options;
use crate::plan::Plan;
use crate::recorder::Recorders;
use crate::rng::Rng;
use crate::store::FencedStore;
use crate::trace::Trace;

/// When all nodes have the new build, in a run that upgrades them.
const UPGRADED_BY_US: u64 = 10 * 60_000_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: RealTime,
    pub(crate) plan: Plan,
    pub(crate) agenda: Agenda<Due>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    pub(crate) network: Network,
    pub(crate) recorder: Recorders,
    pub(crate) trace: Trace,
    pub(crate) coverage: Option<Coverage>,
    pub(crate) fault_rng: Rng,
    pub(crate) fault_kinds: Vec<FaultKind>,
    pub(crate) faults_begun: u64,
    pub(crate) faults: BTreeMap<FaultKind, u64>,
    pub(crate) active: Vec<ActiveFault>,
    pub(crate) operator: Operator,
    /// By group.
    group_members: Vec<GroupMembers>,
    /// By group.
    pub(crate) administrators: Vec<Administrator>,
    /// By group.
    pub(crate) slot_controllers: Vec<SlotController>,
    pub(crate) slot_map: SlotMap,
    pub(crate) backup: Option<Backup>,
    pub(crate) disaster_announced: bool,
    pub(crate) restored: Vec<Remembered>,
    /// The index of the first node of the present cluster. Nodes with a lower index belong to clusters that a disaster
    /// destroyed.
    pub(crate) first_node: usize,
    /// The run is ending: faults are healed, and no new ones begin.
    pub(crate) settling: bool,
    store: FencedStore,
    root: Rng,
    rng: Rng,
    upgrade_rng: Rng,
    /// When each node's loop turns next, and when it last did.
    wakes: Vec<Option<RealTime>>,
    turned: Vec<RealTime>,
    /// What happened to a client while it was paused.
    backlogs: Vec<Vec<Due>>,
    /// When the last message sent so far on streams from one endpoint to another arrives.
    stream_arrivals: BTreeMap<(Endpoint, Endpoint), RealTime>,
    node_outputs: Vec<node::Output>,
    client_outputs: Vec<client::Output>,
}

/// Something to happen.
#[derive(Debug)]
pub(crate) enum Due {
    Deliver {
        from: Endpoint,
        to: Endpoint,
        message: Message,
    },
    /// An input for one process of the node; dropped if the node has restarted since.
    Tell {
        node: usize,
        process: u64,
        incoming: Incoming,
    },
    /// The client chooses its next action.
    Think(usize),
    /// The client's session wants to be woken.
    Wake(usize),
    /// It is known whether there is a connection.
    Connected {
        client: usize,
        attempt: u64,
        is_connected: bool,
    },
    Write(usize, Write),
    Restart(usize),
    Fault,
    FaultOver(u64),
    /// A repeating fault acts again.
    Repeat(u64),
    /// All nodes are lost; a backup is restored.
    Disaster,
    SaveBackup,
    /// The restored cluster gets another voter, if it has too few.
    Grow,
    /// This node gets the new build.
    Upgrade(usize),
    /// The administrator restores the policy, unless a fault is meant to have changed it.
    MendAccess(GroupId),
    /// The controller gives slots back, unless a fault is meant to have taken some.
    MendSlots(GroupId),
    /// The operator asks for change number `change`; `attempt` counts the tries.
    Ask {
        change: u64,
        attempt: u64,
    },
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> World {
        let root = Rng::new(seed);
        let mut plan_rng = root.fork(1);
        let plan = Plan::new(&mut plan_rng, options.groups);
        let groups = plan.settings.groups as usize;
        let mut nodes = Vec::new();
        for index in 0..plan.settings.nodes {
            let mut rng = root.fork(100 + index as u64);
            let wild = plan.wild_clock.filter(|(node, _)| *node == index);
            let drift = wild.map_or_else(|| Plan::drift_ppm(&mut rng), |(_, drift)| drift);
            let clock = LocalClock::new(rng.below(1 << 40), drift);
            nodes.push(Node::new(index, plan.settings.clone(), clock, rng));
        }
        let mut clients = Vec::new();
        for index in 0..plan.clients * groups {
            let (program, group) = (index / groups, GroupId((index % groups) as u32 + 1));
            let mut rng = root.fork(200 + (program * groups) as u64);
            // All of a process have one clock.
            let clock = LocalClock::new(rng.below(1 << 40), Plan::drift_ppm(&mut rng));
            let rng = if index % groups == 0 { rng } else { root.fork(200 + index as u64) };
            let names = Names::new(index, groups, plan.names);
            let nodes = (0..plan.settings.nodes).collect();
            clients.push(Client::new(index, (program as u64, group), clock, rng, nodes, names));
        }
        let slot_map = SlotMap::new(groups, clients.iter().map(|client: &Client| client.names()));
        let network = Network::new(root.fork(2), clients.len(), plan.quality);
        let operator = Operator::new(plan.settings.nodes);
        let founders = || GroupMembers::of(operator.members.clone(), LogIndex(0));
        let mut world = World {
            group_members: (0..groups).map(|_| founders()).collect(),
            now: RealTime(0),
            agenda: Agenda::new(),
            wakes: vec![None; nodes.len()],
            turned: vec![RealTime(0); nodes.len()],
            backlogs: clients.iter().map(|_| Vec::new()).collect(),
            stream_arrivals: BTreeMap::new(),
            nodes,
            clients,
            network,
            recorder: Recorders::new(groups),
            trace: Trace::new(options.readable),
            coverage: options.coverage.then(Coverage::default),
            fault_rng: root.fork(3),
            fault_kinds: FaultKind::possible(options.faults, groups),
            faults_begun: 0,
            faults: BTreeMap::new(),
            active: Vec::new(),
            operator,
            administrators: (0..groups).map(|_| Administrator::default()).collect(),
            slot_controllers: (0..groups).map(|_| SlotController::default()).collect(),
            slot_map,
            backup: None,
            disaster_announced: false,
            restored: Vec::new(),
            first_node: 0,
            settling: false,
            store: FencedStore::default(),
            rng: root.fork(4),
            upgrade_rng: root.fork(5),
            root,
            node_outputs: Vec::new(),
            client_outputs: Vec::new(),
            plan,
        };
        world.begin();
        world
    }

    /// A machine more, with nothing on its disk.
    pub(crate) fn add_empty_node(&mut self) -> usize {
        let index = self.nodes.len();
        let mut rng = self.root.fork(100 + index as u64);
        let clock = LocalClock::new(rng.below(1 << 40), Plan::drift_ppm(&mut rng));
        self.nodes.push(Node::new(index, self.plan.settings.clone(), clock, rng));
        self.wakes.push(None);
        self.turned.push(self.now);
        index
    }

    fn begin(&mut self) {
        if self.plan.is_upgraded {
            for node in 0..self.nodes.len() {
                self.nodes[node].build = Build::Old;
                let at = RealTime(self.upgrade_rng.between(60_000_000, UPGRADED_BY_US));
                self.agenda.plan(at, Due::Upgrade(node));
            }
        }
        self.found_groups();
        for node in 0..self.nodes.len() {
            self.restart(node);
        }
        for client in 0..self.clients.len() {
            let first = RealTime(self.rng.below(self.plan.pace_us));
            self.agenda.plan(first, Due::Think(client));
        }
        if self.plan.wild_clock.is_some() {
            self.recorder.all().for_each(|recorder| recorder.history.rates_broken = true);
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
            Due::Wake(client) => {
                if self.may_act(client, Due::Wake(client)) {
                    self.drive(client, |client, context| client.wake(context));
                }
            }
            Due::Connected { client, attempt, is_connected } => {
                if self.may_act(client, Due::Connected { client, attempt, is_connected }) {
                    self.drive(client, |client, context| {
                        client.connected(context, attempt, is_connected);
                    });
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
            Due::SaveBackup => self.save_backup(),
            Due::Grow => self.grow(),
            Due::Upgrade(node) => self.upgrade(node),
            Due::MendAccess(group) => self.mend_access(group),
            Due::MendSlots(group) => self.mend_slots(group),
            Due::Ask { change, attempt } => self.ask_for_change(change, attempt),
        }
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (1..=self.plan.settings.groups).map(GroupId)
    }

    /// One of the groups. With one group chance is not asked.
    pub(crate) fn any_group(&mut self) -> GroupId {
        match self.plan.settings.groups {
            1 => GroupId::FIRST,
            groups => GroupId(self.fault_rng.between(1, u64::from(groups)) as u32),
        }
    }

    /// The group's leader with the highest term.
    pub(crate) fn leader(&self, group: GroupId) -> Option<usize> {
        let leading = (0..self.nodes.len()).filter(|node| self.nodes[*node].leads(group));
        leading.max_by_key(|node| {
            self.nodes[*node].replica(group).map_or(0, |replica| replica.leadership().term)
        })
    }

    /// The clients that are in one process with this one.
    pub(crate) fn program_of(&self, client: usize) -> std::ops::Range<usize> {
        let groups = self.plan.settings.groups as usize;
        let first = client - client % groups;
        first..first + groups
    }
}

pub(crate) fn index_of(node: NodeId) -> usize {
    node.0 as usize - 1
}
