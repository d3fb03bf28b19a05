//! Engines with several groups: whole clusters in virtual time, whose messages can be cut by group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use holdfast_core::command::{Acquire, Call, Mode, OpenSession, Owner, Terms};
use holdfast_core::{
    AccessChange, ActorId, ChangeAccess, Command, Limits, LockName, LockTable, MapEpoch, Outcome,
    Principal, PublicSessionId, RequestId, RoleName, RulesVersion, SessionId, SlotSet, Span,
    StreamId,
};
use holdfast_replica::{
    ClusterId, Durable, GroupId, GroupRestoreOptions, Member, MembershipChange, NodeId, Replica,
    found_group, restore_group,
};

use super::{ALICE, TICK, TestHost, replica_config};
use crate::answer::{Answer, ChangeAnswer, Delivery, StreamKey, Unavailable};
use crate::boot_time::BootTime;
use crate::effect::{Effect, Step, StopCause, TierChange};
use crate::engine::{Engine, EngineConfig, Now};
use crate::query::Query;

const BOB: SessionId = SessionId(0xb0b);
pub(super) const FIRST: GroupId = GroupId(1);
pub(super) const SECOND: GroupId = GroupId(2);
const THIRD: GroupId = GroupId(3);

fn stream(group: GroupId, session: SessionId) -> StreamKey {
    StreamKey { group, session, stream: StreamId(1) }
}

fn replica(node: u64, nodes: u64, group: GroupId) -> Replica {
    // Node 1 is the first to campaign everywhere.
    let election_ticks = 8 + 4 * node as usize;
    let voters = (1..=nodes).map(NodeId).collect();
    let config = replica_config(group, NodeId(node), voters, election_ticks);
    Replica::new(config, Durable::default()).unwrap()
}

pub(super) struct Node {
    pub(super) engine: Engine<TestHost>,
    inbox: VecDeque<(NodeId, GroupId, Vec<u8>)>,
    pub(super) stopped: Option<StopCause>,
    answers: Vec<(u64, Result<Outcome, Unavailable>)>,
    /// What became of changes of the members.
    pub(super) changes: BTreeMap<u64, ChangeAnswer>,
    delivered: Vec<(StreamKey, Delivery)>,
    tier: Vec<TierChange>,
}

pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    now: Duration,
    /// The messages of these groups are lost.
    pub(super) cut: BTreeSet<GroupId>,
    /// The messages of these groups to these nodes are lost.
    pub(super) cut_to: BTreeSet<(NodeId, GroupId)>,
    is_tier_in_use: bool,
}

impl Cluster {
    /// Node 1 leads all groups, and Alice has a session in each of them. It has the same id and the same stream.
    pub(super) fn new(nodes: u64, groups: u32) -> Cluster {
        let mut cluster = Cluster {
            nodes: BTreeMap::new(),
            now: Duration::ZERO,
            cut: BTreeSet::new(),
            cut_to: BTreeSet::new(),
            is_tier_in_use: false,
        };
        for node in 1..=nodes {
            cluster.start(node, nodes, groups);
        }
        cluster.run_until(|cluster| {
            (1..=groups).all(|group| cluster.leader(GroupId(group)) == Some(NodeId(1)))
        });
        for group in (1..=groups).map(GroupId) {
            cluster.open(NodeId(1), group, ALICE);
        }
        cluster
    }

    /// A node that knows the first so many nodes as founders.
    pub(super) fn start(&mut self, node: u64, founders: u64, groups: u32) {
        let config = EngineConfig { node: NodeId(node), tick: TICK, election_timeout: TICK * 10 };
        let replicas = (1..=groups).map(GroupId).map(|id| (id, replica(node, founders, id)));
        let engine = Engine::new(config, replicas, [], TestHost);
        let (inbox, answers, changes) = (VecDeque::new(), Vec::new(), BTreeMap::new());
        let (delivered, tier) = (Vec::new(), Vec::new());
        let started = Node { engine, inbox, stopped: None, answers, changes, delivered, tier };
        self.nodes.insert(NodeId(node), started);
    }

    fn open(&mut self, node: NodeId, group: GroupId, session: SessionId) {
        let key = stream(group, session);
        let open = Command::OpenSession(OpenSession {
            session,
            public: PublicSessionId(session.0 as u64),
            stream: Some(key.stream),
            ttl: Span::from_ms(600_000),
            linger: Span::from_ms(600_000),
            owner: Owner::default(),
            identity: None,
        });
        let engine = &mut self.node(node).engine;
        engine.stream_opened(key, key);
        engine.frame(key, vec![(RequestId(0), open)]);
        self.run_until(|cluster| cluster.answer_on(node, key, 0).is_some());
    }

