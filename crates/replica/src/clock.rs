//! One clock for the ticks of consensus and for the stamps of a leader. So a node whose clock stops loses leadership.
//! It does not stretch the leases of its clients.

use std::time::Duration;

use holdfast_core::{LogicalTime, Span};

/// One part in so many of the counted time is deducted from the time lost in stalls.
const FORGIVEN: u32 = 100;

/// Counts the time that passed while the loop was turning. A turn longer than `stall_max` counts as `stall_max`. The
/// rest is lost, and logical time runs late by so much.
#[derive(Debug)]
pub(crate) struct Clock {
    tick: Duration,
    stall_max: Duration,
    last_seen: Option<Duration>,
    counted: Duration,
    ticks_given: u64,
    /// The time of slow writes since the last `advance`.
    slow_writes: Duration,
    /// Set while this replica leads.
    epoch: Option<Epoch>,
}

/// The time of one leader: stamps are `base` plus what was counted since.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    base: LogicalTime,
    counted_at_start: Duration,
    /// The time lost in stalls, each at most half of `stall_max`, less what is forgiven.
    lost: Duration,
    /// The time of slow writes, less all other time since.
    in_slow_writes: Duration,
}

/// The result of one `advance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed {
    pub(crate) ticks: u64,
    pub(crate) stalled: bool,
}

impl Clock {
    pub(crate) fn new(tick: Duration, stall_max: Duration) -> Clock {
        let counted = Duration::ZERO;
        let slow_writes = Duration::ZERO;
        Clock {
            tick,
            stall_max,
            last_seen: None,
            counted,
            ticks_given: 0,
            slow_writes,
            epoch: None,
        }
    }

    /// `now` is any monotonic time of this node.
    pub(crate) fn advance(&mut self, now: Duration) -> Elapsed {
        let passed = self.last_seen.map_or(Duration::ZERO, |seen| now.saturating_sub(seen));
        self.last_seen = Some(self.last_seen.map_or(now, |seen| seen.max(now)));
        let stalled = passed > self.stall_max;
        #[cfg(feature = "planted")]
        if crate::planted::Bug::StallCountsInFull.is_active() {
            self.counted += passed.saturating_sub(self.stall_max);
        }
        let counted = passed.min(self.stall_max);
        self.counted += counted;
        let in_slow_writes = std::mem::take(&mut self.slow_writes).min(passed);
        if let Some(epoch) = &mut self.epoch {
            let lost = (passed - counted).min(self.stall_max / 2);
            let lost = epoch.lost.saturating_sub(counted / FORGIVEN) + lost;
            // Bounded, so that a bad hour does not count for a day.
            epoch.lost = lost.min(self.stall_max);
            let sum = epoch.in_slow_writes + in_slow_writes.min(self.stall_max);
            let sum = sum.saturating_sub(passed - in_slow_writes);
            epoch.in_slow_writes = sum.min(self.stall_max * 3);
        }
        let due = (self.counted.as_nanos() / self.tick.as_nanos().max(1)) as u64;
        let ticks = due - self.ticks_given;
        self.ticks_given = due;
        Elapsed { ticks, stalled }
    }

    /// This replica leads from now on, and continues at `base`.
    pub(crate) fn begin_epoch(&mut self, base: LogicalTime) {
        let (lost, in_slow_writes) = (Duration::ZERO, Duration::ZERO);
        self.epoch = Some(Epoch { base, counted_at_start: self.counted, lost, in_slow_writes });
    }

    /// How long a write with its sync took. More than a quarter of an election timeout is slow.
    pub(crate) fn note_write(&mut self, took: Duration) {
        if took > self.stall_max / 2 {
            self.slow_writes += took;
        }
    }

    /// This replica leads, and has lately spent most of its time in slow writes: an election timeout more than in
    /// everything else. A single write, however slow, does not count so much.
    pub(crate) fn keeps_writing_slowly(&self) -> bool {
        self.epoch.is_some_and(|epoch| epoch.in_slow_writes > self.stall_max * 2)
    }

    /// This replica leads and keeps stalling. A single stall, however long, may be an accident.
    pub(crate) fn keeps_stalling(&self) -> bool {
        self.epoch.is_some_and(|epoch| epoch.lost > self.stall_max / 2)
    }

    /// The counted time, since an arbitrary start.
    pub(crate) fn counted(&self) -> Duration {
        self.counted
    }

    /// For how long this replica leads.
    pub(crate) fn led_for(&self) -> Duration {
        self.epoch.map_or(Duration::ZERO, |epoch| self.counted - epoch.counted_at_start)
    }

    /// The reading of this node's clock.
    #[cfg(feature = "planted")]
    pub(crate) fn reading(&self) -> LogicalTime {
        LogicalTime::from_ms(self.last_seen.map_or(0, |seen| seen.as_millis() as u64))
    }

    pub(crate) fn end_epoch(&mut self) {
        self.epoch = None;
    }

