//! A session over unary calls, open in all groups of the cluster. Only its own requests keep it alive: a request about a
//! lock keeps it alive in the group of the lock.
//!
//! It keeps the rule of the client library by itself: a lock is believed in only as long as it must be
//! held, counted from when the last answered request was first sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::{FenceToken, Grant, LockName, Outcome, RequestId, SessionId};
use holdfast_proto::v1;
use holdfast_sim::history::{Input, Output, RealTime};

use super::ClientContext;
use super::calls::{Answer, Calls};
use crate::answers::{self, Known};
use crate::division::Division;
use crate::recorder::{Begun, Recorder};

#[derive(Debug)]
pub(crate) struct Session {
    calls: Calls,
    recorder: Recorder,
    id: SessionId,
    secret: String,
    public_id: String,
    ttl: Duration,
    next_request: u64,
    /// Requests that may still be repeated.
    outstanding: BTreeSet<u64>,
    division: Arc<Division>,
    /// In each group.
    alive_until: BTreeMap<u32, Instant>,
}

/// The session cannot go on: it is gone, or it is not known what became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

/// A lock that was granted.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) token: FenceToken,
    /// The end of the hold's own TTL, if it has one.
    own_end: Option<Instant>,
}

/// A request on its way.
struct Sent {
    begun: Begun,
    request_id: u64,
    acked_through: u64,
    at: Instant,
    /// The group that it is for; none for all of them.
    group: Option<u32>,
}

impl Session {
    pub(crate) async fn open(
        calls: Calls,
        context: &ClientContext,
        ttl: Duration,
    ) -> Result<Session, Over> {
        let id = holdfast_proto::SessionId::random().map_err(|_| Over)?;
        let mut session = Session {
            calls,
            recorder: context.recorder.clone(),
            id: SessionId(u128::from_be_bytes(id.to_bytes())),
            secret: id.to_secret_text(),
            public_id: id.public_id().to_string(),
            ttl,
            next_request: 1,
            outstanding: BTreeSet::new(),
            division: Arc::clone(&context.division),
            alive_until: BTreeMap::new(),
        };
        context.recorder.knows_public_id(session.public_id.clone(), session.id);
        let ttl_ms = ttl.as_millis() as u64;
        let sent = session.begin(None, Input::OpenSession { ttl_ms });
        let request = v1::OpenSessionRequest {
            session_id: session.secret.clone(),
            request_id: sent.request_id,
            ttl_ms,
            ..Default::default()
        };
        let answer = session
            .calls
            .insist(Duration::ZERO, |mut node| {
                let request = request.clone();
                async move { node.open_session(request).await }
            })
            .await;
        session.end(sent, answer, |answer| answers::opened(&answer)).map(|_| session)
    }

    pub(crate) fn public_id(&self) -> &str {
        &self.public_id
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) async fn keep_alive(&mut self) -> Result<(), Over> {
        let sent = self.begin(None, Input::Touch);
        let request = v1::KeepAliveRequest {
            session_id: self.secret.clone(),
            request_id: sent.request_id,
            acked_through: sent.acked_through,
            ..Default::default()
        };
        let answer = self
            .calls
            .insist(Duration::ZERO, |mut node| {
                let request = request.clone();
                async move { node.keep_alive(request).await }
            })
            .await;
        self.end(sent, answer, |answer| answers::kept_alive(&answer)).map(|_| ())
    }

    pub(crate) async fn close(mut self) -> Result<(), Over> {
        let sent = self.begin(None, Input::CloseSession);
        let request = v1::CloseSessionRequest {
            session_id: self.secret.clone(),
            request_id: sent.request_id,
            ..Default::default()
        };
        let answer = self
            .calls
            .insist(Duration::ZERO, |mut node| {
                let request = request.clone();
                async move { node.close_session(request).await }
            })
            .await;
        self.end(sent, answer, |_| Some(Outcome::SessionClosed)).map(|_| ())
    }

