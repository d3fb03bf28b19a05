//! One group: it is published while this node leads it. Otherwise this node only notes what it needs to publish next.

use std::sync::Arc;
use std::time::Duration;

use holdfast_replica::{GroupId, Leadership};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connection::Connection;
use super::elections::Elections;
use super::room::RoomInFlight;
use crate::audit::Lines;
use crate::events::{EventRing, Position};
use crate::inbox::ShardHandle;
use crate::metrics::Metrics;
use crate::stopping::Stopping;

/// How often a node that does not lead reads the ring, to learn the owners of sessions.
const NOTING_INTERVAL: Duration = Duration::from_millis(100);
const EVENTS_PER_READ: usize = 1_024;

#[derive(Debug)]
pub(super) struct PublishedGroup {
    pub(super) group: GroupId,
    pub(super) events: Arc<EventRing>,
    /// That of all groups of this node.
    pub(super) connection: Arc<Connection>,
    pub(super) room: Arc<RoomInFlight>,
    pub(super) shard: ShardHandle,
    pub(super) metrics: Arc<Metrics>,
    pub(super) lines: Lines,
    pub(super) elections: Elections,
    /// The publisher has read the owners of sessions from events up to this position.
    noted: Position,
}

impl PublishedGroup {
    pub(super) fn new(
        events: Arc<EventRing>,
        connection: Arc<Connection>,
        room: Arc<RoomInFlight>,
        shard: ShardHandle,
        metrics: Arc<Metrics>,
    ) -> PublishedGroup {
        let (group, lines) = (events.group(), Lines::new(&events));
        let (elections, noted) = (Elections::default(), Position::start_of(group));
        PublishedGroup { group, events, connection, room, shard, metrics, lines, elections, noted }
    }

    /// Publishes whenever this node leads the group, until the node stops.
    pub(super) async fn keep_publishing(mut self, stopping: Stopping) {
        let mut leadership = self.shard.watch_leadership(self.group);
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
            self.metrics.kafka.published(self.group, publication.through);
            self.lines.written_before(publication.index.0);
            self.elections.published(publication.term);
        }
    }
}
