//! Where the numbers of `holdfast top` come from: events for what happens, a look every second for the rest.

use std::collections::BTreeMap;

use holdfast_client::unary::{CallError, Unary, Watched};
use holdfast_proto::v1::{self, EventKind};

use super::probe::{Probe, Round, Samples};
use super::rates::Rates;
use super::view::{GroupLine, LockLine, NodeLine, SessionLine, View};
use crate::cluster::{known_lag, role_text};
use crate::live::board::{Board, Lock, Millis};

/// As many lines as a high terminal has.
const LINES_MAX: usize = 50;
/// More sessions than this are not looked at one by one.
const SESSIONS_MAX: u64 = 20_000;

#[derive(Debug, Default)]
pub(super) struct Gathered {
    board: Board,
    grants: Rates,
    /// By the group's number.
    group_grants: Rates,
    events: Rates,
    cluster: v1::ClusterStatusResponse,
    sessions: Vec<v1::SessionInfo>,
    answers: BTreeMap<String, Samples>,
    /// Of the last round.
    answered: BTreeMap<String, bool>,
    reads: Samples,
    read_error: Option<String>,
    pub(super) probe: Probe,
}

/// What one look has shown.
#[derive(Debug)]
pub(super) struct Reading {
    cluster: Result<v1::ClusterStatusResponse, CallError>,
    /// None: there are too many, or they could not be had.
    sessions: Option<Vec<v1::SessionInfo>>,
    round: Round,
}

/// Asks the cluster about itself.
pub(super) async fn look(calls: Unary, probe: Probe, leader: Option<String>) -> Reading {
    let (cluster, round) = tokio::join!(calls.cluster_status(), probe.ask(leader));
    let count: u64 = match &cluster {
        Ok(status) => status.groups.iter().map(|group| group.sessions).sum(),
        Err(_) => u64::MAX,
    };
    let sessions = if count <= SESSIONS_MAX { calls.sessions().await.ok() } else { None };
    Reading { cluster, sessions, round }
}

impl Gathered {
    /// About the locks with this prefix.
    pub(super) fn under(prefix: &str) -> Gathered {
        Gathered { probe: Probe::under(prefix), ..Gathered::default() }
    }

    pub(super) fn take(&mut self, watched: Watched, now: Millis) {
        match watched {
            Watched::Snapshot { locks, .. } => {
                locks.iter().for_each(|lock| self.board.put(lock, now));
            }
            Watched::Events(events) => {
                for event in events.iter() {
                    self.board.apply(&event, now);
                    self.events.count("", now);
                    if event.kind() == EventKind::Granted {
                        event.names.iter().for_each(|name| self.grants.count(name, now));
                        let group = event.position.map_or(0, |position| position.group);
                        self.group_grants.count(&group.to_string(), now);
                    }
                }
            }
            Watched::Restarted { .. } => self.board.clear(),
            _ => {}
        }
    }

    pub(super) fn set_read_error(&mut self, words: String) {
        self.read_error = Some(words);
    }

    /// An error that stays, such as a denial, ends the command.
    pub(super) fn see(&mut self, look: Reading, calls: &Unary) -> Result<(), CallError> {
        self.read_error = None;
        match look.cluster {
            Ok(cluster) => self.cluster = cluster,
            Err(error) if !error.is_retryable() => return Err(error),
            Err(error) => self.read_error = Some(error.to_string()),
        }
        self.sessions = look.sessions.unwrap_or_default();
        self.answered.clear();
        for (address, took) in look.round.nodes {
            self.answered.insert(address.clone(), took.is_some());
            if let Some(took) = took {
                self.answers.entry(address).or_default().add(took);
            }
        }
        if let Some(took) = look.round.read {
            self.reads.add(took);
        }
        let addresses: Vec<String> =
            self.cluster.nodes.iter().map(|node| node.client_address.clone()).collect();
        self.answers.retain(|address, _| addresses.contains(address));
        self.probe.connect_to(calls, &addresses);
        Ok(())
    }

    /// The client address of the leader.
    pub(super) fn leader(&self) -> Option<String> {
        let leader = self.cluster.groups.first()?.leader;
        let node = self.cluster.nodes.iter().find(|node| node.id == leader)?;
        Some(node.client_address.clone())
    }

