//! If a caller hangs up or its deadline passes, the future that serves its call is dropped. Then what the call did is
//! undone, unless the caller said that it comes back.

use holdfast_core::command::Call;
use holdfast_engine::{CallRef, LiveCall};
use holdfast_proto::v1;
use holdfast_replica::GroupId;

use super::Rpc;
use super::door::Door;

/// Undoes a call when it is dropped, from when it is carried out here until it is answered.
#[derive(Debug)]
pub(super) struct HangUpGuard {
    door: Door,
    /// None: the request is no acquire, acquire-all or convert; or it is resumed later; or it is answered.
    request: Option<Call>,
    call: LiveCall,
    carried_out_in: Option<(v1::Tier, GroupId)>,
}

impl HangUpGuard {
    pub(super) fn new(rpc: &Rpc, request: Option<Call>) -> HangUpGuard {
        HangUpGuard { door: rpc.door.clone(), request, call: LiveCall::new(), carried_out_in: None }
    }

    /// The call is carried out by this node. None: it is not undone.
    pub(super) fn arm(&mut self, tier: v1::Tier, group: GroupId) -> Option<CallRef> {
        self.carried_out_in = Some((tier, group));
        self.request.map(|_| self.call.to_ref())
    }

    /// The call has its answer, which may be an error.
    pub(super) fn answered(mut self) {
        self.request = None;
    }
}

impl Drop for HangUpGuard {
    fn drop(&mut self) {
        let (Some((tier, group)), Some(Call { session, request, .. })) =
            (self.carried_out_in, self.request)
        else {
            return;
        };
        match tier {
            v1::Tier::Efficiency => self.door.memory().abandon(session, request),
            v1::Tier::Unspecified | v1::Tier::Correctness => {
                self.door.abandon(group, session, request, self.call.clone());
            }
        }
    }
}
