//! A client that does exactly what it is told, over unary calls: no session of its own, no heartbeat,
//! and a retry only where the test wants one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::{
    AcquireRequest, AcquireResponse, ClusterStatusRequest, ClusterStatusResponse, Grant,
    KeepAliveRequest, ListSessionsRequest, OpenSessionRequest, ReleaseOutcome, ReleaseRequest,
    SessionInfo, StatusRequest, StatusResponse, acquire_response::Outcome,
};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::eventually;

const INSIST_MAX: Duration = Duration::from_secs(20);

/// Knows some endpoints and tries them in turn.
#[derive(Clone, Debug)]
pub(crate) struct PlainClient {
    channels: Vec<Channel>,
}

impl PlainClient {
    pub(crate) fn new(addresses: Vec<String>) -> PlainClient {
        let connect = |address: &String| {
            Endpoint::from_shared(format!("http://{address}"))
                .unwrap()
                .connect_timeout(Duration::from_millis(500))
                .connect_lazy()
        };
        PlainClient { channels: addresses.iter().map(connect).collect() }
    }

    /// The first endpoint.
    pub(crate) fn stub(&self) -> LockServiceClient<Channel> {
        LockServiceClient::new(self.channels[0].clone())
    }

    /// The first endpoint, for operators.
    pub(crate) fn operator(&self) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(self.channels[0].clone())
    }

    /// Calls until a node answers: an endpoint that is unavailable or overloaded is followed by the
    /// next. Fails the test after 20 s.
    pub(crate) async fn insist<T, F>(
        &self,
        call: impl FnMut(LockServiceClient<Channel>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.insist_for(INSIST_MAX, call).await
    }

    async fn insist_for<T, F>(
        &self,
        patience: Duration,
        mut call: impl FnMut(LockServiceClient<Channel>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut next = 0;
        eventually("a node answers", patience, || {
            let stub = LockServiceClient::new(self.channels[next % self.channels.len()].clone());
            next += 1;
            // A frozen node takes connections and says nothing.
            let answer = tokio::time::timeout(Duration::from_secs(10), call(stub));
            async {
                let again = |status: &Status| match status.code() {
                    Code::Unavailable
                    | Code::Unknown
                    | Code::Cancelled
                    | Code::ResourceExhausted => true,
                    // The transport's own: a node that stops says so just as the call comes.
                    Code::Internal => std::error::Error::source(status).is_some(),
                    _ => false,
                };
                match answer.await {
                    Ok(Ok(response)) => Some(Ok(response.into_inner())),
                    Ok(Err(status)) if !again(&status) => Some(Err(status)),
                    // Shown if no node answers in time.
                    other => {
                        println!("asked again: {:?}", other.map(|refused| refused.err()));
                        None
                    }
                }
            }
        })
        .await
    }

    pub(crate) async fn open(&self, ttl: Duration) -> PlainSession {
        let id = holdfast_proto::SessionId::random().unwrap().to_secret_text();
        self.open_as(&id, ttl).await;
        PlainSession { client: self.clone(), id, requests: AtomicU64::new(0) }
    }

    async fn open_as(&self, id: &str, ttl: Duration) {
        let request = OpenSessionRequest {
            session_id: id.to_owned(),
            ttl_ms: ttl.as_millis() as u64,
            ..OpenSessionRequest::default()
        };
        self.insist(|mut stub| {
            let request = request.clone();
            async move { stub.open_session(request).await }
        })
        .await
        .unwrap();
    }

    pub(crate) async fn status(&self, name: &str) -> StatusResponse {
        let request = StatusRequest { name: name.to_owned(), request_id: 0 };
        self.insist(|mut stub| {
            let request = request.clone();
            async move { stub.status(request).await }
        })
        .await
        .unwrap()
    }

    pub(crate) async fn sessions(&self) -> Vec<SessionInfo> {
        let request = ListSessionsRequest { page_size: 1_000, ..ListSessionsRequest::default() };
        self.insist(|mut stub| {
            let request = request.clone();
            async move { stub.list_sessions(request).await }
        })
        .await
        .unwrap()
        .sessions
    }

    /// What the first endpoint itself knows of the cluster, digests included; none if it is down.
    pub(crate) async fn own_view(&self) -> Option<ClusterStatusResponse> {
        // A client that asks for digests gets the view of the very node that was asked.
        let request = ClusterStatusRequest { with_digests: true, ..Default::default() };
        let mut stub = self.stub();
        let answer = tokio::time::timeout(Duration::from_secs(2), stub.cluster_status(request));
        Some(answer.await.ok()?.ok()?.into_inner())
    }
}

/// A session that no client keeps alive but the calls of the test.
#[derive(Debug)]
pub(crate) struct PlainSession {
    pub(crate) client: PlainClient,
    pub(crate) id: String,
    requests: AtomicU64,
}

impl PlainSession {
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) async fn keep_alive(&self) -> Result<(), Status> {
        let request =
            KeepAliveRequest { session_id: self.id.clone(), ..KeepAliveRequest::default() };
        self.client
            .insist(|mut stub| {
                let request = request.clone();
                async move { stub.keep_alive(request).await }
            })
            .await
            .map(drop)
    }

    /// One acquire, retried under one request id until it is answered.
    pub(crate) async fn acquire(
        &self,
        name: &str,
        wait: Duration,
    ) -> Result<AcquireResponse, Status> {
        let request_id = self.next_request();
        let request = AcquireRequest {
            session_id: self.id.clone(),
            request_id,
            acked_through: 0,
            name: name.to_owned(),
            wait_ms: wait.as_millis() as u64,
            // Asked again below, under the same id.
            resume_later: true,
            ..AcquireRequest::default()
        };
        self.client
            .insist_for(INSIST_MAX + wait, |mut stub| {
                let request = request.clone();
                async move { stub.acquire(request).await }
            })
            .await
    }

    pub(crate) async fn release(&self, name: &str, token: u64) -> Result<ReleaseOutcome, Status> {
        let request_id = self.next_request();
        let request = ReleaseRequest {
            session_id: self.id.clone(),
            request_id,
            // Everything before this one has been answered: the test waits for each.
            acked_through: request_id - 1,
            name: name.to_owned(),
            token,
            ..Default::default()
        };
        self.client
            .insist(|mut stub| {
                let request = request.clone();
                async move { stub.release(request).await }
            })
            .await
            .map(|response| response.outcome())
    }
}

/// Takes a lock that is free.
pub(crate) async fn hold(session: &PlainSession, name: &str) -> Grant {
    match session.acquire(name, Duration::ZERO).await.unwrap().outcome {
        Some(Outcome::Granted(grant)) => grant,
        other => panic!("{name} is not granted: {other:?}"),
    }
}

/// Stands in line in the background; the task ends with the answer.
pub(crate) fn wait_in_line(
    session: std::sync::Arc<PlainSession>,
    name: &str,
    wait: Duration,
) -> JoinHandle<Result<AcquireResponse, Status>> {
    let name = name.to_owned();
    tokio::spawn(async move { session.acquire(&name, wait).await })
}
