//! A timer for a loop that waits for other things too. To set it in each step would cost more than the step, so it is
//! moved only if it would go off too late; to go off too early costs one step in a while.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};

#[derive(Debug)]
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    is_set: bool,
}

impl Alarm {
    pub(super) fn new() -> Alarm {
        Alarm { sleep: Box::pin(sleep(Duration::ZERO)), is_set: false }
    }

    /// It goes off then at the latest.
    pub(super) fn set(&mut self, at: Instant) {
        if !self.is_set || at < self.sleep.deadline().into_std() {
            self.sleep.as_mut().reset(at.into());
            self.is_set = true;
        }
    }

    /// Whether its time has come, or was never set. It is to be set again then.
    pub(super) fn has_gone_off(&mut self, now: Instant) -> bool {
        if self.is_set && now < self.sleep.deadline().into_std() {
            return false;
        }
        self.is_set = false;
        true
    }

    /// Need not be waited for to the end.
    pub(super) async fn goes_off(&mut self) {
        self.sleep.as_mut().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_fires_at_the_earliest_time_set_and_then_waits_for_the_next() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut alarm = Alarm::new();
        assert!(alarm.has_gone_off(start));
        for ms in [30, 10, 20] {
            alarm.set(after(ms));
        }
        assert_eq!(alarm.sleep.deadline().into_std(), after(10));
        assert!(!alarm.has_gone_off(after(9)));
        alarm.goes_off().await;
        assert!(alarm.has_gone_off(Instant::now()));
        alarm.set(after(40));
        assert_eq!(alarm.sleep.deadline().into_std(), after(40));
        assert!(!alarm.has_gone_off(after(39)));
        // A loop that never comes to waiting for it hears of it all the same.
        assert!(alarm.has_gone_off(after(40)));
    }
}
