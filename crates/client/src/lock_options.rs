//! The options of a lock request that `lock` and `lock_all` have in common.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use holdfast_proto::v1;

use holdfast_client_core::error::Since;
use holdfast_client_core::tier::Tier;

/// What to do when another actor is in the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Wait, unless that would close a cycle of waits:
    /// [`AcquireError::Deadlock`](crate::AcquireError::Deadlock).
    #[default]
    Detect,
    /// Wait until the deadline, even in a deadlock.
    Wait,
    /// Wait for younger actors only; [`AcquireError::Died`](crate::AcquireError::Died) if an older one is
    /// in the way.
    WaitDie,
    /// Take the preemptible holds of younger actors away; wait for the rest.
    WoundWait,
}

impl Policy {
    pub(crate) fn to_wire(self) -> v1::Policy {
        match self {
            Policy::Detect => v1::Policy::Detect,
            Policy::Wait => v1::Policy::Wait,
            Policy::WaitDie => v1::Policy::WaitDie,
            Policy::WoundWait => v1::Policy::WoundWait,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LockOptions {
    pub(crate) wait: Duration,
    pub(crate) ttl: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) lock_delay: Option<Duration>,
    pub(crate) metadata: Vec<u8>,
    /// `None`: the task that awaits the request.
    pub(crate) actor: Option<u64>,
    pub(crate) policy: Policy,
    pub(crate) since: Option<Since>,
    pub(crate) preemptible: bool,
    pub(crate) tier: Tier,
    /// Empty: the client's own.
    pub(crate) traceparent: String,
}

impl LockOptions {
    /// Call it in the task that wants the lock.
    pub(crate) fn actor(&self) -> u64 {
        self.actor.unwrap_or_else(current_task)
    }
}

/// The number of the task that runs; 0, the session itself, outside of any task.
fn current_task() -> u64 {
    let Some(id) = tokio::task::try_id() else { return 0 };
    let mut seen = NumberSeen(None);
    id.hash(&mut seen);
    // If a later tokio hashes more than the number: the id also shows it as text.
    seen.0.or_else(|| id.to_string().parse().ok()).unwrap_or(0)
}

/// Finds the number of a task id, which tokio shows to hashers only.
struct NumberSeen(Option<u64>);

impl Hasher for NumberSeen {
    fn write_u64(&mut self, number: u64) {
        self.0 = Some(number);
    }

    fn write(&mut self, _: &[u8]) {
        self.0 = None;
    }

    fn finish(&self) -> u64 {
        self.0.unwrap_or(0)
    }
}

/// The setters of [`LockOptions`], for a request that has them in `options`.
macro_rules! lock_option_setters {
    () => {
        /// How long to wait in the queue. Without it the lock is tried once, and may be `Busy`.
        pub fn wait(mut self, wait: std::time::Duration) -> Self {
            self.options.wait = wait;
            self
        }

        /// A TTL of the hold's own: it ends after this time unless it is renewed, even while the
        /// session lives.
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some(ttl);
            self
        }

        /// The hold ends after this time. No renewal moves it.
        pub fn max_hold(mut self, max_hold: std::time::Duration) -> Self {
            self.options.max_hold = Some(max_hold);
            self
        }

        /// If the hold ends without a release (its time is over, it is broken or wounded), no client gets the lock for so
        /// long. Work that was begun under the hold has time to end.
        pub fn lock_delay(mut self, lock_delay: std::time::Duration) -> Self {
            self.options.lock_delay = Some(lock_delay);
            self
        }

        /// Shown by `holdfast status` and the dashboard.
        pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> Self {
            self.options.metadata = metadata.into();
            self
        }

        /// Why the lock is wanted: its metadata, as text.
        pub fn reason(self, reason: impl Into<String>) -> Self {
            self.metadata(reason.into())
        }

        /// The actor, within this session, that wants the lock. By default it is the tokio task that awaits the
        /// request: two tasks of one process are two actors, and one task that takes two locks in a row is one. Outside
        /// of any task it is 0, the session itself. If several tasks do the work of one actor, give them one number here.
        pub fn actor(mut self, actor: u64) -> Self {
            self.options.actor = Some(actor);
            self
        }

        /// What to do when another actor is in the way.
        pub fn policy(mut self, policy: $crate::Policy) -> Self {
            self.options.policy = policy;
            self
        }

        /// Wait for younger actors only; see [`Policy::WaitDie`]($crate::Policy::WaitDie).
        pub fn wait_die(self) -> Self {
            self.policy($crate::Policy::WaitDie)
        }

        /// Take preemptible holds from younger actors; see
        /// [`Policy::WoundWait`]($crate::Policy::WoundWait).
        pub fn wound_wait(self) -> Self {
            self.policy($crate::Policy::WoundWait)
        }

        /// Wait until the deadline, even in a deadlock.
        pub fn no_detection(self) -> Self {
            self.policy($crate::Policy::Wait)
        }

        /// The age of the actor, for `wait_die` and `wound_wait`: when it first asked. Without it an
        /// actor is as old as its session.
        pub fn since(mut self, since: impl Into<Option<$crate::Since>>) -> Self {
            self.options.since = since.into();
            self
        }

        /// An older actor that asks with `wound_wait` may take the hold away.
        pub fn preemptible(mut self) -> Self {
            self.options.preemptible = true;
            self
        }

        /// The tier of the lock; by default [`Tier::Correctness`]($crate::Tier::Correctness).
        pub fn tier(mut self, tier: $crate::Tier) -> Self {
            self.options.tier = tier;
            self
        }

        /// The parent span, in the W3C's `traceparent` form. Nodes that export spans record the request under it; see also [`ClientBuilder::traceparent`]($crate::ClientBuilder::traceparent).
        pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
            self.options.traceparent = traceparent.into();
            self
        }

        /// Called once with the place in the queue (1 is next) if the request has to wait. It must not block: the task
        /// that serves the whole session calls it.
        pub fn on_queued(mut self, on_queued: impl FnOnce(u64) + Send + 'static) -> Self {
            self.on_queued = Some(Box::new(on_queued));
            self
        }
    };
}

pub(crate) use lock_option_setters;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_task_is_an_actor_and_stays_the_same_one() {
        let ask = || async {
            let first = LockOptions::default().actor();
            assert_eq!(first.to_string(), tokio::task::id().to_string());
            tokio::task::yield_now().await;
            (first, LockOptions::default().actor())
        };
        let (one, one_again) = tokio::spawn(ask()).await.unwrap();
        let (other, _) = tokio::spawn(ask()).await.unwrap();
        assert_eq!(one, one_again);
        assert!(one != 0 && other != 0 && one != other, "{one}, {other}");
    }

    #[test]
    fn without_a_task_the_actor_is_the_session_and_a_number_overrides_it() {
        assert_eq!(LockOptions::default().actor(), 0);
        assert_eq!(LockOptions { actor: Some(7), ..LockOptions::default() }.actor(), 7);
    }
}
