//! What a leader does about events as long as it leads.

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::{Command, LogIndex, Outcome, Publication};
use holdfast_replica::{GroupId, Leadership};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Publisher;
use super::broker::{Broker, Delivered, Failure};
use super::outbox::Outbox;
use crate::audit::line;
use crate::events::{EventRing, message};
use crate::inbox::Input;
use crate::metrics::KafkaMetrics;
use crate::shard::unix_ms;

/// How often the log is told how far publishing has come, if it has.
const MARK_INTERVAL: Duration = Duration::from_secs(1);
/// Or after so many events: the next leader would publish them again.
const MARK_EVENTS: u64 = 50_000;
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the log may take to answer.
const MARK_PATIENCE: Duration = Duration::from_secs(5);
/// A batch ends here even if there could be more events in it.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Between attempts to reach Kafka, or the log.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The same failure is told once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How far this leader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    through: u64,
    index: u64,
    /// Of the last election that is published.
    term: u64,
}

/// One batch: what is sent, and where publishing is when it has arrived.
#[derive(Debug)]
struct Batch {
    outbox: Outbox,
    reached: Reached,
    lost: u64,
}

#[derive(Debug)]
struct Term {
    reached: Reached,
    /// What the log knows.
    marked: Reached,
    mark_due: Option<Instant>,
    /// What is on its way. It stays what it is until all of it has arrived.
    batch: Option<Batch>,
    pause: Duration,
    /// The failure that was told last, and when.
    told: Option<(String, Instant)>,
}

impl Term {
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
}

impl Publisher {
    /// Returns when another node leads, or this node again in another term.
    pub(super) async fn serve_term(
        &mut self,
        term: u64,
        mut leadership: watch::Receiver<Leadership>,
    ) {
        let (events, metrics) = (Arc::clone(&self.events), Arc::clone(&self.metrics));
        tokio::select! {
            () = until_left(&mut leadership, term) => {}
            () = self.publish() => {}
            () = keep_measuring(&events, &metrics.kafka) => {}
        }
    }

    async fn publish(&mut self) {
        let publication = self.resume_position().await;
        let Publication { through, index, term, .. } = publication;
        let reached = Reached { through, index: index.0, term };
        self.elections.published(term);
        self.metrics.kafka.published_events.set(through);
        let (mark_due, batch, pause, told) = (None, None, PAUSE_MIN, None);
        let mut at = Term { reached, marked: reached, mark_due, batch, pause, told };
        tracing::info!(through, index = index.0, "publishing events to Kafka goes on from here");
        loop {
            let failure = match self.connect().await {
                Ok(mut broker) => self.publish_to(&mut broker, &mut at).await,
                Err(failure) => failure,
            };
            self.metrics.kafka.connected.set(0);
            self.metrics.kafka.failures.add(1);
            let behind = measure(&self.events, &self.metrics.kafka);
            if at.is_news(&failure) {
                tracing::warn!(%failure, behind, "Kafka takes no events; they are kept as long as there is room");
            }
            self.mark_if_due(&mut at).await;
            sleep(at.pause).await;
            at.pause = (at.pause * 2).min(PAUSE_MAX);
        }
    }

    async fn connect(&self) -> Result<Broker, Failure> {
        let broker = Broker::connect(&self.settings, &self.client_id).await?;
        self.metrics.kafka.connected.set(1);
        tracing::info!(
            topic = self.settings.topic,
            partitions = broker.partitions(),
            "Kafka is reached"
        );
        Ok(broker)
    }

    /// Until something fails.
    async fn publish_to(&mut self, broker: &mut Broker, at: &mut Term) -> Failure {
        let mut news = self.events.news();
        loop {
            news.borrow_and_update();
            // A recreated topic may have other partitions.
            let fits = |batch: &Batch| batch.outbox.is_for(broker.partitions());
            at.batch = at.batch.take().filter(fits);
            if at.batch.is_none() {
                at.batch = self.take_batch(at, broker.partitions());
            }
            if let Some(batch) = &mut at.batch {
                match self.deliver(broker, batch).await {
                    Ok(()) => self.has_arrived(at),
                    Err(Failure::Broken) => {
                        at.batch = None;
                        return Failure::Broken;
                    }
                    Err(failure) => return failure,
                }
                self.mark_if_due(at).await;
                continue;
            }
            self.mark_if_due(at).await;
            let due = at.mark_due.unwrap_or_else(|| Instant::now() + MARK_INTERVAL);
            tokio::select! {
                changed = news.changed() => if changed.is_err() { std::future::pending().await },
                () = sleep_until(due) => {}
            }
        }
    }

