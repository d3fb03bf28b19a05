//! `EventsPublished`: the leader has passed events on. See [`Publication`].

use crate::model::id::LogIndex;
use crate::model::outcome::Outcome;
use crate::model::publication::Publication;
use crate::state::table::LockTable;

impl LockTable {
    /// Only ever forward: a leader of the past may be slow to say what it did.
    pub(crate) fn events_published(&mut self, through: u64, index: LogIndex, term: u64) -> Outcome {
        let begun = Publication { events: 0, through: 0, index: self.applied_index(), term: 0 };
        let mut publication = self.publication().unwrap_or(begun);
        let through = through.min(publication.events);
        if through > publication.through {
            publication.through = through;
            publication.index = publication.index.max(index).min(self.applied_index());
        }
        publication.term = publication.term.max(term);
        self.set_publication(publication);
        Outcome::Published(publication)
    }
}
