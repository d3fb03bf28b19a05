//! The checkers on real histories: a simulated run passes, also if only the clients' side of it is known; and
//! damage to its record is found.

use std::time::Duration;

use holdfast_core::{EndReason, Event, FenceToken, LogIndex, Outcome, ReleaseAnswer};
use holdfast_sim::check::{Promises, check_with};
use holdfast_sim::history::{Happening, History, Input, Output, RealTime};
use holdfast_sim::{Options, run_with};

/// Of the first three seeds under whose faults clients still get and release contended locks.
fn histories() -> impl Iterator<Item = History> {
    let runs = (1..=20).flat_map(|seed| {
        let options = Options { length: Duration::from_secs(120), ..Options::default() };
        let report = run_with(seed, options);
        assert_eq!(report.violations, [], "seed {seed}");
        report.histories
    });
    let histories: Vec<_> = runs.filter(releases_contended_lock).take(3).collect();
    assert_eq!(histories.len(), 3, "seeds whose clients get anything");
    histories.into_iter()
}

fn releases_contended_lock(history: &History) -> bool {
    history.operations.iter().any(|operation| {
        let is_contended =
            matches!(&operation.input, Input::Release { name, .. } if name.starts_with("hot-"));
        let released = Outcome::Release(ReleaseAnswer::Released);
        is_contended
            && matches!(&operation.returned, Some((_, Output::Outcome(told))) if *told == released)
    })
}

fn strict() -> Promises {
    Promises { giving_up_is_a_violation: true, ..Promises::default() }
}

/// The checkers that found something, each once.
fn found(history: &History) -> Vec<&'static str> {
    let mut found: Vec<_> = check_with(history, &strict()).iter().map(|it| it.checker).collect();
    found.dedup();
    found
}

#[test]
fn a_run_passes_with_its_log_and_without() {
    for mut history in histories() {
        assert!(history.operations.len() > 100);
        assert_eq!(check_with(&history, &strict()), []);
        history.replicated.clear();
        assert_eq!(check_with(&history, &strict()), []);
    }
}

#[test]
fn a_wrong_token_in_an_answer_is_found() {
    for mut history in histories() {
        let granted =
            history.operations.iter_mut().find_map(|operation| match &mut operation.returned {
                Some((_, Output::Outcome(Outcome::Granted(grant)))) => Some(grant),
                _ => None,
            });
        granted.unwrap().token = FenceToken(u64::MAX >> 2);
        assert!(found(&history).contains(&"deduplication"));
        history.replicated.clear();
        assert!(!found(&history).is_empty());
    }
}

#[test]
fn an_event_that_one_replica_lost_is_found() {
    for mut history in histories() {
        let node = history.replicated[0].node;
        let is_grant = |what: &Happening| matches!(what, Happening::Event(Event::Granted { .. }));
        let lost = history
            .replicated
            .iter()
            .position(|record| record.node == node && is_grant(&record.what))
            .unwrap();
        history.replicated.remove(lost);
        assert!(found(&history).contains(&"replicas"));
    }
}

/// At a lock that is only ever held exclusively: without the log, others are not judged.
#[test]
fn a_read_long_after_a_release_that_still_sees_the_holder_is_found() {
    for mut history in histories() {
        let released = history.operations.iter().find_map(|operation| {
            match (&operation.input, &operation.returned) {
                (
                    Input::Release { name, token },
                    Some((at, Output::Outcome(Outcome::Release(ReleaseAnswer::Released)))),
                ) if name.starts_with("hot-") => {
                    Some((operation.clone(), name.clone(), *token, *at))
                }
                _ => None,
            }
        });
        let (mut read, name, token, at) = released.unwrap();
        let holder = Some((read.session, token));
        (read.invoked, read.last_sent) = (RealTime(at.0 + 1), RealTime(at.0 + 1));
        read.returned = Some((RealTime(at.0 + 1_000), Output::Status { holder, waiters: 0 }));
        read.input = Input::Status { name };
        history.operations.push(read);
        assert_eq!(found(&history), ["linearizability"]);
        history.replicated.clear();
        assert_eq!(found(&history), ["linearizability"]);
    }
}

#[test]
fn a_session_that_ended_right_after_an_answer_is_found() {
    for mut history in histories() {
        let Some(end) = history.replicated.iter().position(|record| {
            matches!(
                record.what,
                Happening::Event(
                    Event::SessionEnding { reason: EndReason::Ttl, .. }
                        | Event::SessionEnded { reason: EndReason::Ttl, .. }
                )
            )
        }) else {
            continue;
        };
        let index: LogIndex = history.replicated[end].index;
        let Happening::Event(
            Event::SessionEnding { session, .. } | Event::SessionEnded { session, .. },
        ) = history.replicated[end].what
        else {
            continue;
        };
        let last_answer = history
            .operations
            .iter()
            .filter(|operation| operation.session == session)
            .filter_map(|operation| operation.returned.as_ref().map(|(at, _)| *at))
            .filter(|at| *at < history.replicated[end].real)
            .max();
        let Some(last_answer) = last_answer else { continue };
        for record in history.replicated.iter_mut().filter(|record| record.index == index) {
            record.real = RealTime(last_answer.0 + 1);
        }
        assert!(found(&history).contains(&"expiry"));
    }
}
