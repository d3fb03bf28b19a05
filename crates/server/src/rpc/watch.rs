//! `Watch`: what happens under a prefix, as it happens. The leader serves it; any other node passes it on.
//!
//! A watch never skips: it ends with words when it cannot go on, because the leader moved (resume at the
//! next one), the events were not read fast enough, or they are no longer kept.

mod all_groups;
mod concerns;
mod event_encoder;
mod follow;
mod history;
mod open_rate_limit;
mod pending_events;
mod queue;
mod recent;
mod snapshot;

pub(crate) use event_encoder::encode_events;
pub(super) use history::{opened_lately, serve as history};
pub(super) use open_rate_limit::OpenRateLimit;
pub(super) use queue::Frames;
pub(super) use recent::recent;

use std::pin::Pin;

use holdfast_core::LockName;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::watch_service_server::WatchService;
use holdfast_proto::v1::{
    EventPosition, Failure, HistoryRequest, HistoryResponse, Reason, WatchFrame, WatchRequest,
};
use holdfast_replica::GroupId;
use holdfast_service::{About, Admitted, Caller, Method, Permit};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::Rpc;
use super::every_group;
use super::grpc;
use super::route::Destination;
use crate::events::Position;
use all_groups::AllGroups;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct WatchTarget {
    /// The group whose events are told.
    group: GroupId,
    names: Scope,
    start: Start,
}

/// Which names are watched.
#[derive(Clone, Debug)]
enum Scope {
    Under(String),
    Only(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Snapshot,
    Now,
    After(Position),
}

impl Scope {
    /// With which all of the names begin.
    fn prefix(&self) -> &str {
        match self {
            Scope::Under(text) | Scope::Only(text) => text,
        }
    }

    /// What one needs to see to watch it.
    pub(super) fn about(&self) -> About<'_> {
        match self {
            Scope::Under(prefix) => About::Prefix(prefix),
            Scope::Only(name) => About::Name(name),
        }
    }

    fn covers(&self, name: &str) -> bool {
        match self {
            Scope::Under(prefix) => name.starts_with(prefix),
            Scope::Only(only) => name == only,
        }
    }

    fn is_everything(&self) -> bool {
        matches!(self, Scope::Under(prefix) if prefix.is_empty())
    }

    fn overlaps(&self, prefix: &str) -> bool {
        self.covers(prefix) || self.prefix().starts_with(prefix)
    }
}

impl Start {
    /// After the position, if one is given.
    fn decode(
        group: GroupId,
        after: Option<&EventPosition>,
        or_else: Start,
    ) -> Result<Start, Failure> {
        match after {
            None => Ok(or_else),
            Some(&EventPosition { group: of, index, number }) if of == group.0 => {
                Ok(Start::After(Position { group, index, number }))
            }
            Some(after) => {
                let words = format!(
                    "the position is of group {}, and the events are of group {}; start a new watch",
                    after.group, group.0
                );
                Err(refused(Reason::Compacted, words))
            }
        }
    }
}

impl WatchTarget {
    /// What one needs to see to watch it.
    pub(super) fn about(&self) -> About<'_> {
        self.names.about()
    }

    /// What happens to one lock.
    pub(super) fn of_one(
        group: GroupId,
        name: &LockName,
        after: Option<&EventPosition>,
    ) -> Result<WatchTarget, Failure> {
        let names = Scope::Only(name.as_str().to_owned());
        Ok(WatchTarget { group, names, start: Start::decode(group, after, Start::Snapshot)? })
    }

    fn decode(group: GroupId, request: &WatchRequest) -> Result<WatchTarget, Failure> {
        const PREFIX_BYTES_MAX: usize = holdfast_core::NAME_BYTES_MAX;
        let prefix = request.prefix.clone();
        if prefix.len() > PREFIX_BYTES_MAX || prefix.chars().any(char::is_control) {
            let words = "a prefix has at most 512 bytes and no control characters";
            return Err(refused(Reason::InvalidPrefix, words));
        }
        let or_else = if request.without_snapshot { Start::Now } else { Start::Snapshot };
        let start = Start::decode(group, request.after.as_ref(), or_else)?;
        Ok(WatchTarget { group, names: Scope::Under(prefix), start })
    }
}

/// What happens, told by this node, which should lead.
pub(super) fn follow(
    rpc: &Rpc,
    caller: &Caller,
    ask: Admitted<WatchTarget>,
    permit: Permit,
) -> Frames {
    follow::start(rpc.clone(), caller.clone(), ask, permit)
}

type WatchFrames = Pin<Box<dyn Stream<Item = Result<WatchFrame, Status>> + Send>>;

pub(super) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: WatchRequest,
) -> Result<WatchFrames, Failure> {
    serve_part(rpc, caller, request, None).await
}

/// For the group that a node names which watches all groups.
pub(super) async fn serve_part(
    rpc: &Rpc,
    caller: Caller,
    request: WatchRequest,
    part: Option<GroupId>,
) -> Result<WatchFrames, Failure> {
    let permit = rpc.door.begin(Method::Watch)?;
    // The node that a client asked has counted the whole watch.
    if part.is_none() {
        rpc.watch_open_rate.begin(&caller)?;
    }
    match every_group::Scope::every(rpc, part) {
        every_group::Scope::One(group) => {
            let request = all_groups::part(&request, group)?;
            in_group(rpc, &caller, &request, group, permit).await
        }
        every_group::Scope::Every => {
            let parts = every_group::carry_out(rpc, |rpc, group| {
                let (caller, request) = (caller.clone(), all_groups::part(&request, group));
                async move {
                    let permit = rpc.door.begin(Method::Watch)?;
                    in_group(&rpc, &caller, &request?, group, permit).await
                }
            });
            let parts = every_group::all_answers(parts.await?)?;
            let goes_on = request.after.is_some() || !request.after_groups.is_empty();
            let has_snapshot = !goes_on && !request.without_snapshot;
            Ok(Box::pin(AllGroups::new(parts, has_snapshot)))
        }
    }
}

async fn in_group(
    rpc: &Rpc,
    caller: &Caller,
    request: &WatchRequest,
    group: GroupId,
    permit: Permit,
) -> Result<WatchFrames, Failure> {
    let ask = WatchTarget::decode(group, request)?;
    let ask = rpc.door.authorise(caller, Method::Watch, ask.about())?.admit(ask);
    match rpc.destination(caller, Method::Watch, group).await? {
        Destination::Here => Ok(Box::pin(follow(rpc, caller, ask, permit))),
        Destination::At(leader) => {
            let permits = [permit, rpc.door.begin_relay()?];
            let to = (leader, Some(group));
            let frames = rpc.forwarding.stream(to, caller, Method::Watch, request).await?;
            Ok(Box::pin(held_by(frames, permits)))
        }
    }
}

/// The permits are held until the stream ends.
pub(super) fn held_by<S: Stream>(stream: S, permits: [Permit; 2]) -> impl Stream<Item = S::Item> {
    stream.map(move |item| {
        let _held = &permits;
        item
    })
}

#[tonic::async_trait]
impl WatchService for Rpc {
    type WatchStream = WatchFrames;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn history(
        &self,
        request: Request<HistoryRequest>,
    ) -> Result<Response<HistoryResponse>, Status> {
        grpc::call(request, |caller, request| history::serve(self, caller, request)).await
    }
}
