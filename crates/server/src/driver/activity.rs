//! What this node has done since it started, in numbers: for those who look at how busy it is. Counted by the
//! driver as it goes, and read like everything else that it owns.

use std::time::Duration;

use holdfast_core::{Event, LogIndex, LogicalTime, Outcome};
use holdfast_dashboard::WAIT_BOUNDS_MICROS;

const CLASSES: usize = WAIT_BOUNDS_MICROS.len() + 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) granted: u64,
    pub(crate) queued: u64,
    pub(crate) released: u64,
    /// Holds that ended without their holder's doing.
    pub(crate) lost: u64,
    /// Requests that the table refused, deadlocks among them.
    pub(crate) refused: u64,
    pub(crate) deadlocks: u64,
    /// Acquires that were granted, by how long that took: one class per bound, and one above all bounds.
    pub(crate) wait_classes: [u64; CLASSES],
}

impl Activity {
    pub(super) fn count(&mut self, happened: &[(LogIndex, LogicalTime, Event)]) {
        for (_, _, event) in happened {
            match event {
                Event::Granted { .. } => self.granted += 1,
                Event::Queued { .. } => self.queued += 1,
                Event::Released { .. } => self.released += 1,
                Event::HoldEnded { .. } => self.lost += 1,
                Event::Refused { outcome, .. } => {
                    self.refused += 1;
                    self.deadlocks += u64::from(matches!(outcome, Outcome::Deadlock(_)));
                }
                _ => {}
            }
        }
    }

    /// One acquire was granted, so long after it came in.
    pub(super) fn acquired(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = WAIT_BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(count) = self.wait_classes.get_mut(class) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acquire_is_counted_in_the_class_whose_bound_it_does_not_pass() {
        let mut activity = Activity::default();
        for micros in [0, 50, 51, 1_000, 1_001, u64::MAX] {
            activity.acquired(Duration::from_micros(micros));
        }
        let classes = activity.wait_classes;
        assert_eq!((classes[0], classes[1], classes[4], classes[5]), (2, 1, 1, 1));
        assert_eq!(classes[CLASSES - 1], 1);
        assert_eq!(classes.iter().sum::<u64>(), 6);
    }
}
