//! Whether this node can serve: it leads, or it is connected to the node that does. Told to
//! `grpc.health.v1`, to `/readyz`, and to callers that wait for the node to be ready.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::v1::{
    cluster_service_server, election_service_server, lock_service_server, operator_service_server,
    watch_service_server,
};
use holdfast_replica::{GroupId, Leadership, NodeId};
use holdfast_service::AuditGate;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::inbox::ShardHandle;
use crate::loop_watchdog::LoopWatchdog;
use crate::metrics::Metrics;
use crate::peers::PeerLinks;
use crate::stopping::Stopping;

/// How soon a connection that came up is noticed, and how soon one that broke, or a loop that stands still. A change of
/// leader of the root group is noticed at once, one of another group as these are. A node that serves looks seldom: to
/// wake up is what an idle one costs.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_WHILE_SERVING_EVERY: Duration = Duration::from_millis(500);

/// All services together, in the words of `grpc.health.v1`, and each of them.
const SERVICES: [&str; 6] = [
    "",
    lock_service_server::SERVICE_NAME,
    cluster_service_server::SERVICE_NAME,
    operator_service_server::SERVICE_NAME,
    watch_service_server::SERVICE_NAME,
    election_service_server::SERVICE_NAME,
];

/// Can this node serve, and if not, why?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Serving,
    NoLeader,
    LeaderOutOfReach(NodeId),
    /// No leader is known. This node led last, and the connection to it is down.
    LastLeaderOutOfReach(NodeId),
    DiskFull,
    AuditUnavailable,
    Stalled,
    Stopping,
}

impl Readiness {
    pub(crate) fn is_serving(self) -> bool {
        self == Readiness::Serving
    }

    fn of(inputs: &ReadinessInputs) -> Readiness {
        match (inputs.leadership.leader, inputs.last_leader) {
            _ if inputs.disk_is_full => Readiness::DiskFull,
            _ if inputs.audit_is_closed => Readiness::AuditUnavailable,
            _ if inputs.loop_is_late => Readiness::Stalled,
            _ if inputs.leadership.is_here => Readiness::Serving,
            (Some(_), _) if inputs.is_reachable => Readiness::Serving,
            (Some(leader), _) => Readiness::LeaderOutOfReach(leader),
            (None, Some(last)) if !inputs.is_reachable => Readiness::LastLeaderOutOfReach(last),
            (None, _) => Readiness::NoLeader,
        }
    }

    /// A node serves if it can serve all of its groups.
    fn of_all(groups: impl IntoIterator<Item = Readiness>) -> Readiness {
        let all: Vec<Readiness> = groups.into_iter().collect();
        let obstacle = all.into_iter().find(|readiness| !readiness.is_serving());
        obstacle.unwrap_or(Readiness::Serving)
    }

    /// A node that has no leader, for a reason that the other nodes may not have.
    pub(crate) fn is_leaderless(self) -> bool {
        matches!(self, Readiness::NoLeader | Readiness::LastLeaderOutOfReach(_))
    }
}

/// What readiness depends on.
#[derive(Clone, Copy, Debug)]
struct ReadinessInputs {
    leadership: Leadership,
    /// The leader that this node followed last, if it was another node.
    last_leader: Option<NodeId>,
    /// Whether the connection to the leader is up; without a leader, to the last one.
    is_reachable: bool,
    disk_is_full: bool,
    /// The node refuses requests because it cannot write its audit file.
    audit_is_closed: bool,
    loop_is_late: bool,
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Readiness::Serving => f.write_str("serving"),
            Readiness::NoLeader => f.write_str("no leader is known to this node"),
            Readiness::LeaderOutOfReach(leader) => {
                write!(f, "node {leader} leads, and this node is not connected to it")
            }
            Readiness::LastLeaderOutOfReach(leader) => write!(
                f,
                "this node hears from no leader: node {leader} led last, and this node is not connected to it"
            ),
            Readiness::DiskFull => f.write_str("the disk of this node is full; make room on it"),
            Readiness::AuditUnavailable => f.write_str(
                "this node cannot write its audit file, and refuses what it cannot record; make room on its disk",
            ),
            Readiness::Stalled => f.write_str("the loop stands still; the disk may not answer"),
            Readiness::Stopping => f.write_str("this node stops"),
        }
    }
}

