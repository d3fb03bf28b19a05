//! The node as the dashboard's source: the same actions that clients ask for, without the wire between. So a follower
//! forwards them, and a caller that may not do something may not do it here either.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_dashboard::{NodeView, OwnView, RecentEvents, Source, WatchFrames};
use holdfast_proto::encode::read;
use holdfast_proto::v1::{
    BreakRequest, BreakResponse, ClusterStatusRequest, ClusterStatusResponse, Failure,
    FreezeRequest, FreezeResponse, KillSessionRequest, KillSessionResponse, ListFreezesRequest,
    ListFreezesResponse, ListRequest, ListResponse, ListSessionsRequest, ListSessionsResponse,
    MoveLockRequest, MoveLockResponse, Owner, StatusRequest, StatusResponse, ThawRequest,
    ThawResponse, WatchEvent, WatchRequest, WhyRequest, WhyResponse,
};
use holdfast_service::{AuthMode, Caller, Method};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::failure::took_too_long;
use super::members::own_view;
use super::{Rpc, cluster, list_search, operator, reads, watch};
use crate::inbox::OwnTable;

/// A node that takes longer to say how it is does not answer.
const VIEW_PATIENCE: Duration = Duration::from_millis(700);

/// The node, for one caller.
#[derive(Debug)]
pub(crate) struct DashboardSource {
    rpc: Rpc,
    caller: Caller,
}

impl DashboardSource {
    /// For the node itself, which takes samples.
    pub(crate) fn new(rpc: Rpc) -> DashboardSource {
        let caller = Caller::node(rpc.membership.me.0);
        DashboardSource { rpc, caller }
    }

    fn caller(&self) -> Caller {
        self.caller.clone()
    }
}

impl Source for DashboardSource {
    fn called_by(&self, extensions: &axum::http::Extensions) -> Option<DashboardSource> {
        let caller = extensions.get::<Caller>()?.clone();
        Some(DashboardSource { rpc: self.rpc.clone(), caller })
    }

    fn principal(&self) -> Option<String> {
        let is_demanded = self.rpc.door.service().mode() == AuthMode::Required;
        let identity = self.caller.identity().filter(|_| is_demanded)?;
        Some(identity.principal.to_string())
    }

    fn node(&self) -> u64 {
        self.rpc.membership.me.0
    }

    async fn cluster(&self) -> Result<ClusterStatusResponse, Failure> {
        cluster::serve(&self.rpc, self.caller(), ClusterStatusRequest::default()).await
    }

    async fn own_views(&self) -> Vec<NodeView> {
        let mut asked = JoinSet::new();
        for node in self.rpc.membership.now().members.keys().copied() {
            let (rpc, caller) = (self.rpc.clone(), self.caller());
            asked.spawn(async move {
                let view = async {
                    if node == rpc.membership.me {
                        return cluster::serve(&rpc, caller, own_view()).await;
                    }
                    rpc.members.own_view_of(node).await
                };
                (node.0, timeout(VIEW_PATIENCE, view).await.ok().and_then(Result::ok))
            });
        }
        let mut views = Vec::new();
        while let Some(view) = asked.join_next().await {
            views.extend(view);
        }
        views
    }

    fn grants(&self) -> BTreeMap<u32, u64> {
        let groups = self.rpc.metrics.groups().into_iter();
        groups.map(|(group, levels)| (group.0, levels.grants.applied)).collect()
    }

    async fn own_view(&self, locks_max: usize) -> Result<OwnView, Failure> {
        let cluster = cluster::serve(&self.rpc, self.caller(), own_view()).await?;
        let locks_max = self.rpc.door.admit(&self.caller, Method::HttpOwnView, locks_max)?;
        let shown_max = *locks_max.get();
        let tables = timeout(VIEW_PATIENCE, self.rpc.door.own_tables(locks_max)).await;
        let tables = tables.unwrap_or_else(|_| Err(took_too_long()))?;
        let (mut locks, mut freezes) = (Vec::new(), Vec::new());
        for OwnTable { at, locks: of_group, freezes: in_group } in tables {
            locks.extend(of_group.into_iter().map(|lock| read::summary(lock, at)));
            freezes.extend(in_group.into_iter().map(|info| read::frozen(info, at)));
        }
        locks.sort_by(|one, other| one.name.cmp(&other.name));
        locks.truncate(shown_max);
        Ok(OwnView { cluster, locks, freezes })
    }

    async fn list(&self, request: ListRequest) -> Result<ListResponse, Failure> {
        list_search::serve(&self.rpc, self.caller(), request).await
    }

    async fn status(&self, name: String) -> Result<StatusResponse, Failure> {
        reads::serve(&self.rpc, self.caller(), StatusRequest { name, request_id: 0 }).await
    }

    async fn why(&self, name: String) -> Result<WhyResponse, Failure> {
        reads::serve(&self.rpc, self.caller(), WhyRequest { name }).await
    }

    async fn sessions(
        &self,
        request: ListSessionsRequest,
    ) -> Result<ListSessionsResponse, Failure> {
        reads::serve(&self.rpc, self.caller(), request).await
    }

    async fn freezes(&self) -> Result<ListFreezesResponse, Failure> {
        reads::serve(&self.rpc, self.caller(), ListFreezesRequest {}).await
    }

    fn recent(&self, wanted: RecentEvents) -> Vec<WatchEvent> {
        watch::recent(&self.rpc.events, &wanted)
    }

    fn owners_lately(&self, sessions: &BTreeSet<String>) -> BTreeMap<String, Owner> {
        let known = self.rpc.events.all().flat_map(|ring| {
            let known = watch::opened_lately(ring, sessions.iter().map(String::as_str));
            known.into_iter().filter_map(|(session, owner)| Some((session, owner?)))
        });
        known.map(|(session, owner)| (session.to_string(), read::owner(owner))).collect()
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchFrames, Failure> {
        let frames = watch::serve(&self.rpc, self.caller(), request).await?;
        Ok(Box::pin(frames.map(|frame| frame.map_err(|status| Failure::from_status(&status)))))
    }

    async fn break_holds(&self, request: BreakRequest) -> Result<BreakResponse, Failure> {
        operator::serve(&self.rpc, self.caller(), request).await
    }

    async fn move_lock(&self, request: MoveLockRequest) -> Result<MoveLockResponse, Failure> {
        operator::serve(&self.rpc, self.caller(), request).await
    }

    async fn freeze(&self, request: FreezeRequest) -> Result<FreezeResponse, Failure> {
        operator::serve(&self.rpc, self.caller(), request).await
    }

    async fn thaw(&self, request: ThawRequest) -> Result<ThawResponse, Failure> {
        operator::serve(&self.rpc, self.caller(), request).await
    }

    async fn kill_session(
        &self,
        request: KillSessionRequest,
    ) -> Result<KillSessionResponse, Failure> {
        operator::serve(&self.rpc, self.caller(), request).await
    }
}
