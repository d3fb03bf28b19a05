//! The policy as this node has applied it, and what a caller may do by it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::{Access, CompiledGrants, Grants, Identity};

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

/// The policy that is in force at this node. A shard publishes it, and the door compares with it.
#[derive(Debug, Default)]
pub struct PolicyInForce {
    generation: AtomicU64,
    now: Mutex<Published>,
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
        self.generation.store(access.generation(), Ordering::Release);
    }

    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.now().access)
    }

    fn grants(&self, identity: &Identity) -> (u64, Arc<Grants>) {
        let mut now = self.now();
        let Published { access, compiled } = &mut *now;
        (access.generation(), compiled.of(access, identity))
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Published> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a caller may do, as it was last computed. All copies of a caller share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights(Arc<Mutex<Option<Computed>>>);

/// With the generation of the policy.
type Computed = (u64, Arc<Grants>);

/// It follows from who the caller is.
impl PartialEq for Rights {
    fn eq(&self, _: &Rights) -> bool {
        true
    }
}

impl Eq for Rights {}

impl Rights {
    /// Computed again only after the policy has changed.
    pub(crate) fn of(&self, policy: &PolicyInForce, identity: &Identity) -> Arc<Grants> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((generation, grants)) if *generation == policy.generation() => Arc::clone(grants),
            _ => {
                let (generation, grants) = policy.grants(identity);
                *known = Some((generation, Arc::clone(&grants)));
                grants
            }
        }
    }
}
