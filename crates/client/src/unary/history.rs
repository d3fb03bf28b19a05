//! What happened to a lock, as far as the cluster still keeps it.

use std::time::Duration;

use holdfast_client_core::wire_time::whole_ms;
use holdfast_proto::v1;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;

use super::{CallError, Unary};

/// What of the past is wanted; `Default` is the latest hundred events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Past {
    /// The latest so many, at most 1,000; 0 means 100.
    pub limit: u32,
    /// Only holds that had this token, from beginning to end.
    pub token: Option<u64>,
    /// Only what happened so long ago or less.
    pub within: Option<Duration>,
}

impl Unary {
    /// The events of one lock that the leader still keeps, and from when on it keeps them. Locks of the
    /// efficiency tier leave none.
    pub async fn history(&self, name: &str, past: Past) -> Result<v1::HistoryResponse, CallError> {
        let request = v1::HistoryRequest {
            name: name.to_owned(),
            limit: past.limit,
            token: past.token.unwrap_or(0),
            within_ms: past.within.map_or(0, whole_ms),
        };
        self.call_on(Duration::ZERO, request, |channel, request| async move {
            WatchServiceClient::new(channel).history(request).await
        })
        .await
    }
}
