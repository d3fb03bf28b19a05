//! One call instead of a heartbeat of each session.

use std::sync::PoisonError;
use std::time::Duration;

use holdfast_proto::v1::KeepAliveManyRequest;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use tokio::time::{MissedTickBehavior, interval_at};
use tonic::transport::Channel;

use super::{HEARTBEAT, Ids, TTL};
use crate::Outcome;

/// As many as one call takes.
const SESSIONS_PER_CALL: usize = 4_096;

/// Keeps the sessions of one connection alive.
pub(super) struct Keeper {
    node: LockServiceClient<Channel>,
    ids: Ids,
}

impl Keeper {
    pub(super) fn new(channel: Channel, ids: Ids) -> Keeper {
        Keeper { node: LockServiceClient::new(channel), ids }
    }

    /// For ever, beginning after this time. Ends with what is wrong: also if a session has ended that it should have kept.
    pub(super) async fn keep(mut self, first: Duration) -> Outcome {
        let mut due = interval_at(tokio::time::Instant::now() + first, HEARTBEAT);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for session_ids in ids.chunks(SESSIONS_PER_CALL) {
                let request = KeepAliveManyRequest {
                    session_ids: session_ids.to_vec(),
                    ..Default::default()
                };
                let answer = self.node.keep_alive_many(request).await?.into_inner();
                let all_live = answer.ttl_ms.iter().all(|ttl_ms| *ttl_ms == TTL.as_millis() as u64);
                if !all_live || answer.ttl_ms.len() != session_ids.len() {
                    return Err("a session ended although it was kept alive".into());
                }
            }
        }
    }
}
