//! Whether this node can serve: it leads, or it is connected to the node that does. Told to
//! `grpc.health.v1` and to whoever waits for the node to be ready.

use std::time::Duration;

use holdfast_proto::v1::lock_service_server::SERVICE_NAME;
use holdfast_replica::Leadership;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::driver::DriverHandle;
use crate::peers::PeerLinks;
use crate::stopping::Stopping;

/// How soon a connection that came up or broke is noticed; a change of leader is noticed at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// All services together, in the words of `grpc.health.v1`.
const EVERYTHING: &str = "";

/// Keeps telling until the node stops.
pub(crate) async fn keep_telling(
    driver: DriverHandle,
    links: PeerLinks,
    reporter: HealthReporter,
    ready: watch::Sender<bool>,
    stopping: Stopping,
) {
    let mut leadership = driver.watch_leadership();
    tell(&reporter, false).await;
    loop {
        let can_serve = can_serve(*leadership.borrow_and_update(), &links);
        if ready.send_if_modified(|ready| std::mem::replace(ready, can_serve) != can_serve) {
            tell(&reporter, can_serve).await;
        }
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { break },
            () = sleep_until(Instant::now() + LOOK_EVERY) => {}
            () = stopping.begun() => break,
        }
    }
    ready.send_replace(false);
    tell(&reporter, false).await;
}

fn can_serve(leadership: Leadership, links: &PeerLinks) -> bool {
    leadership.is_here || leadership.leader.is_some_and(|leader| links.reachable(leader))
}

async fn tell(reporter: &HealthReporter, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in [EVERYTHING, SERVICE_NAME] {
        reporter.set_service_status(service, status).await;
    }
}
