//! Logs a warning, once, when a node has known no leader for a while, with the nodes that it cannot reach. Otherwise an
//! operator who starts the first of several nodes would see nothing at all.

use std::sync::Arc;
use std::time::Duration;

use holdfast_replica::NodeId;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::membership::Membership;
use crate::peers::PeerLinks;
use crate::readiness::Readiness;

/// Much longer than an election.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs until the node stops.
pub(crate) async fn keep_reporting(
    mut ready: watch::Receiver<Readiness>,
    membership: Arc<Membership>,
    links: PeerLinks,
) {
    let is_led = |ready: &Readiness| !ready.is_leaderless();
    while ready.wait_for(|ready| !is_led(ready)).await.is_ok() {
        if timeout(PATIENCE, ready.wait_for(is_led)).await.is_err() {
            log_warning(&membership, &links);
            if ready.wait_for(is_led).await.is_err() {
                return;
            }
        }
    }
}

fn log_warning(membership: &Membership, links: &PeerLinks) {
    let voters = membership.now().configuration.voters.clone();
    // A node that is about to join waits for something else.
    if !voters.contains(&membership.me) {
        return;
    }
    let is_missing = |node: &NodeId| *node != membership.me && !links.reachable(*node);
    let missing: Vec<NodeId> = voters.iter().copied().filter(is_missing).collect();
    let needed = voters.len() / 2 + 1;
    let there = voters.len() - missing.len();
    if there >= needed {
        tracing::warn!("no leader for {}s, though a majority is connected", PATIENCE.as_secs());
        return;
    }
    let missing = missing.into_iter().map(|node| match membership.peer_address(node) {
        Some(address) => format!("node {node} at {address}"),
        None => format!("node {node}"),
    });
    tracing::warn!(
        "no leader for {}s: waiting for a majority, {there} of {} nodes are here and {needed} are needed; cannot reach {}",
        PATIENCE.as_secs(),
        voters.len(),
        missing.collect::<Vec<_>>().join(", ")
    );
}
