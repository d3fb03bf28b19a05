//! What answers and notices change.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::v1::acquire_response::Outcome as AcquireOutcome;
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::cancel_response::Outcome as CancelOutcome;
use holdfast_proto::v1::notice::Kind as NoticeKind;
use holdfast_proto::v1::{Answer, Failure, Notice, Reason, ServerFrame};
use holdfast_proto::{Guarantee, v1};

use super::convert::converted;
use super::output::{Output, Queued};
use super::request::{Operation, Outcome, Request, Success};
use super::state::State;
use crate::backoff::Backoff;
use crate::error::{Cycle, LossReason, Lost, Rejection, RequestError, Since, retry_after};
use crate::hold::{Hold, HoldKey, ReleaseOutcome};
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
            // What an answer was refused with; a notice in the same frame tells more.
            Verdict::SessionLost(LossReason::SessionExpired) => 3,
            Verdict::SessionLost(_) => 4,
            Verdict::Closed => 5,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl<C> State<C> {
    /// Takes in the whole frame, whatever its first answers say: what is dropped here is not told
    /// again.
    pub(crate) fn on_frame(&mut self, now: LocalTime, frame: ServerFrame) -> Verdict {
        let mut verdict = Verdict::GoOn;
        for answer in frame.answers {
            verdict = verdict.or_stronger(self.on_answer(now, answer));
        }
        for notice in frame.notices {
            verdict = verdict.or_stronger(self.on_notice(notice));
        }
        verdict
    }

    fn on_answer(&mut self, now: LocalTime, answer: Answer) -> Verdict {
        let id = answer.request_id;
        let verdict = match answer.result {
            Some(AnswerResult::Failure(failure)) => {
                #[cfg(feature = "planted")]
                self.trust_failure(now);
                self.on_failure(now, id, failure)
            }
            Some(result) => {
                let sent_at = self.requests.first_sent_at(id);
                #[cfg(feature = "planted")]
                let sent_at = crate::planted::Bug::LeaseFromAnswer.instead(sent_at, Some(now));
                self.note_time_of(id, sent_at, &result);
                self.on_result(id, result)
            }
            None => {
                let words = "an answer that this version does not know".to_owned();
                self.settle(id, Err(RequestError::Rejected(Rejection::unknown(words))));
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
            Some(NoticeKind::Queued(v1::Queued { request_id, position })) => {
                // The answer to a convert is not found again by what it holds: it stays unacknowledged.
                let entry =
                    self.requests.get(request_id).filter(|entry| entry.operation.is_acquire());
                if let Some(call) = entry.map(|entry| entry.call) {
                    self.outputs.push_back(Output::Queued(Queued { call, position }));
                    self.requests.mark_waiting(request_id);
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
                self.announced_endpoints = Some(changed.endpoints);
                Verdict::GoOn
            }
            None => Verdict::GoOn,
        }
    }

    fn on_failure(&mut self, now: LocalTime, id: u64, mut failure: Failure) -> Verdict {
        // A node denies a request without asking whether an earlier copy of it was carried out.
        let is_denied_copy = is_denial(failure.reason()) && self.requests.was_sent_before(id);
        failure.may_have_happened |= is_denied_copy;
        self.ignore_other_leader(&mut failure);
        self.note_map_epoch(failure.map_epoch);
        let operation = self.requests.get(id).map(|entry| &entry.operation);
        match failure.reason() {
            // An older node does not know what it was asked, nor under which id. Callers who looked at a lock ask by
            // calls.
            Reason::InvalidFrame if id == 0 => {
                self.give_up_status_requests();
                return Verdict::GoOn;
            }
            Reason::UnknownSession => return Verdict::SessionLost(LossReason::SessionExpired),
            // A full disk too is the node's own trouble: the others may choose another leader.
            Reason::NotLeader
            | Reason::NoQuorum
            | Reason::ShuttingDown
            | Reason::OutOfSpace
            | Reason::AuditUnavailable
                if failure.retryable =>
            {
                return Verdict::Move { leader: failure.leader, words: failure.message };
            }
            // The frame that carries the retry carries the mark of that time too, which is what makes
            // room if there were too many unacknowledged answers.
            _ if failure.retryable => {
                let retry_after = retry_after(&failure);
                if retry_after.is_none_or(|told| self.may_wait(now, id, told)) {
                    self.on_sent_back(now, id, retry_after);
                    return Verdict::GoOn;
                }
            }
            Reason::AnswerDiscarded if self.requests.is_waiting(id) => {
                self.on_wait_ended_unseen(now, id);
                return Verdict::GoOn;
            }
            // A session that may not even be kept alive is better resumed elsewhere.
            _ if matches!(operation, Some(Operation::Heartbeat)) => {
                return Verdict::Move { leader: failure.leader, words: failure.message };
            }
            _ => {}
        }
        let closes = matches!(operation, Some(Operation::Close));
        if is_denied_copy && operation.is_some_and(Operation::can_be_cancelled) {
            self.cancel_denied_copy(id, failure);
            return Verdict::GoOn;
        }
        if let Some(hold) = self.hold_gone(id, failure.reason()) {
            self.end_hold(hold.key.acquire, &hold.name, LossReason::Ended);
            // Its guard may be gone, and the session knows it no more.
            hold.end(LossReason::Ended);
            let lost = RequestError::Lost(Lost { reason: hold.loss_or_closed() });
            self.settle(id, Err(lost));
            return Verdict::GoOn;
        }
        let outcome = match operation {
            // Refused or not, the client is done with its session.
            Some(Operation::Close) => Ok(Success::Closed),
            Some(Operation::OfProgram(request)) => self.refused(id, request, failure),
            _ => Err(RequestError::Rejected(Rejection::of(failure))),
        };
        self.settle(id, outcome);
        if closes { Verdict::Closed } else { Verdict::GoOn }
    }

    /// The caller gets the denial. A cancel finds out what became of the earlier copy: every client may cancel. Its
    /// answer settles the request, and what was granted is released.
    fn cancel_denied_copy(&mut self, id: u64, failure: Failure) {
        let Some(entry) = self.requests.get_mut(id).filter(|entry| !entry.is_abandoned) else {
            return;
        };
        let caller = entry.caller.take();
        entry.is_abandoned = true;
        let tier = entry.operation.tier();
        self.stage_own(Operation::Cancel { target: id, tier });
        self.complete(caller, Err(RequestError::Rejected(Rejection::of(failure))));
    }

    /// The hold that is no more, if the refusal of a request says so.
    fn hold_gone(&self, id: u64, reason: Reason) -> Option<Arc<Hold>> {
        let Operation::OfProgram(request) = &self.requests.get(id)?.operation else { return None };
        match (request, reason) {
            (Request::Renew { hold, .. } | Request::Proclaim { hold, .. }, Reason::NotHeld)
            | (Request::Transfer { hold, .. }, Reason::NotHeld)
            | (Request::Convert { hold, .. }, Reason::NotHeld | Reason::GrantEnded) => {
                Some(Arc::clone(hold))
            }
            _ => None,
        }
    }

    /// What the refusal of a request changes, and what its caller is told.
    fn refused(&self, id: u64, request: &Request, failure: Failure) -> Outcome {
        match (request, failure.reason()) {
            (Request::Acquire(_) | Request::AcquireAll(_), Reason::GrantEnded) => {
                return Err(RequestError::Lost(Lost { reason: LossReason::Ended }));
            }
            (Request::Transfer { hold, .. }, Reason::NoSuchWaiter) => {
                hold.set_leaving(false);
                return Err(RequestError::NoSuchWaiter);
            }
            // If it may have been done, the guard stays without a token.
            (Request::Transfer { hold, .. }, _) => hold.set_leaving(failure.may_have_happened),
            (Request::Renew { hold, .. }, _) if !failure.may_have_happened => {
                if let Some(mut leases) = self.leases() {
                    leases.renewal_refused(hold.lease, RenewalId(id));
                }
            }
            _ => {}
        }
        Err(RequestError::Rejected(Rejection::of(failure)))
    }

    /// Whether the caller still waits when the request may be sent again, or must, because the request may have been
    /// carried out.
    fn may_wait(&self, now: LocalTime, id: u64, told: Duration) -> bool {
        if self.requests.was_sent_before(id) {
            return true;
        }
        let caller = self.requests.get(id).and_then(|entry| entry.caller.as_ref());
        if caller.is_some() && !self.waits_for_rates {
            return false;
        }
        caller.is_none_or(|caller| now.0 + Backoff::longest_after(told) < caller.waits_until.0)
    }

    /// The node did not carry it out, and it is to be sent again.
    fn on_sent_back(&mut self, now: LocalTime, id: u64, retry_after: Option<Duration>) {
        self.requests.mark_sent_back(id);
        let Some(entry) = self.requests.get(id) else { return };
        if entry.is_worth_retrying() {
            let due = LocalTime(now.0 + self.backoff.delay_after(retry_after));
            self.retries_due.insert((due, id));
        } else if !entry.is_abandoned {
            self.requests.settle(id);
        }
        // The cancel of an abandoned one is on the way, and settles both. Until then an earlier copy may be granted.
    }

    /// A wait that was acknowledged ended while there was no stream, and nothing is held by it: a
    /// grant would have been told from the hold.
    fn on_wait_ended_unseen(&mut self, now: LocalTime, id: u64) {
        let Some((entry, first_sent_at)) = self.requests.settle(id) else { return };
        let own_wait = entry.operation.own_wait();
        let may_be_over = first_sent_at.is_none_or(|at| safe_end(at, own_wait) <= now);
        let error = match may_be_over {
            true => RequestError::TimedOut,
            // Too early for a timeout: it was granted, and the hold's own time is over.
            false => RequestError::Lost(Lost { reason: LossReason::Ended }),
        };
        self.complete(entry.caller, Err(error));
    }

    fn on_result(&mut self, id: u64, result: AnswerResult) -> Verdict {
        let Some((entry, _)) = self.requests.settle(id) else { return Verdict::GoOn };
        let outcome = match (&entry.operation, result) {
            (Operation::OfProgram(request), AnswerResult::Acquire(response)) => match request {
                Request::Convert { hold, .. } => converted(hold, response),
                request => {
                    // A caller that is gone gets no guard, and nothing would ever release the locks.
                    let is_wanted = entry.caller.is_some() && !entry.is_abandoned;
                    self.acquired(id, entry.call, request, response, is_wanted)
                }
            },
            (Operation::Cancel { target, .. }, AnswerResult::Cancel(response)) => {
                self.on_cancelled(*target, response);
                return Verdict::GoOn;
            }
            (
                Operation::OfProgram(Request::Release { .. }) | Operation::GiveBack(_),
                AnswerResult::Release(response),
            ) => match ReleaseOutcome::from_wire(response.outcome()) {
                Some(outcome) => Ok(Success::Released(outcome)),
                None => Err(RequestError::Rejected(Rejection::unknown_outcome())),
            },
            (Operation::OfProgram(Request::Renew { hold, .. }), AnswerResult::Renew(response)) => {
                if let Some(mut leases) = self.leases() {
                    let deadline = response.deadline_ms.map(LogicalTime);
                    leases.renewed(hold.lease, RenewalId(id), deadline);
                }
                Ok(Success::Renewed)
            }
            (Operation::OfProgram(Request::Proclaim { .. }), AnswerResult::Proclaim(_)) => {
                Ok(Success::Proclaimed)
            }
            (
                Operation::OfProgram(Request::Transfer { hold, .. }),
                AnswerResult::Transfer(response),
            ) => {
                self.end_hold(hold.key.acquire, &hold.name, LossReason::Transferred);
                Ok(Success::Transferred(response.token))
            }
            (Operation::OfProgram(Request::Status { .. }), AnswerResult::Status(response)) => {
                Ok(Success::Status(response))
            }
            (Operation::Close, AnswerResult::Close(_)) => {
                self.complete(entry.caller, Ok(Success::Closed));
                return Verdict::Closed;
            }
            (Operation::Heartbeat, AnswerResult::KeepAlive(_)) => return Verdict::GoOn,
            _ => {
                let words = "an answer that does not fit its request".to_owned();
                Err(RequestError::Rejected(Rejection::unknown(words)))
            }
        };
        self.note_settled(&entry.operation);
        self.complete(entry.caller, outcome);
        Verdict::GoOn
    }

    fn acquired(
        &mut self,
        id: u64,
        call: u64,
        request: &Request,
        response: v1::AcquireResponse,
        is_wanted: bool,
    ) -> Outcome {
        let at = LogicalTime(response.logical_time_ms);
        let grants = match response.outcome {
            Some(AcquireOutcome::Granted(grant)) => vec![grant],
            Some(AcquireOutcome::AllGranted(all)) => all.grants,
            Some(AcquireOutcome::Busy(_)) => return Err(RequestError::Busy),
            Some(AcquireOutcome::TimedOut(_)) => return Err(RequestError::TimedOut),
            Some(AcquireOutcome::Deadlock(deadlock)) => {
                return Err(RequestError::Deadlock(Cycle::of(deadlock)));
            }
            Some(AcquireOutcome::Died(died)) => {
                return Err(RequestError::Died { since: Since(died.since_ms) });
            }
            // Only this client cancels, and only when the caller is gone.
            Some(AcquireOutcome::Cancelled(_)) => return Err(RequestError::Closed),
            None => return Err(RequestError::Rejected(Rejection::unknown_outcome())),
        };
        if !is_wanted {
            self.give_back(id, grants);
            return Err(RequestError::Closed);
        }
        self.take_holds(id, call, request, grants, at).map(Success::Granted)
    }

    /// The request is settled here if its own answer has not come, so exactly one of the two answers
    /// leads to a release.
    fn on_cancelled(&mut self, target: u64, response: v1::CancelResponse) {
        let Some((entry, _)) = self.requests.settle(target) else { return };
        let grants = match response.outcome {
            Some(CancelOutcome::AlreadyGranted(grant)) => vec![grant],
            Some(CancelOutcome::AllAlreadyGranted(all)) => all.grants,
            _ => Vec::new(),
        };
        match &entry.operation {
            // The hold is the guard's, whether it was converted or not.
            Operation::OfProgram(Request::Convert { hold, .. }) => {
                grants.iter().for_each(|grant| hold.convert(grant));
            }
            operation if operation.is_acquire() => self.give_back(target, grants),
            _ => {}
        }
        self.note_settled(&entry.operation);
    }

    /// Releases what was granted and is not wanted.
    fn give_back(&mut self, id: u64, grants: Vec<v1::Grant>) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AbandonedGrantKept.is_active() {
            return;
        }
        for grant in grants {
            let acquire_request_id = acquire_of(id, &grant);
            let tier = Tier::of(guarantee_of(&grant)).to_wire().into();
            let v1::Grant { name, token, .. } = grant;
            self.stage_own(Operation::GiveBack(v1::ReleaseRequest {
                name,
                token,
                acquire_request_id,
                tier,
                ..Default::default()
            }));
        }
    }

    /// The guards that entered a hold several times lose it together.
    fn end_hold(&mut self, acquire: u64, name: &str, reason: LossReason) {
        let range = HoldKey::range_of(acquire);
        #[cfg(feature = "planted")]
        let range =
            crate::planted::Bug::NoticeEndsNewerHold.instead(range, HoldKey::range_of_all());
        let meant = self.holds.range(range).filter(|(_, hold)| hold.name == name);
        let meant = meant.map(|(_, hold)| Arc::clone(hold)).collect();
        self.end_holds(meant, reason);
    }

    /// What was lost while no notice could come. Readers have one token together, so of a shared hold the acquire is
    /// told as well; older nodes tell the token only (`acquire` is 0), which does not say which of them is meant.
    fn end_lost(&mut self, token: u64, acquire: u64) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ResumeLosesLoss.is_active() {
            return;
        }
        let is_meant = |hold: &&Arc<Hold>| {
            let is_shared = hold.mode() == v1::Mode::Shared;
            hold.last_token() == token
                && (if is_shared { hold.key.acquire == acquire } else { acquire == 0 })
                && hold.guarantee == Guarantee::Linearizable
        };
        let meant = self.holds.values().filter(is_meant).cloned().collect();
        self.end_holds(meant, LossReason::Ended);
    }

    pub(super) fn end_holds(&mut self, ended: Vec<Arc<Hold>>, reason: LossReason) {
        for hold in ended {
            hold.end(reason);
            self.forget_hold(&hold);
        }
    }

    /// Takes a request out, and tells its caller.
    pub(super) fn settle(&mut self, id: u64, outcome: Outcome) {
        if let Some((entry, _)) = self.requests.settle(id) {
            self.note_settled(&entry.operation);
            self.complete(entry.caller, outcome);
        }
    }

    pub(super) fn note_settled(&mut self, operation: &Operation) {
        match operation {
            Operation::OfProgram(Request::Convert { hold, .. }) => self.stop_converting(hold),
            Operation::OfProgram(Request::Release { hold }) => self.end_release(hold),
            _ => {}
        }
    }

    /// A mistake: what was refused does not keep a session alive.
    #[cfg(feature = "planted")]
    pub(crate) fn trust_failure(&mut self, now: LocalTime) {
        if crate::planted::Bug::FailureIsSample.is_active()
            && let Some(mut leases) = self.leases()
        {
            leases.answered(now, LogicalTime(0));
        }
    }

    fn note_time_of(&mut self, id: u64, sent_at: Option<LocalTime>, result: &AnswerResult) {
        let Some(tier) = self.requests.get(id).map(|entry| entry.operation.tier()) else { return };
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

/// Of a node, which knows the caller but not the history of the request.
pub(super) fn is_denial(reason: Reason) -> bool {
    matches!(reason, Reason::PermissionDenied | Reason::Unauthenticated | Reason::CredentialExpired)
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
        AnswerResult::Renew(answer) => answer.logical_time_ms,
        AnswerResult::Proclaim(answer) => answer.logical_time_ms,
        AnswerResult::Transfer(answer) => answer.logical_time_ms,
        // A session whose principal was revoked may still give up what it has, and that does not keep it alive.
        AnswerResult::Cancel(_) | AnswerResult::Release(_) => return None,
        // The time of a read is in no entry of the log: no lease is measured by it.
        AnswerResult::Status(_) | AnswerResult::Close(_) | AnswerResult::Failure(_) => return None,
    };
    Some(LogicalTime(ms))
}

#[cfg(test)]
mod tests;
