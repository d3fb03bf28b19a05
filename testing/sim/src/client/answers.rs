//! What answers and notices change.

use std::time::Duration;

use holdfast_client_core::lease::{Leases, LogicalTime, RenewalId};
use holdfast_core::{Outcome, Rejection, RequestId, SessionId};

use super::ask::Ask;
use super::session::{HoldKey, Pending, Session};
use super::{Client, Output, Seen, Timer};
use crate::history::{Output as Returned, RealTime};
use crate::message::{Answer, Notice, Refusal, ReplyTo, Told};
use crate::recorder::Recorder;

impl Client {
    pub(crate) fn receive(
        &mut self,
        now: RealTime,
        answer: Answer,
        recorder: &mut Recorder,
        outputs: &mut Vec<Output>,
    ) {
        let Answer { reply_to, what } = answer;
        let Some(mut session) = self.session.take_if(|session| session.id == reply_to.session)
        else {
            return;
        };
        let goes_on = match what {
            Told::Refused(refusal) => {
                self.refused(&session, reply_to, refusal, outputs);
                true
            }
            Told::Queued => {
                self.queued(&mut session, reply_to, outputs);
                true
            }
            Told::Status { holder, waiters, waiter } => {
                if let Some(pending) = session.pending.remove(&reply_to.request) {
                    if let Ask::Status { name } = pending.ask {
                        self.seen.insert(name, Seen { holder, waiter });
                    }
                    let output = Returned::Status { holder, waiters };
                    recorder.returned(pending.operation, now, reply_to.sent, output);
                }
                true
            }
            Told::Outcome { at, outcome, losses } => {
                match session.pending.remove(&reply_to.request) {
                    Some(pending) => {
                        #[cfg(feature = "planted")]
                        let pending = pending.counted_wrongly(now, |at| self.local(at));
                        let output = Returned::Outcome(as_recorded(&pending.ask, outcome.clone()));
                        recorder.returned(pending.operation, now, reply_to.sent, output);
                        let logical = LogicalTime(at.as_ms());
                        let is_resumed = matches!(pending.ask, Ask::Attach { .. });
                        let goes_on =
                            self.settle(&mut session, reply_to.request, pending, logical, outcome);
                        if goes_on && is_resumed {
                            session.lose_all(&losses);
                            recorder.resumed(session.id, at, session.believed_holds());
                        }
                        goes_on
                    }
                    None => true,
                }
            }
        };
        if goes_on {
            self.session = Some(session);
        }
    }

    pub(crate) fn notice(&mut self, session: SessionId, notice: &Notice) {
        let Some(ours) = self.session.as_mut().filter(|ours| ours.id == session) else { return };
        match notice {
            Notice::HoldEnded { name, acquire } => ours.lose(name, *acquire),
            Notice::SessionEnded => self.session = None,
        }
    }

    /// Asks again soon, where it was told to.
    fn refused(
        &mut self,
        session: &Session,
        reply_to: ReplyTo,
        refusal: Refusal,
        outputs: &mut Vec<Output>,
    ) {
        let Some(pending) = session.pending.get(&reply_to.request) else { return };
        if pending.last_sent != reply_to.sent {
            return;
        }
        if let Refusal::Elsewhere { leader: Some(leader) } = refusal {
            self.hint = Some(leader.0 as usize - 1);
        }
        let timer =
            Timer { session: session.id, request: reply_to.request, attempt: pending.attempt };
        outputs.push(Output::Timer { after_us: self.rng.between(20_000, 500_000), timer });
    }

    /// It waits for longer now, but not for ever: the node may be gone.
    fn queued(&mut self, session: &mut Session, reply_to: ReplyTo, outputs: &mut Vec<Output>) {
        let Some(pending) = session.pending.get_mut(&reply_to.request) else { return };
        if pending.last_sent != reply_to.sent {
            return;
        }
        pending.attempt += 1;
        let timer =
            Timer { session: session.id, request: reply_to.request, attempt: pending.attempt };
        outputs.push(Output::Timer { after_us: self.rng.between(4_000_000, 9_000_000), timer });
    }

    /// Acts on the answer of the lock table. False if the session is over.
    fn settle(
        &mut self,
        session: &mut Session,
        request: RequestId,
        pending: Pending,
        at: LogicalTime,
        outcome: Outcome,
    ) -> bool {
        match (&pending.ask, &outcome) {
            // It was not the session that asked.
            (Ask::Intervene(_), _) => return true,
            (_, Outcome::Rejected(Rejection::UnknownSession) | Outcome::SessionClosed) => {
                return false;
            }
            (_, Outcome::Rejected(_)) => {}
            _ => match &mut session.leases {
                Some(leases) => leases.answered(pending.first_sent, at),
                None => {
                    let [ttl, linger] =
                        [session.ttl, session.linger].map(|it| Duration::from_millis(it.as_ms()));
                    session.leases = Some(Leases::opened(pending.first_sent, at, ttl, linger));
                }
            },
        }
        match (pending.ask, outcome) {
            (Ask::Take(take), Outcome::Granted(grant)) => {
                let key = HoldKey(request, 0);
                session.take_hold(key, grant, take.actor, take.terms.reentrant);
            }
            (Ask::Take(take), Outcome::GrantedAll(grants)) => {
                for (grant, number) in grants.into_iter().zip(0..) {
                    session.take_hold(HoldKey(request, number), grant, take.actor, false);
                }
            }
            (Ask::Take(_), Outcome::Died { since }) => session.since = Some(since),
            (Ask::Renew { hold, .. }, Outcome::Renewed { deadline, .. }) => {
                if let Some(leases) = &mut session.leases {
                    let deadline = deadline.map(|at| LogicalTime(at.as_ms()));
                    leases.renewed(hold.key.id(), RenewalId(request.0), deadline);
                }
            }
            (Ask::Convert { hold, .. }, Outcome::Granted(grant)) => {
                if let Some(held) = session.holds.get_mut(&hold.key) {
                    (held.token, held.mode) = (grant.token, grant.mode);
                }
            }
            (Ask::Transfer { hold, .. }, Outcome::Transferred { .. })
            | (
                Ask::Convert { hold, .. } | Ask::Transfer { hold, .. },
                Outcome::Rejected(Rejection::NotHeld),
            )
            | (Ask::Renew { hold, .. }, Outcome::Rejected(_)) => session.end_hold(hold.key),
            (Ask::Transfer { hold, .. }, Outcome::Rejected(_)) => {
                if let Some(held) = session.holds.get_mut(&hold.key) {
                    held.leaving = false;
                }
            }
            _ => {}
        }
        true
    }
}

/// The history calls an attached stream a touch, and its answer too.
fn as_recorded(ask: &Ask, outcome: Outcome) -> Outcome {
    match (ask, outcome) {
        (Ask::Attach { .. }, Outcome::SessionOpen { ttl, .. }) => Outcome::Touched { ttl },
        (_, outcome) => outcome,
    }
}
