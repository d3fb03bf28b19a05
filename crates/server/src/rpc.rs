//! The client port: from a request to a command in the shard's queue, and from its outcome to a
//! response.
//!
//! ```text
//! begin -> decode -> admit -> route -+-> the door: the shard's inbox, or the efficiency tier ... encode
//!                                    +-> one hop to the leader, on the peer port
//! ```
//!
//! - The service (`holdfast-service`) decides: whether there is room, who may do what, and where it is done.
//! - Calls (`unary`, one file per verb), the session stream (`stream`) and pages (`dashboard`) share all of this.
//! - A request that is wrong in itself does not pass: decoding answers it.
//! - Every call ends: each has a deadline of its own, whatever the shard does.
//! - A node that does not lead forwards one hop (`forward`, and at the other end `forwarded`). A forwarded action that
//!   arrives at a node that does not lead goes no further.

mod access;
mod access_reset;
mod acquire;
mod acquire_all;
mod cancel;
mod check_token;
mod cluster;
mod convert;
mod credentials;
mod dashboard;
mod door;
mod election;
mod every_group;
mod failure;
mod forward;
mod forwarded;
mod grpc;
mod hang_up;
mod keep_alive_many;
mod leader_balance;
mod leader_search;
mod list_search;
mod members;
mod merged_pages;
mod message_sizes;
mod operator;
mod proclaim;
mod protocol_detection;
mod reads;
mod release;
mod renew;
mod response;
mod route;
mod serve;
mod sessions;
mod stream;
mod transfer;
mod typed_status;
mod unary;
mod watch;
mod why;
mod without_root;

use std::sync::Arc;

use holdfast_proto::v1::lock_service_server::LockService;
use holdfast_proto::v1::{
    AcquireAllRequest, AcquireRequest, AcquireResponse, CancelRequest, CancelResponse,
    CheckTokenRequest, CheckTokenResponse, ClientFrame, CloseSessionRequest, CloseSessionResponse,
    ClusterStatusRequest, ClusterStatusResponse, ConvertRequest, KeepAliveManyRequest,
    KeepAliveManyResponse, KeepAliveRequest, KeepAliveResponse, ListRequest, ListResponse,
    ListSessionsRequest, ListSessionsResponse, OpenSessionRequest, OpenSessionResponse,
    ProclaimRequest, ProclaimResponse, ReleaseRequest, ReleaseResponse, RenewRequest,
    RenewResponse, StatusRequest, StatusResponse, TransferRequest, TransferResponse, WhyRequest,
    WhyResponse,
};
use holdfast_service::Service;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use self::door::Door;
use self::forward::Forwarding;
use self::leader_search::LeaderSearch;
use self::members::Members;
use self::stream::Outgoing;
use crate::audit::AuditNotes;
use crate::efficiency_tier::EfficiencyTier;
use crate::events::EventRings;
use crate::inbox::ShardHandle;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::peers::PeerLinks;
use crate::stopping::Stopping;
use crate::traces::Traces;

pub(crate) use self::credentials::{authenticate, bearer, identity_of, shown};
pub(crate) use self::dashboard::DashboardSource;
pub(crate) use self::forwarded::Forwarded;
pub(crate) use self::leader_balance::keep_balanced;
pub(crate) use self::serve::serve;
pub(crate) use self::watch::encode_events;
pub(crate) use self::without_root::give_up_groups_without_root;

/// Lists that several groups answer, at a time.
const READS_OF_ALL_GROUPS_MAX: usize = 8;
/// Searches in several groups, at a time. One may have a thousand lines of each group in memory, and takes seconds.
const SEARCHES_OF_ALL_GROUPS_MAX: usize = 2;

