//! Every event, published to a topic of Kafka.
//!
//! Only the leader publishes, and only what is committed. It reads the ring of events like any watcher, so no request
//! waits for a broker; what is on its way has a limit. At least once, and in order for each lock: a batch is sent
//! until all of it is acknowledged, and only then comes the next. How far it has come it tells in the log, about
//! once a second, so that the next leader goes on from there, out of its own ring.
//!
//! What the ring forgets before a broker takes it is lost. The log counts events while they are published, so how
//! many are lost is known exactly, and told: in the log lines, in the metrics, and in the topic itself.
//!
//! Two leaders may publish for a moment, the old one not knowing yet. Both send the same events in the same order,
//! so this too is only a repetition.

mod advice;
mod broker;
mod credentials;
mod elections;
mod murmur;
mod outbox;
mod term;

use std::sync::Arc;
use std::time::Duration;

use holdfast_replica::Leadership;
use tokio::sync::watch;
use tokio::time::sleep;

use self::credentials::Credentials;
pub use self::credentials::KafkaFileError;
use self::elections::Elections;
use crate::audit::Lines;
use crate::config::KafkaConfig;
use crate::events::{EventRing, Position};
use crate::metrics::Metrics;
use crate::shard::ShardHandle;
use crate::stopping::Stopping;

/// One who does not publish looks at the ring so often, to know who sessions belong to.
const NOTING_INTERVAL: Duration = Duration::from_millis(100);
const EVENTS_PER_LOOK: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Publisher {
    settings: KafkaConfig,
    /// By which brokers know this cluster.
    client_id: String,
    events: Arc<EventRing>,
    shard: ShardHandle,
    metrics: Arc<Metrics>,
    lines: Lines,
    elections: Elections,
    /// Up to here sessions are known.
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
            noted: Position::default(),
        }
    }

    /// Publishes whenever this node leads, until it stops.
    pub(crate) async fn keep_publishing(mut self, stopping: Stopping) {
        let mut leadership = self.shard.watch_leadership();
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

    /// The owners of the sessions whose events another node publishes: this node may be the next.
    fn note_events(&mut self) {
        loop {
            let Ok(events) = self.events.after(self.noted, EVENTS_PER_LOOK) else {
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
