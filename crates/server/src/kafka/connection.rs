//! The connection to Kafka that all groups of a node share.
//!
//! It exists while this node publishes at least one group. A failure of any group ends it for all: each group then asks
//! for the next one, which one of them makes. What a group has on its way over the former connection goes on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_replica::GroupId;
use tokio::time::{Instant, sleep_until};

use super::broker::{Broker, Failure};
use crate::config::KafkaConfig;
use crate::metrics::Metrics;

/// Between attempts to reach Kafka.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(50);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The same failure is told once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Connection {
    settings: KafkaConfig,
    /// The Kafka client id, by which brokers identify this cluster.
    client_id: String,
    metrics: Arc<Metrics>,
    /// Held by the group that makes the next connection; the others wait for it.
    connecting: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Groups that this node publishes.
    users: BTreeSet<GroupId>,
    /// Those whose last delivery failed.
    failing: BTreeSet<GroupId>,
    broker: Option<Arc<Broker>>,
    pause: Duration,
    /// No attempt before this.
    next_attempt: Instant,
    /// The failure that was told last, and when.
    told: Option<(String, Instant)>,
}

/// A group is published as long as this exists.
#[derive(Debug)]
pub(super) struct Use {
    connection: Arc<Connection>,
    group: GroupId,
}

impl Connection {
    pub(super) fn new(
        settings: KafkaConfig,
        client_id: String,
        metrics: Arc<Metrics>,
    ) -> Arc<Connection> {
        let state = State {
            users: BTreeSet::new(),
            failing: BTreeSet::new(),
            broker: None,
            pause: PAUSE_MIN,
            next_attempt: Instant::now(),
            told: None,
        };
        let (connecting, state) = (tokio::sync::Mutex::new(()), Mutex::new(state));
        Arc::new(Connection { settings, client_id, metrics, connecting, state })
    }

    /// This node begins to publish the group.
    pub(super) fn begin_use(self: &Arc<Self>, group: GroupId) -> Use {
        self.state().users.insert(group);
        Use { connection: Arc::clone(self), group }
    }

    /// The present connection; if there is none, the next one that succeeds. It is safe to drop this future.
    pub(super) async fn broker(&self) -> Arc<Broker> {
        if let Some(broker) = self.present() {
            return broker;
        }
        let _turn = self.connecting.lock().await;
        loop {
            // Another group may have made it meanwhile.
            if let Some(broker) = self.present() {
                return broker;
            }
            let next_attempt = self.state().next_attempt;
            sleep_until(next_attempt).await;
            match Broker::connect(&self.settings, &self.client_id).await {
                Ok(broker) => self.connected(broker),
                Err(failure) => self.note_failure(&mut self.state(), &failure),
            }
        }
    }

    /// The group could not send over this connection: the groups get another one.
    pub(super) fn failed(&self, group: GroupId, over: &Arc<Broker>, failure: &Failure) {
        let mut state = self.state();
        state.failing.insert(group);
        // Another group may have failed before, and this is known.
        if state.broker.as_ref().is_some_and(|broker| Arc::ptr_eq(broker, over)) {
            self.note_failure(&mut state, failure);
        }
    }

    /// All that the group had on its way has arrived.
    pub(super) fn arrived(&self, group: GroupId) {
        self.state().no_longer_failing(group);
    }

    fn present(&self) -> Option<Arc<Broker>> {
        self.state().broker.clone()
    }

    fn connected(&self, broker: Broker) {
        let partitions = broker.partitions();
        tracing::info!(topic = self.settings.topic, partitions, "Kafka is reached");
        self.state().broker = Some(Arc::new(broker));
        self.metrics.kafka.connected.set(1);
    }

    fn note_failure(&self, state: &mut State, failure: &Failure) {
        state.broker = None;
        state.next_attempt = Instant::now() + state.pause;
        state.pause = (state.pause * 2).min(PAUSE_MAX);
        let kafka = &self.metrics.kafka;
        kafka.connected.set(0);
        kafka.failures.add(1);
        if state.is_news(failure) {
            let worst = kafka.furthest_behind();
            let (group, behind) = (worst.group, worst.behind);
            tracing::warn!(
                %failure,
                behind,
                group,
                "Kafka takes no events; they are kept as long as there is room"
            );
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether another failure was told last, or this one long ago.
    fn is_news(&mut self, failure: &Failure) -> bool {
        let words = failure.to_string();
        let is_known = |(told, at): &(String, Instant)| *told == words && at.elapsed() < TOLD_EVERY;
        if self.told.as_ref().is_some_and(is_known) {
            return false;
        }
        self.told = Some((words, Instant::now()));
        true
    }

    /// A connection over which a group sends is a good one. Once no group is failing, the next failure is a new one.
    fn no_longer_failing(&mut self, group: GroupId) {
        self.failing.remove(&group);
        self.pause = PAUSE_MIN;
        if self.failing.is_empty() {
            self.told = None;
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = self.connection.state();
        state.users.remove(&self.group);
        state.failing.remove(&self.group);
        if state.users.is_empty() {
            state.broker = None;
            state.no_longer_failing(self.group);
            self.connection.metrics.kafka.connected.set(0);
        }
    }
}
