//! The client port: from a request to a command in the driver's queue, and from its outcome to a
//! response.
//!
//! ```text
//! admit -> origin -> decode -> authorise -> route -+-> the driver's inbox ... encode
//!                                                  +-> the memory of the efficiency tier ... encode
//!                                                  +-> one hop to the leader
//! ```
//!
//! - Unary calls (`unary`, one file per verb) and the session stream (`stream`) share all of this.
//! - Nothing that is wrong in itself reaches the queue: `decode` answers it.
//! - Every call ends: each has a deadline of its own, whatever the driver does.
//! - A node that does not lead forwards one hop (`forward`); a forwarded request that arrives at a
//!   node that does not lead goes no further.

mod acquire;
mod acquire_all;
mod authorise;
mod cancel;
mod check_token;
mod cluster;
mod convert;
mod dashboard;
mod election;
mod failure;
mod forward;
mod hang_up;
mod keep_alive_many;
mod leader_search;
mod look;
mod memory;
mod operator;
mod origin;
mod places;
mod proclaim;
mod release;
mod renew;
mod response;
mod route;
mod serve;
mod sessions;
mod sorting;
mod stream;
mod survey;
mod transfer;
mod typed_status;
mod unary;
mod watch;
mod why;

use std::sync::Arc;

use holdfast_proto::v1::lock_service_server::LockService;
use holdfast_proto::v1::{
    AcquireAllRequest, AcquireRequest, AcquireResponse, CancelRequest, CancelResponse,
    CheckTokenRequest, CheckTokenResponse, ClientFrame, CloseSessionRequest, CloseSessionResponse,
    ClusterStatusRequest, ClusterStatusResponse, ConvertRequest, Failure, KeepAliveManyRequest,
    KeepAliveManyResponse, KeepAliveRequest, KeepAliveResponse, ListRequest, ListResponse,
    ListSessionsRequest, ListSessionsResponse, OpenSessionRequest, OpenSessionResponse,
    ProclaimRequest, ProclaimResponse, ReleaseRequest, ReleaseResponse, RenewRequest,
    RenewResponse, StatusRequest, StatusResponse, TransferRequest, TransferResponse, WhyRequest,
    WhyResponse,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use self::forward::Leaders;
use self::leader_search::LeaderSearch;
use self::places::{Place, Places};
use self::stream::Outgoing;
use crate::config::ConnectionsConfig;
use crate::driver::DriverHandle;
use crate::events::EventRing;
use crate::membership::Membership;
use crate::memory_tier::MemoryTier;
use crate::metrics::Metrics;
use crate::peers::PeerLinks;
use crate::stopping::Stopping;
use crate::traces::Traces;

pub(crate) use self::serve::serve;
pub(crate) use self::watch::{SessionTexts, Teller, Told, ToldSession, told};

/// The client API. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    driver: DriverHandle,
    membership: Arc<Membership>,
    links: PeerLinks,
    leaders: Arc<Leaders>,
    leader_search: LeaderSearch,
    events: Arc<EventRing>,
    memory: Arc<MemoryTier>,
    metrics: Arc<Metrics>,
    stopping: Stopping,
    places: Places,
    /// For whoever makes a backup: each costs memory as large as the state.
    backups: Arc<Semaphore>,
    histories: Arc<Semaphore>,
    /// For sessions that the driver hears itself.
    ears: Arc<Semaphore>,
    rankings: survey::Rankings,
    /// None: nobody wants spans.
    traces: Option<Arc<Traces>>,
    watch_budget: Arc<watch::WatchBudget>,
}

impl Rpc {
    pub(crate) fn new(
        driver: DriverHandle,
        membership: Arc<Membership>,
        links: PeerLinks,
        events: Arc<EventRing>,
        memory: Arc<MemoryTier>,
        metrics: Arc<Metrics>,
        stopping: Stopping,
    ) -> Rpc {
        let leaders = Arc::new(Leaders::new(Arc::clone(&membership)));
        let (backups, histories) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        let rankings = survey::Rankings::default();
        let watch_bytes_max = ConnectionsConfig::default().watch_bytes_max;
        let watch_budget = Arc::new(watch::WatchBudget::new(watch_bytes_max, Arc::clone(&metrics)));
        Rpc {
            driver,
            membership,
            links,
            leaders,
            leader_search: LeaderSearch::default(),
            events,
            memory,
            metrics,
            stopping,
            places: Places::default(),
            histories,
            ears: Arc::new(Semaphore::new(stream::lent_max())),
            backups,
            rankings,
            traces: None,
            watch_budget,
        }
    }

    /// What watches may have unread, together.
    pub(crate) fn with_watch_bytes_max(mut self, bytes_max: u64) -> Rpc {
        let metrics = Arc::clone(&self.metrics);
        self.watch_budget = Arc::new(watch::WatchBudget::new(bytes_max, metrics));
        self
    }

    /// Records what becomes of acquires whose clients want it.
    pub(crate) fn with_traces(mut self, traces: Option<Arc<Traces>>) -> Rpc {
        self.traces = traces;
        self
    }

    /// A place among those of its kind, for as long as it is held.
    fn admit(&self, kind: places::Kind) -> Result<Place, Failure> {
        if self.stopping.has_begun() || self.driver.is_gone() {
            return Err(failure::stopping());
        }
        self.places.take(kind)
    }
}

#[tonic::async_trait]
impl LockService for Rpc {
    type SessionStream = Outgoing;

    async fn session(
        &self,
        request: Request<Streaming<ClientFrame>>,
    ) -> Result<Response<Outgoing>, Status> {
        stream::serve(self, request)
    }

    async fn open_session(
        &self,
        request: Request<OpenSessionRequest>,
    ) -> Result<Response<OpenSessionResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn keep_alive(
        &self,
        request: Request<KeepAliveRequest>,
    ) -> Result<Response<KeepAliveResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn keep_alive_many(
        &self,
        request: Request<KeepAliveManyRequest>,
    ) -> Result<Response<KeepAliveManyResponse>, Status> {
        keep_alive_many::serve(self, request).await
    }

    async fn close_session(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn acquire(
        &self,
        request: Request<AcquireRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn acquire_all(
        &self,
        request: Request<AcquireAllRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn convert(
        &self,
        request: Request<ConvertRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<TransferResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn cancel(
        &self,
        request: Request<CancelRequest>,
    ) -> Result<Response<CancelResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        look::serve(self, request).await
    }

    async fn why(&self, request: Request<WhyRequest>) -> Result<Response<WhyResponse>, Status> {
        look::serve(self, request).await
    }

    async fn check_token(
        &self,
        request: Request<CheckTokenRequest>,
    ) -> Result<Response<CheckTokenResponse>, Status> {
        look::serve(self, request).await
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        survey::serve(self, request).await
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        look::serve(self, request).await
    }

    async fn cluster_status(
        &self,
        request: Request<ClusterStatusRequest>,
    ) -> Result<Response<ClusterStatusResponse>, Status> {
        cluster::serve(self, request).await
    }
}
