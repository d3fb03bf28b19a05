//! Holds that come together, change, or are entered again.

use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{Grants, Mode};

use super::*;
use crate::error::ConvertError;
use crate::session::convert::ConvertCall;
use crate::session::{Ticket, reply_until};
use crate::terms::Policy;

fn grant_of(name: &str, token: u64) -> Grant {
    Grant { name: name.into(), token, mode: Mode::Exclusive.into(), ..grant() }
}

fn granted_as(grant: Grant) -> AnswerResult {
    let outcome = Some(AcquireOutcome::Granted(grant));
    AnswerResult::Acquire(AcquireResponse { outcome, ..Default::default() })
}

fn all_granted(grants: Vec<Grant>) -> AnswerResult {
    let outcome = Some(AcquireOutcome::AllGranted(Grants { grants }));
    AnswerResult::Acquire(AcquireResponse { outcome, ..Default::default() })
}

fn want_all(names: &[&str]) -> Wanted {
    let member = |name: &&str| v1::Member { name: (*name).into(), ..Default::default() };
    let members = names.iter().map(member).collect();
    Wanted::All(v1::AcquireAllRequest { members, ..Default::default() })
}

fn ended(acquire_request_id: u64, name: &str) -> Notice {
    ended_by(v1::EndReason::Broken, acquire_request_id, name)
}

fn ended_by(reason: v1::EndReason, acquire_request_id: u64, name: &str) -> Notice {
    let reason = reason.into();
    let ended = HoldEnded { name: name.into(), acquire_request_id, reason, token: 0 };
    Notice { kind: Some(NoticeKind::HoldEnded(ended)) }
}

impl Bench {
    /// What the task does with the commands of guards.
    fn take_in_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.session.ready);
        while let Ok(command) = self.inbox.try_recv() {
            commands.push(command);
        }
        for command in commands {
            match self.session.unless_converting(command) {
                Some(Command::Release { hold, reply }) if !hold.has_ended() => {
                    self.session.forget_hold(&hold);
                    let request = hold.release_request();
                    self.session.requests.stage(Request::Release { request, reply });
                }
                Some(Command::Release { .. }) | None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    /// The releases that are ready to go out: name, token, acquire.
    fn releases(&mut self) -> Vec<(String, u64, u64)> {
        let staged = self.session.requests.take_staged(100, |_| 1);
        let requests = staged.iter().filter_map(|id| self.session.requests.get(*id));
        let releases = requests.filter_map(|request| match request.to_operation(0).kind {
            Some(Kind::Release(release)) => {
                Some((release.name, release.token, release.acquire_request_id))
            }
            _ => None,
        });
        releases.collect()
    }

    /// A conversion that is on the wire.
    fn convert(&mut self, guard: &Guard, mode: Mode) -> (u64, ConvertReply) {
        let (reply, answer) = oneshot::channel();
        let held = self.session.holds.values().find(|hold| std::ptr::eq(&***hold, guard.hold()));
        let hold = Arc::clone(held.unwrap());
        let ticket = Ticket::default();
        self.session.start_converting(ConvertCall {
            hold,
            mode,
            wait_ms: 60_000,
            policy: Policy::Detect,
            ticket: ticket.clone(),
            reply,
            is_abandoned: false,
        });
        self.send_all();
        (ticket.request_id(), answer)
    }
}

type ConvertReply = oneshot::Receiver<Result<(), ConvertError>>;

#[test]
fn locks_that_are_granted_together_come_in_the_order_of_asking_and_are_lost_together() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.want(want_all(&["c", "a", "b"]));
    let grants = vec![grant_of("a", 5), grant_of("b", 6), grant_of("c", 7)];
    bench.answer(id, all_granted(grants));
    let guards = answer.try_recv().unwrap().unwrap();
    let tokens: Vec<_> = guards.iter().map(|guard| guard.token().unwrap()).collect();
    assert_eq!(tokens, [7, 5, 6]);

    bench.session.on_notice(ended(id, "b"));
    for guard in &guards {
        assert_eq!(guard.token(), Err(Lost { reason: LossReason::Broken }));
    }
    drop(guards);
    bench.take_in_commands();
    // What was lost is not released, or it could be somebody else's by now.
    assert_eq!(bench.releases(), [("c".to_owned(), 7, id), ("a".to_owned(), 5, id)]);
    assert!(bench.session.holds.is_empty());
}

