//! The protected resource: tokens that it accepted never go back, and a client that trusts its lease writes
//! only if the lock table still had it as the holder when it last looked at its lease.
//!
//! The second is the client library's promise and rests on clock rates; the first rests on nothing. A client
//! that is paused between looking and writing breaks no promise: that is what tokens are for.

use std::collections::BTreeMap;

use holdfast_core::{Event, FenceToken, LockName, SessionId};

use super::evidence::Evidence;
use super::words::{At, Findings, Who};
use crate::history::{History, RealTime, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("fence");
    check_store(history, &mut findings);
    if !history.replicated.is_empty() {
        check_leases(history, &mut findings);
    }
    findings.into_violations()
}

/// The store compares with the highest token that it has seen: does its record say the same?
fn check_store(history: &History, findings: &mut Findings) {
    let mut highest: BTreeMap<&LockName, FenceToken> = BTreeMap::new();
    for write in &history.writes {
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

struct Hold {
    session: SessionId,
    ended: Option<RealTime>,
}

fn check_leases(history: &Evidence<'_>, findings: &mut Findings) {
    let mut holds: BTreeMap<(&LockName, FenceToken), Hold> = BTreeMap::new();
    for entry in history.log() {
        for event in &entry.events {
            match event {
                Event::Granted { name, session, token, .. } => {
                    holds.insert((name, *token), Hold { session: *session, ended: None });
                }
                Event::Released { name, token, .. } | Event::HoldEnded { name, token, .. } => {
                    if let Some(hold) = holds.get_mut(&(name, *token)) {
                        hold.ended = Some(entry.first_applied);
                    }
                }
                _ => {}
            }
        }
    }
    for write in &history.writes {
        let hold = holds.get(&(&write.name, write.token));
        let Some(hold) = hold.filter(|hold| hold.session == write.session) else {
            findings.add(format!(
                "{} wrote to {} under {} at {}, which was never granted to it",
                Who(write.session),
                write.name,
                write.token,
                At(write.at)
            ));
            continue;
        };
        if let Some(ended) = hold.ended
            && ended < write.believed
            && !history.rates_broken
        {
            findings.add(format!(
                "{} believed in its lease of {} under {} at {}; the hold had ended at {}",
                Who(write.session),
                write.name,
                write.token,
                At(write.believed),
                At(ended)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::story::{Story, granted, hold_ended, ms};

    fn two_holds_in_a_row() -> Story {
        let mut story = Story::default();
        story.log(10, [granted("a", 1, 1, 1)]);
        story.log(20, [hold_ended("a", 1, 1, 1), granted("a", 2, 1, 2)]);
        story
    }

    fn found(story: &Story) -> usize {
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
    fn a_store_that_accepts_a_lower_token_is_found() {
        let mut story = Story::default();
        story.write("a", 2, 2, 25, true);
        story.write("a", 1, 1, 26, true);
        story.write("b", 1, 1, 27, true);
        assert_eq!(found(&story), 1);
    }

    #[test]
    fn a_store_that_refuses_the_highest_token_is_found() {
        let mut story = Story::default();
        story.write("a", 2, 2, 25, false);
        assert_eq!(found(&story), 1);
    }

    #[test]
    fn a_token_that_was_never_granted_is_found() {
        let mut story = two_holds_in_a_row();
        story.write("a", 1, 2, 25, true);
        assert_eq!(found(&story), 1);
    }
}
