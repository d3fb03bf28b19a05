//! Carries out what `holdfast access reset` left for this node.

use std::path::PathBuf;

use holdfast_service::Caller;
use tokio::time::sleep;

use super::{Rpc, access};
use crate::access_reset::{AccessReset, RESET_PAUSE};

impl Rpc {
    /// Returns when the new administrator is the only one.
    pub(crate) async fn carry_out_reset(self, reset: AccessReset, data_dir: PathBuf) {
        let caller = Caller::node(self.membership.me.0);
        loop {
            let policy = self.door.service().policy().access();
            let Some(request) = reset.next_request(&policy) else { break };
            match access::change(&self, caller.clone(), request).await {
                Ok(_) => tracing::warn!("`holdfast access reset`: changed the administrators"),
                Err(failure) => {
                    tracing::info!("`holdfast access reset` waits: {}", failure.message);
                }
            }
            // This node has to apply the change first.
            sleep(RESET_PAUSE).await;
        }
        match AccessReset::forget(&data_dir) {
            Ok(()) => tracing::warn!("`holdfast access reset` is done: there is one administrator"),
            Err(error) => tracing::error!("{error}; remove it, or the next start resets again"),
        }
    }
}
