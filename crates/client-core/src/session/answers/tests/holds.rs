//! Holds that come together, change, or are entered again.

use holdfast_proto::v1::{Grants, Mode};

use super::*;

fn grant_of(name: &str, token: u64) -> Grant {
    Grant { name: name.into(), token, ..grant() }
}

fn shared(token: u64) -> Grant {
    Grant { mode: Mode::Shared.into(), ..grant_of("a", token) }
}

fn all_granted(grants: Vec<Grant>) -> AnswerResult {
    let outcome = Some(AcquireOutcome::AllGranted(Grants { grants }));
    AnswerResult::Acquire(AcquireResponse { outcome, ..Default::default() })
}

fn want_all(names: &[&str]) -> Request {
    let member = |name: &&str| v1::Member { name: (*name).into(), ..Default::default() };
    let members = names.iter().map(member).collect();
    Request::AcquireAll(v1::AcquireAllRequest { members, ..Default::default() })
}

pub(super) fn ended_by(reason: v1::EndReason, acquire_request_id: u64, name: &str) -> NoticeKind {
    let reason = reason.into();
    NoticeKind::HoldEnded(HoldEnded { name: name.into(), acquire_request_id, reason, token: 0 })
}

fn ended(acquire_request_id: u64, name: &str) -> NoticeKind {
    ended_by(v1::EndReason::Broken, acquire_request_id, name)
}

impl Bench {
    /// A conversion that is on the wire.
    fn convert(&mut self, hold: &Arc<Hold>, mode: Mode) -> (u64, u64) {
        let (hold, wait) = (Arc::clone(hold), Duration::from_secs(60));
        self.ask(Request::Convert { hold, mode, wait, policy: v1::Policy::Detect })
    }
}

#[test]
fn locks_that_are_granted_together_come_in_the_order_of_asking_and_are_lost_together() {
    let mut bench = Bench::new();
    let (id, caller) = bench.ask(want_all(&["c", "a", "b"]));
    let grants = vec![grant_of("a", 5), grant_of("b", 6), grant_of("c", 7)];
    bench.answer(id, all_granted(grants));
    let holds = bench.holds(caller);
    let tokens: Vec<_> = holds.iter().map(|hold| bench.token(hold).unwrap()).collect();
    assert_eq!(tokens, [7, 5, 6]);

    bench.notice(ended(id, "b"));
    for hold in &holds {
        assert_eq!(bench.token(hold), Err(LossReason::Broken));
    }
    holds.iter().for_each(|hold| bench.drop_guard(hold));
    // What was lost is not released, or it could be another session's by now.
    assert_eq!(bench.releases(), [("c".to_owned(), 7, id), ("a".to_owned(), 5, id)]);
    assert!(bench.state.holds.is_empty());
}

#[test]
fn a_hold_that_ended_with_its_session_is_not_told_of_a_ttl_of_its_own() {
    for (deadline_ms, reported) in
        [(None, LossReason::SessionExpired), (Some(20_000), LossReason::HoldTtl)]
    {
        let mut bench = Bench::new();
        let (id, hold) = bench.held(Grant { deadline_ms, ..grant() });
        bench.notice(ended_by(v1::EndReason::Ttl, id, "a"));
        assert_eq!(bench.token(&hold), Err(reported), "{deadline_ms:?}");
    }
}

#[test]
fn a_retry_that_finds_a_part_of_what_it_asked_for_gives_it_back() {
    let mut bench = Bench::new();
    let (id, caller) = bench.ask(want_all(&["a", "b"]));
    bench.answer(id, all_granted(vec![grant_of("b", 6)]));
    assert_eq!(bench.error(caller), RequestError::Lost(Lost { reason: LossReason::Ended }));
    assert_eq!(bench.releases(), [("b".to_owned(), 6, id)]);
}

