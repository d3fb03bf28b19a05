//! May this caller do that? The one place where a node decides it on receipt. The lock table checks again when it
//! applies the command.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::{BOOTSTRAP_PRINCIPAL, BuiltInRole, Identity, Principal, RoleName};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};

use crate::access::{AuthMode, PolicyInForce, Standing, token_is_over};
use crate::audit_gate::AuditGate;
use crate::caller::{Caller, Credential, OnBehalfOf};
use crate::limits::{ConcurrencyLimits, Permit};
use crate::method::{Kind, Limit, Method, Verb};
use crate::needs::{self, About};
use crate::visible_names::VisibleNames;

/// Proof that a caller may do something. Only [`Service::authorise`] makes one.
#[derive(Debug)]
pub struct Authorised(());

impl Authorised {
    /// Wraps the action that was authorised.
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

    /// The same action in another shape. `shape` must not change what was authorised.
    pub fn map<U>(self, shape: impl FnOnce(T) -> U) -> Admitted<U> {
        Admitted(shape(self.0))
    }
}

/// The service calls it for each action that it admits.
pub type Observer = dyn Fn(&Caller, Method) + Send + Sync;

/// The service calls it for each action that it denies, or would deny in the mode `required`. It also calls it for each
/// action that exceeds a rate.
pub type DenialObserver = dyn Fn(&Caller, Method, &Failure) + Send + Sync;

