//! A grant becomes holds, and guards for them.

use std::sync::Arc;

use holdfast_proto::{Guarantee, v1};

use super::{AcquireCall, Session, acquire_of};
use crate::error::{AcquireError, LossReason, Lost, Since};
use crate::guard::Guard;
use crate::hold::{Hold, HoldKey, Place};
use crate::lease::{HoldId, LogicalTime};
use crate::loss::Loss;
use crate::session::{Granted, Wanted};
use crate::tier::guarantee_of;

impl Session {
    pub(super) fn take_only_hold(
        &mut self,
        id: u64,
        call: &AcquireCall,
        grant: v1::Grant,
        at: LogicalTime,
    ) -> Granted {
        if matches!(call.wanted, Wanted::All(_)) {
            return self.take_holds(id, call, vec![grant], at);
        }
        let Some(handle) = &call.handle else {
            self.release_unwanted(id, vec![grant]);
            return Err(AcquireError::Closed);
        };
        let hold = self.take_hold(id, call, grant, at, &Loss::default())?;
        Ok(vec![Guard::new(hold, handle.clone())])
    }

    /// The guards are in the order in which the locks were asked for.
    pub(super) fn take_holds(
        &mut self,
        id: u64,
        call: &AcquireCall,
        mut grants: Vec<v1::Grant>,
        at: LogicalTime,
    ) -> Granted {
        let Some(handle) = &call.handle else {
            self.release_unwanted(id, grants);
            return Err(AcquireError::Closed);
        };
        if let Wanted::All(request) = &call.wanted {
            // A retry is told what is still held, and some may have ended in the meantime.
            if grants.len() != request.members.len() {
                self.release_unwanted(id, grants);
                return Err(Lost { reason: LossReason::Ended }.into());
            }
            let place = |grant: &v1::Grant| {
                request.members.iter().position(|member| member.name == grant.name)
            };
            grants.sort_by_cached_key(place);
        }
        let loss = Loss::default();
        let mut guards = Vec::with_capacity(grants.len());
        for grant in grants {
            let hold = self.take_hold(id, call, grant, at, &loss)?;
            guards.push(Guard::new(hold, handle.clone()));
        }
        Ok(guards)
    }

    fn take_hold(
        &mut self,
        id: u64,
        call: &AcquireCall,
        grant: v1::Grant,
        at: LogicalTime,
        loss: &Loss,
    ) -> Result<Arc<Hold>, AcquireError> {
        let Some(leases) = self.shared_leases() else {
            return Err(AcquireError::SessionLost(LossReason::Ended));
        };
        // The first of several has the number of the request; the others have none of their own.
        let is_first = self.holds_of(id).next().is_none();
        let entry = if is_first { id } else { self.requests.reserve_id() };
        let acquire = acquire_of(id, &grant);
        // A hold that is entered again keeps its lease, with the renewals that are under way.
        let entered = self.holds_of(acquire).find(|hold| hold.name == grant.name);
        let lease = entered.map_or(HoldId(entry), |hold| hold.lease);
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
        let place = Place {
            key,
            lease,
            session_number: self.number,
            since: call.wanted.since_ms().map(|since_ms| Since(since_ms.min(at.0))),
        };
        let hold = Arc::new(Hold::new(place, grant, leases, loss.clone()));
        self.holds.insert(key, Arc::clone(&hold));
        Ok(hold)
    }
}