    pub(super) fn node(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).unwrap()
    }

    /// The node whose replica leads the group, in the highest term.
    pub(super) fn leader(&self, group: GroupId) -> Option<NodeId> {
        let running = self.nodes.iter().filter(|(_, node)| node.stopped.is_none());
        let leading = running.filter_map(|(id, node)| {
            let leadership = node.engine.replica(group)?.leadership();
            leadership.is_here.then_some((leadership.term, *id))
        });
        leading.max().map(|(_, id)| id)
    }

    fn applied(&self, node: NodeId, group: GroupId) -> u64 {
        self.nodes[&node].engine.replica(group).unwrap().applied_index()
    }

    /// What the stream of this session was answered under this number.
    fn answer_on(&self, node: NodeId, key: StreamKey, request: u64) -> Option<&Answer> {
        self.nodes[&node].delivered.iter().find_map(|(stream, delivery)| match delivery {
            Delivery::Answer { request: id, answer } if (*stream, id.0) == (key, request) => {
                Some(answer)
            }
            _ => None,
        })
    }

    fn moved_streams(&self, node: NodeId) -> Vec<StreamKey> {
        let is_moved = |delivery: &Delivery| matches!(delivery, Delivery::LeaderMoved { .. });
        let delivered = self.nodes[&node].delivered.iter();
        delivered.filter(|(_, delivery)| is_moved(delivery)).map(|(stream, _)| *stream).collect()
    }

    #[track_caller]
    pub(super) fn run_until(&mut self, reached: impl Fn(&Cluster) -> bool) {
        for _ in 0..10_000 {
            if reached(self) {
                return;
            }
            self.step();
        }
        panic!("it is not reached");
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// Ten milliseconds, in which messages arrive and each node turns once.
    fn step(&mut self) {
        self.now += Duration::from_millis(10);
        let mut sent = Vec::new();
        for (id, node) in &mut self.nodes {
            if node.stopped.is_none() {
                node.turn(*id, self.now, self.is_tier_in_use, &mut sent);
            }
        }
        for (from, to, group, message) in sent {
            if !self.cut.contains(&group)
                && !self.cut_to.contains(&(to, group))
                && let Some(node) = self.nodes.get_mut(&to)
            {
                node.inbox.push_back((from, group, message));
            }
        }
    }
}

impl Node {
    fn turn(
        &mut self,
        id: NodeId,
        monotonic: Duration,
        is_tier_in_use: bool,
        sent: &mut Vec<(NodeId, NodeId, GroupId, Vec<u8>)>,
    ) {
        for (from, group, message) in self.inbox.drain(..) {
            // A node that was removed may still send.
            let _ = self.engine.peer_message(from, group, &message);
        }
        self.engine.handle_time(Now { monotonic, boot: BootTime(monotonic), is_tier_in_use });
        loop {
            let step = self.engine.advance(monotonic).unwrap();
            let mut effects = Vec::new();
            self.engine.take_effects(&mut effects);
            for effect in effects {
                match effect {
                    Effect::Send { to, messages } => sent.extend(
                        messages.into_iter().map(|(group, message)| (id, to, group, message)),
                    ),
                    Effect::SendSnapshot { to, group, message } => {
                        sent.push((id, to, group, message));
                        self.engine.snapshot_sent(group, to, true);
                    }
                    Effect::SaveSnapshot { group, file } => {
                        self.engine.snapshot_saved(group, Some(file.index));
                    }
                    Effect::Answer { to, answer } => self.answers.push((to, answer.result)),
                    Effect::AnswerChange { to, answer } => drop(self.changes.insert(to, answer)),
                    Effect::Deliver => self.engine.deliver(|key, list| {
                        self.delivered.extend(list.into_iter().map(|delivery| (*key, delivery)));
                        Ok(())
                    }),
                    Effect::Tier(change) => self.tier.push(change),
                    _ => {}
                }
            }
            match step {
                Step::GoOn => {}
                Step::Write => self.engine.disk_done(monotonic, &[]),
                Step::Rest => return,
                Step::Stop(cause) => {
                    self.stopped = Some(cause);
                    return;
                }
            }
        }
    }
}