    async fn deliver(&self, broker: &mut Broker, batch: &mut Batch) -> Result<(), Failure> {
        let mut delivered = Delivered::default();
        let result = broker.deliver(&mut batch.outbox, &mut delivered).await;
        let kafka = &self.metrics.kafka;
        kafka.records.add(delivered.records);
        kafka.bytes.add(delivered.bytes);
        if delivered.refused > 0 {
            kafka.dropped.add(delivered.refused);
            tracing::error!(
                records = delivered.refused,
                "Kafka finds single records too large; they are dropped"
            );
        }
        result
    }

    /// None if there is nothing to send.
    fn take_batch(&mut self, at: &Term, partitions: i32) -> Option<Batch> {
        let mut outbox = Outbox::new(partitions);
        let mut reached = at.reached;
        let (last_term, elections) = self.elections.waiting();
        elections.for_each(|line| outbox.put_election(line, unix_ms()));
        reached.term = last_term.unwrap_or(reached.term);

        let events_max = usize::try_from(self.settings.events_in_flight).unwrap_or(usize::MAX);
        let counted = self.events.after_count(reached.through, events_max).unwrap_or_default();
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
                "events are lost to Kafka: they are no longer kept"
            );
            outbox.put_gap(&line::gap(after_index, next, now, lost), now);
            reached.through = counted.before;
            reached.index = next.index;
        }
        let mut line = Vec::new();
        for recorded in &counted.events {
            if outbox.bytes() >= BATCH_BYTES_MAX {
                break;
            }
            reached.through += 1;
            reached.index = recorded.position.index;
            line.clear();
            if self.lines.write(&mut line, recorded) {
                outbox.put_event(&message(recorded), &line, reached.through);
            }
        }
        (!outbox.is_empty()).then_some(Batch { outbox, reached, lost })
    }

    fn has_arrived(&mut self, at: &mut Term) {
        let Some(batch) = at.batch.take() else { return };
        at.reached = batch.reached;
        at.pause = PAUSE_MIN;
        at.told = None;
        at.mark_due.get_or_insert_with(|| Instant::now() + MARK_INTERVAL);
        self.elections.published(batch.reached.term);
        self.metrics.kafka.dropped.add(batch.lost);
        self.metrics.kafka.published_index.set(batch.reached.index);
        self.metrics.kafka.published_events.set(batch.reached.through);
        measure(&self.events, &self.metrics.kafka);
    }

    /// What the log says of those before; the first time ever, it begins to count.
    async fn resume_position(&self) -> Publication {
        const NOTHING_NEW: Reached = Reached { through: 0, index: 0, term: 0 };
        let (mut pause, mut was_warned) = (PAUSE_MIN, false);
        loop {
            if let Some(publication) = self.record_progress(NOTHING_NEW).await {
                return publication;
            }
            if pause == PAUSE_MAX && !std::mem::replace(&mut was_warned, true) {
                tracing::warn!(
                    "no events are published yet: the log does not take the mark, perhaps because not all \
                     members are known to read it"
                );
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn mark_if_due(&self, at: &mut Term) {
        let many = at.reached.through - at.marked.through >= MARK_EVENTS;
        if !many && at.mark_due.is_none_or(|due| due > Instant::now()) {
            return;
        }
        at.mark_due = None;
        if at.reached != at.marked {
            match self.record_progress(at.reached).await {
                Some(_) => at.marked = at.reached,
                None => at.mark_due = Some(Instant::now() + MARK_INTERVAL),
            }
        }
    }

    async fn record_progress(&self, reached: Reached) -> Option<Publication> {
        let Reached { through, index, term } = reached;
        let command = Command::EventsPublished { through, index: LogIndex(index), term };
        let (reply, answer) = oneshot::channel();
        self.shard.send(Input::EventsPublished { group: GroupId::FIRST, command, reply }).ok()?;
        let answer = timeout(MARK_PATIENCE, answer).await.ok()?.ok()?;
        match answer.result {
            Ok(Outcome::Published(publication)) => Some(publication),
            _ => None,
        }
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

fn measure(events: &EventRing, kafka: &KafkaMetrics) -> u64 {
    let happened = events.publication().map_or(0, |publication| publication.events);
    let behind = happened.saturating_sub(kafka.published_events.get());
    kafka.behind.set(behind);
    behind
}
