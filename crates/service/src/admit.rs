//! May this caller do that? The one place where it is decided.

use std::fmt;
use std::sync::Arc;

use holdfast_core::{BuiltInRole, Identity, Principal, RoleName};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};

use crate::access::{AuthMode, PolicyInForce};
use crate::caller::{Caller, OnBehalfOf};
use crate::limits::{ConcurrencyLimits, Permit};
use crate::method::{Limit, Method, Verb};
use crate::needs::{About, are_met};
use crate::visible_names::VisibleNames;

/// That a caller may do something. Only [`Service::authorise`] makes one.
#[derive(Debug)]
pub struct Authorised(());

impl Authorised {
    /// The action that was meant.
    pub fn admit<T>(self, action: T) -> Admitted<T> {
        Admitted(action)
    }
}

/// An action that its caller may do. Only [`Authorised::admit`] makes one.
#[derive(Clone, Debug)]
pub struct Admitted<T>(T);

impl<T> Admitted<T> {
    /// For the shard, which carries it out.
    pub fn into_inner(self) -> T {
        self.0
    }

    pub fn get(&self) -> &T {
        &self.0
    }

    /// The same action in another shape.
    pub fn map<U>(self, shape: impl FnOnce(T) -> U) -> Admitted<U> {
        Admitted(shape(self.0))
    }
}

/// Is told of each action that is admitted.
pub type Observer = dyn Fn(&Caller, Method) + Send + Sync;

/// Is told of each action that is denied, or would be if the mode were `required`.
pub type DenialObserver = dyn Fn(&Caller, Method, &Failure) + Send + Sync;

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Service {
    limits: ConcurrencyLimits,
    observer: Option<Arc<Observer>>,
    denials: Option<Arc<DenialObserver>>,
    mode: AuthMode,
    policy: Arc<PolicyInForce>,
    bootstrap: Option<[u8; 32]>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Service");
        shown.field("limits", &self.limits).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Service {
    pub fn observed_by(self, observer: Arc<Observer>) -> Service {
        Service { observer: Some(observer), ..self }
    }

    pub fn denials_observed_by(self, observer: Arc<DenialObserver>) -> Service {
        Service { denials: Some(observer), ..self }
    }

    #[must_use]
    pub fn with_mode(self, mode: AuthMode) -> Service {
        Service { mode, ..self }
    }

    /// Until the first change of the policy, a token with this digest is an administrator's.
    #[must_use]
    pub fn with_bootstrap(self, digest: [u8; 32]) -> Service {
        Service { bootstrap: Some(digest), ..self }
    }

    /// Of the token with this digest, if it is the one by which a new cluster gets its first administrator.
    pub fn bootstrap_identity(&self, digest: &[u8; 32]) -> Option<Identity> {
        let is_it = self.bootstrap.as_ref() == Some(digest) && self.policy.generation() == 0;
        let principal = Principal::parse("token:bootstrap").ok().filter(|_| is_it)?;
        let admin = RoleName::parse(BuiltInRole::Admin.name()).ok()?;
        Some(Identity { principal, claimed: [admin].into() })
    }

    pub fn mode(&self) -> AuthMode {
        self.mode
    }

    /// That of this node.
    pub fn policy(&self) -> &Arc<PolicyInForce> {
        &self.policy
    }

    /// What the caller may see of the names in an answer.
    pub fn visible_names(&self, caller: &Caller) -> VisibleNames {
        match self.mode {
            AuthMode::Required => VisibleNames::of(caller, &self.policy),
            AuthMode::Off | AuthMode::Permissive => VisibleNames::all(),
        }
    }

    /// Room for one more request of this kind, for as long as the permit is held.
    pub fn begin(&self, method: Method) -> Result<Permit, Failure> {
        self.limits.take(method.row().limit)
    }

    /// Room for a stream that this node relays to the leader, besides what [`Service::begin`] gave.
    pub fn begin_relay(&self) -> Result<Permit, Failure> {
        self.limits.take(Limit::Relayed)
    }

    /// May the caller do this, to that? The action has been decoded, so it is well-formed.
    pub fn authorise(
        &self,
        caller: &Caller,
        method: Method,
        about: About<'_>,
    ) -> Result<Authorised, Failure> {
        if self.mode != AuthMode::Off
            && let Err(failure) = self.check(caller, method.row().verb, about)
        {
            if let Some(observer) = &self.denials {
                observer(caller, method, &failure);
            }
            if self.mode == AuthMode::Required {
                return Err(failure);
            }
        }
        if let Some(observer) = &self.observer {
            observer(caller, method);
        }
        Ok(Authorised(()))
    }

    /// May a caller go on with what it was allowed to begin?
    pub fn check_again(
        &self,
        caller: &Caller,
        method: Method,
        about: About<'_>,
    ) -> Result<(), Failure> {
        match self.mode {
            AuthMode::Required => self.check(caller, method.row().verb, about),
            AuthMode::Off | AuthMode::Permissive => Ok(()),
        }
    }

    /// An action that is about no lock in particular.
    pub fn admit<T>(
        &self,
        caller: &Caller,
        method: Method,
        action: T,
    ) -> Result<Admitted<T>, Failure> {
        Ok(self.authorise(caller, method, About::Nothing)?.admit(action))
    }

    /// The words of a refusal never tell whether a lock exists.
    fn check(&self, caller: &Caller, verb: Verb, about: About<'_>) -> Result<(), Failure> {
        let identity = match &caller.on_behalf_of {
            OnBehalfOf::Node(_) => return Ok(()),
            _ if verb == Verb::Open => return Ok(()),
            OnBehalfOf::Anonymous => {
                let words = "this node demands to know who calls; show a token (authorization: Bearer hft_...)";
                return Err(refused(Reason::Unauthenticated, words));
            }
            OnBehalfOf::Client(identity) => identity,
        };
        if are_met(verb, about, &caller.rights.of(&self.policy, identity)) {
            return Ok(());
        }
        let words = format!(
            "permission denied: {} has no role that allows this; ask an administrator of the cluster",
            identity.principal
        );
        Err(refused(Reason::PermissionDenied, words))
    }
}
