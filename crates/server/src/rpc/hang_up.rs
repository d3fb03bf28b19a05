//! A caller that hangs up, or whose deadline passes, drops the future that serves its call. Then what the call did is undone,
//! unless the caller said that it comes back.

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::command::Call;
use holdfast_proto::v1;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::Rpc;
use crate::driver::{CallRef, DriverHandle, FIRST_GROUP, Input, LiveCall};
use crate::memory_tier::MemoryTier;

/// Before the driver is told once more, if its inbox is full.
const INBOX_FULL_PAUSE: Duration = Duration::from_millis(10);

/// Undoes a call when it is dropped, from when it is carried out here until it is answered.
#[derive(Debug)]
pub(super) struct HangUpGuard {
    driver: DriverHandle,
    memory: Arc<MemoryTier>,
    /// None: the request cannot wait, or is resumed later.
    request: Option<Call>,
    call: LiveCall,
    carried_out_in: Option<v1::Tier>,
}

impl HangUpGuard {
    pub(super) fn new(rpc: &Rpc, request: Option<Call>) -> HangUpGuard {
        HangUpGuard {
            driver: rpc.driver.clone(),
            memory: Arc::clone(&rpc.memory),
            request,
            call: LiveCall::new(),
            carried_out_in: None,
        }
    }

    /// The call is carried out by this node. None: it is not undone.
    pub(super) fn arm(&mut self, tier: v1::Tier) -> Option<CallRef> {
        self.carried_out_in = Some(tier);
        self.request.map(|_| self.call.to_ref())
    }

    /// The call has its answer, which may be an error.
    pub(super) fn answered(mut self) {
        self.request = None;
    }
}

impl Drop for HangUpGuard {
    fn drop(&mut self) {
        let (Some(tier), Some(Call { session, request, .. })) = (self.carried_out_in, self.request)
        else {
            return;
        };
        if tier == v1::Tier::Efficiency {
            return self.memory.abandon(session, request);
        }
        let call = self.call.clone();
        let abandoned = Input::Abandoned { group: FIRST_GROUP, session, request, call };
        if let Err(mut abandoned) = self.driver.offer(abandoned)
            && let Ok(runtime) = Handle::try_current()
        {
            let driver = self.driver.clone();
            runtime.spawn(async move {
                while !driver.is_gone() {
                    sleep(INBOX_FULL_PAUSE).await;
                    match driver.offer(*abandoned) {
                        Ok(()) => return,
                        Err(full) => abandoned = full,
                    }
                }
            });
        }
    }
}