fn acquire(session: SessionId, request: u64) -> Command {
    Command::Acquire(Acquire {
        call: Call { session, request: RequestId(request), acked_through: RequestId(0) },
        name: LockName::new("a").unwrap(),
        mode: Mode::Exclusive,
        actor: ActorId(0),
        terms: Terms { wait: Span::from_ms(60_000), ..Terms::default() },
    })
}

fn root_table(cluster: &Cluster) -> &LockTable {
    cluster.nodes[&NodeId(1)].engine.replica(FIRST).unwrap().table()
}

pub(super) fn touch() -> Command {
    Command::Touch { session: ALICE, acked_through: RequestId(0) }
}

#[test]
fn a_node_stops_only_when_all_its_groups_have_removed_it() {
    let mut cluster = Cluster::new(3, 2);
    let removed = NodeId(3);
    for group in [FIRST, SECOND] {
        let change = MembershipChange::Remove { node: removed };
        cluster.node(NodeId(1)).engine.change_membership(group, change, 0);
        cluster.run_until(|cluster| {
            let leader = cluster.nodes[&NodeId(1)].engine.replica(group).unwrap();
            !leader.membership().is_member(removed)
        });
        // Its peers tell it.
        cluster.node(removed).engine.removed(group);
        cluster.run_for(Duration::from_millis(100));
        let stopped = (group == SECOND).then_some(StopCause::Removed);
        assert_eq!(cluster.nodes[&removed].stopped, stopped, "after group {group}");
        if group == FIRST {
            let before = cluster.applied(removed, SECOND);
            cluster.node(NodeId(1)).engine.call(SECOND, touch(), 1, None);
            cluster.run_until(|cluster| cluster.applied(removed, SECOND) > before);
        }
    }
}

#[test]
fn a_restarted_node_that_one_group_removed_goes_on() {
    // A restore on node 2 removes the other founders.
    let founded = found_group(&[2, 3].map(NodeId), MapEpoch(1), SlotSet::ALL);
    let options = GroupRestoreOptions {
        node: NodeId(2),
        member: Member::default(),
        cluster: ClusterId([1; 16]),
        clock_unix_ms: 1_790_000_000_000,
        written_unix_ms: None,
        token_floor: None,
        closed_for: None,
        by: "test".into(),
        reason: "test".into(),
    };
    let (file, _) = restore_group(&founded, options).unwrap();
    let config = |node| EngineConfig { node, tick: TICK, election_timeout: TICK * 10 };
    let started = |groups: u32| {
        let removed_from = |id| {
            let durable = match id {
                FIRST => Durable::of_snapshot(file.clone()),
                _ => Durable::default(),
            };
            (id, Replica::new(replica_config(id, NodeId(3), Vec::new(), 10), durable).unwrap())
        };
        let replicas = (1..=groups).map(GroupId).map(removed_from);
        let mut engine: Engine<TestHost> = Engine::new(config(NodeId(3)), replicas, [], TestHost);
        loop {
            match engine.advance(Duration::ZERO).unwrap() {
                Step::GoOn => engine.take_effects(&mut Vec::new()),
                Step::Write => engine.disk_done(Duration::ZERO, &[]),
                step => return step,
            }
        }
    };
    assert_eq!(started(1), Step::Stop(StopCause::Removed));
    assert_eq!(started(2), Step::Rest);
}

#[test]
fn only_the_root_group_confirms_the_lease_of_the_efficiency_tier() {
    let mut cluster = Cluster::new(3, 2);
    cluster.is_tier_in_use = true;
    // The other group has a leader here, and the root group is led by another node.
    cluster.node(NodeId(1)).engine.hand_over(FIRST, Some(NodeId(2)), 0);
    cluster.run_until(|cluster| cluster.leader(FIRST) == Some(NodeId(2)));
    cluster.run_for(Duration::from_millis(100));
    assert_eq!(cluster.leader(SECOND), Some(NodeId(1)));
    let confirmed = |cluster: &Cluster, node| {
        let changes = cluster.nodes[&node].tier.iter();
        changes.filter(|change| matches!(change, TierChange::Confirm { .. })).count()
    };
    cluster.nodes.values_mut().for_each(|node| node.tier.clear());
    let asked = BootTime(cluster.now);
    cluster.node(NodeId(1)).engine.read(SECOND, Query::Confirm { asked }, 7);
    let admit = Query::Admit { session: ALICE, asked };
    cluster.node(NodeId(1)).engine.read(SECOND, admit, 8);
    cluster.run_for(Duration::from_secs(2));
    assert_eq!(confirmed(&cluster, NodeId(1)), 0, "it does not lead the root group");
    assert!(confirmed(&cluster, NodeId(2)) > 2);
    let admitted = |change: &TierChange| matches!(change, TierChange::Admit { .. });
    assert!(!cluster.nodes[&NodeId(1)].tier.iter().any(admitted));
}

