//! What an answer does to the session, and to those who wait for it.

use std::time::Duration;

use holdfast_proto::v1::{AcquireResponse, CancelResponse, Cancelled, Grant, HoldEnded};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::circuit::Breaker;
use crate::endpoints::KnownNodes;
use crate::guard::Guard;
use crate::session::{Awaited, Command, Granted, Handle, Places, Shared, Trouble, Wanted};

mod holds;

type AcquireReply = Awaited<Granted>;

/// An open session, without a stream, and the queue to its task.
struct Bench {
    session: Session,
    backoff: Backoff,
    handle: Handle,
    inbox: mpsc::UnboundedReceiver<Command>,
}

impl Bench {
    fn new() -> Bench {
        let ttl = Duration::from_secs(30);
        let mut session = Session::new(1, ttl).unwrap();
        let welcome =
            v1::OpenSessionResponse { ttl_ms: 30_000, linger_ms: 30_000, ..Default::default() };
        session.welcomed(clock::now(), &welcome);
        let (commands, inbox) = mpsc::unbounded_channel();
        let handle = Handle::new(Shared {
            commands,
            request_timeout: ttl,
            trouble: Trouble::default(),
            nodes: KnownNodes::new("127.0.0.1:1".parse().unwrap()),
            circuit: Breaker::new().observe(),
            places: Places::new(),
        });
        Bench { session, backoff: Backoff::new(), handle, inbox }
    }

    /// An acquire that is on the wire.
    fn acquire(&mut self) -> (u64, AcquireReply) {
        self.want(Wanted::One(v1::AcquireRequest::default()))
    }

    fn want(&mut self, wanted: Wanted) -> (u64, AcquireReply) {
        let (call, answer) = AcquireCall::new(&self.handle, wanted, Duration::ZERO, None);
        self.session.note_awaited(Some(answer.patience_until()));
        let id = self.session.requests.stage(Request::Acquire(call));
        self.send_all();
        (id, answer)
    }

    /// A look that is on the wire, as the task takes it.
    fn look(&mut self) -> (u64, oneshot::Receiver<Result<v1::StatusResponse, Rejection>>) {
        let (reply, answer) = oneshot::channel();
        let id = self.session.look("a".into(), reply);
        self.send_all();
        (id, answer)
    }

    /// Its caller is gone, and the cancel is on the wire.
    fn abandon(&mut self, target: u64) -> u64 {
        if let Some(request) = self.session.requests.get_mut(target) {
            request.abandon();
        }
        let id = self.session.requests.stage(Request::Cancel { target, tier: Tier::Correctness });
        self.send_all();
        id
    }

    fn send_all(&mut self) {
        for id in self.session.requests.take_staged(100, |_| 1) {
            self.session.requests.mark_sent(id, clock::now(), Instant::now());
        }
    }

    fn answer(&mut self, request_id: u64, result: AnswerResult) -> Verdict {
        self.session.on_answer(Answer { request_id, result: Some(result) }, &mut self.backoff)
    }

    fn fail(&mut self, request_id: u64, reason: Reason, retryable: bool) -> Verdict {
        let failure = Failure { reason: reason.into(), retryable, ..Default::default() };
        self.answer(request_id, AnswerResult::Failure(failure))
    }

    fn queue(&mut self, request_id: u64) {
        assert_eq!(self.session.on_notice(queued(request_id)), Verdict::GoOn);
    }

    fn staged_releases(&mut self) -> usize {
        let staged = self.session.requests.take_staged(100, |_| 1);
        let is_release =
            |id: &&u64| matches!(self.session.requests.get(**id), Some(Request::Release { .. }));
        staged.iter().filter(is_release).count()
    }
}

/// The guard of a lock that was asked for alone.
fn only(answer: &mut AcquireReply) -> Guard {
    let mut guards = answer.try_recv().unwrap().unwrap();
    assert_eq!(guards.len(), 1);
    guards.remove(0)
}

fn grant() -> Grant {
    let guarantee = v1::Guarantee::Linearizable.into();
    Grant { name: "a".into(), token: 5, guarantee, ..Default::default() }
}

