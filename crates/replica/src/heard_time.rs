//! The time that leaders say: in every heartbeat, so that what passes while nobody writes anything is not lost with a
//! leader. Whoever votes passes on the latest that it heard; so of those who elect a leader one has heard the last one
//! as lately as that could count on a majority.
//!
//! # Why nothing ends early by it
//!
//! A term has one leader, and its time runs no faster than real time from where it began. Only the time of the leader
//! that wrote the last entry is believed. Every entry before that one was in this leader's log too, and its time began
//! no earlier than the highest stamp there: so since each of these entries at least as much real time has passed as
//! between its stamp and what the leader said. That holds whether or not that leader could still commit anything, and
//! however long its word was under way.
//!
//! The time of another leader can be ahead without that much having passed. An older one goes on to count, while those who
//! follow a newer one begin where the log ended; and a newer one, of which there is no entry here, knows nothing
//! of what an older one wrote since.

use holdfast_core::LogicalTime;

/// How late it was by the leader of a term. Nobody leads in term 0: then nothing was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeardTime {
    pub(crate) term: u64,
    pub(crate) time: LogicalTime,
}

impl HeardTime {
    /// Takes in what was said, if the last entry of the log here is of that term.
    pub(crate) fn hear(&mut self, said: HeardTime, last_entry_term: u64) {
        if said.term == 0 || said.term != last_entry_term {
            return;
        }
        // Words can overtake each other.
        if said.term != self.term || said.time > self.time {
            *self = said;
        }
    }

    /// From where one may go on who is elected with a log whose last entry is of this term.
    pub(crate) fn after_entry_of(self, last_entry_term: u64) -> Option<LogicalTime> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ForgetsHeardTime.is_active() {
            return None;
        }
        (self.term > 0 && self.term == last_entry_term).then_some(self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(term: u64, ms: u64) -> HeardTime {
        HeardTime { term, time: LogicalTime::from_ms(ms) }
    }

    #[test]
    fn the_latest_word_of_whoever_wrote_the_last_entry_counts() {
        let mut heard = HeardTime::default();
        heard.hear(said(3, 500), 3);
        heard.hear(said(3, 400), 3);
        assert_eq!(heard, said(3, 500), "it was overtaken");
        heard.hear(said(3, 600), 3);
        assert_eq!(heard.after_entry_of(3), Some(LogicalTime::from_ms(600)));
    }

    #[test]
    fn the_word_of_anybody_else_does_not() {
        let mut heard = said(3, 500);
        heard.hear(said(2, 900), 3);
        heard.hear(said(4, 900), 3);
        assert_eq!(heard, said(3, 500));
        assert_eq!(heard.after_entry_of(2), None);
        assert_eq!(heard.after_entry_of(4), None);
        heard.hear(said(4, 450), 4);
        assert_eq!(heard, said(4, 450), "a newer one may be behind");
    }

    #[test]
    fn one_that_says_nothing_was_not_heard() {
        let mut heard = HeardTime::default();
        heard.hear(HeardTime::default(), 0);
        heard.hear(said(0, 900), 0);
        assert_eq!(heard, HeardTime::default());
        assert_eq!(heard.after_entry_of(0), None);
    }
}
