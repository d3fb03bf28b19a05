//! The policy, and what it allows to a session.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::model::access::change::{AccessChange, AccessRefusal};
use crate::model::access::identity::Identity;
use crate::model::access::policy::Access;
use crate::model::access::principal::Principal;
use crate::model::id::SessionId;
use crate::model::rules_version::RulesVersion;
use crate::state::access::Grants;
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn change_policy(
        &mut self,
        expected: Option<u64>,
        changes: &[AccessChange],
        by: Option<&Identity>,
    ) -> Result<u64, AccessRefusal> {
        self.access.change(expected, changes, by, self.rules)?;
        if changes.iter().any(|change| matches!(change, AccessChange::SetQuotas(_))) {
            self.count_usage_again();
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::StaleGrants.is_active() {
            return Ok(self.access.generation());
        }
        self.compiled_grants.forget();
        Ok(self.access.generation())
    }

    /// The latest change ended these sessions. A group that adopts the policy ends them, too.
    pub(crate) fn note_ended_sessions(&mut self, of: &BTreeSet<Principal>, of_strangers: bool) {
        if self.rules >= RulesVersion::NINE {
            self.access.note_ended_sessions(of.iter().cloned(), of_strangers);
        }
    }

    pub(crate) fn replace_policy(&mut self, policy: Access) {
        let before = core::mem::replace(&mut self.access, policy);
        if before.quotas() != self.access.quotas() {
            self.count_usage_again();
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::StaleGrantsAfterAdoption.is_active() {
            return;
        }
        self.compiled_grants.forget();
    }

    /// Whether anything is checked at all.
    pub(crate) fn has_identified_sessions(&self) -> bool {
        self.identified_sessions > 0
    }

    /// What the identity may do now.
    pub(crate) fn grants_of_identity(&mut self, identity: &Identity) -> Arc<Grants> {
        self.compiled_grants.of(&self.access, self.rules, identity)
    }

    /// What the session may do now; none if nothing that it does is checked.
    pub(crate) fn grants_of_session(&mut self, id: SessionId) -> Option<Arc<Grants>> {
        if self.identified_sessions == 0 {
            return None;
        }
        let session = self.sessions.get(&id).filter(|session| session.ending.is_none())?;
        let identity = session.identity.as_deref()?;
        Some(self.compiled_grants.of(&self.access, self.rules, identity))
    }

    /// From now on the session is checked as this identity; without one, it is not.
    pub(crate) fn set_identity(&mut self, id: SessionId, identity: Option<Box<Identity>>) {
        let is_known = identity.is_some();
        self.count_under(id, identity.as_deref().map(|identity| &identity.principal));
        let before = self.change_session(id, |session| {
            core::mem::replace(&mut session.identity, identity).is_some()
        });
        if let Some(was_known) = before {
            self.identified_sessions += usize::from(is_known);
            self.identified_sessions -= usize::from(was_known);
        }
    }

    /// The policy becomes that of the other table. For a restore: the tables are those of the groups of one cluster, whose
    /// policies are generations of one policy.
    pub fn take_policy_of(&mut self, other: &LockTable) {
        if other.access != self.access {
            self.access = other.access.clone();
            self.count_usage_again();
            self.compiled_grants.forget();
        }
    }
}