fn granted() -> AnswerResult {
    let outcome = Some(AcquireOutcome::Granted(grant()));
    AnswerResult::Acquire(AcquireResponse { outcome, ..Default::default() })
}

fn queued(request_id: u64) -> Notice {
    let queued = v1::Queued { request_id, position: 1 };
    Notice { kind: Some(NoticeKind::Queued(queued)) }
}

fn cancelled_with(outcome: CancelOutcome) -> AnswerResult {
    AnswerResult::Cancel(CancelResponse { outcome: Some(outcome), ..Default::default() })
}

#[test]
fn a_look_is_answered_and_holds_no_acknowledgement_back() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.look();
    assert_eq!(bench.session.requests.acked_through(), id);
    let status = v1::StatusResponse { name: "a".into(), ..Default::default() };
    bench.answer(id, AnswerResult::Status(Box::new(status.clone())));
    assert_eq!(answer.try_recv().unwrap().unwrap(), status);
}

/// Its caller asks by a call then.
#[test]
fn a_look_is_given_up_when_the_stream_breaks_or_the_node_does_not_know_it() {
    let mut bench = Bench::new();
    let (_, mut answer) = bench.look();
    let (acquire, _waiting) = bench.acquire();
    bench.fail(0, Reason::InvalidFrame, false);
    assert!(matches!(answer.try_recv(), Err(TryRecvError::Closed)));
    assert!(bench.session.requests.get(acquire).is_some(), "the others are not meant");

    let (_, mut answer) = bench.look();
    bench.session.stream_broke();
    assert!(matches!(answer.try_recv(), Err(TryRecvError::Closed)));
    assert_eq!(bench.session.requests.take_staged(100, |_| 1), [acquire]);
}

#[test]
fn a_grant_becomes_a_guard_that_hands_out_its_token() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.acquire();
    assert_eq!(bench.answer(id, granted()), Verdict::GoOn);
    let guard = only(&mut answer);
    assert_eq!(guard.token(), Ok(5));
}

#[test]
fn a_grant_whose_caller_is_gone_comes_back_as_a_release() {
    let mut bench = Bench::new();
    let (id, answer) = bench.acquire();
    drop(answer);
    bench.answer(id, granted());
    assert!(matches!(bench.inbox.try_recv(), Ok(Command::Release { reply: None, .. })));
}

#[test]
fn a_grant_that_crosses_its_cancel_is_released_once_whichever_answer_comes_first() {
    for grant_comes_first in [true, false] {
        let mut bench = Bench::new();
        let (acquire, _answer) = bench.acquire();
        let cancel = bench.abandon(acquire);
        let too_late = cancelled_with(CancelOutcome::AlreadyGranted(grant()));
        let mut answers = vec![(acquire, granted()), (cancel, too_late)];
        if !grant_comes_first {
            answers.reverse();
        }
        for (id, result) in answers {
            bench.answer(id, result);
        }
        assert_eq!(bench.staged_releases(), 1, "grant first: {grant_comes_first}");
    }
}

#[test]
fn a_cancel_in_time_settles_both_requests_and_releases_nothing() {
    let mut bench = Bench::new();
    let (acquire, _answer) = bench.acquire();
    let cancel = bench.abandon(acquire);
    bench.answer(cancel, cancelled_with(CancelOutcome::Cancelled(Cancelled {})));
    assert_eq!(bench.staged_releases(), 0);
    assert_eq!(bench.session.requests.acked_through(), cancel);
}

#[test]
fn a_hold_that_ended_is_lost_for_the_reason_told() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.acquire();
    bench.answer(id, granted());
    let guard = only(&mut answer);
    let ended = HoldEnded {
        name: "a".into(),
        acquire_request_id: id,
        reason: v1::EndReason::MaxHold.into(),
        ..Default::default()
    };
    bench.session.on_notice(Notice { kind: Some(NoticeKind::HoldEnded(ended)) });
    assert_eq!(guard.token(), Err(Lost { reason: LossReason::MaxHold }));
}