#[test]
fn a_hold_that_ended_with_its_session_is_not_told_of_a_ttl_of_its_own() {
    for (deadline_ms, told) in
        [(None, LossReason::SessionExpired), (Some(20_000), LossReason::HoldTtl)]
    {
        let mut bench = Bench::new();
        let (id, mut answer) = bench.acquire();
        bench.answer(id, granted_as(Grant { deadline_ms, ..grant() }));
        let guard = only(&mut answer);
        bench.session.on_notice(ended_by(v1::EndReason::Ttl, id, "a"));
        assert_eq!(guard.token(), Err(Lost { reason: told }), "{deadline_ms:?}");
    }
}

#[test]
fn a_retry_that_finds_a_part_of_them_gives_it_back() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.want(want_all(&["a", "b"]));
    bench.answer(id, all_granted(vec![grant_of("b", 6)]));
    let told = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(told, AcquireError::Lost(Lost { reason: LossReason::Ended }));
    assert_eq!(bench.releases(), [("b".to_owned(), 6, id)]);
}

#[test]
fn all_that_was_granted_before_the_cancel_is_released() {
    let mut bench = Bench::new();
    let (id, _answer) = bench.want(want_all(&["a", "b"]));
    let cancel = bench.abandon(id);
    let grants = vec![grant_of("a", 5), grant_of("b", 6)];
    bench.answer(cancel, cancelled_with(CancelOutcome::AllAlreadyGranted(Grants { grants })));
    bench.answer(id, all_granted(vec![grant_of("a", 5), grant_of("b", 6)]));
    assert_eq!(bench.releases(), [("a".to_owned(), 5, id), ("b".to_owned(), 6, id)]);
}

#[test]
fn a_conversion_changes_the_token_of_the_guard_and_the_release_goes_by_the_new_one() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.acquire();
    let shared = Grant { mode: Mode::Shared.into(), ..grant() };
    bench.answer(id, granted_as(shared));
    let guard = only(&mut answer);
    let (convert, mut converted) = bench.convert(&guard, Mode::Exclusive);
    assert_eq!(guard.token(), Ok(5));
    bench.answer(convert, granted_as(grant_of("a", 9)));
    assert_eq!(converted.try_recv().unwrap(), Ok(()));
    assert_eq!(guard.token(), Ok(9));
    assert!(guard.is_exclusive());
    drop(guard);
    bench.take_in_commands();
    assert_eq!(bench.releases(), [("a".to_owned(), 9, id)]);
}

#[test]
fn after_a_conversion_was_dropped_the_release_waits_until_the_token_is_known() {
    let late = || CancelOutcome::AlreadyGranted(grant_of("a", 9));
    let in_time = || CancelOutcome::Cancelled(Cancelled {});
    for (outcome, token) in [(late(), 9), (in_time(), 5)] {
        let mut bench = Bench::new();
        let (id, mut answer) = bench.acquire();
        bench.answer(id, granted());
        let guard = only(&mut answer);
        let (convert, _converted) = bench.convert(&guard, Mode::Exclusive);
        let cancel = bench.abandon(convert);
        drop(guard);
        bench.take_in_commands();
        assert_eq!(bench.releases(), [], "it is not known under which token");
        bench.answer(cancel, cancelled_with(outcome));
        bench.take_in_commands();
        assert_eq!(bench.releases(), [("a".to_owned(), token, id)]);
        assert!(bench.session.converting.is_empty());
    }
}

#[test]
fn what_waits_for_a_conversion_is_told_when_the_session_ends() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.acquire();
    bench.answer(id, granted());
    let guard = only(&mut answer);
    let (_, mut converted) = bench.convert(&guard, Mode::Shared);
    drop(guard);
    bench.take_in_commands();
    bench.session.end(LossReason::SessionExpired);
    let lost = ConvertError::Lost(Lost { reason: LossReason::SessionExpired });
    assert_eq!(converted.try_recv().unwrap(), Err(lost));
    assert!(matches!(bench.session.ready[..], [Command::Release { .. }]));
}