#[test]
fn all_that_was_granted_before_the_cancel_is_released() {
    let mut bench = Bench::new();
    let (id, _) = bench.ask(want_all(&["a", "b"]));
    let cancel = bench.abandon(id);
    let grants = || vec![grant_of("a", 5), grant_of("b", 6)];
    let outcome = CancelOutcome::AllAlreadyGranted(Grants { grants: grants() });
    bench.answer(cancel, cancelled_with(outcome));
    bench.answer(id, all_granted(grants()));
    assert_eq!(bench.releases(), [("a".to_owned(), 5, id), ("b".to_owned(), 6, id)]);
}

#[test]
fn a_conversion_changes_the_token_of_the_hold_and_the_release_goes_by_the_new_one() {
    let mut bench = Bench::new();
    let (id, hold) = bench.held(shared(5));
    let (convert, caller) = bench.convert(&hold, Mode::Exclusive);
    assert_eq!(bench.token(&hold), Ok(5));
    bench.answer(convert, granted_as(grant_of("a", 9)));
    assert!(matches!(bench.reported(caller), Some(Ok(Success::Converted))));
    assert_eq!((bench.token(&hold), hold.mode()), (Ok(9), Mode::Exclusive));
    bench.drop_guard(&hold);
    assert_eq!(bench.releases(), [("a".to_owned(), 9, id)]);
}

#[test]
fn after_a_conversion_was_dropped_the_release_waits_until_the_token_is_known() {
    let late = || CancelOutcome::AlreadyGranted(grant_of("a", 9));
    let in_time = || CancelOutcome::Cancelled(Cancelled {});
    for (outcome, token) in [(late(), 9), (in_time(), 5)] {
        let mut bench = Bench::new();
        let (id, hold) = bench.held(grant());
        let (convert, _) = bench.convert(&hold, Mode::Exclusive);
        let cancel = bench.abandon(convert);
        bench.drop_guard(&hold);
        assert_eq!(bench.releases(), [], "it is not known under which token");
        bench.answer(cancel, cancelled_with(outcome));
        assert_eq!(bench.releases(), [("a".to_owned(), token, id)]);
        assert!(bench.state.converting.is_empty());
    }
}

