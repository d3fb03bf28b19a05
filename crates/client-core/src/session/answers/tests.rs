//! What an answer does to the session, and to the callers that wait for it.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_proto::SessionId;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{
    AcquireResponse, CancelResponse, Cancelled, ClientFrame, Grant, HoldEnded,
};

use super::*;
use crate::session::request::{Caller, PendingRequest};

mod holds;

const TTL: Duration = Duration::from_secs(30);
const START: LocalTime = LocalTime(Duration::from_secs(1_000));

/// An open session, without a stream, and what its callers were told. A caller is known by a number.
struct Bench {
    state: State<u64>,
    now: LocalTime,
    last_caller: u64,
    reported: BTreeMap<u64, Outcome>,
}

impl Bench {
    fn new() -> Bench {
        let mut state = State::new(SessionId::from_bytes([7; 16]).unwrap(), TTL, 1);
        let welcome =
            v1::OpenSessionResponse { ttl_ms: 30_000, linger_ms: 30_000, ..Default::default() };
        state.welcomed(START, &welcome);
        Bench { state, now: START, last_caller: 0, reported: BTreeMap::new() }
    }

    fn at(&self, after: Duration) -> LocalTime {
        LocalTime(START.0 + after)
    }

    /// A request that is on the wire, if it can be: its id, and its caller.
    fn ask(&mut self, request: Request) -> (u64, u64) {
        self.last_caller += 1;
        let waits_until = LocalTime(self.now.0 + TTL);
        let caller = Some(Caller { caller: self.last_caller, waits_until });
        let id = self
            .state
            .ask(PendingRequest { caller, ..PendingRequest::own(Operation::OfProgram(request)) });
        self.sent();
        (id, self.last_caller)
    }

    fn acquire(&mut self) -> (u64, u64) {
        self.ask(Request::Acquire(v1::AcquireRequest::default()))
    }

    /// The caller is gone, and the cancel is on the wire.
    fn abandon(&mut self, call: u64) -> u64 {
        self.state.abandon(call);
        self.sent();
        self.state.requests.reserve_id() - 1
    }

    /// All that is ready to go out goes out.
    fn sent(&mut self) -> Vec<Kind> {
        let mut sent = Vec::new();
        while let Some(frame) = self.state.next_frame(self.now) {
            let ClientFrame { operations, .. } = frame.decode().unwrap();
            sent.extend(operations.into_iter().filter_map(|operation| operation.kind));
        }
        sent
    }

    /// The releases that are ready to go out: name, token, acquire.
    fn releases(&mut self) -> Vec<(String, u64, u64)> {
        let releases = self.sent().into_iter().filter_map(|kind| match kind {
            Kind::Release(it) => Some((it.name, it.token, it.acquire_request_id)),
            _ => None,
        });
        releases.collect()
    }

    /// The guard is dropped.
    fn drop_guard(&mut self, hold: &Arc<Hold>) {
        let release = Request::Release { hold: Arc::clone(hold) };
        self.state.ask(PendingRequest::own(Operation::OfProgram(release)));
    }

    fn answer(&mut self, request_id: u64, result: AnswerResult) -> Verdict {
        self.state.on_answer(self.now, Answer { request_id, result: Some(result) })
    }

    fn fail(&mut self, request_id: u64, reason: Reason, retryable: bool) -> Verdict {
        let failure = Failure { reason: reason.into(), retryable, ..Default::default() };
        self.answer(request_id, AnswerResult::Failure(failure))
    }

    fn notice(&mut self, kind: NoticeKind) -> Verdict {
        self.state.on_notice(Notice { kind: Some(kind) })
    }

    /// What the caller was told, if anything.
    fn reported(&mut self, caller: u64) -> Option<Outcome> {
        while let Some(output) = self.state.outputs.pop_front() {
            if let Output::Completed { caller, outcome } = output {
                assert!(self.reported.insert(caller, outcome).is_none(), "told twice");
            }
        }
        self.reported.remove(&caller)
    }

    fn error(&mut self, caller: u64) -> RequestError {
        self.reported(caller).expect("an answer").unwrap_err()
    }

