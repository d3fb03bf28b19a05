//! The policy as this node has applied it, and what a caller may do by it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::{Access, CompiledGrants, Grants, Identity, RulesVersion, TokenId};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};

use crate::method::{Method, Verb};
use crate::rates::RateLimits;

/// What a node demands of its callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// Every caller may do everything.
    #[default]
    Off,
    /// Every caller may do everything, and the node says what it would deny.
    Permissive,
    /// A caller proves who it is, and does what the policy allows.
    Required,
}

impl AuthMode {
    pub const fn name(self) -> &'static str {
        match self {
            AuthMode::Off => "off",
            AuthMode::Permissive => "permissive",
            AuthMode::Required => "required",
        }
    }

    /// What a caller who has not proved who it is has to do.
    pub(crate) const fn demand(self) -> &'static str {
        match self {
            AuthMode::Off => {
                "only an administrator sees and changes who may do what, and this node asks no caller who it is: set \
                 auth.mode = \"permissive\" or \"required\" on all nodes, then run `holdfast access bootstrap` on the \
                 machine of one of them"
            }
            AuthMode::Permissive | AuthMode::Required => {
                "this node demands to know who calls: show a token (auth file, or \
                 with gRPC the header authorization: Bearer hft_...), or a certificate (cert and key)"
            }
        }
    }

    /// Whether a caller needs the rights that the method's row names. Who may do what is changed by administrators only,
    /// in every mode: what an unknown caller changed while the node let everyone pass would be in force later.
    pub fn is_enforced(self, method: Method) -> bool {
        self == AuthMode::Required || method.row().verb == Verb::Access
    }
}

/// The token by which a client has proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownToken {
    pub id: TokenId,
    pub digest: [u8; 32],
}

pub fn unknown_token() -> Failure {
    let words =
        "the token is not known; it may have been revoked. Ask an administrator for another one";
    refused(Reason::Unauthenticated, words)
}

pub fn token_is_over() -> Failure {
    let words = "the time of the token is over; show another one";
    refused(Reason::CredentialExpired, words)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownAuthMode;

impl fmt::Display for UnknownAuthMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mode is off, permissive or required")
    }
}

impl FromStr for AuthMode {
    type Err = UnknownAuthMode;

    fn from_str(text: &str) -> Result<AuthMode, UnknownAuthMode> {
        let all = [AuthMode::Off, AuthMode::Permissive, AuthMode::Required];
        all.into_iter().find(|mode| mode.name() == text).ok_or(UnknownAuthMode)
    }
}

/// The policy that is in force at this node. A shard publishes it, and
/// [`Service::authorise`](crate::Service::authorise) compares with it.
#[derive(Debug, Default)]
pub struct PolicyInForce {
    generation: AtomicU64,
    now: Mutex<Published>,
    pub(crate) rates: RateLimits,
}

#[derive(Debug, Default)]
struct Published {
    access: Arc<Access>,
    compiled: CompiledGrants,
}

impl PolicyInForce {
    /// Of the latest that was published; 0 before any.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Does nothing if it is the policy that is in force already.
    pub fn publish(&self, access: &Access) {
        if access.generation() == self.generation() {
            return;
        }
        let published =
            Published { access: Arc::new(access.clone()), compiled: CompiledGrants::default() };
        *self.now() = published;
        self.rates.publish(access);
        self.generation.store(access.generation(), Ordering::Release);
    }

    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.now().access)
    }

    fn standing(&self, identity: &Identity, token: Option<&ShownToken>) -> (u64, Standing) {
        let mut now = self.now();
        let Published { access, compiled } = &mut *now;
        let token = match token {
            None => TokenStanding::Good { until_unix_ms: None },
            Some(token) => match access.token(token.id) {
                Some(record)
                    if record.digest == token.digest && record.principal == identity.principal =>
                {
                    TokenStanding::Good { until_unix_ms: record.expires_at_unix_ms }
                }
                _ => TokenStanding::Revoked,
            },
        };
        (
            access.generation(),
            Standing { grants: compiled.of(access, RulesVersion::NEWEST, identity), token },
        )
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Published> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the policy says of a caller.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) grants: Arc<Grants>,
    token: TokenStanding,
}

#[derive(Clone, Copy, Debug)]
enum TokenStanding {
    /// Also if no token was shown.
    Good {
        until_unix_ms: Option<u64>,
    },
    Revoked,
}

impl Standing {
    /// When the token that the caller has shown ends, if that is known.
    pub(crate) fn token_until_unix_ms(&self) -> Option<u64> {
        match self.token {
            TokenStanding::Good { until_unix_ms } => until_unix_ms,
            TokenStanding::Revoked => None,
        }
    }

    /// Whether what the caller has shown still counts. The clock is asked only if it matters.
    pub(crate) fn check_token(&self, unix_ms: Option<fn() -> u64>) -> Result<(), Failure> {
        match (self.token, unix_ms) {
            (TokenStanding::Revoked, _) => Err(unknown_token()),
            (TokenStanding::Good { until_unix_ms: Some(until) }, Some(unix_ms))
                if until <= unix_ms() =>
            {
                Err(token_is_over())
            }
            (TokenStanding::Good { .. }, _) => Ok(()),
        }
    }
}

/// What a caller may do, as it was last computed. All copies of a caller share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights(Arc<Mutex<Option<Computed>>>);

/// With the generation of the policy.
type Computed = (u64, Standing);

/// It follows from who the caller is.
impl PartialEq for Rights {
    fn eq(&self, _: &Rights) -> bool {
        true
    }
}

impl Eq for Rights {}

impl Rights {
    /// Computed again only after the policy has changed.
    pub(crate) fn of(
        &self,
        policy: &PolicyInForce,
        identity: &Identity,
        token: Option<&ShownToken>,
    ) -> Standing {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((generation, standing)) if *generation == policy.generation() => standing.clone(),
            _ => {
                let (generation, standing) = policy.standing(identity, token);
                *known = Some((generation, standing.clone()));
                standing
            }
        }
    }
}
