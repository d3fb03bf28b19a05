//! The protected resource: tokens that it accepted never go back, and a client that trusts its lease writes
//! only if the lock table still had it as the holder when it last looked at its lease.
//!
//! The second is the client library's promise and rests on clock rates; the first rests on nothing. It is not made
//! where only the token protects:
//! * a client that is paused between looking and writing;
//! * a client whose own clock stood still;
//! * a hold that was taken away by an operator or an older actor. Its late writes come under a token that is
//!   lower than that of the next holder.

use std::collections::BTreeMap;

use holdfast_core::{EndReason, Event, FenceToken, LockName, RequestId, SessionId};

use super::evidence::Evidence;
use super::findings::{At, Findings, Who};
use crate::history::{History, RealTime, StoreWrite, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("fence");
    check_store(&history.writes, &mut findings);
    if !history.replicated.is_empty() {
        check_leases(history, &mut findings);
    }
    findings.into_violations()
}

/// The store compares with the highest token that it has seen: does its record say the same?
pub(super) fn check_store<'a>(
    writes: impl IntoIterator<Item = &'a StoreWrite>,
    findings: &mut Findings,
) {
    let mut highest: BTreeMap<&LockName, FenceToken> = BTreeMap::new();
    for write in writes {
        let seen = highest.entry(&write.name).or_insert(FenceToken(0));
        let must_accept = write.token >= *seen;
        if write.accepted != must_accept {
            findings.add(format!(
                "the store {} a write to {} by {} under {} at {}, having seen {seen}",
                if write.accepted { "accepted" } else { "refused" },
                write.name,
                Who(write.session),
                write.token,
                At(write.at),
            ));
        }
        *seen = write.token.max(*seen);
    }
}

/// A hold, by its acquire.
struct Hold {
    /// All that it has had: a conversion brings another.
    tokens: Vec<FenceToken>,
    ended: Option<(RealTime, EndReason)>,
}

fn openings(history: &History) -> BTreeMap<SessionId, RealTime> {
    let mut openings = BTreeMap::new();
    for operation in &history.operations {
        openings.entry(operation.session).or_insert(operation.invoked);
    }
    openings
}

fn check_leases(history: &Evidence<'_>, findings: &mut Findings) {
    // A lease is reckoned from the best answer since the session was opened, however old that is.
    let openings = openings(history);
    let opened = |session| openings.get(&session).copied().unwrap_or_default();
    let mut holds: BTreeMap<(&LockName, SessionId, RequestId), Hold> = BTreeMap::new();
    for entry in history.log() {
        for event in &entry.events {
            match event {
                Event::Granted { name, session, request, token, .. } => {
                    let hold = Hold { tokens: vec![*token], ended: None };
                    holds.insert((name, *session, *request), hold);
                }
                Event::Converted { name, session, request, token, .. } => {
                    if let Some(hold) = holds.get_mut(&(name, *session, *request)) {
                        hold.tokens.push(*token);
                    }
                }
                Event::Released { name, session, request, .. } => {
                    if let Some(hold) = holds.get_mut(&(name, *session, *request)) {
                        hold.ended = Some((entry.first_applied, EndReason::Closed));
                    }
                }
                Event::HoldEnded { name, session, request, reason, .. } => {
                    if let Some(hold) = holds.get_mut(&(name, *session, *request)) {
                        hold.ended = Some((entry.first_applied, *reason));
                    }
                }
                _ => {}
            }
        }
    }
    // A session can hold under the token of one run of readers several times, one after the other.
    let mut by_token: BTreeMap<(&LockName, FenceToken, SessionId), Vec<&Hold>> = BTreeMap::new();
    for ((name, session, _), hold) in &holds {
        for token in &hold.tokens {
            by_token.entry((name, *token, *session)).or_default().push(hold);
        }
    }
    for write in &history.writes {
        let Some(holds) = by_token.get(&(&write.name, write.token, write.session)) else {
            findings.add(format!(
                "{} wrote to {} under {} at {}, which was never granted to it",
                Who(write.session),
                write.name,
                write.token,
                At(write.at)
            ));
            continue;
        };
        if holds.iter().any(|hold| hold.ended.is_none()) {
            continue;
        }
        let only_the_token = history.rates_broken || write.clock_stood_still;
        let last = holds.iter().filter_map(|hold| hold.ended).max_by_key(|(ended, _)| *ended);
        if let Some((ended, reason)) =
            last.filter(|(_, reason)| !only_the_token && !by_others(*reason))
            && ended.0 + history.clocks.leapt_us(opened(write.session), ended) < write.believed.0
        {
            findings.add(format!(
                "{} believed in its lease of {} under {} at {}; the hold had ended at {} ({reason:?})",
                Who(write.session),
                write.name,
                write.token,
                At(write.believed),
                At(ended)
            ));
        }
    }
}

