//! May this caller do that? The one place where it is decided.

use std::fmt;
use std::sync::Arc;

use holdfast_proto::v1::Failure;

use crate::caller::Caller;
use crate::limits::{ConcurrencyLimits, Permit};
use crate::method::{Limit, Method, Verb};

/// An action that its caller may do. Only [`Service::admit`] makes one.
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

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Service {
    limits: ConcurrencyLimits,
    observer: Option<Arc<Observer>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Service {
    pub fn observed_by(self, observer: Arc<Observer>) -> Service {
        Service { observer: Some(observer), ..self }
    }

    /// Room for one more request of this kind, for as long as the permit is held.
    pub fn begin(&self, method: Method) -> Result<Permit, Failure> {
        self.limits.take(method.row().limit)
    }

    /// Room for a stream that this node relays to the leader, besides what [`Service::begin`] gave.
    pub fn begin_relay(&self) -> Result<Permit, Failure> {
        self.limits.take(Limit::Relayed)
    }

    /// The action has been decoded, so it is well-formed.
    pub fn admit<T>(
        &self,
        caller: &Caller,
        method: Method,
        action: T,
    ) -> Result<Admitted<T>, Failure> {
        authorise(caller, method.row().verb)?;
        if let Some(observer) = &self.observer {
            observer(caller, method);
        }
        Ok(Admitted(action))
    }
}

/// There are no roles yet, so every caller may do everything. That is why a node binds to loopback alone, unless its
/// configuration says `insecure`.
fn authorise(_caller: &Caller, _verb: Verb) -> Result<(), Failure> {
    Ok(())
}