#[test]
fn a_leadership_of_another_group_does_not_change_the_efficiency_tier() {
    let mut cluster = Cluster::new(3, 2);
    cluster.is_tier_in_use = true;
    cluster.run_for(Duration::from_secs(1));
    cluster.nodes.values_mut().for_each(|node| node.tier.clear());
    cluster.node(NodeId(1)).engine.hand_over(SECOND, Some(NodeId(2)), 0);
    cluster.run_until(|cluster| cluster.leader(SECOND) == Some(NodeId(2)));
    cluster.open(NodeId(2), SECOND, BOB);
    let close = Command::CloseSession { session: BOB };
    cluster.node(NodeId(2)).engine.call(SECOND, close, 1, None);
    cluster.run_for(Duration::from_millis(500));
    let is_confirmed = |change: &TierChange| matches!(change, TierChange::Confirm { .. });
    let tier = &cluster.nodes[&NodeId(1)].tier;
    assert!(!tier.is_empty() && tier.iter().all(is_confirmed), "{tier:?}");
    let tier = &cluster.nodes[&NodeId(2)].tier;
    assert!(tier.is_empty(), "{tier:?}");
}

#[test]
fn the_efficiency_tier_is_told_of_the_end_of_a_large_session_when_it_is_decided() {
    let mut cluster = Cluster::new(1, 1);
    cluster.node(NodeId(1)).engine.peer_identified(NodeId(1), Member::default(), u32::MAX);
    cluster.run_until(|cluster| root_table(cluster).rules() == RulesVersion::ADOPTED);
    cluster.is_tier_in_use = true;
    let holds = 4 * Limits::default().ended_parts_per_entry_max;
    for request in 1..=holds as u64 {
        let mut command = acquire(ALICE, request);
        if let Command::Acquire(acquire) = &mut command {
            acquire.name = LockName::new(&format!("lock/{request}")).unwrap();
        }
        cluster.node(NodeId(1)).engine.call(FIRST, command, request, None);
    }
    cluster.run_until(|cluster| root_table(cluster).lock_count() == holds);
    let close = Command::CloseSession { session: ALICE };
    cluster.node(NodeId(1)).engine.call(FIRST, close, 0, None);
    cluster.run_until(|cluster| root_table(cluster).lock_count() < holds);
    assert!(root_table(&cluster).lock_count() > 0, "its last parts have ended");
    let is_its_end = |change: &TierChange| matches!(change, TierChange::SessionEnded(ALICE));
    let node = &cluster.nodes[&NodeId(1)];
    assert!(node.tier.iter().any(is_its_end), "the tier still serves it");
    let is_told = |(key, delivery): &(StreamKey, Delivery)| {
        *key == stream(FIRST, ALICE) && matches!(delivery, Delivery::SessionEnded { .. })
    };
    assert!(node.delivered.iter().any(is_told), "the tier frees its locks before it knows");
    cluster.run_until(|cluster| root_table(cluster).lock_count() == 0);
}

