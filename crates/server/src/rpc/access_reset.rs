//! Carries out what `holdfast access reset` left for this node.

use std::path::PathBuf;

use holdfast_proto::v1::{ChangeAccessResponse, Failure, TransferLeadershipRequest};
use holdfast_replica::GroupId;
use holdfast_service::Caller;
use tokio::time::sleep;

use super::{Rpc, access, cluster};
use crate::access_reset::{AccessReset, HAND_OVER_PAUSE, RESET_PAUSE};

impl Rpc {
    /// Returns when the new administrator is the only one.
    pub(crate) async fn carry_out_reset(self, reset: AccessReset, data_dir: PathBuf) {
        let mut logged = String::new();
        while let Some(tried) = self.continue_reset(&reset).await {
            let pause = match tried {
                // This node has to apply the change first.
                Ok(()) => RESET_PAUSE,
                Err(failure) => {
                    if logged != failure.message {
                        tracing::info!("`holdfast access reset` waits: {}", failure.message);
                        logged = failure.message;
                    }
                    HAND_OVER_PAUSE
                }
            };
            sleep(pause).await;
        }
        match AccessReset::forget(&data_dir) {
            Ok(()) => tracing::warn!("`holdfast access reset` is done: there is one administrator"),
            Err(error) => tracing::error!("{error}; remove it, or the next start resets again"),
        }
    }

    /// One step. No leader believes another node that its operator is locked out, so this node has to lead first.
    async fn continue_reset(&self, reset: &AccessReset) -> Option<Result<(), Failure>> {
        let request = reset.next_request(&self.door.service().policy().access())?;
        let me = self.membership.me.0;
        let caller = Caller::node(me);
        Some(if self.door.leadership(GroupId::FIRST).is_here {
            let changed = access::change(self, caller, request).await;
            changed.map(|ChangeAccessResponse { groups_behind, .. }| {
                // The former administrators keep their sessions in these groups until then.
                tracing::warn!(
                    ?groups_behind,
                    "`holdfast access reset`: changed the administrators"
                )
            })
        } else {
            let to_this_node = TransferLeadershipRequest { to: me, ..Default::default() };
            cluster::transfer_leadership(self, caller, to_this_node).await.map(drop)
        })
    }
}
