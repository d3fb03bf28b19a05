//! What answers and notices change.

use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::v1;
use holdfast_proto::v1::acquire_response::Outcome as AcquireOutcome;
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::cancel_response::Outcome as CancelOutcome;
use holdfast_proto::v1::notice::Kind as NoticeKind;
use holdfast_proto::v1::{Answer, Failure, Notice, Reason, ServerFrame};

use super::Handle;
use super::request::{AcquireCall, Request};
use super::state::Session;
use crate::backoff::Backoff;
use crate::clock;
use crate::error::{AcquireError, LossReason, Lost, Rejection, RenewError};
use crate::guard::{Guard, Hold, ReleaseOutcome};
use crate::lease::{HoldId, LocalTime, LogicalTime, RenewalId, safe_end};

/// What an answer or notice means for the stream it came on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn,
    /// Take the session to another node: this one, if it is known.
    Move {
        leader: String,
        words: String,
    },
    SessionLost(LossReason),
    Closed,
}

impl Verdict {
    /// Of two verdicts of one frame, the one to act on. Of two equals it is the first, but a leader
    /// that only the second names is not ignored.
    pub(crate) fn or_stronger(self, other: Verdict) -> Verdict {
        let names_leader = |verdict: &Verdict| matches!(verdict, Verdict::Move { leader, .. } if !leader.is_empty());
        let rank = |verdict: &Verdict| match verdict {
            Verdict::GoOn => 0,
            Verdict::Move { .. } if !names_leader(verdict) => 1,
            Verdict::Move { .. } => 2,
            Verdict::SessionLost(_) => 3,
            Verdict::Closed => 4,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl Session {
    /// Takes in the whole frame, whatever its first answers say: what is dropped here is not told
    /// again.
    pub(crate) fn on_frame(&mut self, frame: ServerFrame, backoff: &mut Backoff) -> Verdict {
        let mut verdict = Verdict::GoOn;
        for answer in frame.answers {
            verdict = verdict.or_stronger(self.on_answer(answer, backoff));
        }
        for notice in frame.notices {
            verdict = verdict.or_stronger(self.on_notice(notice));
        }
        verdict
    }

    fn on_answer(&mut self, answer: Answer, backoff: &mut Backoff) -> Verdict {
        let id = answer.request_id;
        let verdict = match answer.result {
            Some(AnswerResult::Failure(failure)) => self.on_failure(id, failure, backoff),
            Some(result) => {
                self.note_time_of(id, &result);
                self.on_result(id, result)
            }
            None => {
                let words = "an answer that this version does not know".to_owned();
                self.settle(id, |request| request.reject(unknown_answer(words)));
                Verdict::GoOn
            }
        };
        // One that an overloaded node sent back is still in flight.
        if self.heartbeat == Some(id) && self.requests.get(id).is_none() {
            self.heartbeat = None;
        }
        verdict
    }

    fn on_notice(&mut self, notice: Notice) -> Verdict {
        match notice.kind {
            Some(NoticeKind::Queued(queued)) => {
                if let Some(Request::Acquire(call)) = self.requests.get_mut(queued.request_id) {
                    if let Some(on_queued) = call.on_queued.take() {
                        on_queued(queued.position);
                    }
                    self.requests.mark_waiting(queued.request_id);
                }
                Verdict::GoOn
            }
            Some(NoticeKind::HoldEnded(ended)) => {
                let reason = LossReason::of_hold(ended.reason());
                self.end_hold(HoldId(ended.acquire_request_id), reason);
                Verdict::GoOn
            }
            Some(NoticeKind::SessionEnded(ended)) => {
                Verdict::SessionLost(LossReason::of_session(ended.reason()))
            }
            Some(NoticeKind::LeaderMoved(moved)) => {
                Verdict::Move { leader: moved.leader, words: "the leader moved".to_owned() }
            }
            None => Verdict::GoOn,
        }
    }

    fn on_failure(&mut self, id: u64, failure: Failure, backoff: &mut Backoff) -> Verdict {
        match failure.reason() {
            Reason::UnknownSession => return Verdict::SessionLost(LossReason::SessionExpired),
            // A full disk too is the node's own trouble: the others may choose another leader.
            Reason::NotLeader | Reason::NoQuorum | Reason::ShuttingDown | Reason::OutOfSpace
                if failure.retryable =>
            {
                return Verdict::Move { leader: failure.leader, words: failure.message };
            }
            // The frame that carries the retry carries the mark of that time too, which is what makes
            // room if there were too many unacknowledged answers.
            _ if failure.retryable => {
                self.requests.mark_sent_back(id);
                if self.requests.get(id).is_some_and(Request::is_worth_retrying) {
                    self.retries_due.insert((Instant::now() + backoff.next_delay(), id));
                } else {
                    self.give_up(id);
                }
                return Verdict::GoOn;
            }
            Reason::AnswerDiscarded if self.requests.is_waiting(id) => {
                self.on_wait_ended_unseen(id);
                return Verdict::GoOn;
            }
            _ if matches!(self.requests.get(id), Some(Request::KeepAlive)) => {
                // A session that may not even be kept alive is better taken up anew.
                return Verdict::Move { leader: failure.leader, words: failure.message };
            }
            _ => {}
        }
        if let Some(Request::Renew { hold, .. }) = self.requests.get(id) {
            let hold = hold.id;
            if let Some(mut leases) = self.leases().filter(|_| !failure.may_have_happened) {
                leases.renewal_refused(hold, RenewalId(id));
            }
        }
        let closes = matches!(self.requests.get(id), Some(Request::Close { .. }));
        self.settle(id, |request| match (request, failure.reason()) {
            (Request::Acquire(call), Reason::GrantEnded) => {
                let lost = Lost { reason: LossReason::Ended };
                let _ = call.reply.send(Err(AcquireError::Lost(lost)));
            }
            (Request::Renew { hold, reply, .. }, Reason::NotHeld) => {
                hold.lose(LossReason::Ended);
                let _ = reply.send(Err(Lost { reason: hold.loss_or_closed() }.into()));
            }
            (request, _) => request.reject(Rejection::of(failure)),
        });
        if closes { Verdict::Closed } else { Verdict::GoOn }
    }

    /// Nobody waits for the answer any more, and the node has not carried the request out.
    fn give_up(&mut self, id: u64) {
        // Its cancel is on the way, and settles both. Until then an earlier copy may be granted.
        if !matches!(self.requests.get(id), Some(Request::Acquire(_))) {
            self.requests.settle(id);
        }
    }

    /// A wait that was acknowledged ended while there was no stream, and nothing is held by it: a
    /// grant would have been told from the hold.
    fn on_wait_ended_unseen(&mut self, id: u64) {
        let Some((request, first_sent_at)) = self.requests.settle(id) else {
            return;
        };
        self.forget_ticket(&request);
        let own_wait = request.own_wait();
        let Request::Acquire(call) = request else { return };
        let may_be_over = first_sent_at.is_none_or(|at| safe_end(at, own_wait) <= clock::now());
        let error = if may_be_over {
            AcquireError::TimedOut
        } else {
            // Too early for a timeout: it was granted, and the hold's own time is over.
            AcquireError::Lost(Lost { reason: LossReason::Ended })
        };
        let _ = call.reply.send(Err(error));
    }

    fn on_result(&mut self, id: u64, result: AnswerResult) -> Verdict {
        let Some((request, _)) = self.requests.settle(id) else {
            return Verdict::GoOn;
        };
        match (request, result) {
            (Request::Acquire(call), AnswerResult::Acquire(response)) => {
                self.on_acquired(id, call, response);
            }
            (Request::Cancel { target }, AnswerResult::Cancel(response)) => {
                self.on_cancelled(target, response);
            }
            (Request::Release { reply, .. }, AnswerResult::Release(response)) => {
                if let Some(reply) = reply {
                    let _ = reply.send(release_outcome(response.outcome()));
                }
            }
            (Request::Renew { hold, reply, .. }, AnswerResult::Renew(response)) => {
                if let Some(mut leases) = self.leases() {
                    let deadline = response.deadline_ms.map(LogicalTime);
                    leases.renewed(hold.id, RenewalId(id), deadline);
                }
                let _ = reply.send(Ok(()));
            }
            (Request::Close { reply }, AnswerResult::Close(_)) => {
                if let Some(reply) = reply {
                    let _ = reply.send(());
                }
                return Verdict::Closed;
            }
            (Request::KeepAlive, AnswerResult::KeepAlive(_)) => {}
            (request, _) => {
                let words = "an answer that does not fit its request".to_owned();
                self.forget_ticket(&request);
                request.reject(unknown_answer(words));
            }
        }
        Verdict::GoOn
    }

    fn on_acquired(&mut self, id: u64, call: AcquireCall, response: v1::AcquireResponse) {
        self.tickets.remove(&call.ticket);
        let outcome = match response.outcome {
            Some(AcquireOutcome::Granted(grant)) => match call.handle {
                Some(handle) => self.take_hold(id, grant, handle),
                None => {
                    self.release_unwanted(grant);
                    return;
                }
            },
            Some(AcquireOutcome::Busy(_)) => Err(AcquireError::Busy),
            Some(AcquireOutcome::TimedOut(_)) => Err(AcquireError::TimedOut),
            // Only this client cancels, and only when the caller is gone.
            Some(AcquireOutcome::Cancelled(_)) => Err(AcquireError::Closed),
            None => Err(AcquireError::Rejected(unknown_answer(
                "an outcome that this version does not know".to_owned(),
            ))),
        };
        // If the caller is gone by now the guard comes back here, and dropping it releases.
        let _ = call.reply.send(outcome);
    }

    fn take_hold(
        &mut self,
        id: u64,
        grant: v1::Grant,
        handle: Handle,
    ) -> Result<Guard, AcquireError> {
        let Some(leases) = self.shared_leases() else {
            return Err(AcquireError::SessionLost(LossReason::Ended));
        };
        let hold_id = HoldId(id);
        if let Some(mut leases) = self.leases() {
            leases.granted(hold_id, grant.deadline_ms.map(LogicalTime));
        }
        let hold = Arc::new(Hold::new(hold_id, self.number, grant, leases));
        self.holds.insert(hold_id, Arc::clone(&hold));
        Ok(Guard::new(hold, handle))
    }

    /// The acquire is settled here if its own answer has not come, so exactly one of the two answers
    /// leads to a release.
    fn on_cancelled(&mut self, target: u64, response: v1::CancelResponse) {
        let Some((request, _)) = self.requests.settle(target) else {
            return;
        };
        self.forget_ticket(&request);
        if let Some(CancelOutcome::AlreadyGranted(grant)) = response.outcome {
            self.release_unwanted(grant);
        }
    }

    fn release_unwanted(&mut self, grant: v1::Grant) {
        self.requests.stage(Request::Release { name: grant.name, token: grant.token, reply: None });
    }

    pub(crate) fn end_hold(&mut self, id: HoldId, reason: LossReason) {
        if let Some(hold) = self.holds.remove(&id) {
            hold.lose(reason);
        }
        if let Some(mut leases) = self.leases() {
            leases.ended(id);
        }
    }

    fn settle(&mut self, id: u64, finish: impl FnOnce(Request)) {
        if let Some((request, _)) = self.requests.settle(id) {
            self.forget_ticket(&request);
            finish(request);
        }
    }

    fn forget_ticket(&mut self, request: &Request) {
        if let Request::Acquire(call) = request {
            self.tickets.remove(&call.ticket);
        }
    }

    fn note_time_of(&mut self, id: u64, result: &AnswerResult) {
        let sent_at: Option<LocalTime> = self.requests.first_sent_at(id);
        if let (Some(sent_at), Some(time)) = (sent_at, logical_time_of(result))
            && let Some(mut leases) = self.leases()
        {
            leases.answered(sent_at, time);
        }
    }
}

fn logical_time_of(result: &AnswerResult) -> Option<LogicalTime> {
    let ms = match result {
        AnswerResult::Open(answer) | AnswerResult::Resume(answer) => answer.logical_time_ms,
        AnswerResult::KeepAlive(answer) => answer.logical_time_ms,
        AnswerResult::Acquire(answer) => answer.logical_time_ms,
        AnswerResult::Cancel(answer) => answer.logical_time_ms,
        AnswerResult::Release(answer) => answer.logical_time_ms,
        AnswerResult::Renew(answer) => answer.logical_time_ms,
        AnswerResult::Close(_) | AnswerResult::Failure(_) => return None,
    };
    Some(LogicalTime(ms))
}

fn release_outcome(outcome: v1::ReleaseOutcome) -> Result<ReleaseOutcome, Rejection> {
    ReleaseOutcome::from_wire(outcome)
        .ok_or_else(|| unknown_answer("an outcome that this version does not know".to_owned()))
}

fn unknown_answer(words: String) -> Rejection {
    Rejection { reason: Reason::Unspecified, message: words, may_have_happened: true }
}

impl From<Rejection> for RenewError {
    fn from(rejection: Rejection) -> RenewError {
        RenewError::Rejected(rejection)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use holdfast_proto::v1::{AcquireResponse, CancelResponse, Cancelled, Grant, HoldEnded};
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::session::{Command, Ticket, Trouble};

    type AcquireReply = oneshot::Receiver<Result<Guard, AcquireError>>;

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
            let welcome = v1::OpenSessionResponse { ttl_ms: 30_000, ..Default::default() };
            session.welcomed(clock::now(), &welcome);
            let (commands, inbox) = mpsc::unbounded_channel();
            let handle = Handle {
                commands,
                request_timeout: ttl,
                trouble: Trouble::default(),
                tickets: Arc::default(),
            };
            Bench { session, backoff: Backoff::new(), handle, inbox }
        }

        /// An acquire that is on the wire.
        fn acquire(&mut self) -> (u64, AcquireReply) {
            let (reply, answer) = oneshot::channel();
            let id = self.session.requests.stage(Request::Acquire(AcquireCall {
                request: v1::AcquireRequest::default(),
                ticket: Ticket(0),
                reply,
                on_queued: None,
                was_sent: Arc::new(AtomicBool::new(true)),
                handle: Some(self.handle.clone()),
            }));
            self.send_all();
            (id, answer)
        }

        /// Its caller is gone, and the cancel is on the wire.
        fn abandon(&mut self, target: u64) -> u64 {
            if let Some(Request::Acquire(call)) = self.session.requests.get_mut(target) {
                call.abandon();
            }
            let id = self.session.requests.stage(Request::Cancel { target });
            self.send_all();
            id
        }

        fn send_all(&mut self) {
            for id in self.session.requests.take_staged(100) {
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
            let staged = self.session.requests.take_staged(100);
            let is_release = |id: &&u64| {
                matches!(self.session.requests.get(**id), Some(Request::Release { .. }))
            };
            staged.iter().filter(is_release).count()
        }
    }

    fn grant() -> Grant {
        Grant { name: "a".into(), token: 5, ..Default::default() }
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
    fn a_grant_becomes_a_guard_that_hands_out_its_token() {
        let mut bench = Bench::new();
        let (id, mut answer) = bench.acquire();
        assert_eq!(bench.answer(id, granted()), Verdict::GoOn);
        let guard = answer.try_recv().unwrap().unwrap();
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
        let guard = answer.try_recv().unwrap().unwrap();
        let ended = HoldEnded {
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
        let guard = held_answer.try_recv().unwrap().unwrap();
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
        assert_eq!(bench.session.requests.take_staged(10), [id]);
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
        assert_eq!(bench.session.requests.take_staged(10), [cancel]);
        assert_eq!(bench.session.requests.earliest_answer_due(), None);
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
                call.request.wait_ms = wait_ms;
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
        assert_eq!(held_answer.try_recv().unwrap().unwrap().token(), Ok(5));
        assert!(bench.session.requests.is_waiting(waiting));
    }

    #[test]
    fn the_end_of_the_session_outweighs_a_move_and_a_close_that_was_asked_for_outweighs_both() {
        let nowhere = Verdict::Move { leader: String::new(), words: String::new() };
        let leader = Verdict::Move { leader: "a:1".to_owned(), words: String::new() };
        let lost = Verdict::SessionLost(LossReason::SessionExpired);
        let by_strength = [Verdict::GoOn, nowhere, leader, lost, Verdict::Closed];
        for (weak, strong) in by_strength.iter().zip(&by_strength[1..]) {
            assert_eq!(weak.clone().or_stronger(strong.clone()), *strong);
            assert_eq!(strong.clone().or_stronger(weak.clone()), *strong);
        }
    }
}