#[test]
fn a_lost_leadership_ends_the_streams_and_waits_of_its_group_only() {
    let mut cluster = Cluster::new(3, 3);
    let leader = NodeId(1);
    for group in [FIRST, SECOND, THIRD] {
        cluster.open(leader, group, BOB);
        let alice = stream(group, ALICE);
        cluster.node(leader).engine.frame(alice, vec![(RequestId(1), acquire(ALICE, 1))]);
        cluster.node(leader).engine.call(group, acquire(BOB, 2), u64::from(group.0), None);
    }
    let queued = |cluster: &Cluster, group| {
        cluster.nodes[&leader].engine.replica(group).unwrap().table().waiter_count()
    };
    cluster.run_until(|cluster| [FIRST, SECOND, THIRD].iter().all(|id| queued(cluster, *id) == 1));
    cluster.node(leader).answers.clear();
    cluster.cut.insert(SECOND);
    cluster.run_until(|cluster| !cluster.moved_streams(leader).is_empty());
    cluster.run_for(Duration::from_millis(200));
    let moved = cluster.moved_streams(leader);
    assert_eq!(moved, [stream(SECOND, BOB), stream(SECOND, ALICE)]);
    let lost = |result: &Result<_, _>| matches!(result, Err(Unavailable::LeadershipLost { .. }));
    let answers = &cluster.nodes[&leader].answers;
    assert!(matches!(&answers[..], [(2, result)] if lost(result)), "{answers:?}");
    // The waits of the other groups end when the lock is free.
    for group in [FIRST, THIRD] {
        let close = Command::CloseSession { session: ALICE };
        cluster.node(leader).engine.call(group, close, 9, None);
    }
    cluster.run_for(Duration::from_millis(500));
    let mut granted: Vec<u64> = cluster.nodes[&leader]
        .answers
        .iter()
        .filter(|(_, result)| matches!(result, Ok(Outcome::Granted(_))))
        .map(|(caller, _)| *caller)
        .collect();
    granted.sort_unstable();
    assert_eq!(granted, [1, 3]);
}

#[test]
fn a_client_that_disconnects_lingers_in_the_group_of_its_stream_only() {
    let mut cluster = Cluster::new(1, 2);
    let applied = [FIRST, SECOND].map(|group| cluster.applied(NodeId(1), group));
    cluster.node(NodeId(1)).engine.stream_closed(stream(SECOND, ALICE), true);
    cluster.step();
    let after = [FIRST, SECOND].map(|group| cluster.applied(NodeId(1), group));
    assert_eq!(after, [applied[0], applied[1] + 1]);
    assert!(cluster.nodes[&NodeId(1)].engine.streams().get(stream(FIRST, ALICE)).is_some());
}

#[test]
fn events_and_answers_of_one_session_id_stay_in_their_groups() {
    let mut cluster = Cluster::new(1, 2);
    let node = NodeId(1);
    for group in [FIRST, SECOND] {
        let request = vec![(RequestId(4), acquire(ALICE, 4))];
        cluster.node(node).engine.frame(stream(group, ALICE), request);
    }
    cluster.run_for(Duration::from_millis(100));
    for group in [FIRST, SECOND] {
        let answer = cluster.answer_on(node, stream(group, ALICE), 4).unwrap();
        assert!(matches!(answer.result, Ok(Outcome::Granted(_))), "each group has its own lock");
    }
    let count = |cluster: &mut Cluster, group| {
        cluster.node(node).engine.events(group).unwrap().drain(..).count()
    };
    assert_eq!(count(&mut cluster, FIRST), count(&mut cluster, SECOND));
    let close = Command::CloseSession { session: ALICE };
    cluster.node(node).engine.call(SECOND, close, 1, None);
    cluster.node(node).delivered.clear();
    cluster.run_for(Duration::from_millis(100));
    let ended: Vec<_> = cluster.nodes[&node].delivered.iter().map(|(key, _)| *key).collect();
    assert!(!ended.is_empty() && ended.iter().all(|key| key.group == SECOND), "{ended:?}");
    assert_eq!(count(&mut cluster, FIRST), 0);
    assert!(count(&mut cluster, SECOND) > 0);
}

#[test]
fn a_turn_touches_only_groups_with_input_or_a_due_tick() {
    let mut cluster = Cluster::new(1, 3);
    let node = NodeId(1);
    // A tick has just passed, so that none is due.
    cluster.run_for(TICK);
    let before = cluster.now;
    let engine = &mut cluster.node(node).engine;
    let logical = |engine: &Engine<TestHost>, group| engine.replica(group).unwrap().now();
    let times = [FIRST, SECOND, THIRD].map(|group| logical(engine, group));
    engine.call(SECOND, touch(), 1, None);
    let monotonic = before + Duration::from_millis(3);
    let mut sent = Vec::new();
    cluster.node(node).turn(node, monotonic, false, &mut sent);
    let engine = &cluster.nodes[&node].engine;
    let after = [FIRST, SECOND, THIRD].map(|group| logical(engine, group));
    assert_eq!((after[0], after[2]), (times[0], times[2]), "they were not touched");
    assert!(after[1] > times[1]);
    // The host waits until the first group is due, not for a whole tick from this turn on.
    let idle = engine.idle_for_at_most();
    assert!(idle <= TICK - Duration::from_millis(3), "{idle:?}");
    cluster.node(node).turn(node, before + TICK, false, &mut sent);
    let engine = &cluster.nodes[&node].engine;
    let due = [FIRST, SECOND, THIRD].map(|group| logical(engine, group));
    assert!(due[0] > after[0] && due[2] > after[2], "their tick was due");
}

