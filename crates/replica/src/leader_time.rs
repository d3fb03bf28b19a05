//! The logical time that a leader sends in every heartbeat. Without it, the time that passes without writes would be
//! lost when the leader is lost. A voter passes the latest leader time that it knows on with its vote. So of the voters
//! that elect a leader, at least one knows the time of the last leader, as of the last heartbeat that reached a
//! majority.
//!
//! # Why no lease ends early by it
//!
//! A term has one leader. Its time runs no faster than real time from where it began. A node uses only the time of the
//! leader that wrote the last entry of its log. That leader had all earlier entries in its log, and its time began no
//! earlier than the highest stamp in them. So since each of these entries, at least as much real time has passed as
//! between its stamp and the leader's time. That holds whether or not the leader could still commit, and however long
//! its message took.
//!
//! The time of any other leader can be ahead although less real time has passed. An older leader goes on counting,
//! while the followers of a newer one continue from the end of the log. A newer leader without an entry here does not
//! know what an older one wrote since.

use holdfast_core::LogicalTime;

/// The logical time of the leader of a term. Term 0 has no leader: the value is then unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaderTime {
    pub(crate) term: u64,
    pub(crate) time: LogicalTime,
}

impl LeaderTime {
    /// Takes over a leader time that a message carries, if the last entry of the log here is of that leader's term.
    pub(crate) fn observe(&mut self, carried: LeaderTime, last_entry_term: u64) {
        if carried.term == 0 || carried.term != last_entry_term {
            return;
        }
        // Messages can overtake each other.
        if carried.term != self.term || carried.time > self.time {
            *self = carried;
        }
    }

    /// The time from which a new leader may continue, if the last entry of its log is of this term.
    pub(crate) fn after_entry_of(self, last_entry_term: u64) -> Option<LogicalTime> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ForgetsLeaderTime.is_active() {
            return None;
        }
        (self.term > 0 && self.term == last_entry_term).then_some(self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(term: u64, ms: u64) -> LeaderTime {
        LeaderTime { term, time: LogicalTime::from_ms(ms) }
    }

    #[test]
    fn the_latest_time_of_the_leader_that_wrote_the_last_entry_counts() {
        let mut observed = LeaderTime::default();
        observed.observe(time(3, 500), 3);
        observed.observe(time(3, 400), 3);
        assert_eq!(observed, time(3, 500), "the earlier time arrived late");
        observed.observe(time(3, 600), 3);
        assert_eq!(observed.after_entry_of(3), Some(LogicalTime::from_ms(600)));
    }

    #[test]
    fn the_time_of_any_other_leader_is_ignored() {
        let mut observed = time(3, 500);
        observed.observe(time(2, 900), 3);
        observed.observe(time(4, 900), 3);
        assert_eq!(observed, time(3, 500));
        assert_eq!(observed.after_entry_of(2), None);
        assert_eq!(observed.after_entry_of(4), None);
        observed.observe(time(4, 450), 4);
        assert_eq!(observed, time(4, 450), "the time of a newer leader may be behind");
    }

    #[test]
    fn a_message_without_a_leader_time_is_ignored() {
        let mut observed = LeaderTime::default();
        observed.observe(LeaderTime::default(), 0);
        observed.observe(time(0, 900), 0);
        assert_eq!(observed, LeaderTime::default());
        assert_eq!(observed.after_entry_of(0), None);
    }
}