/// The parts of the node that readiness is read from.
pub(crate) struct ReadinessSources {
    pub(crate) shard: ShardHandle,
    pub(crate) links: PeerLinks,
    pub(crate) watchdog: Arc<LoopWatchdog>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: Arc<AuditGate>,
}

/// Keeps telling until the node stops.
pub(crate) async fn keep_reporting(
    sources: ReadinessSources,
    reporter: HealthReporter,
    ready: watch::Sender<Readiness>,
    stopping: Stopping,
) {
    let ReadinessSources { shard, links, watchdog, metrics, audit } = sources;
    let mut leaderships: Vec<_> =
        shard.watch_leaderships().into_iter().map(|leadership| (leadership, None)).collect();
    // The root group's.
    let mut leadership = shard.watch_leadership(GroupId::FIRST);
    tell(&reporter, false).await;
    loop {
        drop(leadership.borrow_and_update());
        let of_groups = leaderships.iter_mut().map(|(leadership, last_leader)| {
            let leadership = *leadership.borrow();
            *last_leader = leadership.leader.or(*last_leader);
            Readiness::of(&ReadinessInputs {
                leadership,
                last_leader: *last_leader,
                is_reachable: last_leader.is_some_and(|leader| links.reachable(leader)),
                disk_is_full: metrics.disk_full.get() > 0,
                audit_is_closed: audit.is_closed(),
                loop_is_late: watchdog.is_late(),
            })
        });
        let now = Readiness::of_all(of_groups);
        let before = ready.send_replace(now);
        if before.is_serving() != now.is_serving() {
            tell(&reporter, now.is_serving()).await;
        }
        let pause = if now.is_serving() { LOOK_WHILE_SERVING_EVERY } else { LOOK_EVERY };
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { break },
            () = sleep_until(Instant::now() + pause) => {}
            () = stopping.begun() => break,
        }
    }
    ready.send_replace(Readiness::Stopping);
    tell(&reporter, false).await;
}

async fn tell(reporter: &HealthReporter, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: NodeId = NodeId(2);

    fn follower(leader: Option<NodeId>) -> ReadinessInputs {
        ReadinessInputs {
            leadership: Leadership { leader, ..Leadership::default() },
            last_leader: leader.or(Some(OTHER)),
            is_reachable: true,
            disk_is_full: false,
            audit_is_closed: false,
            loop_is_late: false,
        }
    }

    #[test]
    fn readiness_reports_a_full_disk_with_and_without_a_leader() {
        for leader in [None, Some(OTHER)] {
            let inputs =
                ReadinessInputs { disk_is_full: true, loop_is_late: true, ..follower(leader) };
            assert_eq!(Readiness::of(&inputs), Readiness::DiskFull);
        }
        assert!(Readiness::DiskFull.to_string().contains("disk of this node is full"));
    }

    #[test]
    fn a_node_serves_if_it_can_serve_all_of_its_groups() {
        let (serving, leaderless) = (Readiness::Serving, Readiness::NoLeader);
        assert_eq!(Readiness::of_all([serving, serving]), serving);
        assert_eq!(Readiness::of_all([serving, leaderless, serving]), leaderless);
    }

    #[test]
    fn readiness_names_the_last_leader_and_that_it_is_not_connected() {
        let lost = ReadinessInputs { is_reachable: false, ..follower(None) };
        assert_eq!(Readiness::of(&lost), Readiness::LastLeaderOutOfReach(OTHER));
        assert!(Readiness::of(&lost).to_string().contains("node 2 led last"));
        assert!(Readiness::of(&lost).is_leaderless());
        assert_eq!(Readiness::of(&follower(None)), Readiness::NoLeader, "it may be in an election");
        let knows_it = ReadinessInputs { is_reachable: false, ..follower(Some(OTHER)) };
        assert_eq!(Readiness::of(&knows_it), Readiness::LeaderOutOfReach(OTHER));
        assert_eq!(Readiness::of(&follower(Some(OTHER))), Readiness::Serving);
    }
}