#[test]
fn a_lock_that_is_entered_again_is_known_by_its_first_acquire_and_lost_by_all_guards() {
    let reentrant = || {
        let request = v1::AcquireRequest {
            name: "a".into(),
            reentrant: true,
            actor: 7,
            ..Default::default()
        };
        Wanted::One(request)
    };
    let mut bench = Bench::new();
    let (first, mut first_answer) = bench.want(reentrant());
    bench.answer(first, granted());
    let outer = only(&mut first_answer);
    let entered_again = || granted_as(Grant { acquire_request_id: first, ..grant() });
    let (second, mut second_answer) = bench.want(reentrant());
    bench.answer(second, entered_again());
    let inner = only(&mut second_answer);

    // The lease is there as long as one of them is.
    drop(outer);
    bench.take_in_commands();
    assert_eq!(bench.releases(), [("a".to_owned(), 5, first)]);
    assert_eq!(inner.token(), Ok(5));

    // Entered once more when nothing is left here of the first.
    drop(inner);
    bench.take_in_commands();
    assert_eq!(bench.releases(), [("a".to_owned(), 5, first)]);
    assert!(bench.session.holds.is_empty());
    let (third, mut third_answer) = bench.want(reentrant());
    bench.answer(third, entered_again());
    let inner = only(&mut third_answer);
    let (fourth, mut fourth_answer) = bench.want(reentrant());
    bench.answer(fourth, entered_again());
    let last = only(&mut fourth_answer);
    bench.session.on_notice(ended(first, "a"));
    for guard in [&inner, &last] {
        assert_eq!(guard.token(), Err(Lost { reason: LossReason::Broken }));
    }
    drop((inner, last));
    bench.take_in_commands();
    assert_eq!(bench.releases(), []);
}

#[test]
fn another_term_ends_what_the_efficiency_tier_held_and_asks_anew_for_what_it_waited_for() {
    let mut bench = Bench::new();
    let tier = v1::Tier::Efficiency.into();
    let wanted = || Wanted::One(v1::AcquireRequest { tier, ..Default::default() });
    let guarantee = v1::Guarantee::BestEffort.into();
    let (fast, mut fast_answer) = bench.want(wanted());
    bench.answer(fast, granted_as(Grant { token: 7 << 40, guarantee, ..grant() }));
    let fast_guard = only(&mut fast_answer);
    let (safe, mut safe_answer) = bench.acquire();
    bench.answer(safe, granted());
    let safe_guard = only(&mut safe_answer);
    let (waits, mut waits_answer) = bench.want(wanted());
    bench.queue(waits);
    let (abandoned, _) = bench.want(wanted());
    bench.abandon(abandoned);

    // A stream that comes back in the same term changes nothing.
    let welcome = |term| v1::OpenSessionResponse {
        term,
        ttl_ms: 30_000,
        linger_ms: 30_000,
        ..Default::default()
    };
    bench.session.welcomed(clock::now(), &welcome(0));
    assert!(fast_guard.token().is_ok());
    bench.session.welcomed(clock::now(), &welcome(8));
    let lost = Lost { reason: LossReason::LeaderChanged };
    assert_eq!((fast_guard.token(), safe_guard.token()), (Err(lost), Ok(5)));
    assert!(bench.session.requests.get(waits).is_none(), "its place in line is gone");
    assert!(bench.session.requests.get(abandoned).is_none());
    let staged = bench.session.requests.take_staged(100, |_| 1);
    let acquires: Vec<u64> = staged
        .into_iter()
        .filter(|id| matches!(bench.session.requests.get(*id), Some(Request::Acquire(_))))
        .collect();
    let [anew] = acquires[..] else { panic!("one of them is wanted: {acquires:?}") };
    assert!(anew > abandoned);
    bench.session.requests.mark_sent(anew, clock::now(), Instant::now());
    bench.answer(anew, granted_as(Grant { token: 8 << 40, guarantee, ..grant() }));
    assert_eq!(only(&mut waits_answer).token(), Ok(8 << 40));
    assert_eq!(fast_guard.guarantee(), Some(holdfast_proto::Guarantee::BestEffort));
}

/// A hold whose conversion is on the wire, and whose release waits for that; its caller waits no longer.
fn release_behind_conversion(bench: &mut Bench) -> (Guard, u64, Awaited<ReleaseAnswer>) {
    let (id, mut answer) = bench.acquire();
    bench.answer(id, granted());
    let guard = only(&mut answer);
    let (convert, _) = bench.convert(&guard, Mode::Shared);
    let (reply, answer) = reply_until(Instant::now());
    let hold = Arc::clone(bench.session.holds.values().next().unwrap());
    let release = Command::Release { hold, reply: Some(reply) };
    bench.session.note_awaited(release.awaited_until());
    assert!(bench.session.unless_converting(release).is_none());
    (guard, convert, answer)
}

type ReleaseAnswer = Result<ReleaseOutcome, Rejection>;

#[test]
fn a_release_that_waits_for_a_conversion_does_not_keep_its_caller_longer_than_it_wants() {
    let mut bench = Bench::new();
    let (_guard, _, mut answer) = release_behind_conversion(&mut bench);
    bench.session.let_go_of_the_impatient(Instant::now());
    assert!(matches!(answer.try_recv(), Err(TryRecvError::Closed)));
}

