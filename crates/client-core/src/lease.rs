//! How long a client may trust its locks. Pure: no clock and no I/O; the local time is an argument.
//!
//! Deadlines are in the lock table's logical time, which the client cannot read. It has samples: a
//! request was *sent* at local time S, and its answer contained the logical time L. L was stamped
//! after S, so at S the logical time was at most L. Logical time runs at most 1 % faster than real
//! time. The client's own clock is off by at most 1 %, too. Together that is less than 2 %. So the
//! deadline D cannot pass before
//!
//! ```text
//! S + (D - L) x 0.98 - slack
//! ```
//!
//! Each sample gives a sound bound, so the client may use the bound that lies latest in time. The bound is
//! `0.98 D + (S - 0.98 L)`. So for every D the sample with the largest `S - 0.98 L` gives the latest bound, and only
//! that sample is kept. This matters for a lock that was granted after a long wait: its own request was sent long ago,
//! and a later heartbeat gives a later bound.
//!
//! **A client never trusts its session past the moment at which the servers may end it.** They end a session a TTL
//! after the last request that they answered, or a linger time after its connection ended, whichever is sooner. A
//! connection can end without the client knowing (a relay dies). If the servers notice the broken connection first and
//! stamp a request afterwards, that request restarts the TTL and cancels the linger. So the linger time can only count
//! from the stamp of the last answered request or later, and the session lives at least for the shorter of TTL and
//! linger since that request was sent. That is the *lease span*, and the client sends heartbeats often enough for it.
//!
//! The efficiency tier (in names: `best_effort`) has a separate clock, which restarts with each leader. Its samples are
//! kept separately: they bound the holds of that tier, and say nothing about the session, whose time the replicated
//! lock table keeps.
//!
//! Invariants:
//! - `valid_until` of a session or hold is never later than its true end, as long as all clocks run within 1 % of real
//!   time;
//! - `valid_until` of a session never moves back. That of a hold moves back only when a renewal of
//!   the hold is sent or answered, because a renewal may shorten the hold, or when the efficiency
//!   tier's clock restarts. An ended hold has none;
//! - a retried request counts from its *first* sending, because the answer may belong to the first sending.

use std::collections::BTreeMap;
use std::time::Duration;

/// The safety margin, in hundredths of the remaining span: 1 % for the servers' clocks and 1 % for
/// ours.
const MARGIN_PERCENT: i128 = 2;

/// Logical times are whole milliseconds, and each of L and D may be rounded down by up to one millisecond.
const SLACK: Duration = Duration::from_millis(2);

/// A reading of the client's own clock, since an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalTime(pub Duration);

