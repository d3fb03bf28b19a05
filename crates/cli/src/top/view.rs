//! What `holdfast top` shows: numbers and lines, however they are drawn.

use serde::Serialize;

use super::probe::Latency;
use crate::duration::in_words;
use crate::output::Show;
use crate::status::OwnerInfo;
use crate::text::{on_one_line, table};

#[derive(Debug, Default, Serialize)]
pub(super) struct View {
    pub(super) cluster: String,
    /// Of group 1; null if none is known.
    pub(super) leader: Option<u64>,
    /// Of group 1.
    pub(super) term: u64,
    pub(super) locks: u64,
    pub(super) sessions: u64,
    pub(super) waiting: u64,
    pub(super) grants_per_second: f64,
    pub(super) events_per_second: f64,
    /// Of a linearizable read, from here; null if none was answered.
    pub(super) read_latency: Option<Latency>,
    /// Those that were granted most often in the last ten seconds.
    pub(super) busiest: Vec<LockLine>,
    /// Those with the longest queues.
    pub(super) queues: Vec<LockLine>,
    /// Those that hold and wait for most.
    pub(super) busiest_sessions: Vec<SessionLine>,
    pub(super) nodes: Vec<NodeLine>,
    /// In their order. Shown only if there are several.
    pub(super) groups: Vec<GroupLine>,
    /// What is wrong.
    #[serde(rename = "trouble")]
    pub(super) read_error: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct LockLine {
    pub(super) name: String,
    pub(super) grants_per_second: f64,
    pub(super) holder_count: u64,
    pub(super) waiter_count: u64,
    /// The first of them; null if it is free.
    pub(super) held_by: Option<String>,
    pub(super) held_for_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct SessionLine {
    pub(super) session: String,
    pub(super) owner: OwnerInfo,
    pub(super) hold_count: u64,
    pub(super) wait_count: u64,
    pub(super) age_ms: u64,
    pub(super) connected: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeLine {
    pub(super) id: u64,
    pub(super) client_address: String,
    pub(super) role: String,
    /// The groups that it leads.
    pub(super) leads: Vec<u32>,
    /// From here.
    pub(super) answers: bool,
    /// Entries that it lacks in group 1; null if the leader does not tell.
    pub(super) lag: Option<u64>,
    /// Of the answers, from here.
    pub(super) latency: Option<Latency>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct GroupLine {
    pub(super) group: u32,
    /// Null if none is known.
    pub(super) leader: Option<u64>,
    pub(super) term: u64,
    pub(super) applied_index: u64,
    pub(super) grants_per_second: f64,
    pub(super) locks: u64,
    pub(super) waiting: u64,
    pub(super) sessions: u64,
}

pub(super) const LOCK_HEADERS: [&str; 6] =
    ["NAME", "GRANTS/S", "WAITING", "HOLDERS", "HELD BY", "FOR"];
pub(super) const SESSION_HEADERS: [&str; 6] =
    ["OWNER", "SESSION", "HOLDS", "WAITS", "AGE", "CONNECTED"];
pub(super) const NODE_HEADERS: [&str; 7] =
    ["NODE", "CLIENTS", "ROLE", "LAG", "MEDIAN", "P99", "LONGEST"];

pub(super) const GROUP_HEADERS: [&str; 8] =
    ["GROUP", "LEADER", "GRANTS/S", "LOCKS", "WAITING", "SESSIONS", "TERM", "APPLIED"];

impl LockLine {
    pub(super) fn to_row(&self) -> Vec<String> {
        vec![
            on_one_line(&self.name),
            format!("{:.1}", self.grants_per_second),
            self.waiter_count.to_string(),
            self.holder_count.to_string(),
            self.held_by.as_deref().map_or("-".to_owned(), on_one_line),
            self.held_for_ms.map_or("-".to_owned(), in_words),
        ]
    }
}

impl SessionLine {
    pub(super) fn to_row(&self) -> Vec<String> {
        vec![
            on_one_line(&self.owner.in_words()),
            self.session.clone(),
            self.hold_count.to_string(),
            self.wait_count.to_string(),
            in_words(self.age_ms),
            if self.connected { "yes" } else { "no" }.to_owned(),
        ]
    }
}

impl GroupLine {
    pub(super) fn to_row(&self) -> Vec<String> {
        vec![
            self.group.to_string(),
            self.leader.map_or("NO LEADER".to_owned(), |leader| format!("node {leader}")),
            format!("{:.1}", self.grants_per_second),
            self.locks.to_string(),
            self.waiting.to_string(),
            self.sessions.to_string(),
            self.term.to_string(),
            self.applied_index.to_string(),
        ]
    }
}

impl NodeLine {
    /// In a cluster with several groups, the role is how many of them it leads.
    pub(super) fn to_row(&self, is_divided: bool) -> Vec<String> {
        let role = match self.leads.len() {
            _ if !self.answers => "no answer".to_owned(),
            groups @ 1.. if is_divided => format!("leads {groups}"),
            _ => self.role.clone(),
        };
        let time = |of: fn(&Latency) -> u64| match &self.latency {
            Some(latency) if self.answers => us_in_words(of(latency)),
            _ => "-".to_owned(),
        };
        vec![
            self.id.to_string(),
            self.client_address.clone(),
            role,
            self.lag.map_or("-".to_owned(), |lag| lag.to_string()),
            time(|latency| latency.median_us),
            time(|latency| latency.p99_us),
            time(|latency| latency.longest_us),
        ]
    }
}

impl View {
    /// Into several groups.
    pub(super) fn is_divided(&self) -> bool {
        self.groups.len() > 1
    }

    /// Every group has one.
    pub(super) fn has_leader(&self) -> bool {
        match self.is_divided() {
            true => self.groups.iter().all(|group| group.leader.is_some()),
            false => self.leader.is_some(),
        }
    }

    fn leaders(&self) -> String {
        let missing = self.groups.iter().filter(|group| group.leader.is_none());
        let missing: Vec<String> = missing.map(|group| group.group.to_string()).collect();
        let count = self.groups.len();
        match missing.is_empty() {
            true => format!("{count} groups"),
            false => format!("NO LEADER in group {}, of {count}", missing.join(",")),
        }
    }

    /// Those without a leader first, then those with most grants.
    pub(super) fn groups_by_interest(&self) -> Vec<&GroupLine> {
        let mut groups: Vec<&GroupLine> = self.groups.iter().collect();
        groups.sort_by(|one, other| {
            let by_grants = other.grants_per_second.total_cmp(&one.grants_per_second);
            one.leader.is_some().cmp(&other.leader.is_some()).then(by_grants)
        });
        groups
    }

    pub(super) fn headlines(&self) -> [String; 2] {
        let leader = match self.leader {
            _ if self.is_divided() => self.leaders(),
            Some(leader) => format!("node {leader} leads in term {}", self.term),
            None => "NO LEADER".to_owned(),
        };
        let reads = match &self.read_latency {
            Some(latency) => format!(
                "reads {} median, {} p99",
                us_in_words(latency.median_us),
                us_in_words(latency.p99_us)
            ),
            None => "reads not answered".to_owned(),
        };
        [
            format!("cluster {}, {leader}; {reads}", self.cluster),
            format!(
                "{} locks, {} waiting, {} sessions; {:.1} grants/s, {:.1} events/s",
                self.locks,
                self.waiting,
                self.sessions,
                self.grants_per_second,
                self.events_per_second
            ),
        ]
    }
}

impl Show for View {
    fn to_table(&self) -> String {
        let mut text = self.headlines().join("\n") + "\n";
        if let Some(read_error) = &self.read_error {
            text += &format!("{read_error}\n");
        }
        let mut section = |title: &str, headers: &[&str], rows: Vec<Vec<String>>| {
            if !rows.is_empty() {
                text += &format!("\n{title}\n\n{}", table(headers, &rows));
            }
        };
        let locks = |lines: &[LockLine]| lines.iter().map(LockLine::to_row).collect();
        section("busiest locks", &LOCK_HEADERS, locks(&self.busiest));
        section("longest queues", &LOCK_HEADERS, locks(&self.queues));
        let sessions = self.busiest_sessions.iter().map(SessionLine::to_row).collect();
        section("sessions", &SESSION_HEADERS, sessions);
        let nodes = self.nodes.iter().map(|node| node.to_row(self.is_divided()));
        section("nodes", &NODE_HEADERS, nodes.collect());
        if self.is_divided() {
            section("groups", &GROUP_HEADERS, self.groups.iter().map(GroupLine::to_row).collect());
        }
        text
    }
}

fn us_in_words(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..100_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}ms", us / 1_000),
    }
}