    /// None: not granted.
    pub(crate) async fn acquire(
        &mut self,
        name: &LockName,
        wait: Duration,
        ttl: Option<Duration>,
    ) -> Result<Option<Held>, Over> {
        let ttl_ms = ttl.map(|ttl| ttl.as_millis() as u64);
        let wait_ms = wait.as_millis() as u64;
        let input = Input::Acquire { name: name.clone(), wait_ms, ttl_ms, max_hold_ms: None };
        let sent = self.begin(Some(name), input);
        let request = v1::AcquireRequest {
            session_id: self.secret.clone(),
            request_id: sent.request_id,
            acked_through: sent.acked_through,
            name: name.to_string(),
            wait_ms,
            policy: v1::Policy::Wait.into(),
            ttl_ms,
            ..Default::default()
        };
        let at = sent.at;
        let answer = self
            .calls
            .insist(wait, |mut node| {
                let request = request.clone();
                async move { node.acquire(request).await }
            })
            .await;
        let outcome = self.end(sent, answer, answers::acquired)?;
        Ok(match outcome {
            Outcome::Granted(Grant { name, token, .. }) => {
                Some(Held { name, token, own_end: ttl.map(|ttl| at + trusted_part(ttl)) })
            }
            _ => None,
        })
    }

    /// Waits in line, and gives up the place after a while. Gives the lock if the cancel came too late.
    pub(crate) async fn acquire_and_cancel(
        &mut self,
        name: &LockName,
        wait: Duration,
        cancel_after: Duration,
    ) -> Result<Option<Held>, Over> {
        let wait_ms = wait.as_millis() as u64;
        let input = Input::Acquire { name: name.clone(), wait_ms, ttl_ms: None, max_hold_ms: None };
        let acquire = self.begin(Some(name), input);
        let request = v1::AcquireRequest {
            session_id: self.secret.clone(),
            request_id: acquire.request_id,
            acked_through: acquire.acked_through,
            name: name.to_string(),
            wait_ms,
            policy: v1::Policy::Wait.into(),
            ..Default::default()
        };
        let mut calls = self.calls.clone();
        let waiting = calls.insist(wait, |mut node| {
            let request = request.clone();
            async move { node.acquire(request).await }
        });
        tokio::pin!(waiting);
        if let Ok(answer) = tokio::time::timeout(cancel_after, &mut waiting).await {
            return Ok(held(self.end(acquire, answer, answers::acquired)?));
        }
        let target = acquire.request_id;
        let cancel = self.begin(Some(name), Input::Cancel { target: RequestId(target) });
        let request = v1::CancelRequest {
            session_id: self.secret.clone(),
            request_id: cancel.request_id,
            acked_through: cancel.acked_through,
            target,
            group: self.division.group_of(name.as_str()),
            ..Default::default()
        };
        let cancelling = self.calls.insist(Duration::ZERO, |mut node| {
            let request = request.clone();
            async move { node.cancel(request).await }
        });
        let (acquired, cancelled) = tokio::join!(waiting, cancelling);
        let acquired = self.end(acquire, acquired, answers::acquired);
        self.end(cancel, cancelled, answers::cancelled)?;
        Ok(held(acquired?))
    }

    pub(crate) async fn release(&mut self, held: &Held) -> Result<(), Over> {
        let input = Input::Release { name: held.name.clone(), token: held.token };
        let sent = self.begin(Some(&held.name), input);
        let request = v1::ReleaseRequest {
            session_id: self.secret.clone(),
            request_id: sent.request_id,
            acked_through: sent.acked_through,
            name: held.name.to_string(),
            token: held.token.0,
            ..Default::default()
        };
        let answer = self
            .calls
            .insist(Duration::ZERO, |mut node| {
                let request = request.clone();
                async move { node.release(request).await }
            })
            .await;
        self.end(sent, answer, |answer| answers::released(&answer)).map(|_| ())
    }