impl LocalTime {
    /// Zero if `earlier` is in fact later.
    pub fn saturating_since(self, earlier: LocalTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The lock table's time, in milliseconds, as in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalTime(pub u64);

/// A hold within its session: the request id of the acquire that was granted. The further holds of an acquire-all get
/// numbers that no request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// A renewal within its session: its request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RenewalId(pub u64);

/// An answered request: sent at this local time, answered with this logical time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    sent_at: LocalTime,
    logical_time: LogicalTime,
}

/// The leases of one session and of its holds.
///
/// Inputs: [`Leases::answered`], [`Leases::granted`], [`Leases::renewal_sent`], [`Leases::renewed`],
/// [`Leases::renewal_refused`], [`Leases::leader_lost`], [`Leases::ended`].
/// Outputs: [`Leases::session_valid_until`], [`Leases::valid_until`], [`Leases::at_risk_from`],
/// [`Leases::heartbeat_due`].
#[derive(Debug, Clone)]
pub struct Leases {
    /// The shorter of TTL and linger.
    span: Duration,
    best_sample: Sample,
    last_answered_sent_at: LocalTime,
    /// Of the efficiency tier's clock, in the present leader's term.
    best_effort_sample: Option<Sample>,
    holds: BTreeMap<HoldId, HoldLease>,
}

#[derive(Debug, Clone, Default)]
struct HoldLease {
    /// Its deadlines are those of the efficiency tier's clock.
    is_best_effort: bool,
    own_deadline: Option<LogicalTime>,
    /// How much time the hold had until its own deadline when it was granted or last renewed.
    own_span: Duration,
    /// A renewal that gives it another TTL went out.
    has_new_ttl: bool,
    unanswered_renewals: BTreeMap<RenewalId, UnansweredRenewal>,
}

#[derive(Debug, Clone, Copy)]
struct UnansweredRenewal {
    /// A renewal can *shorten* a hold, and takes effect when it is applied, not when its answer comes.
    /// So until the answer comes, the hold is trusted only until the shorter end that the renewal may have set. None:
    /// the renewal keeps the hold's TTL, so it cannot shorten it.
    end: Option<LocalTime>,
    /// Another renewal was answered since this one was first sent. Which of the two was applied last is not known.
    is_overtaken: bool,
}

impl Leases {
    /// The session was opened by a request sent at `sent_at`. It ends a TTL after its last answered request, or a
    /// linger time after its connection ended.
    pub fn opened(
        sent_at: LocalTime,
        logical_time: LogicalTime,
        ttl: Duration,
        linger: Duration,
    ) -> Leases {
        Leases {
            span: lease_span(ttl, linger),
            best_sample: Sample { sent_at, logical_time },
            last_answered_sent_at: sent_at,
            best_effort_sample: None,
            holds: BTreeMap::new(),
        }
    }

    /// Any operation that took effect keeps the session alive. Do not report refusals: a node may
    /// have given one without telling the lock table.
    pub fn answered(&mut self, sent_at: LocalTime, logical_time: LogicalTime) {
        let sample = Sample { sent_at, logical_time };
        if sample.quality() > self.best_sample.quality() {
            self.best_sample = sample;
        }
        self.last_answered_sent_at = self.last_answered_sent_at.max(sent_at);
    }

    /// As [`Leases::answered`], for the efficiency tier: it does not keep the session alive.
    pub fn answered_best_effort(&mut self, sent_at: LocalTime, logical_time: LogicalTime) {
        let sample = Sample { sent_at, logical_time };
        let best = self.best_effort_sample.get_or_insert(sample);
        if sample.quality() > best.quality() {
            *best = sample;
        }
    }

    /// A new leader has started another clock of the efficiency tier: forgets the samples of the
    /// old one. The holds of that tier ended with the old leader's term.
    pub fn best_effort_restarts(&mut self) {
        self.best_effort_sample = None;
    }

    /// The stream to the leader is lost, or the leader reported that another node leads. The holds of the efficiency
    /// tier are in the leader's memory, so another leader may grant them from now on. Ends them, and returns which they
    /// were.
    pub fn leader_lost(&mut self) -> Vec<HoldId> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::BestEffortKeptWithoutLeader.is_active() {
            return Vec::new();
        }
        let best_effort = self.holds.iter().filter(|(_, lease)| lease.is_best_effort);
        let ended: Vec<HoldId> = best_effort.map(|(hold, _)| *hold).collect();
        for hold in &ended {
            self.holds.remove(hold);
        }
        ended
    }

    pub fn granted(&mut self, hold: HoldId, own_deadline: Option<LogicalTime>) {
        self.insert(hold, HoldLease { own_deadline, ..HoldLease::default() });
    }

    /// As [`Leases::granted`], in the efficiency tier.
    pub fn granted_best_effort(&mut self, hold: HoldId, own_deadline: Option<LogicalTime>) {
        self.insert(hold, HoldLease { own_deadline, is_best_effort: true, ..HoldLease::default() });
    }

    fn insert(&mut self, hold: HoldId, lease: HoldLease) {
        let own_span = self.span_to(&lease);
        self.holds.insert(hold, HoldLease { own_span, ..lease });
    }

