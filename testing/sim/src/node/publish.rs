//! What a leader does whose events are published: now and then it tells, in the log, how far they are.
//!
//! Nothing is published here. What matters is that all replicas count the same events, through crashes,
//! snapshots and elections, and that a count is never wrong about what happened.

use holdfast_core::{Command, LogIndex, Publication};
use holdfast_replica::Effect;

use super::{Output, Running};

/// How many it lets come together.
const EVENTS_PER_MARK: u64 = 40;

/// What this leader said last, in its term.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    term: u64,
    through: u64,
}

impl Running {
    pub(super) fn tell_what_is_published(&mut self) {
        if !self.publishes || !self.leadership.is_here {
            return;
        }
        let term = self.leadership.term;
        let publication = self.replica.table().publication();
        let events = publication.map_or(0, |publication| publication.events);
        // A new leader asks first where the one before it stopped.
        let is_new = self.told.term != term;
        if is_new || events >= self.told.through + EVENTS_PER_MARK {
            let through = if is_new { 0 } else { events };
            self.told = Told { term, through: events };
            let index = LogIndex(self.replica.applied_index());
            let command = Command::EventsPublished { through, index, term };
            self.replica.handle_call(None, command);
        }
    }

    /// After a turn in which entries were applied one by one.
    pub(super) fn check_count(
        before: Option<Publication>,
        after: Option<Publication>,
        effects: &[Effect],
        outputs: &mut Vec<Output>,
    ) {
        let (Some(before), Some(after)) = (before, after) else { return };
        let news = effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Happened { event, .. } if event.is_news()));
        let happened = news.count() as u64;
        if after.events != before.events + happened || after.through < before.through {
            let what = format!("{happened} events came between {before:?} and {after:?}");
            outputs.push(Output::Broken { what });
        }
    }
}
