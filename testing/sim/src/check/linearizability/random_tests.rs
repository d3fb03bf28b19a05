//! Histories made at random: first in order, by a plain lock, then with the intervals stretched around the
//! points at which things happened. Such a history is linearizable by construction. With one answer changed to
//! what no order explains, it is not.

use holdfast_core::{FenceToken, Outcome, ReleaseAnswer, SessionId};
use proptest::prelude::*;

use super::check;
use crate::check::Evidence;
use crate::check::Promises;
use crate::check::test_history::{TestHistory, grants, name};
use crate::history::{History, Input, Output, RealTime};

/// What a client does next, and how far its call and its return lie around the moment at which it happens.
#[derive(Clone, Debug)]
struct Move {
    session: u128,
    kind: Kind,
    before: u64,
    after: u64,
    /// Its answer gets lost.
    lost: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Try,
    Release,
    StaleRelease,
    Status,
    Close,
}

fn moves(log_run: u64, lost: f64) -> impl Strategy<Value = Vec<Move>> {
    let kind = prop_oneof![
        6 => Just(Kind::Try),
        4 => Just(Kind::Release),
        2 => Just(Kind::StaleRelease),
        4 => Just(Kind::Status),
        1 => Just(Kind::Close),
    ];
    let one = (1_u128..6, kind, 0..=log_run, 0..=log_run, proptest::bool::weighted(lost)).prop_map(
        |(session, kind, before, after, lost)| Move { session, kind, before, after, lost },
    );
    proptest::collection::vec(one, 1..60)
}

/// Each move happens 10 ms after the one before. Sessions that close come back under another number.
fn play(moves: &[Move]) -> TestHistory {
    let mut story = TestHistory::default();
    let mut incarnation = [0_u128; 8];
    for session in 1..8 {
        for life in 0..60 {
            story.open(session + 8 * life, 10_000_000, 10_000_000, 0);
        }
    }
    let mut holder: Option<(u128, u64)> = None;
    let mut last_token = 0;
    let mut request = 0;
    for (number, step) in moves.iter().enumerate() {
        let at = 10_000 + 10 * number as u64;
        let life = &mut incarnation[step.session as usize];
        let session = step.session + 8 * *life;
        request += 1;
        let own = holder.filter(|(holding, _)| *holding == session);
        let (asked, outcome) = match step.kind {
            Kind::Try => {
                let outcome = if holder.is_some() {
                    Outcome::Busy
                } else {
                    last_token += 1;
                    holder = Some((session, last_token));
                    grants("a", last_token)
                };
                (story.acquire("a", session, request), outcome)
            }
            Kind::Release => {
                let Some((_, token)) = own else { continue };
                holder = None;
                let outcome = Outcome::Release(ReleaseAnswer::Released);
                (story.release("a", session, request, token), outcome)
            }
            Kind::StaleRelease => {
                let Some((other, token)) = holder.filter(|_| own.is_none()) else { continue };
                assert_ne!(other, session);
                let outcome = Outcome::Release(ReleaseAnswer::NotOwner);
                (story.release("a", session, request, token), outcome)
            }
            Kind::Status => {
                let asked = story.ask(session, 0, Input::Status { name: name("a") });
                asked.from(at - step.before).saw(at + step.after, holder);
                continue;
            }
            Kind::Close => {
                *life += 1;
                if own.is_some() {
                    holder = None;
                }
                (story.ask(session, 0, Input::CloseSession), Outcome::SessionClosed)
            }
        };
        let asked = asked.from(at - step.before);
        if !step.lost {
            asked.until(at + step.after, outcome);
        }
    }
    story
}

fn is_linearizable(history: &History) -> bool {
    let strict = Promises { giving_up_is_a_violation: true, ..Promises::default() };
    check(&Evidence::of(history), &strict).is_empty()
}

/// Everything that is not an opening.
fn played(history: &History) -> impl Iterator<Item = usize> + '_ {
    let is_played =
        |number: &usize| !matches!(history.operations[*number].input, Input::OpenSession { .. });
    (0..history.operations.len()).filter(is_played)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_stretched_history_is_accepted(moves in moves(80, 0.0)) {
        prop_assert!(is_linearizable(&play(&moves).history));
    }

    #[test]
    fn a_stretched_history_with_lost_answers_is_accepted(moves in moves(40, 0.1)) {
        prop_assert!(is_linearizable(&play(&moves).history));
    }

    /// Without overlap there is one order only, so whatever is changed must be noticed.
    #[test]
    fn one_wrong_answer_in_a_row_of_answers_is_rejected(
        moves in moves(4, 0.0),
        which in any::<prop::sample::Index>(),
    ) {
        let mut history = play(&moves).history;
        let played: Vec<usize> = played(&history).collect();
        prop_assume!(!played.is_empty());
        let wrong = &mut history.operations[played[which.index(played.len())]];
        let Some((_, output)) = &mut wrong.returned else { unreachable!() };
        *output = match output {
            Output::Outcome(Outcome::Busy) => Output::Outcome(grants("a", 1_000)),
            // An outcome about a name that the lock contradicts.
            Output::Outcome(Outcome::Granted(_)) => Output::Outcome(Outcome::Busy),
            Output::Outcome(Outcome::Release(ReleaseAnswer::Released)) => {
                Output::Outcome(Outcome::Release(ReleaseAnswer::AlreadyReleased))
            }
            Output::Outcome(Outcome::Release(_)) => {
                Output::Outcome(Outcome::Release(ReleaseAnswer::Released))
            }
            Output::Status { holder: None, .. } => {
                Output::Status { holder: Some((SessionId(1), FenceToken(1_000))), waiters: 0 }
            }
            Output::Status { .. } => Output::Status { holder: None, waiters: 0 },
            Output::Outcome(_) => return Ok(()),
        };
        prop_assert!(!is_linearizable(&history));
    }

    /// A read that sees a holder after its hold had been released, and the release answered.
    #[test]
    fn a_stale_read_is_rejected_whatever_else_overlaps(
        moves in moves(80, 0.0),
        which in any::<prop::sample::Index>(),
    ) {
        let mut story = play(&moves);
        let releases: Vec<(SessionId, FenceToken, RealTime)> = story
            .history
            .operations
            .iter()
            .filter_map(|operation| match (&operation.input, &operation.returned) {
                (
                    Input::Release { token, .. },
                    Some((at, Output::Outcome(Outcome::Release(ReleaseAnswer::Released)))),
                ) => Some((operation.session, *token, *at)),
                _ => None,
            })
            .collect();
        prop_assume!(!releases.is_empty());
        let (session, token, returned) = releases[which.index(releases.len())];
        let after = returned.0 / 1_000 + 1;
        story
            .ask(99, 0, Input::Status { name: name("a") })
            .from(after)
            .saw(after + 50, Some((session.0, token.0)));
        prop_assert!(!is_linearizable(&story.history));
    }
}

/// Thirty clients, five thousand operations, all of them overlapping with many others.
#[test]
fn thousands_of_operations_on_one_name_take_no_time() {
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let moves: Vec<Move> = (0..5_000)
        .map(|_| Move {
            session: u128::from(random(5)) + 1,
            kind: [Kind::Try, Kind::Release, Kind::Status, Kind::StaleRelease][random(4) as usize],
            before: random(150),
            after: random(150),
            lost: random(200) == 0,
        })
        .collect();
    let began = std::time::Instant::now();
    let history = play(&moves).history;
    assert!(is_linearizable(&history));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    println!("{} operations in {:?}", played(&history).count(), began.elapsed());
}