    /// A renewal that gives the hold this TTL, or keeps the one it has, goes out. Of several sendings the first counts.
    /// A renewal with a TTL bounds the hold until it is answered or refused, for ever if it never is: it may have taken
    /// effect.
    pub fn renewal_sent(
        &mut self,
        hold: HoldId,
        renewal: RenewalId,
        sent_at: LocalTime,
        ttl: Option<Duration>,
    ) {
        if let Some(lease) = self.holds.get_mut(&hold) {
            let end = ttl.map(|ttl| safe_end(sent_at, ttl));
            lease.has_new_ttl |= end.is_some();
            let sent = UnansweredRenewal { end, is_overtaken: false };
            lease.unanswered_renewals.entry(renewal).or_insert(sent);
        }
    }

    /// If no other renewal was answered since this one was first sent, this one was applied last of
    /// those answered, and its deadline counts. Otherwise it is not known which was applied last,
    /// and the earlier of the two deadlines counts.
    pub fn renewed(&mut self, hold: HoldId, renewal: RenewalId, own_deadline: Option<LogicalTime>) {
        let Some(mut lease) = self.holds.remove(&hold) else { return };
        let sent = lease.unanswered_renewals.remove(&renewal);
        let other = lease.own_deadline.filter(|_| sent.is_some_and(|sent| sent.is_overtaken));
        lease.own_deadline = own_deadline.into_iter().chain(other).min();
        for other in lease.unanswered_renewals.values_mut() {
            other.is_overtaken = true;
        }
        self.insert(hold, lease);
    }

    /// The renewal did not take effect, and will not.
    pub fn renewal_refused(&mut self, hold: HoldId, renewal: RenewalId) {
        if let Some(lease) = self.holds.get_mut(&hold) {
            lease.unanswered_renewals.remove(&renewal);
        }
    }

    /// Whether a renewal that sets a TTL was sent. Then the answer to an older request may name a later deadline than
    /// the hold now has.
    pub(crate) fn has_new_ttl(&self, hold: HoldId) -> bool {
        self.holds.get(&hold).is_some_and(|lease| lease.has_new_ttl)
    }

    pub fn ended(&mut self, hold: HoldId) {
        self.holds.remove(&hold);
    }

    /// The session certainly lives until then: its lease span counts from the last answered request.
    pub fn session_valid_until(&self) -> LocalTime {
        safe_end(self.last_answered_sent_at, self.span)
    }

    /// The hold certainly lives until then; `None` if there is no such hold.
    pub fn valid_until(&self, hold: HoldId) -> Option<LocalTime> {
        let lease = self.holds.get(&hold)?;
        #[cfg(feature = "planted")]
        if crate::planted::Bug::HoldDeadlineIgnored.is_active() {
            return Some(self.session_valid_until());
        }
        let own_end = self.own_end(lease);
        Some(own_end.into_iter().fold(self.session_valid_until(), LocalTime::min))
    }

    /// Whether anything but its session bounds the hold.
    pub fn has_own_end(&self, hold: HoldId) -> bool {
        self.holds.get(&hold).is_some_and(|lease| self.own_end(lease).is_some())
    }

    /// Whether the hold has a deadline of its own that comes before the end of its session.
    pub fn ends_before_session(&self, hold: HoldId) -> bool {
        let own_end = self.holds.get(&hold).and_then(|lease| self.own_end(lease));
        own_end.is_some_and(|end| end < self.session_valid_until())
    }

    /// From then on the hold is at risk: a third of its time is left, because the session's heartbeats go
    /// unanswered, or because the hold ends by itself and is not renewed. `None` if there is no such hold.
    pub fn at_risk_from(&self, hold: HoldId) -> Option<LocalTime> {
        let lease = self.holds.get(&hold)?;
        let third_before =
            |end: LocalTime, span: Duration| LocalTime(end.0.saturating_sub(span / 3));
        let session = third_before(self.session_valid_until(), self.span);
        let own = self.own_end(lease).map(|end| third_before(end, lease.own_span));
        Some(own.map_or(session, |own| own.min(session)))
    }

