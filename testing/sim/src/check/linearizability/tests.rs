//! Histories written by hand: those that must pass, and the smallest that must not.

use holdfast_core::command::Mode;
use holdfast_core::{
    EndReason, FenceToken, Grant, LogicalTime, Outcome, Rejection, ReleaseAnswer, RequestId,
};

use super::check;
use crate::check::Promises;
use crate::check::test_history::{
    Asked, TestHistory, ending, given_back_by_close, granted, granted_as, grants, hold_ended, name,
    take,
};
use crate::history::Input;

fn found(story: &TestHistory) -> usize {
    check(&story.evidence(), &Promises::default()).len()
}

fn assert_fine(story: &TestHistory) {
    assert_eq!(check(&story.evidence(), &Promises::default()), []);
}

fn released() -> Outcome {
    Outcome::Release(ReleaseAnswer::Released)
}

fn given_back() -> Outcome {
    Outcome::Release(ReleaseAnswer::AlreadyReleased)
}

fn status(story: &mut TestHistory) -> Asked<'_> {
    story.ask(9, 0, Input::Status { name: name("a") })
}

/// Sessions 1 to 3, with a TTL and a linger of 10 s.
fn three_sessions() -> TestHistory {
    let mut story = TestHistory::default();
    for session in 1..=3 {
        story.open(session, 10_000, 10_000, 0);
    }
    story
}

#[test]
fn one_after_the_other_is_fine() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    status(&mut story).from(3).saw(4, Some((1, 1)));
    story.acquire("a", 2, 1).from(5).until(6, Outcome::Busy);
    story.release("a", 1, 2, 1).from(7).until(8, released());
    status(&mut story).from(9).saw(10, None);
    story.acquire("a", 2, 2).from(11).until(12, grants("a", 2));
    assert_fine(&story);
}

#[test]
fn what_overlaps_may_come_in_any_order() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(10, grants("a", 2));
    story.acquire("a", 2, 1).from(1).until(10, grants("a", 1));
    story.release("a", 2, 2, 1).from(2).until(9, released());
    story.acquire("a", 3, 1).from(2).until(10, Outcome::Busy);
    status(&mut story).from(1).saw(10, None);
    status(&mut story).from(1).saw(10, Some((2, 1)));
    assert_fine(&story);
}

/// Its first copy gave the lock back, at 4; the second came when the session was closed.
#[test]
fn a_copy_of_a_release_may_be_answered_by_the_closing() {
    for (closed, violations) in [(true, 0), (false, 1)] {
        let mut story = three_sessions();
        story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
        story.release("a", 1, 2, 1).from(3).until(9, given_back());
        story.acquire("a", 2, 1).from(4).until(5, grants("a", 2));
        if closed {
            story.ask(1, 0, Input::CloseSession).from(6).until(8, Outcome::SessionClosed);
        }
        assert_eq!(found(&story), violations);
    }
}

#[test]
fn two_holders_at_once_are_found() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    story.acquire("a", 2, 1).from(3).until(4, grants("a", 2));
    story.release("a", 1, 2, 1).from(5).until(6, released());
    assert_eq!(found(&story), 1);
}

#[test]
fn a_stale_read_is_found() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    story.release("a", 1, 2, 1).from(3).until(4, released());
    status(&mut story).from(5).saw(6, Some((1, 1)));
    assert_eq!(found(&story), 1);
}

#[test]
fn reads_that_go_back_are_found_though_each_alone_could_be_right() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(20, grants("a", 1));
    status(&mut story).from(2).saw(3, Some((1, 1)));
    status(&mut story).from(4).saw(5, None);
    assert_eq!(found(&story), 1);
}

#[test]
fn busy_before_a_free_lock_is_found() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, Outcome::Busy);
    story.acquire("a", 2, 1).from(3).until(4, grants("a", 1));
    assert_eq!(found(&story), 1);
}

#[test]
fn a_release_that_worked_twice_is_found() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    story.release("a", 1, 2, 1).from(3).until(4, released());
    story.release("a", 1, 3, 1).from(5).until(6, released());
    assert_eq!(found(&story), 1);
}

#[test]
fn a_holder_that_is_told_that_it_does_not_hold_is_found() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    story.release("a", 1, 2, 1).from(3).until(4, Outcome::Release(ReleaseAnswer::NotOwner));
    status(&mut story).from(5).saw(6, Some((1, 1)));
    assert_eq!(found(&story), 1);
}

