//! On which terms a lock is asked for: what `lock` and `lock_all` have in common.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use holdfast_proto::v1;

use holdfast_client_core::error::Since;
use holdfast_client_core::tier::Tier;

/// What to do when somebody else is in the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Wait, unless that would close a cycle of waits:
    /// [`AcquireError::Deadlock`](crate::AcquireError::Deadlock).
    #[default]
    Detect,
    /// Wait, whatever comes of it.
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
pub(crate) struct Terms {
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
    /// Empty: whatever the client finds out by itself.
    pub(crate) traceparent: String,
}

impl Terms {
    /// To be asked in the task that wants the lock.
    pub(crate) fn actor(&self) -> u64 {
        self.actor.unwrap_or_else(current_task)
    }
}

/// The number of the task that runs; 0, the session itself, outside of any task.
fn current_task() -> u64 {
    let Some(id) = tokio::task::try_id() else { return 0 };
    let mut seen = NumberSeen(None);
    id.hash(&mut seen);
    // Should an id hash more than its number one day: it also shows it as text.
    seen.0.or_else(|| id.to_string().parse().ok()).unwrap_or(0)
}

/// The number that an id consists of, which it tells nobody but those who hash it.
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

/// The setters of [`Terms`], for a request that has them in `terms`.
macro_rules! setters_of_terms {
    () => {
        /// How long to wait in the queue. Without it the lock is tried once, and may be `Busy`.
        pub fn wait(mut self, wait: std::time::Duration) -> Self {
            self.terms.wait = wait;
            self
        }

        /// A TTL of the hold's own: it ends after this time unless it is renewed, even while the
        /// session lives.
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.terms.ttl = Some(ttl);
            self
        }

        /// The hold ends after this time, whatever is renewed.
        pub fn max_hold(mut self, max_hold: std::time::Duration) -> Self {
            self.terms.max_hold = Some(max_hold);
            self
        }

        /// If the hold ends without being released (its time is over, it is broken or wounded), the
        /// lock stays closed for so long: time for what was begun under it to end.
        pub fn lock_delay(mut self, lock_delay: std::time::Duration) -> Self {
            self.terms.lock_delay = Some(lock_delay);
            self
        }

        /// Shown to people who look at the lock.
        pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> Self {
            self.terms.metadata = metadata.into();
            self
        }

        /// Why it is wanted, for people who look at the lock: its metadata, in words.
        pub fn reason(self, reason: impl Into<String>) -> Self {
            self.metadata(reason.into())
        }

        /// On whose behalf the lock is asked for, within this session. By default it is the tokio task
        /// that awaits the request, so that two tasks of one process are two, and one task that takes
        /// two locks in a row is one; outside of any task it is 0, the session itself. Who does the work
        /// of one actor in several tasks gives them one number here.
        pub fn actor(mut self, actor: u64) -> Self {
            self.terms.actor = Some(actor);
            self
        }

        /// What to do when somebody else is in the way.
        pub fn policy(mut self, policy: $crate::Policy) -> Self {
            self.terms.policy = policy;
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
            self.terms.since = since.into();
            self
        }

        /// An older actor that asks with `wound_wait` may take the hold away.
        pub fn preemptible(mut self) -> Self {
            self.terms.preemptible = true;
            self
        }

        /// Which kind of lock is asked for: [`Tier::Correctness`]($crate::Tier::Correctness) unless it is said
        /// here.
        pub fn tier(mut self, tier: $crate::Tier) -> Self {
            self.terms.tier = tier;
            self
        }

        /// Of which span this is part, as the W3C's `traceparent` writes it. Nodes that export spans record what becomes
        /// of the request; see also [`ClientBuilder::traceparent`]($crate::ClientBuilder::traceparent).
        pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
            self.terms.traceparent = traceparent.into();
            self
        }

        /// Called once with the place in the queue (1 is next) if there is something to wait for. It must not block: the
        /// task calls it that serves the whole session.
        pub fn on_queued(mut self, told: impl FnOnce(u64) + Send + 'static) -> Self {
            self.on_queued = Some(Box::new(told));
            self
        }
    };
}

pub(crate) use setters_of_terms;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_task_is_an_actor_and_stays_the_same_one() {
        let ask = || async {
            let first = Terms::default().actor();
            assert_eq!(first.to_string(), tokio::task::id().to_string());
            tokio::task::yield_now().await;
            (first, Terms::default().actor())
        };
        let (one, one_again) = tokio::spawn(ask()).await.unwrap();
        let (other, _) = tokio::spawn(ask()).await.unwrap();
        assert_eq!(one, one_again);
        assert!(one != 0 && other != 0 && one != other, "{one}, {other}");
    }

    #[test]
    fn without_a_task_the_actor_is_the_session_and_a_number_overrides_it() {
        assert_eq!(Terms::default().actor(), 0);
        assert_eq!(Terms { actor: Some(7), ..Terms::default() }.actor(), 7);
    }
}