    /// What bounds the hold besides its session.
    fn own_end(&self, lease: &HoldLease) -> Option<LocalTime> {
        let deadline = lease.own_deadline.map(|deadline| match self.sample_for(lease) {
            Some(sample) => sample.safe_end_of(deadline),
            // Without a sample the hold is not trusted at all.
            None => LocalTime(Duration::ZERO),
        });
        let renewals = lease.unanswered_renewals.values().filter_map(|sent| sent.end);
        deadline.into_iter().chain(renewals).min()
    }

    fn sample_for(&self, lease: &HoldLease) -> Option<Sample> {
        if lease.is_best_effort { self.best_effort_sample } else { Some(self.best_sample) }
    }

    fn span_to(&self, lease: &HoldLease) -> Duration {
        let ms = lease.own_deadline.zip(self.sample_for(lease));
        let ms = ms.map(|(deadline, sample)| deadline.0.saturating_sub(sample.logical_time.0));
        Duration::from_millis(ms.unwrap_or(0))
    }

    /// When to send the next heartbeat, if nothing else is answered before.
    pub fn heartbeat_due(&self) -> LocalTime {
        LocalTime(self.last_answered_sent_at.0 + self.span / 3)
    }
}

impl Sample {
    /// The larger, the later the bound: 100 x (S - 0.98 L).
    fn quality(&self) -> i128 {
        let logical = Duration::from_millis(self.logical_time.0);
        nanos(self.sent_at.0) * 100 - nanos(logical) * (100 - MARGIN_PERCENT)
    }

    fn safe_end_of(&self, deadline: LogicalTime) -> LocalTime {
        let remaining_ms = deadline.0.saturating_sub(self.logical_time.0);
        safe_end(self.sent_at, Duration::from_millis(remaining_ms))
    }
}

/// How long a session certainly outlives its last answered request: the servers may end it after its TTL, or after
/// its linger time if its connection ended right behind that request.
pub fn lease_span(ttl: Duration, linger: Duration) -> Duration {
    #[cfg(feature = "planted")]
    if crate::planted::Bug::LingerIgnored.is_active() {
        return ttl;
    }
    ttl.min(linger)
}

/// A span of logical time that began after `sent_at` is certainly not over before the time returned.
pub fn safe_end(sent_at: LocalTime, span: Duration) -> LocalTime {
    #[cfg(feature = "planted")]
    if crate::planted::Bug::NoMargin.is_active() {
        return LocalTime(sent_at.0 + span);
    }
    let safe_span = span.mul_f64((100 - MARGIN_PERCENT) as f64 / 100.0);
    LocalTime(sent_at.0 + safe_span.saturating_sub(SLACK))
}

