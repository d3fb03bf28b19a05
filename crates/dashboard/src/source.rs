//! Where the dashboard has everything from.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

use axum::http::Extensions;
use holdfast_proto::v1::{
    BreakRequest, BreakResponse, ClusterStatusResponse, Failure, FreezeRequest, FreezeResponse,
    Frozen, KillSessionRequest, KillSessionResponse, ListFreezesResponse, ListRequest,
    ListResponse, ListSessionsRequest, ListSessionsResponse, LockSummary, MoveLockRequest,
    MoveLockResponse, Owner, StatusResponse, ThawRequest, ThawResponse, WatchEvent, WatchFrame,
    WatchRequest, WhyResponse,
};
use tokio_stream::Stream;

/// What happens, as it happens; it ends with words.
pub type WatchFrames = Pin<Box<dyn Stream<Item = Result<WatchFrame, Failure>> + Send>>;

/// A node, and how it sees the cluster; none if it does not answer.
pub type NodeView = (u64, Option<ClusterStatusResponse>);

type Answer<T> = Result<T, Failure>;

/// Which of the events that are still kept are wanted; the latest, at most so many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentEvents {
    /// Of this lock alone; else those under the prefix.
    pub name: Option<String>,
    pub prefix: String,
    /// Values of `EventKind`; empty: all.
    pub kinds: Vec<i32>,
    pub max: usize,
}

/// What a node knows by itself: how it sees the cluster, and its own copy of the lock table. It may be old.
#[derive(Clone, Debug, Default)]
pub struct OwnView {
    pub cluster: ClusterStatusResponse,
    /// Some, by name.
    pub locks: Vec<LockSummary>,
    pub freezes: Vec<Frozen>,
}

/// A node, as the dashboard sees it. What is read of the lock table is linearizable, but for [`Source::own_view`]; each
/// method bounds its own time.
pub trait Source: Send + Sync + 'static {
    /// The same node, for the caller of a request, which the node has put into the request's extensions. None: it has not.
    fn called_by(&self, extensions: &Extensions) -> Option<Self>
    where
        Self: Sized;

    /// The caller, if the node demands to know who calls, and this one has proved who it is.
    fn principal(&self) -> Option<String>;

    /// The id of the node that serves the page.
    fn node(&self) -> u64;

    /// The leader's view, or this node's own if no leader answers.
    fn cluster(&self) -> impl Future<Output = Answer<ClusterStatusResponse>> + Send;

    /// Each node's own view.
    fn own_views(&self) -> impl Future<Output = Vec<NodeView>> + Send;

    /// How many holds began in each group since the node started, as far as it has applied the log. It can start again
    /// from 0.
    fn grants(&self) -> BTreeMap<u32, u64>;

    /// This node's, without a quorum; with at most so many locks.
    fn own_view(&self, locks_max: usize) -> impl Future<Output = Answer<OwnView>> + Send;

    fn list(&self, request: ListRequest) -> impl Future<Output = Answer<ListResponse>> + Send;

    fn status(&self, name: String) -> impl Future<Output = Answer<StatusResponse>> + Send;

    fn why(&self, name: String) -> impl Future<Output = Answer<WhyResponse>> + Send;

    fn sessions(
        &self,
        request: ListSessionsRequest,
    ) -> impl Future<Output = Answer<ListSessionsResponse>> + Send;

    fn freezes(&self) -> impl Future<Output = Answer<ListFreezesResponse>> + Send;

    /// From what this node has kept; the latest last.
    fn recent(&self, wanted: RecentEvents) -> Vec<WatchEvent>;

    /// Of those that were opened lately, as far as this node has kept events, whether they ended since or not.
    fn owners_lately(&self, sessions: &BTreeSet<String>) -> BTreeMap<String, Owner>;

    fn watch(&self, request: WatchRequest) -> impl Future<Output = Answer<WatchFrames>> + Send;

    fn break_holds(
        &self,
        request: BreakRequest,
    ) -> impl Future<Output = Answer<BreakResponse>> + Send;

    fn move_lock(
        &self,
        request: MoveLockRequest,
    ) -> impl Future<Output = Answer<MoveLockResponse>> + Send;

    fn freeze(&self, request: FreezeRequest)
    -> impl Future<Output = Answer<FreezeResponse>> + Send;

    fn thaw(&self, request: ThawRequest) -> impl Future<Output = Answer<ThawResponse>> + Send;

    fn kill_session(
        &self,
        request: KillSessionRequest,
    ) -> impl Future<Output = Answer<KillSessionResponse>> + Send;
}