#[test]
fn requests_behind_a_conversion_go_out_in_order_and_wait_for_the_next_one_too() {
    let mut bench = Bench::new();
    let (_, hold) = bench.held(grant());
    let (first, _) = bench.convert(&hold, Mode::Shared);
    let renew = |hold: &Arc<Hold>| Request::Renew { hold: Arc::clone(hold), ttl: None };
    let (renewal, _) = bench.ask(renew(&hold));
    let (second, _) = bench.convert(&hold, Mode::Exclusive);
    let (abandoned, _) = bench.convert(&hold, Mode::Shared);
    let (last, _) = bench.ask(renew(&hold));
    bench.state.abandon(abandoned);
    // What waits here is not sent by a stream that breaks either.
    bench.state.stream_broke();
    assert!(matches!(&bench.sent()[..], [Kind::Convert(it)] if it.request_id == first));
    bench.answer(first, granted_as(shared(5)));
    let sent = bench.sent();
    let [Kind::Renew(one), Kind::Convert(two)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((one.request_id, two.request_id), (renewal, second));
    bench.answer(second, granted_as(grant_of("a", 9)));
    let sent = bench.sent();
    let [Kind::Renew(three)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((three.request_id, three.token), (last, 9));
}

#[test]
fn requests_behind_a_conversion_fail_when_the_session_ends() {
    let mut bench = Bench::new();
    let (_, hold) = bench.held(grant());
    let (_, converter) = bench.convert(&hold, Mode::Shared);
    let (_, releaser) = bench.ask(Request::Release { hold });
    bench.state.end(LossReason::SessionExpired, true);
    let lost = RequestError::Lost(Lost { reason: LossReason::SessionExpired });
    assert_eq!(bench.error(converter), lost);
    let reported = bench.reported(releaser);
    assert!(
        matches!(reported, Some(Ok(Success::Released(ReleaseOutcome::Expired)))),
        "{reported:?}"
    );
}

#[test]
fn a_release_that_waits_for_a_conversion_does_not_keep_its_caller_longer_than_it_wants() {
    let mut bench = Bench::new();
    let (_, hold) = bench.held(grant());
    bench.convert(&hold, Mode::Shared);
    let (_, releaser) = bench.ask(Request::Release { hold });
    bench.state.let_callers_go(bench.at(TTL));
    assert!(matches!(bench.error(releaser), RequestError::Unavailable(_)));
}

#[test]
fn a_lock_that_is_entered_again_is_known_by_its_first_acquire_and_lost_by_all_guards() {
    let reentrant = || {
        let name = "a".into();
        let request = v1::AcquireRequest { name, reentrant: true, actor: 7, ..Default::default() };
        Request::Acquire(request)
    };
    let mut bench = Bench::new();
    let (first, caller) = bench.ask(reentrant());
    bench.answer(first, granted());
    let outer = bench.only(caller);
    let enter_again = |bench: &mut Bench| {
        let (id, caller) = bench.ask(reentrant());
        bench.answer(id, granted_as(Grant { acquire_request_id: first, ..grant() }));
        bench.only(caller)
    };
    let inner = enter_again(&mut bench);

    // The lease is there as long as one of them is.
    bench.drop_guard(&outer);
    assert_eq!(bench.releases(), [("a".to_owned(), 5, first)]);
    assert_eq!(bench.token(&inner), Ok(5));

    // Entered once more when nothing is left here of the first.
    bench.drop_guard(&inner);
    assert_eq!(bench.releases(), [("a".to_owned(), 5, first)]);
    assert!(bench.state.holds.is_empty());
    let (inner, last) = (enter_again(&mut bench), enter_again(&mut bench));
    bench.notice(ended(first, "a"));
    for hold in [&inner, &last] {
        assert_eq!(bench.token(hold), Err(LossReason::Broken));
        bench.drop_guard(hold);
    }
    assert_eq!(bench.releases(), []);
}

/// The cluster carries them out in this order: the hold is entered again, shortened to a second, and left once.
#[test]
fn a_hold_that_is_entered_again_is_not_trusted_past_a_renewal_by_a_guard_that_is_gone() {
    let mut bench = Bench::new();
    let (first, outer) = bench.held(grant());
    let (second, caller) = bench.acquire();
    let ttl = Some(Duration::from_secs(1));
    bench.ask(Request::Renew { hold: Arc::clone(&outer), ttl });
    let (release, _) = bench.ask(Request::Release { hold: outer });
    bench.answer(second, granted_as(Grant { acquire_request_id: first, ..grant() }));
    let inner = bench.only(caller);
    let renewed_until = bench.at(Duration::from_millis(980));
    assert!(inner.valid_until().unwrap() <= renewed_until);
    let outcome = v1::ReleaseOutcome::Released.into();
    let released = v1::ReleaseResponse { outcome, ..Default::default() };
    bench.answer(release, AnswerResult::Release(released));
    assert!(inner.valid_until().unwrap() <= renewed_until, "the renewal has no answer yet");
    bench.drop_guard(&inner);
    bench.sent();
    assert!(bench.state.holds.is_empty());
}

/// As above, but the answer to the second acquire comes last, and tells what held before the renewal.
#[test]
fn a_late_answer_from_before_a_renewal_gives_no_guard_of_a_hold_that_is_forgotten() {
    let mut bench = Bench::new();
    let (first, outer) = bench.held(grant());
    let (second, caller) = bench.acquire();
    let ttl = Some(Duration::from_secs(1));
    let (renewal, _) = bench.ask(Request::Renew { hold: Arc::clone(&outer), ttl });
    let deadline_ms = Some(2_000);
    let renewed = v1::RenewResponse { deadline_ms, ..Default::default() };
    bench.answer(renewal, AnswerResult::Renew(renewed));
    let (release, _) = bench.ask(Request::Release { hold: outer });
    let outcome = v1::ReleaseOutcome::Released.into();
    let released = v1::ReleaseResponse { outcome, ..Default::default() };
    bench.answer(release, AnswerResult::Release(released));
    bench.sent();
    bench.answer(second, granted_as(Grant { acquire_request_id: first, ..grant() }));
    assert!(matches!(bench.error(caller), RequestError::Lost(Lost { reason: LossReason::Ended })));
    assert!(bench.state.holds.is_empty());
    assert_eq!(bench.releases(), [("a".to_owned(), 5, first)], "or nobody would release it");
}

/// Or else the other guards would give an old token, and their releases would free nothing.
#[test]
fn a_conversion_by_one_guard_changes_the_token_of_all_guards_that_entered_the_hold() {
    let mut bench = Bench::new();
    let (first, outer) = bench.held(shared(5));
    let (second, caller) = bench.acquire();
    bench.answer(second, granted_as(Grant { acquire_request_id: first, ..shared(5) }));
    let inner = bench.only(caller);
    let (convert, _) = bench.convert(&inner, Mode::Exclusive);
    bench.drop_guard(&outer);
    assert_eq!(bench.releases(), [], "it is not known under which token");
    bench.answer(convert, granted_as(grant_of("a", 9)));
    assert_eq!(bench.releases(), [("a".to_owned(), 9, first)]);
    assert_eq!(outer.last_token(), 9);
    // From a transfer on, none of them gives a token.
    bench.ask(Request::Transfer { hold: Arc::clone(&inner), to: "b".into() });
    assert!(outer.token(bench.now).is_err() && inner.token(bench.now).is_err());
}

#[test]
fn a_refusal_that_tells_of_a_lost_hold_ends_all_guards_that_entered_it() {
    for reason in [Reason::GrantEnded, Reason::NotHeld] {
        let mut bench = Bench::new();
        let (first, outer) = bench.held(shared(5));
        let (second, caller) = bench.acquire();
        bench.answer(second, granted_as(Grant { acquire_request_id: first, ..shared(5) }));
        let inner = bench.only(caller);
        let (convert, _) = bench.convert(&inner, Mode::Exclusive);
        bench.fail(convert, reason, false);
        for guard in [&outer, &inner] {
            assert_eq!(guard.token(bench.now), Err(Lost { reason: LossReason::Ended }));
        }
    }
}

fn want_best_effort() -> Request {
    let tier = v1::Tier::Efficiency.into();
    Request::Acquire(v1::AcquireRequest { tier, ..Default::default() })
}

fn best_effort(token: u64) -> Grant {
    Grant { token, guarantee: v1::Guarantee::BestEffort.into(), ..grant() }
}

/// A hold of each tier.
fn one_of_each_tier(bench: &mut Bench) -> (Arc<Hold>, Arc<Hold>) {
    let (fast, caller) = bench.ask(want_best_effort());
    bench.answer(fast, granted_as(best_effort(7 << 40)));
    (bench.only(caller), bench.held(grant()).1)
}

#[test]
fn another_term_ends_efficiency_holds_and_retries_efficiency_waits() {
    let mut bench = Bench::new();
    let (fast, safe) = one_of_each_tier(&mut bench);
    let (waits, waiter) = bench.ask(want_best_effort());
    bench.notice(queued(waits));
    let (abandoned, _) = bench.ask(want_best_effort());
    bench.abandon(abandoned);

    // A stream that comes back in the same term changes nothing.
    let welcome = |term| v1::OpenSessionResponse {
        term,
        ttl_ms: 30_000,
        linger_ms: 30_000,
        ..Default::default()
    };
    bench.state.welcomed(bench.now, &welcome(0));
    assert!(bench.token(&fast).is_ok());
    bench.state.welcomed(bench.now, &welcome(8));
    assert_eq!((bench.token(&fast), bench.token(&safe)), (Err(LossReason::LeaderChanged), Ok(5)));
    assert!(bench.state.requests.get(waits).is_none(), "its place in line is gone");
    assert!(bench.state.requests.get(abandoned).is_none());
    let sent = bench.sent();
    let [Kind::Acquire(again)] = &sent[..] else { panic!("one of them is wanted: {sent:?}") };
    assert!(again.request_id > abandoned);
    bench.answer(again.request_id, granted_as(best_effort(8 << 40)));
    let hold = bench.only(waiter);
    assert_eq!(bench.token(&hold), Ok(8 << 40));
    // The program knows it by the number of its call.
    bench.state.abandon(waits);
    assert_eq!(bench.releases(), [("a".to_owned(), 8 << 40, again.request_id)]);
}

/// What was lost while no notice could come is told by its token, and a shared hold by its acquire as well.
#[test]
fn of_shared_holds_under_one_token_only_the_reported_one_is_lost() {
    let mut bench = Bench::new();
    let (first, lost) = bench.held(shared(5));
    let (_, kept) = bench.held(shared(5));
    let reported = |acquire_request_id| {
        NoticeKind::HoldEnded(HoldEnded { token: 5, acquire_request_id, ..Default::default() })
    };
    // An older node does not say which one.
    bench.notice(reported(0));
    assert!(bench.token(&lost).is_ok() && bench.token(&kept).is_ok());
    bench.notice(reported(first));
    assert_eq!((bench.token(&lost), bench.token(&kept)), (Err(LossReason::Ended), Ok(5)));
}

#[test]
fn a_lost_leader_ends_what_the_efficiency_tier_held_and_it_is_given_back_with_the_next_stream() {
    let mut bench = Bench::new();
    let (fast, safe) = one_of_each_tier(&mut bench);
    bench.state.stream_broke();
    bench.state.leader_lost(LossReason::LeaderUnreachable);
    let lost = Err(LossReason::LeaderUnreachable);
    assert_eq!((bench.token(&fast), bench.token(&safe)), (lost, Ok(5)));
    let released: Vec<u64> = bench.releases().into_iter().map(|(_, token, _)| token).collect();
    assert_eq!(released, [7 << 40]);
    // Once is enough.
    bench.state.leader_lost(LossReason::LeaderUnreachable);
    bench.drop_guard(&fast);
    assert_eq!(bench.releases(), []);
}

#[test]
fn a_leader_that_names_its_successor_ends_what_the_efficiency_tier_held() {
    let mut bench = Bench::new();
    let (fast, safe) = one_of_each_tier(&mut bench);
    let moved = v1::LeaderMoved { leader: "127.0.0.1:7430".into() };
    assert!(matches!(bench.notice(NoticeKind::LeaderMoved(moved)), Verdict::Move { .. }));
    assert_eq!((bench.token(&fast), bench.token(&safe)), (Err(LossReason::LeaderChanged), Ok(5)));
}

#[test]
fn a_best_effort_hold_whose_conversion_is_under_way_is_given_back_under_the_token_that_it_gets() {
    let mut bench = Bench::new();
    let (fast, _safe) = one_of_each_tier(&mut bench);
    let (convert, _) = bench.convert(&fast, Mode::Shared);
    bench.state.stream_broke();
    bench.state.leader_lost(LossReason::LeaderUnreachable);
    assert_eq!(bench.token(&fast), Err(LossReason::LeaderUnreachable));
    assert_eq!(bench.releases(), [], "its token is not known yet");
    bench.answer(convert, granted_as(best_effort((7 << 40) + 3)));
    let released: Vec<u64> = bench.releases().into_iter().map(|(_, token, _)| token).collect();
    assert_eq!(released, [(7 << 40) + 3]);
    assert!(bench.token(&fast).is_err());
}
