//! Every event, published to a topic of Kafka.
//!
//! The leader of a group publishes the committed events of that group, and no others. It reads the group's ring of
//! recent events (`EventRing`), as watches do, so no request waits for a broker. Of each group one batch of bounded size
//! is sent at a time. Delivery is at least once, and in order for each group, hence for each lock: the publisher repeats
//! a batch until the brokers have acknowledged all of it, and only then sends the next one. Between groups there is no
//! order. About once a second the publisher writes its progress to the group's replicated log. The next leader continues
//! from there, out of its own ring.
//!
//! All groups of a node share one connection (`connection.rs`) and the memory for what is on its way (`room.rs`). A group
//! that cannot record its progress, because it has no quorum, keeps no other group from publishing.
//!
//! An event is lost to Kafka if the ring drops it before a broker acknowledges it. The lock table of the group counts
//! events once publishing has begun, so the number of lost events is known exactly. The publisher reports it in the log
//! lines, in the metrics, and in the topic itself.
//!
//! For a moment two leaders of a group may publish, because the old one does not know yet that it was replaced. Both send
//! the same events in the same order, so this only repeats events.

mod advice;
mod broker;
mod connection;
mod credentials;
mod elections;
mod murmur;
mod outbox;
mod progress;
mod published_group;
mod room;
mod term;

use std::sync::Arc;

use tokio::task::JoinSet;

use self::connection::Connection;
use self::credentials::Credentials;
pub use self::credentials::KafkaFileError;
use self::published_group::PublishedGroup;
use self::room::RoomInFlight;
use crate::config::KafkaConfig;
use crate::events::EventRings;
use crate::inbox::ShardHandle;
use crate::metrics::Metrics;
use crate::stopping::Stopping;

/// The publishers of all groups of this node.
#[derive(Debug)]
pub(crate) struct Publisher {
    groups: Vec<PublishedGroup>,
}

/// Reads all files that the settings name, so that a node does not start with wrong ones.
pub(crate) fn check_files(settings: &KafkaConfig) -> Result<(), KafkaFileError> {
    Credentials::load(settings).map(|_| ())
}

impl Publisher {
    pub(crate) fn new(
        settings: KafkaConfig,
        cluster: &str,
        events: &EventRings,
        shard: &ShardHandle,
        metrics: &Arc<Metrics>,
    ) -> Publisher {
        let room = RoomInFlight::for_groups(events.all().len(), settings.events_in_flight);
        let client_id = format!("holdfast-{cluster}");
        let connection = Connection::new(settings, client_id, Arc::clone(metrics));
        let groups = events.all().map(|ring| {
            let (connection, room) = (Arc::clone(&connection), Arc::clone(&room));
            let (shard, metrics) = (shard.clone(), Arc::clone(metrics));
            PublishedGroup::new(Arc::clone(ring), connection, room, shard, metrics)
        });
        Publisher { groups: groups.collect() }
    }

    /// Publishes the events of each group whenever this node leads the group, until the node stops.
    pub(crate) async fn keep_publishing(self, stopping: Stopping) {
        let mut publishing = JoinSet::new();
        for group in self.groups {
            publishing.spawn(group.keep_publishing(stopping.clone()));
        }
        while publishing.join_next().await.is_some() {}
    }
}