#[test]
fn the_end_of_the_session_is_told_to_holders_and_waiters() {
    let mut bench = Bench::new();
    let (held, mut held_answer) = bench.acquire();
    bench.answer(held, granted());
    let guard = only(&mut held_answer);
    let (waiting, mut waiting_answer) = bench.acquire();
    let verdict = bench.fail(waiting, Reason::UnknownSession, false);
    assert_eq!(verdict, Verdict::SessionLost(LossReason::SessionExpired));
    bench.session.end(LossReason::SessionExpired);
    assert_eq!(guard.token(), Err(Lost { reason: LossReason::SessionExpired }));
    let told = waiting_answer.try_recv().unwrap().unwrap_err();
    assert_eq!(told, AcquireError::SessionLost(LossReason::SessionExpired));
}

#[test]
fn an_overloaded_node_gets_the_request_again_and_a_follower_sends_us_on() {
    let mut bench = Bench::new();
    let (id, _answer) = bench.acquire();
    assert_eq!(bench.fail(id, Reason::Overloaded, true), Verdict::GoOn);
    bench.session.stage_due_retries(Instant::now() + Duration::from_secs(1));
    assert_eq!(bench.session.requests.take_staged(10, |_| 1), [id]);
    for reason in [Reason::NotLeader, Reason::OutOfSpace] {
        assert!(matches!(bench.fail(id, reason, true), Verdict::Move { .. }), "{reason:?}");
        assert!(bench.session.requests.get(id).is_some(), "it waits for the next stream");
    }
}

#[test]
fn a_request_that_nobody_waits_for_is_not_sent_again_for_ever() {
    let mut bench = Bench::new();
    let (acquire, _answer) = bench.acquire();
    let cancel = bench.abandon(acquire);
    bench.fail(acquire, Reason::TooManyUnacknowledged, true);
    bench.fail(cancel, Reason::TooManyUnacknowledged, true);
    bench.session.stage_due_retries(Instant::now() + Duration::from_secs(1));
    assert_eq!(bench.session.requests.take_staged(10, |_| 1), [cancel]);
    assert!(!bench.session.requests.is_answer_overdue(Instant::now()));
    bench.answer(cancel, cancelled_with(CancelOutcome::Cancelled(Cancelled {})));
    assert_eq!(bench.session.requests.acked_through(), cancel);
}

#[test]
fn a_wait_that_ended_unseen_timed_out_unless_it_is_too_early_for_that() {
    let lost = AcquireError::Lost(Lost { reason: LossReason::Ended });
    for (wait_ms, told) in [(0, AcquireError::TimedOut), (60_000, lost)] {
        let mut bench = Bench::new();
        let (id, mut answer) = bench.acquire();
        if let Some(Request::Acquire(call)) = bench.session.requests.get_mut(id) {
            let request = v1::AcquireRequest { wait_ms, ..Default::default() };
            call.wanted = Wanted::One(request);
        }
        bench.queue(id);
        bench.session.stream_broke();
        bench.send_all();
        assert_eq!(bench.fail(id, Reason::AnswerDiscarded, false), Verdict::GoOn);
        assert_eq!(answer.try_recv().unwrap().unwrap_err(), told);
        assert!(bench.session.requests.get(id).is_none());
    }
}

#[test]
fn an_answer_that_was_discarded_without_a_wait_is_told_as_it_is() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.acquire();
    bench.fail(id, Reason::AnswerDiscarded, false);
    let told = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(told, AcquireError::Rejected(_)), "{told:?}");
}

#[test]
fn the_cancel_of_a_wait_that_was_acknowledged_releases_what_was_granted_and_only_that() {
    let granted_meanwhile = CancelOutcome::AlreadyGranted(grant());
    let ended_meanwhile = CancelOutcome::AlreadyEnded(v1::AlreadyEnded {});
    for (outcome, releases) in [(granted_meanwhile, 1), (ended_meanwhile, 0)] {
        let mut bench = Bench::new();
        let (acquire, _answer) = bench.acquire();
        bench.queue(acquire);
        let cancel = bench.abandon(acquire);
        assert_eq!(bench.session.requests.acked_through(), cancel - 1);
        bench.answer(cancel, cancelled_with(outcome));
        assert!(bench.session.requests.get(acquire).is_none());
        assert_eq!(bench.staged_releases(), releases);
    }
}

