//! Whether this node can serve: it leads, or it is connected to the node that does. Told to
//! `grpc.health.v1`, to `/readyz`, and to whoever waits for the node to be ready.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::v1::{
    cluster_service_server, election_service_server, lock_service_server, operator_service_server,
    watch_service_server,
};
use holdfast_replica::{Leadership, NodeId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::driver::DriverHandle;
use crate::peers::PeerLinks;
use crate::pulse::Pulse;
use crate::stopping::Stopping;

/// How soon a connection that came up is noticed, and how soon one that broke, or a loop that stands still; a change of leader
/// is noticed at once. A node that serves looks seldom: to wake up is what an idle one costs.
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
    Stalled,
    Stopping,
}

impl Readiness {
    pub(crate) fn is_serving(self) -> bool {
        self == Readiness::Serving
    }

    fn of(leadership: Leadership, links: &PeerLinks, pulse: &Pulse) -> Readiness {
        match leadership.leader {
            _ if pulse.is_late() => Readiness::Stalled,
            _ if leadership.is_here => Readiness::Serving,
            Some(leader) if links.reachable(leader) => Readiness::Serving,
            Some(leader) => Readiness::LeaderOutOfReach(leader),
            None => Readiness::NoLeader,
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Readiness::Serving => f.write_str("serving"),
            Readiness::NoLeader => f.write_str("no leader is known to this node"),
            Readiness::LeaderOutOfReach(leader) => {
                write!(f, "node {leader} leads, and this node is not connected to it")
            }
            Readiness::Stalled => f.write_str("the loop stands still; the disk may not answer"),
            Readiness::Stopping => f.write_str("this node stops"),
        }
    }
}

/// Keeps telling until the node stops.
pub(crate) async fn keep_telling(
    driver: DriverHandle,
    links: PeerLinks,
    pulse: Arc<Pulse>,
    reporter: HealthReporter,
    ready: watch::Sender<Readiness>,
    stopping: Stopping,
) {
    let mut leadership = driver.watch_leadership();
    tell(&reporter, false).await;
    loop {
        let now = Readiness::of(*leadership.borrow_and_update(), &links, &pulse);
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