/// Checks a JWT and returns the identity of the client that presents it.
pub type JwtVerifier = dyn Fn(&str) -> Result<(Identity, Credential), Failure> + Send + Sync;

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Service {
    limits: ConcurrencyLimits,
    observers: Vec<Arc<Observer>>,
    denials: Option<Arc<DenialObserver>>,
    mode: AuthMode,
    policy: Arc<PolicyInForce>,
    bootstrap: Option<[u8; 32]>,
    unix_ms: Option<fn() -> u64>,
    audit: Arc<AuditGate>,
    jwts: Option<Arc<JwtVerifier>>,
    since_boot: Option<fn() -> Duration>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Service");
        shown.field("limits", &self.limits).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Service {
    /// Adds an observer.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<Observer>) -> Service {
        self.observers.push(observer);
        self
    }

    /// While this node cannot write its audit file, the service refuses the actions that `OnAuditFailure` names.
    #[must_use]
    pub fn with_audit(self, audit: Arc<AuditGate>) -> Service {
        Service { audit, ..self }
    }

    pub fn denials_observed_by(self, observer: Arc<DenialObserver>) -> Service {
        Service { denials: Some(observer), ..self }
    }

    #[must_use]
    pub fn with_mode(self, mode: AuthMode) -> Service {
        Service { mode, ..self }
    }

    /// The wall clock by which credentials expire. Without it none expires, so a node always sets
    /// it.
    #[must_use]
    pub fn with_clock(self, unix_ms: fn() -> u64) -> Service {
        Service { unix_ms: Some(unix_ms), ..self }
    }

    /// Clients may also show JWTs.
    #[must_use]
    pub fn with_jwts(self, verifier: Arc<JwtVerifier>) -> Service {
        Service { jwts: Some(verifier), ..self }
    }

    /// None if the node takes no JWTs.
    pub fn jwts(&self) -> Option<&JwtVerifier> {
        self.jwts.as_deref()
    }

    /// The clock for the rates of quotas; it never goes back. Without it no rate is limited.
    #[must_use]
    pub fn with_rate_clock(self, since_boot: fn() -> Duration) -> Service {
        Service { since_boot: Some(since_boot), ..self }
    }

    /// Until the first change of the policy, a token with this digest proves an administrator (the bootstrap token).
    #[must_use]
    pub fn with_bootstrap(self, digest: [u8; 32]) -> Service {
        Service { bootstrap: Some(digest), ..self }
    }

    /// The identity of the bootstrap token, by which a new cluster gets its first administrator. `None` if the digest
    /// is not that of the token, or once the policy was changed.
    pub fn bootstrap_identity(&self, digest: &[u8; 32]) -> Option<Identity> {
        let is_it = self.bootstrap.as_ref() == Some(digest) && self.policy.generation() == 0;
        let principal = Principal::parse(BOOTSTRAP_PRINCIPAL).ok().filter(|_| is_it)?;
        let admin = RoleName::parse(BuiltInRole::Admin.name()).ok()?;
        Some(Identity { principal, claimed: [admin].into() })
    }

    pub fn mode(&self) -> AuthMode {
        self.mode
    }

    /// The newest policy that any group of this node has applied.
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

    /// Takes a place for one more request of this kind. The place is free again when the permit is dropped. Fails if no
    /// place is free.
    pub fn begin(&self, method: Method) -> Result<Permit, Failure> {
        self.limits.take(method.row().limit)
    }

    /// Room for a stream that this node relays to the leader, besides what [`Service::begin`] gave.
    pub fn begin_relay(&self) -> Result<Permit, Failure> {
        self.limits.take(Limit::Relayed)
    }

    /// Checks that the caller may call `method` on `about`, which the front end has decoded. A denial is an error in
    /// the mode `required`, and in every mode for methods with [`Verb::Access`] (to see and change the policy). In the
    /// mode `permissive` other denials are only reported. In the mode `off` nothing else is checked.
    pub fn authorise(
        &self,
        caller: &Caller,
        method: Method,
        about: About<'_>,
    ) -> Result<Authorised, Failure> {
        let is_enforced = self.mode.is_enforced(method);
        if (self.mode != AuthMode::Off || is_enforced)
            && let Err(failure) = self.check(caller, method, about)
        {
            self.note_denial(caller, method, &failure);
            if is_enforced {
                return Err(failure);
            }
        }
        self.audit.check(method)?;
        if let Err(failure) = self.check_rates(caller, method, about) {
            self.note_denial(caller, method, &failure);
            return Err(failure);
        }
        for observer in &self.observers {
            observer(caller, method);
        }
        Ok(Authorised(()))
    }

    /// Reports a denial. Front ends also call it for a caller with a wrong credential, whose action they did not
    /// decode.
    pub fn note_denial(&self, caller: &Caller, method: Method, failure: &Failure) {
        if let Some(observer) = &self.denials {
            observer(caller, method, failure);
        }
    }

    /// Counts the request against the rate quotas of the prefixes of its names and, in the mode
    /// `required` only, against that of its principal: in other modes callers do not have to prove
    /// who they are.
    fn check_rates(
        &self,
        caller: &Caller,
        method: Method,
        about: About<'_>,
    ) -> Result<(), Failure> {
        let rates = &self.policy.rates;
        let is_node = matches!(caller.on_behalf_of, OnBehalfOf::Node(_));
        let Some(since_boot) = self.since_boot.filter(|_| rates.are_any()) else { return Ok(()) };
        if is_node || !method.counts_for_rates() {
            return Ok(());
        }
        let identity = caller.identity().filter(|_| self.mode == AuthMode::Required);
        rates.take(since_boot(), identity.map(|identity| &identity.principal), &about.names())
    }

    /// Checks, while a long action such as a watch is running, that its caller may still do it.
    pub fn check_again(
        &self,
        caller: &Caller,
        method: Method,
        about: About<'_>,
    ) -> Result<(), Failure> {
        if self.mode == AuthMode::Required {
            self.check(caller, method, about)?;
        }
        self.audit.check(method)
    }

    /// How long the caller's credential is still good. `None` if it has no end, or if the mode is not `required`.
    pub fn credential_left(&self, caller: &Caller) -> Option<Duration> {
        let unix_ms = self.unix_ms.filter(|_| self.mode == AuthMode::Required)?;
        let until_unix_ms = match (&caller.credential, caller.identity()) {
            (Some(Credential::Jwt { until_unix_ms, .. }), _) => Some(*until_unix_ms),
            (Some(Credential::Token(token)), Some(identity)) => {
                caller.rights.of(&self.policy, identity, Some(token)).token_until_unix_ms()
            }
            _ => None,
        };
        until_unix_ms.map(|until| Duration::from_millis(until.saturating_sub(unix_ms())))
    }

    /// Authorises an action that names no lock. The caller needs the right for all names.
    pub fn admit<T>(
        &self,
        caller: &Caller,
        method: Method,
        action: T,
    ) -> Result<Admitted<T>, Failure> {
        Ok(self.authorise(caller, method, About::Nothing)?.admit(action))
    }

    /// Compares what the method needs with the caller's rights. The words of a refusal never tell whether a lock
    /// exists.
    fn check(&self, caller: &Caller, method: Method, about: About<'_>) -> Result<(), Failure> {
        let verb = method.row().verb;
        let identity = match &caller.on_behalf_of {
            _ if verb == Verb::Open => return Ok(()),
            OnBehalfOf::Node(_) if is_for_nodes(caller, method) => return Ok(()),
            OnBehalfOf::Node(node) => {
                let words = format!(
                    "permission denied: node {node} of its own accord only reads, and asks for the leadership"
                );
                return Err(refused(Reason::PermissionDenied, words));
            }
            OnBehalfOf::Anonymous => {
                return Err(refused(Reason::Unauthenticated, self.mode.demand()));
            }
            OnBehalfOf::Client(identity) => identity,
        };
        let standing = caller.rights.of(&self.policy, identity, caller.token());
        needs::check(verb, about, &standing.grants).map_err(|missing| {
            let words = format!(
                "permission denied: no role of {} has {missing}; ask an administrator of the cluster (`holdfast access \
                 whoami` shows the roles)",
                identity.principal
            );
            refused(Reason::PermissionDenied, words)
        })?;
        match verb {
            // A caller may give up what its session holds even if its credential has expired or was
            // revoked.
            Verb::Authenticated => Ok(()),
            _ => self.check_credential(caller, &standing),
        }
    }

    /// Checks that the caller's credential has neither expired nor been revoked.
    fn check_credential(&self, caller: &Caller, standing: &Standing) -> Result<(), Failure> {
        match (&caller.credential, self.unix_ms) {
            (Some(Credential::Jwt { until_unix_ms, .. }), Some(unix_ms))
                if *until_unix_ms <= unix_ms() =>
            {
                Err(token_is_over())
            }
            _ => standing.check_token(self.unix_ms),
        }
    }
}

/// Whether a node may ask for this on its own behalf: reads for the dashboard, and a transfer of
/// the leadership. For an operator with access to its data directory (`holdfast access reset`), a
/// node also changes the policy, but only at that node itself: a forwarded request for this is
/// refused.
fn is_for_nodes(caller: &Caller, method: Method) -> bool {
    let row = method.row();
    match method {
        Method::TransferLeadership => true,
        Method::ChangeAccess => caller.forwarded_by.is_none(),
        _ => {
            let is_read = matches!(row.kind, Kind::Read | Kind::Watch | Kind::ClusterStatus);
            is_read && row.verb != Verb::Access
        }
    }
}
