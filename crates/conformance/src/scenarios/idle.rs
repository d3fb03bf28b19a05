//! What a client costs that holds locks and asks for nothing.

use std::time::Duration;

use serde_json::json;

use crate::finding::{Checked, ensure};
use crate::stage::Stage;

const LOCKS: usize = 1_000;
const TTL: Duration = Duration::from_secs(6);
const HEARTBEATS: u32 = 4;

/// One heartbeat in a frame, and what HTTP/2 says about windows. With TLS it would be more.
pub(super) const BYTES_OF_A_HEARTBEAT: u64 = 200;
/// The request, an acknowledgement, and a piece that the sender's buffer cut in two.
pub(super) const PIECES_OF_A_HEARTBEAT: u64 = 4;
/// The timer, the request, the answer, and the changes between threads. Go's scheduler adds most of them: 25 were seen.
pub(super) const WAKE_UPS_OF_A_HEARTBEAT: u64 = 40;

/// However many locks a client holds, it sends one heartbeat in a third of its TTL, and wakes for nothing else.
pub(super) async fn idle(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let mut pending = Vec::new();
    for number in 0..LOCKS {
        let request = json!({"client": "c", "name": format!("lock-{number}"), "wait_ms": 20_000});
        pending.push(stage.start_acquire(request).await?);
    }
    for acquire in pending {
        stage.granted(acquire).await?;
    }
    // What the last answers caused is over by the next heartbeat.
    tokio::time::sleep(TTL / 3).await;
    let (bytes, pieces) = sent(stage);
    let wakes = stage.driver.wake_ups()?;
    tokio::time::sleep(TTL / 3 * HEARTBEATS).await;
    let (bytes, pieces) = (sent(stage).0 - bytes, sent(stage).1 - pieces);
    let wakes = stage.driver.wake_ups()?.saturating_sub(wakes);
    // The window may begin and end with one.
    let heartbeats = u64::from(HEARTBEATS) + 1;
    ensure(bytes > 0, || "the client sent no heartbeat, or not over the wires".to_owned())?;
    ensure(bytes <= heartbeats * BYTES_OF_A_HEARTBEAT, || {
        format!("an idle client sent {bytes} bytes in {heartbeats} heartbeats")
    })?;
    ensure(pieces <= heartbeats * PIECES_OF_A_HEARTBEAT, || {
        format!("an idle client sent {pieces} times in {heartbeats} heartbeats")
    })?;
    ensure(wakes <= heartbeats * WAKE_UPS_OF_A_HEARTBEAT, || {
        format!("an idle client woke {wakes} times in {heartbeats} heartbeats")
    })?;
    stage.held("lock-0", "lock-0").await?;
    stage.held(&format!("lock-{}", LOCKS - 1), &format!("lock-{}", LOCKS - 1)).await?;
    stage.close("c").await
}

/// Bytes and pieces that clients have sent over the wires.
pub(super) fn sent(stage: &Stage<'_>) -> (u64, u64) {
    let wires = stage.cluster.network.client_wires();
    wires.map(|wire| wire.carried_requests()).fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1))
}
