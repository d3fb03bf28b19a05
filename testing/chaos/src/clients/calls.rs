//! Unary calls that are repeated, to one node after the other, until a node answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{
    ClusterStatusRequest, Failure, GroupStatus, OpenSessionRequest, StatusRequest,
};
use holdfast_proto::v1::{Reason, StatusResponse};
use holdfast_sim::history::RealTime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::division::Division;
use crate::recorder::Recorder;

/// A node that is silent for this long, beyond the call's own wait, is left for the next.
const ATTEMPT_PATIENCE: Duration = Duration::from_millis(600);
/// Longer than any time without a quorum.
const CALL_PATIENCE: Duration = Duration::from_secs(15);
const THROWAWAY_TTL: Duration = Duration::from_secs(2);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(crate) struct Calls {
    nodes: Vec<LockServiceClient<Channel>>,
    /// Which node is asked first: the one that answered last.
    favourite: usize,
    recorder: Recorder,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    /// Sent at this time for the last time.
    Given(T, RealTime),
    /// The request itself is refused.
    Refused(Reason, RealTime),
    /// No node answered: what became of it is not known.
    Never,
}

impl Calls {
    /// Nothing is connected yet.
    pub(crate) fn to(
        addresses: &BTreeMap<u64, String>,
        first: u64,
        recorder: &Recorder,
    ) -> Result<Calls, tonic::transport::Error> {
        let nodes = addresses
            .values()
            .map(|address| {
                let endpoint = Endpoint::from_shared(format!("http://{address}"))?
                    .connect_timeout(ATTEMPT_PATIENCE);
                Ok(LockServiceClient::new(endpoint.connect_lazy()))
            })
            .collect::<Result<Vec<_>, tonic::transport::Error>>()?;
        Ok(Calls { nodes, favourite: first as usize, recorder: recorder.clone() })
    }

    /// Calls until there is an answer. `wait` is how long the answer may take by the request's own
    /// will.
    pub(crate) async fn insist<T, F>(
        &mut self,
        wait: Duration,
        mut call: impl FnMut(LockServiceClient<Channel>) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let give_up = Instant::now() + wait + CALL_PATIENCE;
        while Instant::now() < give_up {
            let Some(node) = self.nodes.get(self.favourite % self.nodes.len().max(1)) else {
                return Answer::Never;
            };
            let sent = self.recorder.now();
            let attempt = tokio::time::timeout(wait + ATTEMPT_PATIENCE, call(node.clone())).await;
            match attempt {
                Ok(Ok(answer)) => return Answer::Given(answer.into_inner(), sent),
                Ok(Err(status)) => {
                    let failure = Failure::from_status(&status);
                    if !failure.retryable {
                        return Answer::Refused(failure.reason(), sent);
                    }
                }
                Err(_) => {}
            }
            self.favourite += 1;
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
        Answer::Never
    }

    /// Which groups there are, as the answer to an open tells. The session is left to its TTL.
    pub(crate) async fn division(&mut self) -> Option<Division> {
        let session = holdfast_proto::SessionId::random().ok()?.to_secret_text();
        let request = OpenSessionRequest {
            session_id: session,
            request_id: 1,
            ttl_ms: THROWAWAY_TTL.as_millis() as u64,
            ..Default::default()
        };
        let answer = self
            .insist(Duration::ZERO, |mut node| {
                let request = request.clone();
                async move { node.open_session(request).await }
            })
            .await;
        match answer {
            Answer::Given(opened, _) => Division::of(opened.map).ok(),
            Answer::Refused(..) | Answer::Never => None,
        }
    }

    pub(crate) async fn status(&mut self, name: &str) -> Answer<StatusResponse> {
        let name = name.to_owned();
        self.insist(Duration::ZERO, |mut node| {
            let request = StatusRequest { name: name.clone(), request_id: 0 };
            async move { node.status(request).await }
        })
        .await
    }

    /// What the first node itself knows of each group, digests included; none if it does not answer.
    pub(crate) async fn own_view(&self) -> Option<Vec<GroupStatus>> {
        let mut node = self.nodes.first()?.clone();
        let request = ClusterStatusRequest { with_digests: true, ..Default::default() };
        let answer = tokio::time::timeout(ATTEMPT_PATIENCE, node.cluster_status(request)).await;
        Some(answer.ok()?.ok()?.into_inner().groups)
    }
}
