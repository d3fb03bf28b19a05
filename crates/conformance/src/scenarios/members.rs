//! Nodes join and leave.

use std::time::Duration;

use serde_json::json;

use crate::finding::{Checked, broken, ensure};
use crate::stage::{Stage, ms};

const TTL: Duration = Duration::from_secs(30);

/// The client knows one node of three. A fourth joins, and the three leave: the hold lives on.
pub(super) async fn members_changed(stage: &mut Stage<'_>) -> Checked {
    let first = stage.cluster.endpoints().into_iter().next();
    let first = first.ok_or_else(|| broken("the cluster has no node"))?;
    let request = json!({"op": "connect", "as": "c", "endpoints": [first], "ttl_ms": ms(TTL)});
    stage.driver.ok(request).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let last = stage.cluster.add_node().await?;
    for node in 1..last {
        stage.cluster.remove_node(node).await?;
        let leader = stage.cluster.leader().await?;
        ensure(leader != node, || format!("node {node} left, and leads"))?;
        let name = format!("b{node}");
        stage.acquire_again(json!({"client": "c", "name": name, "wait_ms": 10_000})).await?;
        let now = stage.held("a", "a").await?;
        ensure(now == token, || format!("the token became {now} when node {node} had left"))?;
    }
    stage.release("a", "released").await?;
    stage.close("c").await
}