#[test]
fn an_operation_without_an_answer_may_have_happened_or_not() {
    for seen in [None, Some((1, 5))] {
        let mut story = three_sessions();
        story.acquire("a", 1, 1).from(1);
        status(&mut story).from(2).saw(3, None);
        status(&mut story).from(4).saw(5, seen);
        assert_fine(&story);
    }
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    story.release("a", 1, 2, 1).from(3);
    story.acquire("a", 2, 1).from(100).until(101, Outcome::Busy);
    story.acquire("a", 2, 2).from(200).until(201, grants("a", 2));
    assert_fine(&story);
}

#[test]
fn an_operation_without_an_answer_does_not_happen_before_it_was_sent() {
    let mut story = three_sessions();
    story.acquire("a", 2, 1).from(1).until(2, Outcome::Busy);
    story.acquire("a", 1, 1).from(3);
    assert_eq!(found(&story), 1);
}

#[test]
fn an_acquire_that_was_cancelled_for_good_explains_nothing() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1);
    let cancel = Input::Cancel { target: RequestId(1) };
    story.ask(1, 2, cancel).from(2).until(3, Outcome::CancelDone);
    assert_fine(&story);
    story.acquire("a", 2, 1).from(4).until(5, Outcome::Busy);
    assert_eq!(found(&story), 1);
}

#[test]
fn a_hold_may_expire_when_its_session_was_silent_for_a_ttl_and_not_before() {
    for (asked, expected) in [(9_700, 1), (9_900, 0)] {
        let mut story = three_sessions();
        story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
        story.acquire("a", 2, 1).from(asked).until(asked, grants("a", 2));
        assert_eq!(found(&story), expected, "{asked}");
    }
}

#[test]
fn a_hold_with_a_ttl_of_its_own_may_expire_sooner_unless_it_is_renewed() {
    for (asked, renewed, expected) in
        [(900, false, 1), (1_000, false, 0), (1_000, true, 1), (1_600, true, 0)]
    {
        let mut story = three_sessions();
        let input =
            Input::Acquire { name: name("a"), wait_ms: 0, ttl_ms: Some(1_000), max_hold_ms: None };
        story.ask(1, 1, input).from(1).until(2, grants("a", 1));
        if renewed {
            let input = Input::Renew { name: name("a"), token: FenceToken(1), ttl_ms: None };
            let renewed = Outcome::Renewed { deadline: None, session_deadline: LogicalTime::ZERO };
            story.ask(1, 2, input).from(600).until(610, renewed);
        }
        story.acquire("a", 2, 1).from(asked).until(asked, grants("a", 2));
        assert_eq!(found(&story), expected, "{asked} {renewed}");
    }
}

/// From a run with real processes: a client whose stream was broken when it was granted the lock, and still was when the
/// hold's own TTL ended, was told that its wait had timed out. So that answer must not be taken for a denial.
#[test]
fn a_grant_that_ran_out_unseen_explains_what_others_saw_only_if_the_wait_is_left_open() {
    let ends = [(None, 0), (Some(Outcome::TimedOut), 1)];
    for (end, violations) in ends {
        let mut story = three_sessions();
        let input = Input::Acquire {
            name: name("a"),
            wait_ms: 2_000,
            ttl_ms: Some(1_000),
            max_hold_ms: None,
        };
        let asked = story.ask(1, 1, input).from(1);
        if let Some(outcome) = end {
            asked.until(4_000, outcome);
        }
        status(&mut story).from(100).saw(200, Some((1, 1)));
        story.acquire("a", 2, 1).from(1_500).until(1_600, grants("a", 2));
        assert_eq!(found(&story), violations);
    }
}

#[test]
fn closing_a_session_frees_its_lock_and_ends_its_grants() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    story.ask(1, 0, Input::CloseSession).from(3).until(4, Outcome::SessionClosed);
    story.acquire("a", 2, 1).from(5).until(6, grants("a", 2));
    assert_fine(&story);
    story.release("a", 2, 2, 2).from(7).until(8, released());
    story.acquire("a", 1, 2).from(9).until(10, grants("a", 3));
    assert_eq!(found(&story), 1);
}

/// A large session ends in parts: its close is answered before the last of its holds ends.
#[test]
fn a_hold_of_a_closed_session_ends_when_the_log_says_so() {
    let closed_and_seen = |seen_at: u64, seen| {
        let mut story = three_sessions();
        story.log_at(1, 1, [granted("a", 1, 1, 1)]);
        story.log_at(2, 20, [given_back_by_close("a", 1, 1, 1)]);
        story.acquire("a", 1, 1).from(0).until(2, grants("a", 1));
        story.ask(1, 0, Input::CloseSession).from(3).until(5, Outcome::SessionClosed);
        status(&mut story).from(seen_at).saw(seen_at, seen);
        found(&story)
    };
    assert_eq!(closed_and_seen(10, Some((1, 1))), 0);
    assert_eq!(closed_and_seen(10, None), 1);
    assert_eq!(closed_and_seen(21, None), 0);
    assert_eq!(closed_and_seen(21, Some((1, 1))), 1);
}

