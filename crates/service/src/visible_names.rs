//! Which lock names a caller may see.

use std::sync::Arc;

use holdfast_core::{Grants, Verb, Verbs};

use crate::access::PolicyInForce;
use crate::caller::{Caller, OnBehalfOf};

/// Which lock names a caller may see.
#[derive(Clone, Debug)]
pub struct VisibleNames(Option<Arc<Grants>>);

impl VisibleNames {
    pub fn all() -> VisibleNames {
        VisibleNames(None)
    }

    /// To a caller that has these rights.
    pub fn to(grants: Grants) -> VisibleNames {
        VisibleNames(Some(Arc::new(grants)))
    }

    pub(crate) fn of(caller: &Caller, policy: &PolicyInForce) -> VisibleNames {
        match &caller.on_behalf_of {
            OnBehalfOf::Node(_) => VisibleNames::all(),
            OnBehalfOf::Anonymous => VisibleNames(Some(Arc::default())),
            OnBehalfOf::Client(identity) => {
                let standing = caller.rights.of(policy, identity, caller.token());
                VisibleNames(Some(standing.grants))
            }
        }
    }

    pub fn are_all(&self) -> bool {
        self.0.as_ref().is_none_or(|grants| grants.cover(Verbs::of(&[Verb::Read]), ""))
    }

    /// At least one name that begins so.
    pub fn reach(&self, prefix: &str) -> bool {
        self.0.as_ref().is_none_or(|grants| grants.reach(Verb::Read, prefix))
    }

    pub fn contain(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|grants| grants.allow(Verbs::of(&[Verb::Read]), name))
    }
}