#[test]
fn an_input_after_the_time_was_given_is_in_the_next_pass() {
    let mut cluster = Cluster::new(1, 2);
    cluster.run_for(TICK);
    let now = cluster.now + Duration::from_millis(1);
    let engine = &mut cluster.node(NodeId(1)).engine;
    engine.handle_time(Now { monotonic: now, boot: BootTime(now), is_tier_in_use: false });
    engine.call(SECOND, touch(), 1, None);
    let mut steps = Vec::new();
    while steps.last() != Some(&Step::Rest) {
        assert!(steps.len() < 100, "{steps:?}");
        steps.push(engine.advance(now).unwrap());
        engine.take_effects(&mut Vec::new());
        if steps.last() == Some(&Step::Write) {
            assert!(engine.turns().iter().all(|(group, _)| *group == SECOND));
            engine.disk_done(now, &[]);
        }
    }
    assert!(steps.contains(&Step::Write), "{steps:?}");
}

#[test]
fn a_heartbeat_to_one_group_is_applied_in_that_group_only() {
    let mut cluster = Cluster::new(1, 2);
    let node = NodeId(1);
    let applied = [FIRST, SECOND].map(|group| cluster.applied(node, group));
    cluster.node(node).engine.defer(stream(SECOND, ALICE), vec![(RequestId(3), touch())]);
    cluster.run_for(2 * TICK);
    assert!(cluster.answer_on(node, stream(SECOND, ALICE), 3).is_some());
    let after = [FIRST, SECOND].map(|group| cluster.applied(node, group));
    assert_eq!(after, [applied[0], applied[1] + 1]);
}

#[test]
fn after_a_crash_the_survivors_share_the_groups_of_the_lost_leader() {
    let mut cluster = Cluster::new(3, 2);
    cluster.run_for(Duration::from_secs(1));
    cluster.nodes.remove(&NodeId(1));
    // What it had said arrives.
    cluster.step();
    for node in [2, 3].map(NodeId) {
        cluster.node(node).engine.peer_crashed(NodeId(1));
    }
    cluster.run_until(|cluster| [FIRST, SECOND].iter().all(|id| cluster.leader(*id).is_some()));
    assert_eq!(cluster.leader(FIRST), Some(NodeId(2)));
    assert_eq!(cluster.leader(SECOND), Some(NodeId(3)));
}

#[test]
fn known_members_are_reported_to_all_groups() {
    let mut cluster = Cluster::new(1, 2);
    let node = NodeId(1);
    let member = Member { peer_address: "here:1".into(), ..Member::default() };
    cluster.node(node).engine.peer_identified(node, member, u32::MAX);
    cluster.run_until(|cluster| {
        [FIRST, SECOND].iter().all(|group| {
            let membership = cluster.nodes[&node].engine.replica(*group).unwrap().membership();
            membership.members[&node].peer_address == "here:1"
        })
    });
}

/// A cluster whose groups all follow the newest rules.
fn with_newest_rules(nodes: u64, groups: u32) -> Cluster {
    let mut cluster = Cluster::new(nodes, groups);
    let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
    for node in cluster.nodes.values_mut() {
        all.iter().for_each(|id| node.engine.peer_identified(*id, Member::default(), u32::MAX));
    }
    cluster.run_until(|cluster| {
        cluster.nodes.values().all(|node| {
            let mut replicas = node.engine.replicas();
            replicas.all(|(_, replica)| replica.table().rules() == RulesVersion::ADOPTED)
        })
    });
    cluster
}

/// Makes one change of the policy in the root group.
fn grant(cluster: &mut Cluster, role: &str) {
    let leader = cluster.leader(FIRST).unwrap();
    let principal = Principal::parse("cert:alice").unwrap();
    let grant = AccessChange::Grant { principal, role: RoleName::parse(role).unwrap() };
    let change = Command::ChangeAccess(Box::new(ChangeAccess {
        by: "cert:root".into(),
        identity: None,
        expected: None,
        changes: [grant].into(),
        end_sessions: false,
    }));
    cluster.node(leader).engine.call(FIRST, change, 0, None);
}