#[test]
fn nor_does_one_that_was_ready_to_go_out_when_the_stream_broke() {
    let mut bench = Bench::new();
    let (_guard, convert, mut answer) = release_behind_conversion(&mut bench);
    bench.answer(convert, granted());
    bench.session.stream_broke();
    assert_eq!(bench.session.ready.len(), 1);
    bench.session.let_go_of_the_impatient(Instant::now());
    assert!(matches!(answer.try_recv(), Err(TryRecvError::Closed)));
}

/// What was lost while no notice could come is told by its token, and a shared hold by its acquire as well.
#[test]
fn of_shared_holds_under_one_token_only_the_one_that_is_told_is_lost() {
    let mut bench = Bench::new();
    let shared = || Grant { mode: Mode::Shared.into(), ..grant_of("a", 5) };
    let (first, mut answer) = bench.acquire();
    bench.answer(first, granted_as(shared()));
    let lost = only(&mut answer);
    let (second, mut answer) = bench.acquire();
    bench.answer(second, granted_as(shared()));
    let kept = only(&mut answer);
    let told = |acquire_request_id| {
        let ended = HoldEnded { token: 5, acquire_request_id, ..Default::default() };
        Notice { kind: Some(NoticeKind::HoldEnded(ended)) }
    };
    // An older node does not say which one.
    bench.session.on_notice(told(0));
    assert!(lost.token().is_ok() && kept.token().is_ok());
    bench.session.on_notice(told(first));
    assert_eq!(lost.token(), Err(Lost { reason: LossReason::Ended }));
    assert!(kept.token().is_ok());
}

/// A hold of each tier.
fn one_of_each_tier(bench: &mut Bench) -> (Guard, Guard) {
    let tier = v1::Tier::Efficiency.into();
    let guarantee = v1::Guarantee::BestEffort.into();
    let wanted = Wanted::One(v1::AcquireRequest { tier, ..Default::default() });
    let (fast, mut fast_answer) = bench.want(wanted);
    bench.answer(fast, granted_as(Grant { token: 7 << 40, guarantee, ..grant() }));
    let (safe, mut safe_answer) = bench.acquire();
    bench.answer(safe, granted());
    (only(&mut fast_answer), only(&mut safe_answer))
}

#[test]
fn a_lost_leader_ends_what_the_efficiency_tier_held_and_it_is_given_back_with_the_next_stream() {
    let mut bench = Bench::new();
    let (fast, safe) = one_of_each_tier(&mut bench);
    bench.session.stream_broke();
    bench.session.leader_lost(LossReason::LeaderUnreachable);
    let lost = Lost { reason: LossReason::LeaderUnreachable };
    assert_eq!((fast.token(), safe.token()), (Err(lost), Ok(5)));
    let released: Vec<u64> = bench.releases().into_iter().map(|(_, token, _)| token).collect();
    assert_eq!(released, [7 << 40]);
    // Once is enough.
    bench.session.leader_lost(LossReason::LeaderUnreachable);
    assert_eq!(bench.releases(), []);
}

#[test]
fn a_leader_that_names_its_successor_ends_what_the_efficiency_tier_held() {
    let mut bench = Bench::new();
    let (fast, safe) = one_of_each_tier(&mut bench);
    let moved = |leader: &str| {
        let moved = v1::LeaderMoved { leader: leader.into() };
        let notice = Notice { kind: Some(v1::notice::Kind::LeaderMoved(moved)) };
        v1::ServerFrame { notices: vec![notice], ..Default::default() }
    };
    let verdict = bench.session.on_frame(moved("127.0.0.1:7430"), &mut Backoff::new());
    assert!(matches!(verdict, Verdict::Move { .. }));
    let lost = Lost { reason: LossReason::LeaderChanged };
    assert_eq!((fast.token(), safe.token()), (Err(lost), Ok(5)));
}

#[test]
fn a_best_effort_hold_whose_conversion_is_under_way_is_given_back_under_the_token_that_it_gets() {
    let mut bench = Bench::new();
    let (fast, _safe) = one_of_each_tier(&mut bench);
    let (convert, _) = bench.convert(&fast, Mode::Shared);
    bench.session.stream_broke();
    bench.session.leader_lost(LossReason::LeaderUnreachable);
    assert_eq!(fast.token(), Err(Lost { reason: LossReason::LeaderUnreachable }));
    assert_eq!(bench.releases(), [], "its token is not known yet");
    bench.answer(convert, granted_as(Grant { token: (7 << 40) + 3, ..grant() }));
    let [Command::Release { hold, reply: None }] = &bench.session.ready[..] else {
        panic!("{:?}", bench.session.ready)
    };
    assert_eq!(hold.token(), (7 << 40) + 3);
    assert!(fast.token().is_err());
}
