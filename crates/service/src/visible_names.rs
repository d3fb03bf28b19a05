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

    pub(crate) fn of(caller: &Caller, policy: &PolicyInForce) -> VisibleNames {
        match &caller.on_behalf_of {
            OnBehalfOf::Node(_) => VisibleNames::all(),
            OnBehalfOf::Anonymous => VisibleNames(Some(Arc::default())),
            OnBehalfOf::Client(identity) => VisibleNames(Some(caller.rights.of(policy, identity))),
        }
    }

    pub fn are_all(&self) -> bool {
        self.0.as_ref().is_none_or(|grants| grants.cover(Verbs::of(&[Verb::Read]), ""))
    }

    pub fn contain(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|grants| grants.allow(Verbs::of(&[Verb::Read]), name))
    }
}