    fn holds(&mut self, caller: u64) -> Vec<Arc<Hold>> {
        match self.reported(caller) {
            Some(Ok(Success::Granted(holds))) => holds,
            other => panic!("{other:?}"),
        }
    }

    /// The hold of a lock that was asked for alone.
    fn only(&mut self, caller: u64) -> Arc<Hold> {
        let mut holds = self.holds(caller);
        assert_eq!(holds.len(), 1);
        holds.remove(0)
    }

    /// A hold of this grant.
    fn held(&mut self, grant: Grant) -> (u64, Arc<Hold>) {
        let (id, caller) = self.acquire();
        self.answer(id, granted_as(grant));
        (id, self.only(caller))
    }

    fn token(&self, hold: &Hold) -> Result<u64, LossReason> {
        hold.token(self.now).map_err(|lost| lost.reason)
    }
}

fn grant() -> Grant {
    let guarantee = v1::Guarantee::Linearizable.into();
    let mode = v1::Mode::Exclusive.into();
    Grant { name: "a".into(), token: 5, guarantee, mode, ..Default::default() }
}

fn granted_as(grant: Grant) -> AnswerResult {
    let outcome = Some(AcquireOutcome::Granted(grant));
    AnswerResult::Acquire(AcquireResponse { outcome, ..Default::default() })
}

fn granted() -> AnswerResult {
    granted_as(grant())
}

fn queued(request_id: u64) -> NoticeKind {
    NoticeKind::Queued(v1::Queued { request_id, position: 1 })
}

fn cancelled_with(outcome: CancelOutcome) -> AnswerResult {
    AnswerResult::Cancel(CancelResponse { outcome: Some(outcome), ..Default::default() })
}

fn status() -> Request {
    Request::Status { name: "a".into() }
}

#[test]
fn a_read_of_a_lock_is_answered_and_holds_no_acknowledgement_back() {
    let mut bench = Bench::new();
    let (id, caller) = bench.ask(status());
    assert_eq!(bench.state.requests.acked_through(), id);
    let status = v1::StatusResponse { name: "a".into(), ..Default::default() };
    bench.answer(id, AnswerResult::Status(Box::new(status.clone())));
    assert!(
        matches!(bench.reported(caller), Some(Ok(Success::Status(reported))) if *reported == status)
    );
}

/// Its caller asks by a call then.
#[test]
fn a_read_of_a_lock_is_given_up_when_the_stream_breaks_or_the_node_does_not_know_it() {
    let mut bench = Bench::new();
    let (_, caller) = bench.ask(status());
    let (acquire, _) = bench.acquire();
    bench.fail(0, Reason::InvalidFrame, false);
    assert_eq!(bench.error(caller), RequestError::NotServed);
    assert!(bench.state.requests.get(acquire).is_some(), "the others are not meant");

    let (_, caller) = bench.ask(status());
    bench.state.stream_broke();
    assert_eq!(bench.error(caller), RequestError::NotServed);
    assert!(matches!(&bench.sent()[..], [Kind::Acquire(again)] if again.request_id == acquire));
}

#[test]
fn a_grant_becomes_a_hold_that_gives_its_token() {
    let mut bench = Bench::new();
    let (_, hold) = bench.held(grant());
    assert_eq!(bench.token(&hold), Ok(5));
}

#[test]
fn a_grant_that_did_not_reach_its_caller_is_released_when_the_caller_abandons_it() {
    let mut bench = Bench::new();
    let (id, _) = bench.held(grant());
    bench.state.abandon(id);
    assert_eq!(bench.releases(), [("a".to_owned(), 5, id)]);
    assert!(bench.state.holds.is_empty());
    bench.state.abandon(id);
    assert_eq!(bench.releases(), []);
}

#[test]
fn a_grant_that_crosses_its_cancel_is_released_once_whichever_answer_comes_first() {
    for grant_comes_first in [true, false] {
        let mut bench = Bench::new();
        let (acquire, _) = bench.acquire();
        let cancel = bench.abandon(acquire);
        let too_late = cancelled_with(CancelOutcome::AlreadyGranted(grant()));
        let mut answers = vec![(acquire, granted()), (cancel, too_late)];
        if !grant_comes_first {
            answers.reverse();
        }
        for (id, result) in answers {
            bench.answer(id, result);
        }
        assert_eq!(bench.releases().len(), 1, "grant first: {grant_comes_first}");
    }
}