    pub(super) fn view(&mut self, now: Millis) -> View {
        let group = self.cluster.groups.first().cloned().unwrap_or_default();
        let busiest = self.grants.busiest(now, LINES_MAX);
        let rates: BTreeMap<String, f64> =
            self.grants.busiest(now, usize::MAX).into_iter().collect();
        let owners: BTreeMap<&str, String> = self
            .sessions
            .iter()
            .map(|session| (&*session.public_id, owner_of(session).in_words()))
            .collect();
        let line =
            |name: &str, rate: f64| lock_line(name, self.board.get(name), rate, &owners, now);
        let mut queues: Vec<(&str, u64)> = self
            .board
            .iter()
            .map(|(name, lock)| (name, lock.waiter_count()))
            .filter(|(_, waiting)| *waiting > 0)
            .collect();
        let waiting = queues.iter().map(|(_, waiting)| waiting).sum();
        queues.sort_by_key(|(_, waiting)| std::cmp::Reverse(*waiting));
        queues.truncate(LINES_MAX);
        let busiest = busiest.iter().map(|(name, rate)| line(name, *rate)).collect();
        let queues = queues
            .into_iter()
            .map(|(name, _)| line(name, rates.get(name).copied().unwrap_or(0.0)))
            .collect();
        View {
            cluster: self.cluster.cluster.clone(),
            leader: (group.leader != 0).then_some(group.leader),
            term: group.term,
            locks: self.cluster.groups.iter().map(|group| group.locks).sum(),
            sessions: self.cluster.groups.iter().map(|group| group.sessions).sum(),
            waiting,
            busiest,
            queues,
            busiest_sessions: self.busiest_sessions(),
            nodes: self.nodes(&group),
            groups: self.groups(now),
            read_latency: self.reads.latency(),
            read_error: self.read_error.clone(),
            grants_per_second: self.grants.per_second(now),
            events_per_second: self.events.per_second(now),
        }
    }

    fn busiest_sessions(&self) -> Vec<SessionLine> {
        let mut sessions: Vec<&v1::SessionInfo> = self.sessions.iter().collect();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.hold_count + session.wait_count));
        let lines = sessions.into_iter().take(LINES_MAX).map(|session| SessionLine {
            session: session.public_id.clone(),
            owner: owner_of(session),
            hold_count: session.hold_count,
            wait_count: session.wait_count,
            age_ms: session.age_ms,
            connected: session.connected,
        });
        lines.collect()
    }

    fn groups(&mut self, now: Millis) -> Vec<GroupLine> {
        let rates: BTreeMap<String, f64> =
            self.group_grants.busiest(now, usize::MAX).into_iter().collect();
        let line = |group: &v1::GroupStatus| GroupLine {
            group: group.group,
            leader: (group.leader != 0).then_some(group.leader),
            term: group.term,
            applied_index: group.applied_index,
            grants_per_second: rates.get(&group.group.to_string()).copied().unwrap_or(0.0),
            locks: group.locks,
            waiting: group.waiters,
            sessions: group.sessions,
        };
        self.cluster.groups.iter().map(line).collect()
    }

    fn nodes(&self, group: &v1::GroupStatus) -> Vec<NodeLine> {
        let line = |node: &v1::NodeStatus| {
            let led = self.cluster.groups.iter().filter(|group| group.leader == node.id);
            let leads: Vec<u32> = led.map(|group| group.group).collect();
            let replica = group.replicas.iter().find(|replica| replica.node == node.id);
            let role = match role_text(node.role()) {
                _ if !leads.is_empty() => "leader",
                "voter" => "follower",
                other => other,
            };
            NodeLine {
                id: node.id,
                client_address: node.client_address.clone(),
                role: role.to_owned(),
                leads,
                answers: self.answered.get(&node.client_address).copied().unwrap_or(false),
                lag: replica.and_then(|replica| known_lag(replica, &self.cluster)),
                latency: self.answers.get(&node.client_address).and_then(Samples::latency),
            }
        };
        self.cluster.nodes.iter().map(line).collect()
    }
}

fn owner_of(session: &v1::SessionInfo) -> crate::status::OwnerInfo {
    session.owner.clone().into()
}

fn lock_line(
    name: &str,
    lock: Option<&Lock>,
    grants_per_second: f64,
    owners: &BTreeMap<&str, String>,
    now: Millis,
) -> LockLine {
    let first = lock.and_then(Lock::first_holder);
    let held_by = first.map(|holder| match owners.get(&*holder.session) {
        Some(owner) if !owner.is_empty() => owner.clone(),
        _ if !holder.owner.is_empty() => holder.owner.clone(),
        _ => format!("session {}", holder.session),
    });
    LockLine {
        name: name.to_owned(),
        grants_per_second,
        holder_count: lock.map_or(0, Lock::holder_count),
        waiter_count: lock.map_or(0, Lock::waiter_count),
        held_by,
        held_for_ms: first.map(|holder| holder.held_for_ms(now)),
    }
}