#[test]
fn a_release_of_a_session_that_is_ending_tells_nothing_of_its_hold() {
    for (decided, violations) in [(true, 0), (false, 1)] {
        let mut story = three_sessions();
        story.log_at(1, 1, [granted("a", 1, 1, 1)]);
        if decided {
            story.log_at(2, 4, [ending(1, EndReason::Closed)]);
        }
        story.log_at(3, 20, [given_back_by_close("a", 1, 1, 1)]);
        story.acquire("a", 1, 1).from(0).until(2, grants("a", 1));
        story.ask(1, 0, Input::CloseSession).from(3).until(5, Outcome::SessionClosed);
        story.release("a", 1, 2, 1).from(6).until(8, given_back());
        assert_eq!(found(&story), violations, "{decided}");
    }
}

#[test]
fn a_refusal_because_the_session_is_gone_leaves_open_what_happened_before() {
    for seen in [None, Some((1, 1))] {
        let mut story = three_sessions();
        story.acquire("a", 1, 1).from(1).until(20, Outcome::Rejected(Rejection::UnknownSession));
        status(&mut story).from(5).saw(6, seen);
        assert_fine(&story);
    }
}

#[test]
fn a_retry_that_finds_its_grant_ended_was_granted() {
    let mut story = three_sessions();
    let gone = Outcome::Rejected(Rejection::GrantEnded);
    story.acquire("a", 1, 1).from(1).until(20_000, gone.clone());
    status(&mut story).from(5).saw(6, Some((1, 1)));
    assert_fine(&story);
    // Another session held it all the time.
    let mut story = three_sessions();
    story.acquire("a", 2, 1).from(1).until(2, grants("a", 1));
    story.acquire("a", 1, 1).from(3).until(10, gone);
    status(&mut story).from(11).saw(12, Some((2, 1)));
    assert_eq!(found(&story), 1);
}

#[test]
fn an_expiry_that_the_log_knows_happened_then_and_no_other_did() {
    let held_and_seen = |seen_at: u64, seen| {
        let mut story = three_sessions();
        story.log_at(1, 1, [granted("a", 1, 1, 1)]);
        story.log_at(2, 50, [hold_ended("a", 1, 1, 1)]);
        story.acquire("a", 1, 1).from(0).until(2, grants("a", 1));
        status(&mut story).from(seen_at).saw(seen_at, seen);
        found(&story)
    };
    assert_eq!(held_and_seen(49, Some((1, 1))), 0);
    assert_eq!(held_and_seen(49, None), 1);
    assert_eq!(held_and_seen(51, None), 0);
    assert_eq!(held_and_seen(51, Some((1, 1))), 1);
}

/// The node denied one copy of the request while the session had no right to the lock. A permission came back, and
/// another copy of the request was granted.
#[test]
fn an_acquire_of_which_one_copy_was_denied_may_be_granted_by_another_copy() {
    for was_granted in [true, false] {
        let mut story = three_sessions();
        story.acquire("a", 1, 1).from(1).until(2, Outcome::Rejected(Rejection::PermissionDenied));
        status(&mut story).from(3).saw(4, None);
        if was_granted {
            story.log(5, [granted("a", 1, 1, 1)]);
        }
        story.log(9, [hold_ended("a", 1, 1, 1)]);
        assert_eq!(found(&story), usize::from(!was_granted));
    }
}

#[test]
fn an_unanswered_acquire_that_the_log_granted_was_granted() {
    let mut story = three_sessions();
    story.log_at(1, 10, [granted("a", 1, 1, 1)]);
    story.acquire("a", 1, 1).from(1);
    status(&mut story).from(11).saw(12, Some((1, 1)));
    assert_fine(&story);
    status(&mut story).from(13).saw(14, None);
    assert_eq!(found(&story), 1);
}

/// Under one token, which is that of the run of readers.
#[test]
fn a_session_that_reads_twice_gives_back_twice() {
    for (releases, violations) in [(1, 0), (2, 1)] {
        let mut story = three_sessions();
        for request in [1, 2] {
            let Outcome::Granted(grant) = grants("a", 1) else { unreachable!() };
            let granted = Outcome::Granted(Grant { mode: Mode::Shared, ..grant });
            story.ask(1, request, take(&["a"])).from(request * 2).until(request * 2 + 1, granted);
            story.log(request, [granted_as("a", 1, request, 1, Mode::Shared)]);
        }
        for request in 3..3 + releases {
            story.release("a", 1, request, 1).from(request * 2).until(request * 2 + 1, released());
        }
        status(&mut story).from(20).saw(21, Some((1, 1)));
        assert_eq!(found(&story), violations, "{releases}");
    }
}