fn nanos(duration: Duration) -> i128 {
    // A clock reading in nanoseconds is far below 2^127.
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX / 200)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOLD: HoldId = HoldId(7);

    fn local_ms(ms: u64) -> LocalTime {
        LocalTime(Duration::from_millis(ms))
    }

    fn leases_with_ttl_30_s() -> Leases {
        let ttl = Duration::from_secs(30);
        Leases::opened(local_ms(1_000), LogicalTime(500_000), ttl, ttl)
    }

    #[test]
    fn a_session_is_valid_for_98_percent_of_its_ttl_from_the_sending() {
        let leases = leases_with_ttl_30_s();
        assert_eq!(leases.session_valid_until(), local_ms(1_000 + 29_400 - 2));
    }

    #[test]
    fn a_linger_below_the_ttl_bounds_the_lease_and_the_time_between_heartbeats() {
        let ttl = Duration::from_secs(30);
        // (linger, valid for, heartbeat after, at risk after), in milliseconds.
        for (linger_ms, valid_ms, heartbeat_ms, at_risk_ms) in [
            (60_000, 29_398, 10_000, 19_398),
            (30_000, 29_398, 10_000, 19_398),
            (6_000, 5_878, 2_000, 3_878),
            (600, 586, 200, 386),
            (0, 0, 0, 0),
        ] {
            let linger = Duration::from_millis(linger_ms);
            let mut leases = Leases::opened(local_ms(1_000), LogicalTime(500_000), ttl, linger);
            leases.granted(HOLD, None);
            leases.granted(HoldId(8), Some(LogicalTime(520_000)));
            let after = |ms: u64| local_ms(1_000 + ms);
            assert_eq!(leases.session_valid_until(), after(valid_ms), "{linger_ms}");
            assert_eq!(leases.valid_until(HOLD), Some(after(valid_ms)), "{linger_ms}");
            assert_eq!(leases.heartbeat_due(), after(heartbeat_ms), "{linger_ms}");
            assert_eq!(leases.at_risk_from(HOLD), Some(after(at_risk_ms)), "{linger_ms}");
            let with_own_end = leases.valid_until(HoldId(8)).unwrap();
            assert!(with_own_end <= leases.session_valid_until(), "{linger_ms}");
        }
    }

    #[test]
    fn the_heartbeat_is_due_a_third_of_the_ttl_after_the_last_answered_sending() {
        let mut leases = leases_with_ttl_30_s();
        assert_eq!(leases.heartbeat_due(), local_ms(11_000));
        leases.answered(local_ms(5_000), LogicalTime(504_010));
        assert_eq!(leases.heartbeat_due(), local_ms(15_000));
        leases.answered(local_ms(2_000), LogicalTime(505_000));
        assert_eq!(leases.heartbeat_due(), local_ms(15_000), "a late answer must not move it back");
    }

    #[test]
    fn a_hold_without_its_own_deadline_lives_as_long_as_its_session() {
        let mut leases = leases_with_ttl_30_s();
        leases.granted(HOLD, None);
        assert_eq!(leases.valid_until(HOLD), Some(leases.session_valid_until()));
        leases.answered(local_ms(10_000), LogicalTime(509_000));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(10_000 + 29_400 - 2)));
    }

    #[test]
    fn a_holds_own_deadline_ends_it_before_the_session() {
        let mut leases = leases_with_ttl_30_s();
        leases.granted(HOLD, Some(LogicalTime(505_000)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(1_000 + 4_900 - 2)));
        leases.renewed(HOLD, RenewalId(8), Some(LogicalTime(510_000)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(1_000 + 9_800 - 2)));
    }

    #[test]
    fn a_renewal_that_shortens_a_hold_counts_from_its_sending_and_not_from_its_answer() {
        let mut leases = leases_with_ttl_30_s();
        leases.granted(HOLD, None);
        leases.renewal_sent(HOLD, RenewalId(8), local_ms(2_000), Some(Duration::from_secs(5)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(2_000 + 4_900 - 2)));
        assert!(leases.ends_before_session(HOLD));
        // Sent again, it may still be the first that took effect.
        leases.renewal_sent(HOLD, RenewalId(8), local_ms(4_000), Some(Duration::from_secs(5)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(2_000 + 4_900 - 2)));
        leases.renewed(HOLD, RenewalId(8), Some(LogicalTime(509_000)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(1_000 + 8_820 - 2)));
        leases.renewal_sent(HOLD, RenewalId(9), local_ms(3_000), Some(Duration::from_millis(200)));
        leases.renewal_refused(HOLD, RenewalId(9));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(1_000 + 8_820 - 2)));
    }

    /// The one keeps the hold without a TTL, the other gives it 5 s. Whichever is answered last, the other may have been
    /// applied last.
    #[test]
    fn of_two_renewals_that_are_under_way_at_once_the_earlier_deadline_counts() {
        let short = (RenewalId(9), Some(LogicalTime(506_000)));
        for answers in [[(RenewalId(8), None), short], [short, (RenewalId(8), None)]] {
            let mut leases = leases_with_ttl_30_s();
            leases.granted(HOLD, None);
            leases.renewal_sent(HOLD, RenewalId(8), local_ms(2_000), None);
            leases.renewal_sent(HOLD, short.0, local_ms(2_000), Some(Duration::from_secs(5)));
            for (renewal, deadline) in answers {
                leases.renewed(HOLD, renewal, deadline);
            }
            assert_eq!(leases.valid_until(HOLD), Some(local_ms(1_000 + 5_880 - 2)), "{answers:?}");
            // One that is sent after that is applied after that.
            leases.renewal_sent(HOLD, RenewalId(10), local_ms(3_000), None);
            leases.renewed(HOLD, RenewalId(10), Some(LogicalTime(508_000)));
            assert_eq!(leases.valid_until(HOLD), Some(local_ms(1_000 + 7_840 - 2)));
        }
    }

    #[test]
    fn the_grant_of_a_long_wait_counts_from_a_heartbeat_and_not_from_its_own_sending() {
        let mut leases = leases_with_ttl_30_s();
        leases.answered(local_ms(61_000), LogicalTime(560_000));
        // Sent at 1 s, granted at about 62 s for 5 s: its own sample alone would end it at 6 s.
        leases.answered(local_ms(1_000), LogicalTime(561_000));
        leases.granted(HOLD, Some(LogicalTime(566_000)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(61_000 + 5_880 - 2)));
    }

    #[test]
    fn a_lost_leader_ends_the_holds_of_the_efficiency_tier_and_no_others() {
        let mut leases = leases_with_ttl_30_s();
        leases.granted(HOLD, None);
        leases.granted_best_effort(HoldId(8), None);
        leases.granted_best_effort(HoldId(9), Some(LogicalTime(5_070)));
        assert_eq!(leases.leader_lost(), [HoldId(8), HoldId(9)]);
        assert_eq!((leases.valid_until(HoldId(8)), leases.valid_until(HoldId(9))), (None, None));
        assert_eq!(leases.valid_until(HOLD), Some(leases.session_valid_until()));
        assert_eq!(leases.leader_lost(), []);
    }

    #[test]
    fn the_efficiency_tier_has_its_own_clock_and_does_not_keep_the_session_alive() {
        let mut leases = leases_with_ttl_30_s();
        leases.answered_best_effort(local_ms(9_000), LogicalTime(70));
        leases.granted_best_effort(HOLD, Some(LogicalTime(5_070)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(9_000 + 4_900 - 2)));
        assert_eq!(leases.session_valid_until(), local_ms(1_000 + 29_400 - 2));
        assert_eq!(leases.heartbeat_due(), local_ms(11_000));
        leases.granted_best_effort(HoldId(8), None);
        assert_eq!(leases.valid_until(HoldId(8)), Some(leases.session_valid_until()));
        // Samples of the other clock do not move it.
        leases.answered(local_ms(10_000), LogicalTime(509_000));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(9_000 + 4_900 - 2)));
        leases.answered_best_effort(local_ms(11_000), LogicalTime(2_069));
        leases.renewed(HOLD, RenewalId(9), Some(LogicalTime(7_069)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(11_000 + 4_900 - 2)));
        leases.best_effort_restarts();
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(0)), "the old clock is gone");
    }

    #[test]
    fn a_hold_is_at_risk_when_a_third_of_its_time_is_left() {
        let mut leases = leases_with_ttl_30_s();
        leases.granted(HOLD, None);
        assert_eq!(leases.at_risk_from(HOLD), Some(local_ms(1_000 + 29_400 - 2 - 10_000)));
        assert!(
            leases.heartbeat_due() < leases.at_risk_from(HOLD).unwrap(),
            "a heartbeat prevents it"
        );
        leases.answered(local_ms(11_000), LogicalTime(510_000));
        assert_eq!(leases.at_risk_from(HOLD), Some(local_ms(11_000 + 29_400 - 2 - 10_000)));
        // One that ends by itself, long before its session.
        leases.granted(HoldId(8), Some(LogicalTime(513_000)));
        assert_eq!(leases.at_risk_from(HoldId(8)), Some(local_ms(11_000 + 2_940 - 2 - 1_000)));
        assert_eq!(leases.at_risk_from(HoldId(9)), None);
    }

    #[test]
    fn an_ended_hold_has_no_validity_and_a_deadline_seen_to_pass_leaves_none() {
        let mut leases = leases_with_ttl_30_s();
        leases.granted(HOLD, Some(LogicalTime(400_000)));
        assert_eq!(leases.valid_until(HOLD), Some(local_ms(1_000)));
        leases.ended(HOLD);
        assert_eq!(leases.valid_until(HOLD), None);
    }

    /// One answered request of a simulated session, in real microseconds.
    #[derive(Debug, Clone)]
    struct Exchange {
        pause_us: u64,
        to_stamp_us: u64,
        to_detach_us: u64,
    }

    fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
        let exchange = (0..20_000_000u64, 0..3_000_000u64, 0..1_000_000u64);
        let exchange = exchange.prop_map(|(pause_us, to_stamp_us, to_detach_us)| Exchange {
            pause_us,
            to_stamp_us,
            to_detach_us,
        });
        proptest::collection::vec(exchange, 1..20)
    }

    proptest! {
        /// Real time drives both clocks, each at its own rate within 1 %.
        #[test]
        fn no_lease_outlives_the_true_deadline(
            server_rate in 0.99..1.01f64,
            client_rate in 0.99..1.01f64,
            ttl_ms in 100..60_000u64,
            linger_ms in 0..90_000u64,
            hold_ttl_ms in 1..60_000u64,
            logical_start_ms in 0..1_000_000_000u64,
            exchanges in exchanges(),
        ) {
            let local_at = |real_us: u64| LocalTime(Duration::from_secs_f64(real_us as f64 * client_rate / 1e6));
            let logical_at = |real_us: u64| LogicalTime(logical_start_ms + (real_us as f64 * server_rate / 1e3) as u64);
            let real_us_of = |logical: LogicalTime| (logical.0 - logical_start_ms) as f64 * 1e3 / server_rate;

            let mut now_us = 5_000_000;
            let (ttl, linger) = (Duration::from_millis(ttl_ms), Duration::from_millis(linger_ms));
            let mut leases = Leases::opened(local_at(now_us), logical_at(now_us), ttl, linger);
            let mut session_deadline = LogicalTime(logical_at(now_us).0 + ttl_ms);
            for exchange in exchanges {
                let sent_us = now_us + exchange.pause_us;
                let stamped_us = sent_us + exchange.to_stamp_us;
                let stamp = logical_at(stamped_us);
                leases.answered(local_at(sent_us), stamp);
                session_deadline = session_deadline.max(LogicalTime(stamp.0 + ttl_ms));
                let hold_deadline = LogicalTime(stamp.0 + hold_ttl_ms);
                leases.granted(HOLD, Some(hold_deadline));

                let true_session_end = local_at(real_us_of(session_deadline) as u64);
                let true_hold_end = local_at(real_us_of(hold_deadline) as u64);
                prop_assert!(leases.session_valid_until() <= true_session_end);
                prop_assert!(leases.valid_until(HOLD).unwrap() <= true_session_end.min(true_hold_end));
                // The connection ends some time behind the request, and the client does not learn of it.
                let detached = logical_at(stamped_us + exchange.to_detach_us);
                let lingers_until = LogicalTime(detached.0 + linger_ms).min(session_deadline);
                let true_end = local_at(real_us_of(lingers_until) as u64);
                prop_assert!(leases.session_valid_until() <= true_end);
                prop_assert!(leases.valid_until(HOLD).unwrap() <= true_end);
                now_us = stamped_us;
            }
        }
    }
}