#[test]
fn a_cancel_in_time_settles_both_requests_and_releases_nothing() {
    let mut bench = Bench::new();
    let (acquire, _) = bench.acquire();
    let cancel = bench.abandon(acquire);
    bench.answer(cancel, cancelled_with(CancelOutcome::Cancelled(Cancelled {})));
    assert_eq!(bench.releases(), []);
    assert!(bench.state.requests.acked_through() >= cancel);
}

#[test]
fn a_hold_that_ended_is_lost_for_the_reported_reason() {
    let mut bench = Bench::new();
    let (id, hold) = bench.held(grant());
    bench.notice(holds::ended_by(v1::EndReason::MaxHold, id, "a"));
    assert_eq!(bench.token(&hold), Err(LossReason::MaxHold));
}

#[test]
fn the_end_of_the_session_reaches_holders_and_waiters() {
    let mut bench = Bench::new();
    let (_, hold) = bench.held(grant());
    let (waiting, caller) = bench.acquire();
    let verdict = bench.fail(waiting, Reason::UnknownSession, false);
    assert_eq!(verdict, Verdict::SessionLost(LossReason::SessionExpired));
    bench.state.end(LossReason::SessionExpired, true);
    assert_eq!(bench.token(&hold), Err(LossReason::SessionExpired));
    assert_eq!(bench.error(caller), RequestError::SessionLost(LossReason::SessionExpired));
}

#[test]
fn an_overloaded_node_gets_the_request_again_and_a_follower_sends_us_on() {
    let mut bench = Bench::new();
    let (id, _) = bench.acquire();
    assert_eq!(bench.fail(id, Reason::Overloaded, true), Verdict::GoOn);
    assert_eq!(bench.sent(), []);
    bench.state.stage_due_retries(bench.at(Duration::from_secs(1)));
    assert!(matches!(&bench.sent()[..], [Kind::Acquire(again)] if again.request_id == id));
    for reason in [Reason::NotLeader, Reason::OutOfSpace, Reason::AuditUnavailable] {
        assert!(matches!(bench.fail(id, reason, true), Verdict::Move { .. }), "{reason:?}");
        assert!(bench.state.requests.get(id).is_some(), "it waits for the next stream");
    }
}

#[test]
fn a_request_that_no_caller_waits_for_is_not_sent_again_for_ever() {
    let mut bench = Bench::new();
    let (acquire, _) = bench.acquire();
    let cancel = bench.abandon(acquire);
    bench.fail(acquire, Reason::TooManyUnacknowledged, true);
    bench.fail(cancel, Reason::TooManyUnacknowledged, true);
    bench.state.stage_due_retries(bench.at(Duration::from_secs(1)));
    assert!(matches!(&bench.sent()[..], [Kind::Cancel(again)] if again.request_id == cancel));
    bench.answer(cancel, cancelled_with(CancelOutcome::Cancelled(Cancelled {})));
    assert!(bench.state.requests.get(acquire).is_none());
}

#[test]
fn a_wait_that_ended_unseen_timed_out_unless_it_is_too_early_for_that() {
    let lost = RequestError::Lost(Lost { reason: LossReason::Ended });
    for (wait_ms, reported) in [(0, RequestError::TimedOut), (60_000, lost)] {
        let mut bench = Bench::new();
        let request = v1::AcquireRequest { wait_ms, ..Default::default() };
        let (id, caller) = bench.ask(Request::Acquire(request));
        bench.notice(queued(id));
        bench.state.stream_broke();
        bench.sent();
        assert_eq!(bench.fail(id, Reason::AnswerDiscarded, false), Verdict::GoOn);
        assert_eq!(bench.error(caller), reported);
        assert!(bench.state.requests.get(id).is_none());
    }
}

#[test]
fn an_answer_that_was_discarded_without_a_wait_is_told_as_it_is() {
    let mut bench = Bench::new();
    let (id, caller) = bench.acquire();
    bench.fail(id, Reason::AnswerDiscarded, false);
    let reported = bench.error(caller);
    assert!(matches!(reported, RequestError::Rejected(_)), "{reported:?}");
}