/// Whether the group has the policy of this generation on all nodes.
fn has_policy(cluster: &Cluster, group: GroupId, generation: u64) -> bool {
    cluster.nodes.values().all(|node| {
        let table = node.engine.replica(group).unwrap().table();
        table.access().generation() == generation
    })
}

#[test]
fn every_group_adopts_the_policy_of_the_root_group() {
    let mut cluster = with_newest_rules(3, 3);
    // The leaders of the root group and of another one are on different nodes.
    cluster.node(NodeId(1)).engine.hand_over(SECOND, Some(NodeId(2)), 0);
    cluster.run_until(|cluster| cluster.leader(SECOND) == Some(NodeId(2)));
    grant(&mut cluster, "user");
    cluster.run_until(|cluster| {
        [FIRST, SECOND, THIRD].iter().all(|group| has_policy(cluster, *group, 1))
    });
    let policy = |group| cluster.nodes[&NodeId(3)].engine.replica(group).unwrap().table().access();
    assert_eq!([policy(SECOND), policy(THIRD)], [policy(FIRST); 2]);
    // Each has proposed it once.
    let applied = [SECOND, THIRD].map(|group| cluster.applied(NodeId(3), group));
    cluster.run_for(Duration::from_secs(5));
    assert_eq!(applied, [SECOND, THIRD].map(|group| cluster.applied(NodeId(3), group)));
}

#[test]
fn a_group_without_a_quorum_adopts_the_policy_when_it_has_a_leader_again() {
    let mut cluster = with_newest_rules(3, 3);
    cluster.cut.insert(SECOND);
    cluster.run_until(|cluster| cluster.leader(SECOND).is_none());
    grant(&mut cluster, "user");
    grant(&mut cluster, "reader");
    cluster.run_until(|cluster| has_policy(cluster, THIRD, 2));
    cluster.run_for(Duration::from_secs(2));
    assert!(has_policy(&cluster, SECOND, 0));
    cluster.cut.clear();
    cluster.run_until(|cluster| has_policy(cluster, SECOND, 2));
}

/// A leader proposes a policy whose entry is lost with its leadership. The next leader proposes it again.
#[test]
fn a_policy_that_was_proposed_in_vain_is_proposed_again() {
    let mut cluster = with_newest_rules(3, 2);
    cluster.run_for(Duration::from_secs(1));
    // The root group commits while messages of the other one are lost: its leader has not stepped down yet.
    cluster.cut.insert(SECOND);
    grant(&mut cluster, "user");
    cluster.run_until(|cluster| has_policy(cluster, FIRST, 1));
    assert_eq!(cluster.leader(SECOND), Some(NodeId(1)));
    let last = |cluster: &Cluster| {
        cluster.nodes[&NodeId(1)].engine.replica(SECOND).unwrap().progress().last_index
    };
    assert!(last(&cluster) > cluster.applied(NodeId(1), SECOND), "it is proposed");
    cluster.run_until(|cluster| cluster.leader(SECOND).is_none());
    cluster.cut.clear();
    cluster.run_until(|cluster| has_policy(cluster, SECOND, 1));
}

#[test]
fn a_single_node_has_the_policy_in_all_groups_after_one_turn() {
    let mut cluster = with_newest_rules(1, 3);
    grant(&mut cluster, "user");
    cluster.step();
    assert!([FIRST, SECOND, THIRD].iter().all(|group| has_policy(&cluster, *group, 1)));
}

/// Older builds say nothing of ended sessions, and cannot read the entry.
#[test]
fn no_policy_is_proposed_before_the_rules_are_adopted() {
    let mut cluster = Cluster::new(1, 2);
    // Formats up to that of rules 8.
    cluster.node(NodeId(1)).engine.peer_identified(NodeId(1), Member::default(), 9);
    cluster.run_until(|cluster| root_table(cluster).rules() == RulesVersion::EIGHT);
    grant(&mut cluster, "user");
    cluster.run_until(|cluster| has_policy(cluster, FIRST, 1));
    cluster.run_for(Duration::from_secs(1));
    assert!(has_policy(&cluster, SECOND, 0));
    cluster.node(NodeId(1)).engine.peer_identified(NodeId(1), Member::default(), 10);
    cluster.run_until(|cluster| has_policy(cluster, SECOND, 1));
}
