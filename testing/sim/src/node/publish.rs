//! What a leader does whose events are published: now and then it tells, in the log, how far they are.
//!
//! Nothing is published here. What matters is that all replicas count the same events, through crashes,
//! snapshots and elections, and that a count is never wrong about what happened.

use std::time::Duration;

use holdfast_core::{Command, Event, LogIndex, LogicalTime, Publication};

use super::host::{Caller, PublishedMark};
use super::{GroupState, Output, Running};

/// How many it lets come together.
const EVENTS_PER_MARK: u64 = 40;
/// It asks again if it has no answer, as it has none while some member might not read that.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

impl Running {
    pub(super) fn record_publication(&mut self, now: Duration) {
        for place in 0..self.groups.len() {
            self.record_publication_of(place, now);
        }
    }

    fn record_publication_of(&mut self, place: usize, now: Duration) {
        let Running { publishes, engine, groups, .. } = self;
        let GroupState { id, leadership, published_mark, publisher_asked, .. } = &mut groups[place];
        let is_due = now >= *publisher_asked + ASK_AGAIN_AFTER;
        let (true, true, true, Some(replica)) =
            (*publishes, leadership.is_here, is_due, engine.replica(*id))
        else {
            return;
        };
        let term = leadership.term;
        let publication = replica.table().publication();
        let events = publication.map_or(0, |publication| publication.events);
        // A new leader asks first where the one before it stopped.
        let is_new = published_mark.term != term;
        if is_new || events >= published_mark.through + EVENTS_PER_MARK {
            let through = if is_new { 0 } else { events };
            let index = LogIndex(replica.applied_index());
            let command = Command::EventsPublished { through, index, term };
            let told = PublishedMark { term, through: events };
            *publisher_asked = now;
            engine.events_published(*id, command, Caller::Publisher(*id, told));
        }
    }
}

/// After a step in which entries were applied one by one.
pub(super) fn check_count(
    before: Option<Publication>,
    after: Option<Publication>,
    events: &[(LogIndex, LogicalTime, Event)],
) -> Option<Output> {
    let (before, after) = (before?, after?);
    let happened = events.iter().filter(|(_, _, event)| event.is_publishable()).count() as u64;
    (after.events != before.events + happened || after.through < before.through).then(|| {
        let what = format!("{happened} events came between {before:?} and {after:?}");
        Output::Broken { checker: "replica", what }
    })
}
