//! Every event, published to a topic of Kafka.
//!
//! Only the leader publishes, and only committed events. It reads the ring of recent events (`EventRing`), as watches
//! do, so no request waits for a broker. One batch of bounded size is sent at a time. Delivery is at least once, and in
//! order for each lock: the publisher repeats a batch until the brokers have acknowledged all of it, and only then
//! sends the next one. About once a second the publisher writes its progress to the replicated log. The next leader
//! continues from there, out of its own ring.
//!
//! An event is lost to Kafka if the ring drops it before a broker acknowledges it. The lock table counts events once
//! publishing has begun, so the number of lost events is known exactly. The publisher reports it in the log lines, in
//! the metrics, and in the topic itself.
//!
//! For a moment two leaders may publish, because the old one does not know yet that it was replaced. Both send the same
//! events in the same order, so this only repeats events.

mod advice;
mod broker;
mod credentials;
mod elections;
mod murmur;
mod outbox;
mod term;

use std::sync::Arc;
use std::time::Duration;

use holdfast_replica::{GroupId, Leadership};
use tokio::sync::watch;
use tokio::time::sleep;

use self::credentials::Credentials;
pub use self::credentials::KafkaFileError;
use self::elections::Elections;
use crate::audit::Lines;
use crate::config::KafkaConfig;
use crate::events::{EventRing, Position};
use crate::inbox::ShardHandle;
use crate::metrics::Metrics;
use crate::stopping::Stopping;

/// How often a node that does not lead reads the ring, to learn the owners of sessions.
const NOTING_INTERVAL: Duration = Duration::from_millis(100);
const EVENTS_PER_READ: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Publisher {
    settings: KafkaConfig,
    /// The Kafka client id, by which brokers identify this cluster.
    client_id: String,
    events: Arc<EventRing>,
    shard: ShardHandle,
    metrics: Arc<Metrics>,
    lines: Lines,
    elections: Elections,
    /// The publisher has read the owners of sessions from events up to this position.
    noted: Position,
}

/// Reads all files that the settings name, so that a node does not start with wrong ones.
pub(crate) fn check_files(settings: &KafkaConfig) -> Result<(), KafkaFileError> {
    Credentials::load(settings).map(|_| ())
}

impl Publisher {
    pub(crate) fn new(
        settings: KafkaConfig,
        cluster: &str,
        events: Arc<EventRing>,
        shard: ShardHandle,
        metrics: Arc<Metrics>,
    ) -> Publisher {
        let lines = Lines::new(&events);
        Publisher {
            settings,
            client_id: format!("holdfast-{cluster}"),
            events,
            shard,
            metrics,
            lines,
            elections: Elections::default(),
            noted: Position::start_of(GroupId::FIRST),
        }
    }

    /// Publishes whenever this node leads, until it stops.
    pub(crate) async fn keep_publishing(mut self, stopping: Stopping) {
        let mut leadership = self.shard.watch_leadership(GroupId::FIRST);
        let mut news = self.events.news();
        news.mark_changed();
        loop {
            let now = self.note_leadership(&mut leadership);
            self.note_events();
            let served = async {
                if now.is_here {
                    return self.serve_term(now.term, leadership.clone()).await;
                }
                tokio::select! {
                    Ok(()) = leadership.changed() => {}
                    Ok(()) = news.changed() => sleep(NOTING_INTERVAL).await,
                    else => std::future::pending().await,
                }
            };
            tokio::select! {
                () = served => {}
                () = stopping.begun() => return,
            }
            self.metrics.kafka.connected.set(0);
            self.metrics.kafka.behind.set(0);
        }
    }

    fn note_leadership(&mut self, leadership: &mut watch::Receiver<Leadership>) -> Leadership {
        let now = *leadership.borrow_and_update();
        self.elections.note(now, self.events.newest());
        now
    }

    /// Reads the events that another node publishes, to learn the owners of their sessions: this node may publish next.
    fn note_events(&mut self) {
        loop {
            let Ok(events) = self.events.after(self.noted, EVENTS_PER_READ) else {
                self.noted = self.events.oldest();
                continue;
            };
            let Some(last) = events.last() else { break };
            self.noted = last.position;
            events.iter().for_each(|event| self.lines.note(event));
        }
        if let Some(publication) = self.events.publication() {
            self.metrics.kafka.published_events.set(publication.through);
            self.lines.written_before(publication.index.0);
            self.elections.published(publication.term);
        }
    }
}
