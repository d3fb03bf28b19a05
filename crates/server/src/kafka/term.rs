//! What the leader of a group does about the group's events as long as it leads.

use std::sync::Arc;
use std::time::Duration;

use holdfast_replica::{GroupId, Leadership};
use tokio::sync::watch;
use tokio::time::sleep;

use super::broker::{Broker, Delivered, Failure};
use super::connection::{PAUSE_MAX, PAUSE_MIN};
use super::outbox::Outbox;
use super::progress::{ProgressLog, Reached};
use super::published_group::PublishedGroup;
use super::room::{Reservation, Room};
use crate::audit::line;
use crate::events::{EventRing, message};
use crate::metrics::KafkaMetrics;
use crate::shard::unix_ms;

const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// One batch: what is sent, and where publishing is when it has arrived.
#[derive(Debug)]
struct Batch {
    outbox: Outbox,
    reached: Reached,
    lost: u64,
    _room: Reservation,
}

#[derive(Debug)]
struct Term {
    reached: watch::Sender<Reached>,
    /// What is on its way. It stays what it is until all of it has arrived.
    batch: Option<Batch>,
}

/// The metrics show the group as published while this exists.
struct Shown<'a> {
    kafka: &'a KafkaMetrics,
    group: GroupId,
}

impl PublishedGroup {
    /// Returns when another node leads, or this node again in another term.
    pub(super) async fn serve_term(
        &mut self,
        term: u64,
        mut leadership: watch::Receiver<Leadership>,
    ) {
        let (events, metrics) = (Arc::clone(&self.events), Arc::clone(&self.metrics));
        let _use = self.connection.begin_use(self.group);
        let _shown = Shown::new(&metrics.kafka, self.group);
        tokio::select! {
            () = until_left(&mut leadership, term) => {}
            () = self.publish() => {}
            () = keep_measuring(&events, &metrics.kafka) => {}
        }
    }

    async fn publish(&mut self) {
        let progress = ProgressLog { group: self.group, shard: self.shard.clone() };
        let found = progress.resume_position().await;
        self.elections.published(found.term);
        self.metrics.kafka.published(self.group, found.through);
        let (through, index, group) = (found.through, found.index, self.group.0);
        tracing::info!(through, index, group, "publishing events to Kafka goes on from here");
        let reached = watch::Sender::new(found);
        let recorded = reached.subscribe();
        tokio::select! {
            () = self.publish_from(Term { reached, batch: None }) => {}
            () = progress.keep_recording(recorded) => {}
        }
    }

    async fn publish_from(&mut self, mut at: Term) {
        let connection = Arc::clone(&self.connection);
        let mut news = self.events.news();
        let mut pause = PAUSE_MIN;
        loop {
            let broker = connection.broker().await;
            news.borrow_and_update();
            // A recreated topic may have other partitions.
            let fits = |batch: &Batch| batch.outbox.is_for(broker.partitions());
            at.batch = at.batch.take().filter(fits);
            if at.batch.is_none() {
                at.batch = self.take_batch(*at.reached.borrow(), broker.partitions());
            }
            let Some(batch) = &mut at.batch else {
                if news.changed().await.is_err() {
                    return std::future::pending().await;
                }
                continue;
            };
            match self.deliver(&broker, batch).await {
                Ok(()) => {
                    self.has_arrived(&mut at);
                    pause = PAUSE_MIN;
                }
                Err(failure) => {
                    // Then it is not known what is left of the batch.
                    if matches!(failure, Failure::Broken) {
                        at.batch = None;
                    }
                    measure(&self.events, &self.metrics.kafka);
                    connection.failed(self.group, &broker, &failure);
                    // What the brokers refuse of this group is no reason to break the connection of the others often.
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn deliver(&self, broker: &Broker, batch: &mut Batch) -> Result<(), Failure> {
        let mut delivered = Delivered::default();
        let result = broker.deliver(&mut batch.outbox, &mut delivered).await;
        let kafka = &self.metrics.kafka;
        kafka.records.add(delivered.records);
        kafka.bytes.add(delivered.bytes);
        if delivered.refused > 0 {
            kafka.dropped.add(delivered.refused);
            tracing::error!(
                records = delivered.refused,
                group = self.group.0,
                "Kafka finds single records too large; they are dropped"
            );
        }
        result
    }

    /// None if there is nothing to send.
    fn take_batch(&mut self, mut reached: Reached, partitions: i32) -> Option<Batch> {
        let mut outbox = Outbox::new(partitions);
        let (last_term, elections) = self.elections.waiting();
        elections.for_each(|line| outbox.put_election(line, unix_ms()));
        reached.term = last_term.unwrap_or(reached.term);

        let mut reservation = self.room.reserve();
        let room = reservation.room();
        let counted = self.events.after_count(reached.through, room.events).unwrap_or_default();
        let lost = counted.lost;
        if lost > 0 {
            let first = counted.events.first();
            let next = first.map_or_else(|| self.events.newest(), |event| event.position);
            let now = first.map_or_else(unix_ms, |event| event.unix_ms);
            let (after_index, index) = (reached.index, next.index);
            tracing::error!(
                lost,
                after_index,
                index,
                group = self.group.0,
                "events are lost to Kafka: they are no longer kept"
            );
            outbox.put_gap(&line::gap(after_index, next, now, lost), now);
            reached.through = counted.before;
            reached.index = next.index;
        }
        let (mut line, mut events) = (Vec::new(), 0);
        for recorded in &counted.events {
            if events > 0 && outbox.bytes() >= room.bytes {
                break;
            }
            events += 1;
            reached.through += 1;
            reached.index = recorded.position.index;
            line.clear();
            if self.lines.write(&mut line, recorded) {
                outbox.put_event(&message(recorded), &line, reached.through);
            }
        }
        reservation.shrink_to(Room { events, bytes: outbox.bytes() });
        let has_any = !outbox.is_empty();
        has_any.then_some(Batch { outbox, reached, lost, _room: reservation })
    }

    fn has_arrived(&mut self, at: &mut Term) {
        let Some(batch) = at.batch.take() else { return };
        at.reached.send_replace(batch.reached);
        self.connection.arrived(self.group);
        self.elections.published(batch.reached.term);
        let kafka = &self.metrics.kafka;
        kafka.dropped.add(batch.lost);
        kafka.published_through(self.group, batch.reached.through, batch.reached.index);
        measure(&self.events, kafka);
    }
}

impl<'a> Shown<'a> {
    fn new(kafka: &'a KafkaMetrics, group: GroupId) -> Shown<'a> {
        kafka.begins(group);
        Shown { kafka, group }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.kafka.ends(self.group);
    }
}

async fn until_left(leadership: &mut watch::Receiver<Leadership>, term: u64) {
    let left = leadership.wait_for(|now| !now.is_here || now.term != term).await.is_ok();
    if !left {
        // The shard has ended, and the node is about to.
        std::future::pending::<()>().await;
    }
}

/// Also while a broker does not answer.
async fn keep_measuring(events: &EventRing, kafka: &KafkaMetrics) {
    loop {
        sleep(MEASURE_INTERVAL).await;
        measure(events, kafka);
    }
}

fn measure(events: &EventRing, kafka: &KafkaMetrics) {
    let happened = events.publication().map_or(0, |publication| publication.events);
    kafka.happened(events.group(), happened);
}