/// No lease foresees an intervention.
fn by_others(reason: EndReason) -> bool {
    matches!(
        reason,
        EndReason::Broken | EndReason::Wounded | EndReason::Killed | EndReason::Transferred
    )
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use holdfast_core::EndReason;

    fn two_holds_in_a_row() -> TestHistory {
        let mut story = TestHistory::default();
        story.log(10, [granted("a", 1, 1, 1)]);
        story.log(20, [hold_ended("a", 1, 1, 1), granted("a", 2, 1, 2)]);
        story
    }

    fn found(story: &TestHistory) -> usize {
        check(&story.evidence()).len()
    }

    #[test]
    fn writes_while_the_lock_is_held_are_fine() {
        let mut story = two_holds_in_a_row();
        story.write("a", 1, 1, 15, true);
        story.write("a", 1, 1, 20, true);
        story.write("a", 2, 2, 25, true);
        assert_eq!(found(&story), 0);
    }

    #[test]
    fn a_write_after_the_end_of_the_hold_breaks_the_lease_unless_clocks_were_beyond_trust() {
        let mut story = two_holds_in_a_row();
        story.write("a", 2, 2, 25, true);
        story.write("a", 1, 1, 26, false);
        assert_eq!(found(&story), 1);
        story.history.rates_broken = true;
        assert_eq!(found(&story), 0);
    }

    #[test]
    fn a_writer_that_was_paused_after_it_looked_at_its_lease_breaks_nothing() {
        let mut story = two_holds_in_a_row();
        story.write("a", 2, 2, 25, true);
        story.write("a", 1, 1, 26, false);
        story.history.writes[1].believed = ms(19);
        assert_eq!(found(&story), 0);
    }

    #[test]
    fn a_leap_excuses_as_much_as_it_may_count_for() {
        for (counted_us, violations) in [(5_000, 1), (6_000, 0)] {
            let mut story = two_holds_in_a_row();
            story.write("a", 1, 1, 26, true);
            story.history.clocks.leaps.push((ms(15), counted_us));
            assert_eq!(found(&story), violations);
        }
    }

    #[test]
    fn a_writer_whose_own_clock_stood_still_breaks_nothing() {
        let mut story = two_holds_in_a_row();
        story.write("a", 1, 1, 26, true);
        story.history.writes[0].clock_stood_still = true;
        assert_eq!(found(&story), 0);
    }

    #[test]
    fn a_broken_stream_excuses_no_lease_however_short_the_linger() {
        for linger in [200, 1_000] {
            for reason in [EndReason::Disconnected, EndReason::Ttl] {
                let mut story = two_holds_in_a_row();
                story.open(1, 1_000, linger, 0);
                story.log(21, [ended(1, reason)]);
                story.write("a", 1, 1, 26, true);
                assert_eq!(found(&story), 1, "{linger} {reason:?}");
            }
        }
    }

    #[test]
    fn a_store_that_accepts_a_lower_token_is_found() {
        let mut story = TestHistory::default();
        story.write("a", 2, 2, 25, true);
        story.write("a", 1, 1, 26, true);
        story.write("b", 1, 1, 27, true);
        assert_eq!(found(&story), 1);
    }

    #[test]
    fn a_store_that_refuses_the_highest_token_is_found() {
        let mut story = TestHistory::default();
        story.write("a", 2, 2, 25, false);
        assert_eq!(found(&story), 1);
    }

    #[test]
    fn a_token_that_was_never_granted_is_found() {
        let mut story = two_holds_in_a_row();
        story.write("a", 1, 2, 25, true);
        assert_eq!(found(&story), 1);
    }

    #[test]
    fn who_lost_its_hold_to_somebody_else_has_only_its_token() {
        for (reason, violations) in [(EndReason::Broken, 0), (EndReason::SessionExpired, 1)] {
            let mut story = TestHistory::default();
            story.log(10, [granted("a", 1, 1, 1), hold_ended_by("a", 1, 1, 1, reason)]);
            story.write("a", 1, 1, 15, true);
            assert_eq!(found(&story), violations, "{reason:?}");
        }
    }

    #[test]
    fn readers_write_under_one_token_each_while_it_holds() {
        let shared = holdfast_core::command::Mode::Shared;
        let mut story = TestHistory::default();
        story.log(10, [granted_as("a", 1, 1, 1, shared), granted_as("a", 2, 1, 1, shared)]);
        story.log(20, [hold_ended("a", 1, 1, 1)]);
        story.write("a", 2, 1, 25, true);
        assert_eq!(found(&story), 0);
        story.write("a", 1, 1, 26, true);
        assert_eq!(found(&story), 1);
    }
}
