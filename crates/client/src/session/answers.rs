//! What answers and notices change.

use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::v1::acquire_response::Outcome as AcquireOutcome;
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::cancel_response::Outcome as CancelOutcome;
use holdfast_proto::v1::notice::Kind as NoticeKind;
use holdfast_proto::v1::{Answer, Failure, Notice, Reason, ServerFrame};
use holdfast_proto::{Guarantee, v1};

use super::request::{AcquireCall, Request};
use super::state::Session;
use crate::backoff::Backoff;
use crate::clock;
use crate::error::{AcquireError, Cycle, LossReason, Lost, Rejection, Since, TransferError};
use crate::guard::ReleaseOutcome;
use crate::hold::Hold;
use crate::lease::{LocalTime, LogicalTime, RenewalId, safe_end};
use crate::tier::{Tier, guarantee_of};

mod grant;

/// What an answer or notice means for the stream it came on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn,
    /// Take the session to another node: this one, if it is known.
    Move {
        leader: String,
        words: String,
    },
    /// Take the session to the leader: there is a connection to it.
    Approach,
    SessionLost(LossReason),
    Closed,
}

impl Verdict {
    /// Of two verdicts of one frame, the one to act on. Of two equals it is the first, but a leader
    /// that only the second names is not ignored.
    pub(crate) fn or_stronger(self, other: Verdict) -> Verdict {
        let names_leader = |verdict: &Verdict| matches!(verdict, Verdict::Move { leader, .. } if !leader.is_empty());
        let rank = |verdict: &Verdict| match verdict {
            Verdict::GoOn | Verdict::Approach => 0,
            Verdict::Move { .. } if !names_leader(verdict) => 1,
            Verdict::Move { .. } => 2,
            // What an answer was refused with; a notice in the same frame tells more.
            Verdict::SessionLost(LossReason::SessionExpired) => 3,
            Verdict::SessionLost(_) => 4,
            Verdict::Closed => 5,
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
                // The answer to a convert is not found again by what it holds: it stays unacknowledged.
                if let Some(Request::Acquire(call)) = self.requests.get_mut(queued.request_id) {
                    if let Some(on_queued) = call.on_queued.take() {
                        on_queued(queued.position);
                    }
                    self.requests.mark_waiting(queued.request_id);
                }
                Verdict::GoOn
            }
            Some(NoticeKind::HoldEnded(ended)) if ended.name.is_empty() => {
                self.end_lost(ended.token, ended.acquire_request_id);
                Verdict::GoOn
            }
            Some(NoticeKind::HoldEnded(ended)) => {
                let reason = LossReason::of_hold(ended.reason());
                self.end_hold(ended.acquire_request_id, &ended.name, reason);
                Verdict::GoOn
            }
            Some(NoticeKind::SessionEnded(ended)) => {
                Verdict::SessionLost(LossReason::of_session(ended.reason()))
            }
            Some(NoticeKind::LeaderMoved(moved)) => {
                if !moved.leader.is_empty() {
                    self.leader_lost(LossReason::LeaderChanged);
                }
                Verdict::Move { leader: moved.leader, words: "the leader moved".to_owned() }
            }
            Some(NoticeKind::MembersChanged(changed)) => {
                self.endpoints_told = Some(changed.endpoints);
                Verdict::GoOn
            }
            None => Verdict::GoOn,
        }
    }

    fn on_failure(&mut self, id: u64, failure: Failure, backoff: &mut Backoff) -> Verdict {
        match failure.reason() {
            // An older node does not know what it was asked, nor under which id. Those who looked ask by calls.
            Reason::InvalidFrame if id == 0 => {
                self.requests.retain(|request| !matches!(request, Request::Status { .. }));
                return Verdict::GoOn;
            }
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
            let hold = hold.lease;
            if let Some(mut leases) = self.leases().filter(|_| !failure.may_have_happened) {
                leases.renewal_refused(hold, RenewalId(id));
            }
        }
        let closes = matches!(self.requests.get(id), Some(Request::Close { .. }));
        self.settle(id, |request| match (request, failure.reason()) {
            (Request::Acquire(call), Reason::GrantEnded) => {
                let lost = Lost { reason: LossReason::Ended };
                call.reply.send(Err(AcquireError::Lost(lost)));
            }
            (Request::Renew { hold, reply, .. }, Reason::NotHeld) => {
                hold.end(LossReason::Ended);
                let _ = reply.send(Err(Lost { reason: hold.loss_or_closed() }.into()));
            }
            (Request::Proclaim { hold, reply, .. }, Reason::NotHeld) => {
                hold.end(LossReason::Ended);
                let _ = reply.send(Err(Lost { reason: hold.loss_or_closed() }.into()));
            }
            (Request::Transfer { hold, reply, .. }, Reason::NotHeld) => {
                hold.end(LossReason::Ended);
                let _ = reply.send(Err(Lost { reason: hold.loss_or_closed() }.into()));
            }
            (Request::Transfer { hold, reply, .. }, Reason::NoSuchWaiter) => {
                hold.set_leaving(false);
                let _ = reply.send(Err(TransferError::NoSuchWaiter));
            }
            (Request::Convert(call), Reason::NotHeld | Reason::GrantEnded) => {
                call.hold.end(LossReason::Ended);
                let reason = call.hold.loss_or_closed();
                let _ = call.reply.send(Err(Lost { reason }.into()));
            }
            (request, _) => request.reject(Rejection::of(failure)),
        });
        if closes { Verdict::Closed } else { Verdict::GoOn }
    }

    /// Nobody waits for the answer any more, and the node has not carried the request out.
    fn give_up(&mut self, id: u64) {
        // Its cancel is on the way, and settles both. Until then an earlier copy may be granted.
        if !self.requests.get(id).is_some_and(Request::is_abandoned) {
            self.requests.settle(id);
        }
    }

    /// A wait that was acknowledged ended while there was no stream, and nothing is held by it: a
    /// grant would have been told from the hold.
    fn on_wait_ended_unseen(&mut self, id: u64) {
        let Some((request, first_sent_at)) = self.requests.settle(id) else {
            return;
        };
        self.note_settled(&request);
        let own_wait = request.own_wait();
        let Request::Acquire(call) = request else { return };
        let may_be_over = first_sent_at.is_none_or(|at| safe_end(at, own_wait) <= clock::now());
        let error = if may_be_over {
            AcquireError::TimedOut
        } else {
            // Too early for a timeout: it was granted, and the hold's own time is over.
            AcquireError::Lost(Lost { reason: LossReason::Ended })
        };
        call.reply.send(Err(error));
    }

    fn on_result(&mut self, id: u64, result: AnswerResult) -> Verdict {
        let Some((request, _)) = self.requests.settle(id) else {
            return Verdict::GoOn;
        };
        match (request, result) {
            (Request::Acquire(call), AnswerResult::Acquire(response)) => {
                self.on_acquired(id, call, response);
            }
            (Request::Convert(call), AnswerResult::Acquire(response)) => {
                self.on_converted(call, response);
            }
            (Request::Cancel { target, .. }, AnswerResult::Cancel(response)) => {
                self.on_cancelled(target, response);
            }
            (Request::Release { reply, .. }, AnswerResult::Release(response)) => {
                if let Some(reply) = reply {
                    reply.send(release_outcome(response.outcome()));
                }
            }
            (Request::Renew { hold, reply, .. }, AnswerResult::Renew(response)) => {
                if let Some(mut leases) = self.leases() {
                    let deadline = response.deadline_ms.map(LogicalTime);
                    leases.renewed(hold.lease, RenewalId(id), deadline);
                }
                let _ = reply.send(Ok(()));
            }
            (Request::Proclaim { reply, .. }, AnswerResult::Proclaim(_)) => {
                let _ = reply.send(Ok(()));
            }
            (Request::Transfer { hold, reply, .. }, AnswerResult::Transfer(response)) => {
                self.end_hold(hold.key.acquire, &hold.name, LossReason::Transferred);
                let _ = reply.send(Ok(response.token));
            }
            (Request::Status { reply, .. }, AnswerResult::Status(response)) => {
                let _ = reply.send(Ok(*response));
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
                self.note_settled(&request);
                request.reject(unknown_answer(words));
            }
        }
        Verdict::GoOn
    }

    fn on_acquired(&mut self, id: u64, call: Box<AcquireCall>, response: v1::AcquireResponse) {
        let at = LogicalTime(response.logical_time_ms);
        let outcome = match response.outcome {
            Some(AcquireOutcome::Granted(grant)) => self.take_only_hold(id, &call, grant, at),
            Some(AcquireOutcome::AllGranted(all)) => self.take_holds(id, &call, all.grants, at),
            Some(AcquireOutcome::Busy(_)) => Err(AcquireError::Busy),
            Some(AcquireOutcome::TimedOut(_)) => Err(AcquireError::TimedOut),
            Some(AcquireOutcome::Deadlock(deadlock)) => {
                Err(AcquireError::Deadlock(Cycle::of(deadlock)))
            }
            Some(AcquireOutcome::Died(died)) => {
                Err(AcquireError::Died { since: Since(died.since_ms) })
            }
            // Only this client cancels, and only when the caller is gone.
            Some(AcquireOutcome::Cancelled(_)) => Err(AcquireError::Closed),
            None => Err(AcquireError::Rejected(unknown_outcome())),
        };
        // If the caller is gone by now the guards come back here, and dropping them releases.
        call.reply.send(outcome);
    }

    /// The request is settled here if its own answer has not come, so exactly one of the two answers
    /// leads to a release.
    fn on_cancelled(&mut self, target: u64, response: v1::CancelResponse) {
        let Some((request, _)) = self.requests.settle(target) else {
            return;
        };
        let grants = match response.outcome {
            Some(CancelOutcome::AlreadyGranted(grant)) => vec![grant],
            Some(CancelOutcome::AllAlreadyGranted(all)) => all.grants,
            _ => Vec::new(),
        };
        match &request {
            // The hold is the guard's, whether it was converted or not.
            Request::Convert(call) => grants.iter().for_each(|grant| call.hold.convert(grant)),
            Request::Acquire(_) => self.release_unwanted(target, grants),
            _ => {}
        }
        self.note_settled(&request);
    }

    fn release_unwanted(&mut self, id: u64, grants: Vec<v1::Grant>) {
        for grant in grants {
            let acquire = acquire_of(id, &grant);
            let tier = Tier::of(guarantee_of(&grant)).to_wire().into();
            let request = v1::ReleaseRequest {
                name: grant.name,
                token: grant.token,
                acquire_request_id: acquire,
                tier,
                ..Default::default()
            };
            self.requests.stage(Request::Release { request, reply: None });
        }
    }

    /// The guards that entered a hold several times lose it together.
    fn end_hold(&mut self, acquire: u64, name: &str, reason: LossReason) {
        let ended: Vec<_> =
            self.holds_of(acquire).filter(|hold| hold.name == name).map(Arc::clone).collect();
        for hold in ended {
            hold.end(reason);
            self.forget_hold(&hold);
        }
    }

    /// What was lost while no notice could come. Readers have one token together, so of a shared hold the acquire is
    /// told as well; older nodes tell the token only (`acquire` is 0), which does not say which of them is meant.
    fn end_lost(&mut self, token: u64, acquire: u64) {
        let is_meant = |hold: &&Arc<Hold>| {
            let is_shared = hold.mode() == v1::Mode::Shared;
            hold.token() == token
                && (if is_shared { hold.key.acquire == acquire } else { acquire == 0 })
                && hold.guarantee == Guarantee::Linearizable
        };
        for hold in self.holds.values().filter(is_meant).cloned().collect::<Vec<_>>() {
            hold.end(LossReason::Ended);
            self.forget_hold(&hold);
        }
    }

    fn settle(&mut self, id: u64, finish: impl FnOnce(Request)) {
        if let Some((request, _)) = self.requests.settle(id) {
            self.note_settled(&request);
            finish(request);
        }
    }

    fn note_settled(&mut self, request: &Request) {
        if let Request::Convert(call) = request {
            self.stop_converting(&call.hold);
        }
    }

    fn note_time_of(&mut self, id: u64, result: &AnswerResult) {
        let sent_at: Option<LocalTime> = self.requests.first_sent_at(id);
        let Some(tier) = self.requests.get(id).map(Request::tier) else { return };
        if let (Some(sent_at), Some(time)) = (sent_at, logical_time_of(result))
            && let Some(mut leases) = self.leases()
        {
            match tier {
                Tier::Correctness => leases.answered(sent_at, time),
                Tier::Efficiency => leases.answered_best_effort(sent_at, time),
            }
        }
    }
}

/// By which acquire the cluster knows what was granted to this request. A node that does not say so is an
/// older one.
fn acquire_of(id: u64, grant: &v1::Grant) -> u64 {
    match grant.acquire_request_id {
        0 => id,
        acquire => acquire,
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
        AnswerResult::Proclaim(answer) => answer.logical_time_ms,
        AnswerResult::Transfer(answer) => answer.logical_time_ms,
        // The time of a read is in no entry of the log: no lease is measured by it.
        AnswerResult::Status(_) | AnswerResult::Close(_) | AnswerResult::Failure(_) => return None,
    };
    Some(LogicalTime(ms))
}

fn release_outcome(outcome: v1::ReleaseOutcome) -> Result<ReleaseOutcome, Rejection> {
    ReleaseOutcome::from_wire(outcome).ok_or_else(unknown_outcome)
}

pub(super) fn unknown_outcome() -> Rejection {
    unknown_answer("an outcome that this version does not know".to_owned())
}

fn unknown_answer(words: String) -> Rejection {
    Rejection { reason: Reason::Unspecified, message: words, may_have_happened: true }
}

#[cfg(test)]
mod tests;