/// The client API. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    door: Door,
    membership: Arc<Membership>,
    links: PeerLinks,
    forwarding: Arc<Forwarding>,
    members: Arc<Members>,
    leader_search: LeaderSearch,
    events: EventRings,
    metrics: Arc<Metrics>,
    stopping: Stopping,
    /// For backups: each costs memory as large as the state.
    backups: Arc<Semaphore>,
    histories: Arc<Semaphore>,
    reads_of_all_groups: Arc<Semaphore>,
    searches_of_all_groups: Arc<Semaphore>,
    rankings: list_search::Rankings,
    /// None: no spans are wanted.
    traces: Option<Arc<Traces>>,
    /// None: the node has no audit file.
    audit: Option<Arc<AuditNotes>>,
    watch_open_rate: Arc<watch::OpenRateLimit>,
}

impl Rpc {
    #[allow(clippy::too_many_arguments, reason = "a node has as many parts")]
    pub(crate) fn new(
        service: Service,
        shard: ShardHandle,
        membership: Arc<Membership>,
        links: PeerLinks,
        events: EventRings,
        memory: Arc<EfficiencyTier>,
        metrics: Arc<Metrics>,
        stopping: Stopping,
    ) -> Rpc {
        let door = {
            let membership = Arc::clone(&membership);
            Door::new(service, shard, memory, membership, stopping.clone())
        };
        let forwarding = Arc::new(Forwarding::new(Arc::clone(&membership), links.clone()));
        let members = Arc::new(Members::new(Arc::clone(&membership), Arc::clone(&forwarding)));
        let (backups, histories) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        let rankings = list_search::Rankings::default();
        Rpc {
            door,
            membership,
            links,
            forwarding,
            members,
            leader_search: LeaderSearch::default(),
            events,
            metrics,
            stopping,
            histories,
            backups,
            rankings,
            reads_of_all_groups: Arc::new(Semaphore::new(READS_OF_ALL_GROUPS_MAX)),
            searches_of_all_groups: Arc::new(Semaphore::new(SEARCHES_OF_ALL_GROUPS_MAX)),
            traces: None,
            audit: None,
            watch_open_rate: Arc::default(),
        }
    }

    /// Records what becomes of acquires whose clients want it.
    pub(crate) fn with_traces(mut self, traces: Option<Arc<Traces>>) -> Rpc {
        self.traces = traces;
        self
    }

    pub(crate) fn with_audit(mut self, audit: Option<Arc<AuditNotes>>) -> Rpc {
        self.audit = audit;
        self
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
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn keep_alive(
        &self,
        request: Request<KeepAliveRequest>,
    ) -> Result<Response<KeepAliveResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn keep_alive_many(
        &self,
        request: Request<KeepAliveManyRequest>,
    ) -> Result<Response<KeepAliveManyResponse>, Status> {
        grpc::call(request, |caller, request| keep_alive_many::serve(self, caller, request)).await
    }

    async fn close_session(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn acquire(
        &self,
        request: Request<AcquireRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn acquire_all(
        &self,
        request: Request<AcquireAllRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn convert(
        &self,
        request: Request<ConvertRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<TransferResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn cancel(
        &self,
        request: Request<CancelRequest>,
    ) -> Result<Response<CancelResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        grpc::call(request, |caller, request| reads::serve(self, caller, request)).await
    }

    async fn why(&self, request: Request<WhyRequest>) -> Result<Response<WhyResponse>, Status> {
        grpc::call(request, |caller, request| reads::serve(self, caller, request)).await
    }

    async fn check_token(
        &self,
        request: Request<CheckTokenRequest>,
    ) -> Result<Response<CheckTokenResponse>, Status> {
        grpc::call(request, |caller, request| reads::serve(self, caller, request)).await
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        grpc::call(request, |caller, request| list_search::serve(self, caller, request)).await
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        grpc::call(request, |caller, request| reads::serve(self, caller, request)).await
    }

    async fn cluster_status(
        &self,
        request: Request<ClusterStatusRequest>,
    ) -> Result<Response<ClusterStatusResponse>, Status> {
        grpc::call(request, |caller, request| cluster::serve(self, caller, request)).await
    }
}