    pub(crate) async fn renew(&mut self, held: &mut Held, ttl: Duration) -> Result<(), Over> {
        let ttl_ms = Some(ttl.as_millis() as u64);
        let input = Input::Renew { name: held.name.clone(), token: held.token, ttl_ms };
        let sent = self.begin(Some(&held.name), input);
        let request = v1::RenewRequest {
            session_id: self.secret.clone(),
            request_id: sent.request_id,
            acked_through: sent.acked_through,
            name: held.name.to_string(),
            token: held.token.0,
            ttl_ms,
            ..Default::default()
        };
        let at = sent.at;
        let answer = self
            .calls
            .insist(Duration::ZERO, |mut node| {
                let request = request.clone();
                async move { node.renew(request).await }
            })
            .await;
        let outcome = self.end(sent, answer, |answer| answers::renewed(&answer))?;
        held.own_end = Some(match outcome {
            Outcome::Renewed { .. } => at + trusted_part(ttl),
            _ => at,
        });
        Ok(())
    }

    /// A read is no request of the session: it does not keep it alive.
    pub(crate) async fn status(&mut self, name: &LockName) -> Result<(), Over> {
        let begun = self.recorder.begin(
            self.id,
            RequestId(self.next_request),
            Input::Status { name: name.clone() },
        );
        self.next_request += 1;
        match self.calls.status(name).await {
            Answer::Given(status, last_sent) => {
                self.recorder.finish_read(begun, last_sent, status);
                Ok(())
            }
            Answer::Refused(..) | Answer::Never => Err(Over),
        }
    }

    /// Writes to the protected resource, if the lock can still be believed in.
    pub(crate) fn write(&self, held: &Held) -> Result<(), Over> {
        self.recorder.write(self.id, &held.name, || {
            let group = self.division.group_of(held.name.as_str());
            let alive_until = self.alive_until.get(&group).copied().ok_or(Over)?;
            let end = held.own_end.map_or(alive_until, |own| own.min(alive_until));
            if Instant::now() < end { Ok(held.token) } else { Err(Over) }
        })
    }

    /// A request about a lock, or about the session itself.
    fn begin(&mut self, lock: Option<&LockName>, input: Input) -> Sent {
        let group = lock.map(|name| self.division.group_of(name.as_str()));
        let request_id = self.next_request;
        self.next_request += 1;
        self.outstanding.insert(request_id);
        let acked_through = self.outstanding.first().map_or(0, |first| first - 1);
        let at = Instant::now();
        let begun = self.recorder.begin(self.id, RequestId(request_id), input);
        Sent { begun, request_id, acked_through, at, group }
    }

    fn end<T>(
        &mut self,
        sent: Sent,
        answer: Answer<T>,
        understand: impl FnOnce(T) -> Known,
    ) -> Result<Outcome, Over> {
        let (outcome, last_sent): (Option<Outcome>, RealTime) = match answer {
            Answer::Given(answer, last_sent) => (understand(answer), last_sent),
            Answer::Refused(reason, last_sent) => {
                (answers::rejected(reason).map(Outcome::Rejected), last_sent)
            }
            // The session is left to its TTL: it would have to live with not knowing.
            Answer::Never => return Err(Over),
        };
        let outcome = outcome.ok_or(Over)?;
        self.outstanding.remove(&sent.request_id);
        self.recorder.finish(sent.begun, last_sent, Output::Outcome(outcome.clone()));
        if let Outcome::Rejected(_) = outcome {
            return if outcome_ends_session(&outcome) { Err(Over) } else { Ok(outcome) };
        }
        let until = sent.at + trusted_part(self.ttl);
        for group in self.division.groups().filter(|it| sent.group.is_none_or(|group| group == *it))
        {
            let known = self.alive_until.entry(group).or_insert(until);
            *known = until.max(*known);
        }
        Ok(outcome)
    }
}

fn held(outcome: Outcome) -> Option<Held> {
    match outcome {
        Outcome::Granted(Grant { name, token, .. }) => Some(Held { name, token, own_end: None }),
        _ => None,
    }
}

fn outcome_ends_session(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rejected(holdfast_core::Rejection::UnknownSession))
}

/// Clocks may differ by 1 % in rate; the rest is slack.
fn trusted_part(ttl: Duration) -> Duration {
    ttl.mul_f64(0.98).saturating_sub(Duration::from_millis(20))
}
