//! The node as the dashboard's source: the same calls that clients make, without the wire between. So a
//! follower forwards them, and whoever may not do something may not do it here either.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_dashboard::{OwnView, RecentEvents, Source, WatchFrames};
use holdfast_proto::encode::read;
use holdfast_proto::v1::lock_service_server::LockService;
use holdfast_proto::v1::operator_service_server::OperatorService;
use holdfast_proto::v1::watch_service_server::WatchService;
use holdfast_proto::v1::{
    BreakRequest, BreakResponse, ClusterStatusRequest, ClusterStatusResponse, Failure,
    FreezeRequest, FreezeResponse, KillSessionRequest, KillSessionResponse, ListFreezesRequest,
    ListFreezesResponse, ListRequest, ListResponse, ListSessionsRequest, ListSessionsResponse,
    MoveLockRequest, MoveLockResponse, Owner, StatusRequest, StatusResponse, ThawRequest,
    ThawResponse, WatchEvent, WatchRequest, WhyRequest, WhyResponse,
};
use holdfast_replica::NodeId;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status};

use super::failure::{dropped_by_driver, took_too_long};
use super::{Rpc, watch};
use crate::driver::{FIRST_GROUP, Input};

/// A node that takes longer to say how it is does not answer.
const VIEW_PATIENCE: Duration = Duration::from_millis(700);

impl Source for Rpc {
    fn node(&self) -> u64 {
        self.membership.me.0
    }

    async fn cluster(&self) -> Result<ClusterStatusResponse, Failure> {
        plain(self.cluster_status(Request::new(ClusterStatusRequest::default())).await)
    }

    async fn own_views(&self) -> Vec<(u64, Option<ClusterStatusResponse>)> {
        let mut asked = JoinSet::new();
        for node in self.membership.now().members.keys().copied() {
            let rpc = self.clone();
            asked.spawn(async move {
                let view = timeout(VIEW_PATIENCE, rpc.own_view_of(node)).await;
                (node.0, view.ok().flatten())
            });
        }
        let mut views = Vec::new();
        while let Some(view) = asked.join_next().await {
            views.extend(view);
        }
        views
    }

    async fn own_view(&self, locks_max: usize) -> Result<OwnView, Failure> {
        let request = ClusterStatusRequest { own_view: true, ..Default::default() };
        let cluster = plain(self.cluster_status(Request::new(request)).await)?;
        let (reply, table) = oneshot::channel();
        self.ask(Input::ReadOwnTable { group: FIRST_GROUP, locks_max, reply })?;
        let table = timeout(VIEW_PATIENCE, table).await.map_err(|_| took_too_long())?;
        let table = table.map_err(|_| dropped_by_driver())?;
        Ok(OwnView {
            cluster,
            locks: table.locks.into_iter().map(|lock| read::summary(lock, table.at)).collect(),
            freezes: table.freezes.into_iter().map(|info| read::frozen(info, table.at)).collect(),
        })
    }

    async fn list(&self, request: ListRequest) -> Result<ListResponse, Failure> {
        plain(LockService::list(self, Request::new(request)).await)
    }

    async fn status(&self, name: String) -> Result<StatusResponse, Failure> {
        plain(LockService::status(self, Request::new(StatusRequest { name, request_id: 0 })).await)
    }

    async fn why(&self, name: String) -> Result<WhyResponse, Failure> {
        plain(LockService::why(self, Request::new(WhyRequest { name })).await)
    }

    async fn sessions(
        &self,
        request: ListSessionsRequest,
    ) -> Result<ListSessionsResponse, Failure> {
        plain(self.list_sessions(Request::new(request)).await)
    }

    async fn freezes(&self) -> Result<ListFreezesResponse, Failure> {
        plain(self.list_freezes(Request::new(ListFreezesRequest {})).await)
    }

    fn recent(&self, wanted: RecentEvents) -> Vec<WatchEvent> {
        watch::recent(&self.events, wanted)
    }

    fn owners_lately(&self, sessions: &BTreeSet<String>) -> BTreeMap<String, Owner> {
        let known = watch::opened_lately(&self.events, sessions.iter().map(String::as_str));
        let known = known.into_iter().filter_map(|(session, owner)| Some((session, owner?)));
        known.map(|(session, owner)| (session.to_string(), read::owner(owner))).collect()
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchFrames, Failure> {
        let frames = plain(WatchService::watch(self, Request::new(request)).await)?;
        Ok(Box::pin(frames.map(|frame| frame.map_err(|status| Failure::from_status(&status)))))
    }

    async fn break_holds(&self, request: BreakRequest) -> Result<BreakResponse, Failure> {
        plain(OperatorService::r#break(self, Request::new(request)).await)
    }

    async fn move_lock(&self, request: MoveLockRequest) -> Result<MoveLockResponse, Failure> {
        plain(OperatorService::move_lock(self, Request::new(request)).await)
    }

    async fn freeze(&self, request: FreezeRequest) -> Result<FreezeResponse, Failure> {
        plain(OperatorService::freeze(self, Request::new(request)).await)
    }

    async fn thaw(&self, request: ThawRequest) -> Result<ThawResponse, Failure> {
        plain(OperatorService::thaw(self, Request::new(request)).await)
    }

    async fn kill_session(
        &self,
        request: KillSessionRequest,
    ) -> Result<KillSessionResponse, Failure> {
        plain(OperatorService::kill_session(self, Request::new(request)).await)
    }
}

impl Rpc {
    async fn own_view_of(&self, node: NodeId) -> Option<ClusterStatusResponse> {
        let request = ClusterStatusRequest { own_view: true, ..Default::default() };
        if node == self.membership.me {
            return plain(self.cluster_status(Request::new(request)).await).ok();
        }
        let mut there = self.leaders.client_of(node).ok()?;
        Some(there.client.cluster_status(request).await.ok()?.into_inner())
    }
}

fn plain<T>(answer: Result<Response<T>, Status>) -> Result<T, Failure> {
    answer.map(Response::into_inner).map_err(|status| Failure::from_status(&status))
}