#[test]
fn after_a_retry_was_told_that_its_wait_ended_the_answer_of_its_cancel_changes_nothing() {
    let mut bench = Bench::new();
    let (acquire, _answer) = bench.acquire();
    bench.queue(acquire);
    let cancel = bench.abandon(acquire);
    bench.session.stream_broke();
    bench.send_all();
    bench.fail(acquire, Reason::AnswerDiscarded, false);
    bench.answer(cancel, cancelled_with(CancelOutcome::AlreadyEnded(v1::AlreadyEnded {})));
    assert_eq!(bench.staged_releases(), 0);
    assert_eq!(bench.session.requests.acked_through(), cancel);
}

#[test]
fn a_frame_is_taken_in_to_its_end_and_its_strongest_verdict_counts() {
    let mut bench = Bench::new();
    let (refused, _refused_answer) = bench.acquire();
    let (held, mut held_answer) = bench.acquire();
    let (waiting, _waiting_answer) = bench.acquire();
    let not_leader =
        Failure { reason: Reason::NotLeader.into(), retryable: true, ..Default::default() };
    let moved = v1::LeaderMoved { leader: "b:2".to_owned() };
    let frame = ServerFrame {
        answers: vec![
            Answer { request_id: refused, result: Some(AnswerResult::Failure(not_leader)) },
            Answer { request_id: held, result: Some(granted()) },
        ],
        notices: vec![queued(waiting), Notice { kind: Some(NoticeKind::LeaderMoved(moved)) }],
    };
    let verdict = bench.session.on_frame(frame, &mut bench.backoff);
    assert!(matches!(verdict, Verdict::Move { leader, .. } if leader == "b:2"));
    assert_eq!(only(&mut held_answer).token(), Ok(5));
    assert!(bench.session.requests.is_waiting(waiting));
}

#[test]
fn the_end_of_the_session_outweighs_a_move_and_a_close_that_was_asked_for_outweighs_both() {
    let nowhere = Verdict::Move { leader: String::new(), words: String::new() };
    let leader = Verdict::Move { leader: "a:1".to_owned(), words: String::new() };
    let lost = Verdict::SessionLost(LossReason::SessionExpired);
    let killed = Verdict::SessionLost(LossReason::SessionKilled);
    let by_strength = [Verdict::GoOn, nowhere, leader, lost, killed, Verdict::Closed];
    for (weak, strong) in by_strength.iter().zip(&by_strength[1..]) {
        assert_eq!(weak.clone().or_stronger(strong.clone()), *strong);
        assert_eq!(strong.clone().or_stronger(weak.clone()), *strong);
    }
}

#[test]
fn a_caller_whose_time_is_over_is_let_go_and_what_is_granted_to_it_is_released() {
    let mut bench = Bench::new();
    let (id, mut answer) = bench.acquire();
    let until = answer.patience_until();
    bench.session.let_go_of_the_impatient(until - Duration::from_millis(1));
    assert!(matches!(answer.try_recv(), Err(TryRecvError::Empty)));
    let now = Instant::now();
    assert_eq!(bench.session.patience_left(now), Some(until - now), "the task looks again then");
    bench.session.let_go_of_the_impatient(until);
    assert!(matches!(answer.try_recv(), Err(TryRecvError::Closed)));
    assert_eq!(bench.session.patience_left(now), None);
    // It was granted before the caller could abandon it.
    bench.answer(id, granted());
    assert!(matches!(bench.inbox.try_recv(), Ok(Command::Release { reply: None, .. })));
}

#[test]
fn callers_whose_times_are_over_shortly_after_each_other_are_looked_for_once_in_a_while() {
    let mut bench = Bench::new();
    let (_, mut first) = bench.acquire();
    let (_, mut second) = bench.acquire();
    let now = first.patience_until();
    bench.session.let_go_of_the_impatient(now);
    assert!(matches!(first.try_recv(), Err(TryRecvError::Closed)));
    let left = bench.session.patience_left(now).unwrap();
    assert!(left >= Duration::from_millis(5), "{left:?}");
    assert!(now + left >= second.patience_until());
    bench.session.let_go_of_the_impatient(now + left);
    assert!(matches!(second.try_recv(), Err(TryRecvError::Closed)));
}