/// The first of its holds has ended, and it is told so, while it goes on to read by the second.
#[test]
fn a_session_that_reads_twice_can_be_told_that_one_of_its_holds_is_over() {
    for (acquires, violations) in [(2, 0), (1, 1)] {
        let mut story = three_sessions();
        for request in 1..=acquires {
            let Outcome::Granted(grant) = grants("a", 1) else { unreachable!() };
            let granted = Outcome::Granted(Grant { mode: Mode::Shared, ..grant });
            story.ask(1, request, take(&["a"])).from(request * 2).until(request * 2 + 1, granted);
            story.log(request, [granted_as("a", 1, request, 1, Mode::Shared)]);
        }
        if acquires == 2 {
            story.log_at(3, 10, [hold_ended("a", 1, 1, 1)]);
        }
        let input = Input::Renew { name: name("a"), token: FenceToken(1), ttl_ms: None };
        let not_held = Outcome::Rejected(Rejection::NotHeld);
        story.ask(1, 5, input).from(12).until(13, not_held);
        status(&mut story).from(20).saw(21, Some((1, 1)));
        assert_eq!(found(&story), violations, "{acquires}");
    }
}

/// Two permits out, under 1 and 2; the first is given back at index 3.
fn permits() -> TestHistory {
    let permit = Mode::Permit { limit: 2 };
    let mut story = three_sessions();
    for (session, token) in [(1_u128, 1), (2, 2)] {
        let Outcome::Granted(grant) = grants("a", token) else { unreachable!() };
        let granted = Outcome::Granted(Grant { mode: permit, ..grant });
        story.ask(session, 1, take(&["a"])).from(token * 2).until(token * 2 + 1, granted);
        story.log(token, [granted_as("a", session, 1, token, permit)]);
    }
    story.release("a", 1, 2, 1).from(10).until(20, released());
    story
}

#[test]
fn permits_are_held_together_and_each_is_given_back_by_itself() {
    let mut story = permits();
    status(&mut story).from(7).saw(8, Some((1, 1)));
    status(&mut story).from(11).saw(12, Some((2, 2)));
    story.release("a", 2, 2, 2).from(21).until(22, released());
    status(&mut story).from(23).saw(24, None);
    assert_fine(&story);
}

#[test]
fn closing_a_session_gives_its_permits_back_and_no_others() {
    for (seen, violations) in [(Some((1, 1)), 0), (Some((2, 2)), 1), (None, 1)] {
        let mut story = permits();
        story.ask(2, 0, Input::CloseSession).from(7).until(8, Outcome::SessionClosed);
        story.log(8, [given_back_by_close("a", 2, 1, 2)]);
        status(&mut story).from(9).saw(9, seen);
        assert_eq!(found(&story), violations, "{seen:?}");
    }
}

#[test]
fn a_permit_that_was_given_back_and_is_seen_once_more_is_found() {
    let mut story = permits();
    status(&mut story).from(21).saw(22, Some((1, 1)));
    assert_eq!(found(&story), 1);
}

#[test]
fn a_lock_of_which_a_permit_is_out_is_not_free() {
    let mut story = permits();
    status(&mut story).from(21).saw(22, None);
    assert_eq!(found(&story), 1);
}

#[test]
fn names_do_not_disturb_each_other() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    story.acquire("b", 2, 1).from(3).until(4, grants("b", 2));
    assert_fine(&story);
}

#[test]
fn a_search_that_is_given_no_time_gives_up() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    let promises = Promises { linearization_steps_max: 0, ..Promises::default() };
    assert_eq!(check(&story.evidence(), &promises), []);
    let strict = Promises { giving_up_is_a_violation: true, ..promises };
    assert_eq!(check(&story.evidence(), &strict).len(), 1);
}

#[test]
fn a_violation_says_where_to_look() {
    let mut story = three_sessions();
    story.acquire("a", 1, 1).from(1).until(2, grants("a", 1));
    status(&mut story).from(3).saw(4, None);
    let what = &check(&story.evidence(), &Promises::default())[0].what;
    assert!(
        what.contains("held by session 1 since: request 1 of session 1: try -> granted 1"),
        "{what}"
    );
    assert!(
        what.contains("[3.000 ms .. 4.000 ms] request 0 of session 9: status -> free"),
        "{what}"
    );
}
