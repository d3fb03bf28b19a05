//! Who leads, as it changes.
//!
//! A broken connection or a change of the cluster's leader is not seen: the observation goes on after the last
//! position that it was told, so no leader is told twice and none is left out.

use holdfast_client_core::error::Rejection;
use holdfast_proto::v1::election_service_client::ElectionServiceClient;
use holdfast_proto::v1::observe_response::Change;
use holdfast_proto::v1::{EventPosition, Failure, ObserveRequest, ObserveResponse};

use super::Leader;
use crate::unary::resume::{Came, Resuming, is_gap};
use crate::unary::{CallError, Unary};

/// What an observer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// It leads, or proclaimed another value.
    Leader(Leader),
    /// No client leads.
    Vacant,
    /// Leaders may have come and gone unseen, because what happened meanwhile is no longer kept. Who leads now
    /// is told next.
    Missed { why: String },
}

/// The observation of an election; see [`Election::observe`](crate::Election::observe).
#[derive(Debug)]
pub struct Observer {
    changes: Resuming<ObserveResponse>,
    name: String,
    /// After what to go on.
    position: Option<EventPosition>,
    /// Of the leader that was told last; 0 if no client leads.
    epoch: u64,
}

impl Unary {
    /// As [`Election::observe`](crate::Election::observe), for who has no session.
    pub fn observe(&self, name: &str) -> Observer {
        Observer::new(self.clone(), name.to_owned())
    }
}

impl Observer {
    pub(crate) fn new(calls: Unary, name: String) -> Observer {
        Observer { changes: Resuming::new(calls), name, position: None, epoch: 0 }
    }

    /// What comes next, however long that takes. It is safe to drop this future: nothing is lost. After an
    /// error it can be called again, and goes on where it was.
    pub async fn next(&mut self) -> Result<Observed, CallError> {
        loop {
            let request = ObserveRequest {
                name: self.name.clone(),
                after: self.position,
                after_epoch: self.epoch,
            };
            let ask = |channel, request| async move {
                ElectionServiceClient::new(channel).observe(request).await
            };
            let observed = match self.changes.next(request, ask).await? {
                Came::Frame(response) => self.take(response),
                Came::End(failure) => self.ended(failure)?,
            };
            if let Some(observed) = observed {
                return Ok(observed);
            }
        }
    }

    fn take(&mut self, response: ObserveResponse) -> Option<Observed> {
        self.position = response.position.or(self.position);
        match response.change? {
            Change::Leader(leader) => {
                self.epoch = leader.epoch;
                Some(Observed::Leader(Leader {
                    value: leader.value,
                    epoch: leader.epoch,
                    session: leader.public_session_id.parse().ok()?,
                }))
            }
            Change::Vacancy(_) => {
                self.epoch = 0;
                Some(Observed::Vacant)
            }
        }
    }

    fn ended(&mut self, failure: Failure) -> Result<Option<Observed>, CallError> {
        if is_gap(failure.reason()) {
            self.position = None;
            return Ok(Some(Observed::Missed { why: failure.message }));
        }
        if !failure.retryable {
            return Err(CallError::Rejected(Rejection::of(failure)));
        }
        Ok(None)
    }
}