    /// The stamp for a proposal; none if this replica does not lead.
    pub(crate) fn stamp(&self) -> Option<LogicalTime> {
        let epoch = self.epoch?;
        let since = (self.counted - epoch.counted_at_start).as_millis();
        Some(epoch.base.after(Span::from_ms(u64::try_from(since).unwrap_or(u64::MAX))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn stamps_continue_where_the_last_leader_stopped_and_run_with_the_clock() {
        let mut clock = Clock::new(ms(50), ms(250));
        assert_eq!(clock.advance(ms(7_000)), Elapsed { ticks: 0, stalled: false });
        assert_eq!(clock.stamp(), None);
        clock.begin_epoch(LogicalTime::from_ms(90_000));
        assert_eq!(clock.advance(ms(7_120)), Elapsed { ticks: 2, stalled: false });
        assert_eq!(clock.stamp(), Some(LogicalTime::from_ms(90_120)));
        clock.end_epoch();
        assert_eq!(clock.stamp(), None);
    }

    #[test]
    fn each_tick_is_counted_once_however_often_time_is_read() {
        let mut clock = Clock::new(ms(50), ms(250));
        let moments = [0, 30, 60, 90, 100, 249, 250, 400];
        let ticks = moments.map(|now| clock.advance(ms(now)).ticks);
        assert_eq!(ticks, [0, 0, 1, 0, 1, 2, 1, 3]);
    }

    #[test]
    fn the_longest_allowed_turn_is_no_stall() {
        let mut clock = Clock::new(ms(50), ms(250));
        clock.advance(ms(0));
        assert_eq!(clock.advance(ms(250)), Elapsed { ticks: 5, stalled: false });
        assert_eq!(clock.advance(ms(501)), Elapsed { ticks: 5, stalled: true });
    }

    #[test]
    fn a_stalled_turn_counts_as_the_longest_allowed_one() {
        let mut clock = Clock::new(ms(50), ms(250));
        clock.advance(ms(0));
        clock.begin_epoch(LogicalTime::ZERO);
        assert_eq!(clock.advance(ms(60_000)), Elapsed { ticks: 5, stalled: true });
        assert_eq!(clock.stamp(), Some(LogicalTime::from_ms(250)));
    }

    #[test]
    fn a_leader_keeps_stalling_after_two_long_stalls_or_more_short_ones() {
        let stalls_until_it_shows = |stall_ms: u64| {
            let mut clock = Clock::new(ms(50), ms(250));
            clock.advance(ms(0));
            clock.begin_epoch(LogicalTime::ZERO);
            (1..=100).find(|stalls| {
                clock.advance(ms(stalls * stall_ms));
                clock.keeps_stalling()
            })
        };
        // Each costs what it took beyond 250 ms, but no more than 125 ms; 2.5 ms are forgiven each time.
        assert_eq!(stalls_until_it_shows(60_000), Some(2));
        assert_eq!(stalls_until_it_shows(350), Some(2));
        assert_eq!(stalls_until_it_shows(275), Some(6));
        assert_eq!(stalls_until_it_shows(252), None);
    }

    #[test]
    fn stalls_are_forgiven_and_count_under_one_leader_only() {
        let mut clock = Clock::new(ms(50), ms(250));
        let mut now = 0;
        let mut pass = |clock: &mut Clock, span: u64| {
            now += span;
            clock.advance(ms(now));
            clock.keeps_stalling()
        };
        pass(&mut clock, 0);
        assert!(!pass(&mut clock, 900) && !pass(&mut clock, 900), "it does not lead");
        clock.begin_epoch(LogicalTime::ZERO);
        assert!(!pass(&mut clock, 900), "stalls before it led do not count");
        for _ in 0..50 {
            assert!(!pass(&mut clock, 250));
        }
        assert!(!pass(&mut clock, 900), "the first is forgiven");
        assert!(pass(&mut clock, 900));
        clock.begin_epoch(LogicalTime::ZERO);
        assert!(!pass(&mut clock, 900), "another epoch");
    }

    /// After how many writes of this length, each followed by a pause, the disk counts as slow.
    fn writes_until_slow(write_ms: u64, pause_ms: u64) -> Option<u64> {
        let mut clock = Clock::new(ms(50), ms(250));
        let mut now = 0;
        clock.advance(ms(now));
        clock.begin_epoch(LogicalTime::ZERO);
        (1..=100).find(|_| {
            now += write_ms;
            clock.note_write(ms(write_ms));
            clock.advance(ms(now));
            let is_slow = clock.keeps_writing_slowly();
            now += pause_ms;
            clock.advance(ms(now));
            is_slow
        })
    }

    #[test]
    fn a_disk_is_slow_after_an_election_timeout_of_slow_writes() {
        assert_eq!(writes_until_slow(200, 0), Some(3));
        assert_eq!(writes_until_slow(126, 0), Some(4));
        assert_eq!(writes_until_slow(60_000, 0), Some(3), "each counts as 250 ms at most");
        assert_eq!(writes_until_slow(125, 0), None, "a quarter of an election timeout is not slow");
    }

    #[test]
    fn slow_writes_must_take_more_than_half_of_the_time() {
        assert_eq!(writes_until_slow(200, 100), Some(5));
        assert_eq!(writes_until_slow(200, 200), None);
        assert_eq!(writes_until_slow(60_000, 1_000), None, "a stall now and then is an accident");
    }

    #[test]
    fn slow_writes_count_under_one_leader_only() {
        let mut clock = Clock::new(ms(50), ms(250));
        clock.advance(ms(0));
        for write in 1..=10 {
            clock.note_write(ms(200));
            clock.advance(ms(200 * write));
        }
        assert!(!clock.keeps_writing_slowly(), "it does not lead");
        clock.begin_epoch(LogicalTime::ZERO);
        assert!(!clock.keeps_writing_slowly(), "writes before it led do not count");
    }

    #[test]
    fn a_clock_that_jumps_back_stands_still() {
        let mut clock = Clock::new(ms(50), ms(250));
        clock.advance(ms(1_000));
        clock.begin_epoch(LogicalTime::ZERO);
        clock.advance(ms(500));
        assert_eq!(clock.stamp(), Some(LogicalTime::ZERO));
        // The time after the jump back is not counted twice.
        clock.advance(ms(1_010));
        assert_eq!(clock.stamp(), Some(LogicalTime::from_ms(10)));
    }
}