#[test]
fn the_cancel_of_a_wait_that_was_acknowledged_releases_what_was_granted_and_only_that() {
    let granted_meanwhile = CancelOutcome::AlreadyGranted(grant());
    let ended_meanwhile = CancelOutcome::AlreadyEnded(v1::AlreadyEnded {});
    for (outcome, releases) in [(granted_meanwhile, 1), (ended_meanwhile, 0)] {
        let mut bench = Bench::new();
        let (acquire, _) = bench.acquire();
        bench.notice(queued(acquire));
        let cancel = bench.abandon(acquire);
        assert_eq!(bench.state.requests.acked_through(), cancel - 1);
        bench.answer(cancel, cancelled_with(outcome));
        assert!(bench.state.requests.get(acquire).is_none());
        assert_eq!(bench.releases().len(), releases);
    }
}

#[test]
fn after_a_retry_was_told_that_its_wait_ended_the_answer_of_its_cancel_changes_nothing() {
    let mut bench = Bench::new();
    let (acquire, _) = bench.acquire();
    bench.notice(queued(acquire));
    let cancel = bench.abandon(acquire);
    bench.state.stream_broke();
    bench.sent();
    bench.fail(acquire, Reason::AnswerDiscarded, false);
    bench.answer(cancel, cancelled_with(CancelOutcome::AlreadyEnded(v1::AlreadyEnded {})));
    assert_eq!(bench.releases(), []);
    assert!(bench.state.requests.acked_through() >= cancel);
}

#[test]
fn a_frame_is_taken_in_to_its_end_and_its_strongest_verdict_counts() {
    let mut bench = Bench::new();
    let ((refused, _), (held, holder), (waiting, _)) =
        (bench.acquire(), bench.acquire(), bench.acquire());
    let not_leader =
        Failure { reason: Reason::NotLeader.into(), retryable: true, ..Default::default() };
    let moved = v1::LeaderMoved { leader: "b:2".to_owned() };
    let notice = |kind| Notice { kind: Some(kind) };
    let frame = ServerFrame {
        answers: vec![
            Answer { request_id: refused, result: Some(AnswerResult::Failure(not_leader)) },
            Answer { request_id: held, result: Some(granted()) },
        ],
        notices: vec![notice(queued(waiting)), notice(NoticeKind::LeaderMoved(moved))],
    };
    let verdict = bench.state.on_frame(bench.now, frame);
    assert!(matches!(verdict, Verdict::Move { leader, .. } if leader == "b:2"));
    let hold = bench.only(holder);
    assert_eq!(bench.token(&hold), Ok(5));
    assert!(bench.state.requests.is_waiting(waiting));
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
fn a_caller_that_times_out_is_answered_and_its_late_grant_is_released() {
    let mut bench = Bench::new();
    let (id, caller) = bench.acquire();
    let until = bench.at(TTL);
    bench.state.let_callers_go(bench.at(TTL - Duration::from_millis(1)));
    assert!(bench.reported(caller).is_none());
    assert_eq!(bench.state.callers_wait_until, Some(until));
    bench.state.let_callers_go(until);
    let reported = bench.error(caller);
    assert!(
        matches!(&reported, RequestError::Unavailable(it) if it.may_have_happened),
        "{reported:?}"
    );
    assert_eq!(bench.state.callers_wait_until, None);
    // It was granted before the caller could abandon it.
    bench.answer(id, granted());
    assert_eq!(bench.releases(), [("a".to_owned(), 5, id)]);
}

#[test]
fn caller_timeouts_close_to_each_other_are_checked_together() {
    let mut bench = Bench::new();
    let (_, first) = bench.acquire();
    bench.now = bench.at(Duration::from_millis(1));
    let (_, second) = bench.acquire();
    bench.state.let_callers_go(bench.at(TTL));
    assert!(bench.reported(first).is_some() && bench.reported(second).is_none());
    let next = bench.state.callers_wait_until.unwrap();
    assert_eq!(next, bench.at(TTL + Duration::from_millis(5)));
    bench.state.let_callers_go(next);
    assert!(bench.reported(second).is_some());
}
