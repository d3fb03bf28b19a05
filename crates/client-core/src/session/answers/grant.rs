//! A grant becomes holds.

use std::sync::Arc;

use holdfast_proto::{Guarantee, v1};

use super::super::request::Request;
use super::super::state::State;
use super::acquire_of;
use crate::error::{LossReason, Lost, RequestError, Since};
use crate::hold::{Hold, HoldKey, HoldOrigin};
use crate::lease::{HoldId, LogicalTime};
use crate::loss::Loss;
use crate::tier::guarantee_of;

impl<C> State<C> {
    /// In the order in which the locks were asked for.
    pub(super) fn take_holds(
        &mut self,
        id: u64,
        call: u64,
        request: &Request,
        mut grants: Vec<v1::Grant>,
        at: LogicalTime,
    ) -> Result<Vec<Arc<Hold>>, RequestError> {
        if let Request::AcquireAll(v1::AcquireAllRequest { members, .. }) = request {
            // A retry is told what is still held, and some may have ended in the meantime.
            if grants.len() != members.len() {
                self.give_back(id, grants);
                return Err(RequestError::Lost(Lost { reason: LossReason::Ended }));
            }
            let place =
                |grant: &v1::Grant| members.iter().position(|member| member.name == grant.name);
            grants.sort_by_cached_key(place);
        }
        let is_unknown =
            |grant: &v1::Grant| self.has_unknown_lease(id, acquire_of(id, grant), &grant.name);
        if grants.iter().any(is_unknown) {
            self.give_back(id, grants);
            return Err(RequestError::Lost(Lost { reason: LossReason::Ended }));
        }
        let since = request.since_ms().map(|since_ms| Since(since_ms.min(at.0)));
        let loss = Loss::default();
        let take = |grant| self.take_hold(id, call, since, grant, loss.clone());
        grants.into_iter().map(take).collect()
    }

    fn take_hold(
        &mut self,
        id: u64,
        call: u64,
        since: Option<Since>,
        grant: v1::Grant,
        loss: Loss,
    ) -> Result<Arc<Hold>, RequestError> {
        let Some(leases) = self.shared_leases() else {
            return Err(RequestError::SessionLost(LossReason::Ended));
        };
        // The first of several has the number of the request; the others have none of their own.
        let is_first = self.holds_of(id).next().is_none();
        let entry = if is_first { id } else { self.requests.reserve_id() };
        let acquire = acquire_of(id, &grant);
        // A hold that is entered again keeps its lease, with the renewals that are under way.
        let entered = self.entered_by(acquire, &grant.name);
        let lease = entered.as_ref().map_or(HoldId(entry), |hold| hold.lease);
        if entered.is_none()
            && let Some(mut leases) = self.leases()
        {
            let own_deadline = grant.deadline_ms.map(LogicalTime);
            match guarantee_of(&grant) {
                Guarantee::Linearizable => leases.granted(lease, own_deadline),
                Guarantee::BestEffort => leases.granted_best_effort(lease, own_deadline),
            }
        }
        let key = HoldKey { acquire, entry };
        let origin = HoldOrigin { key, lease, call, since };
        let hold = Arc::new(Hold::new(origin, grant, entered.as_deref(), leases, loss));
        self.holds.insert(key, Arc::clone(&hold));
        Ok(hold)
    }
}
