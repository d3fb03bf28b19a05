//! What other nodes forward to this one, on the peer port. It passes the service like everything else, with the caller that
//! the other node names. Which node that is, its ticket shows.

use std::pin::Pin;
use std::time::Duration;

use holdfast_proto::failure::{not_now, refused};
use holdfast_proto::peer_v1::forward_service_server::{ForwardService, ForwardServiceServer};
use holdfast_proto::peer_v1::{self, ForwardedAction, ForwardedAnswer, ForwardedFrame};
use holdfast_proto::v1::{
    AcquireAllRequest, AcquireRequest, AddNodeRequest, BreakRequest, CampaignRequest,
    CancelRequest, ChangeAccessRequest, CheckTokenRequest, CloseSessionRequest,
    ClusterStatusRequest, ConvertRequest, Failure, FreezeRequest, HistoryRequest,
    KeepAliveManyRequest, KeepAliveRequest, KillSessionRequest, ListFreezesRequest, ListRequest,
    ListSessionsRequest, MoveLockRequest, ObserveRequest, OpenSessionRequest, ProclaimRequest,
    PromoteNodeRequest, Reason, ReleaseRequest, RemoveNodeRequest, RenewRequest, ReopenRequest,
    ResignRequest, SaveSnapshotRequest, SetLimitsRequest, SetPermitsRequest, ShowAccessRequest,
    StatusRequest, ThawRequest, TransferLeadershipRequest, TransferRequest, WatchRequest,
    WhyRequest,
};
use holdfast_replica::GroupId;
use holdfast_service::{Caller, Method};
use prost::Message;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::failure::took_too_long;
use super::forward::FORWARDED_BYTES_MAX;
use super::message_sizes::RESPONSE_BYTES_MAX;
use super::{
    Rpc, access, cluster, election, keep_alive_many, list_search, operator, reads, stream, unary,
    watch,
};
use crate::peers::{ConnectionTickets, Shown, TICKET_KEY};

/// A node sends it together with the call.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(2);

type Answers = Pin<Box<dyn Stream<Item = Result<ForwardedAnswer, Status>> + Send>>;

#[derive(Debug)]
pub(crate) struct Forwarded {
    rpc: Rpc,
    tickets: ConnectionTickets,
}

impl Forwarded {
    pub(crate) fn service(rpc: Rpc, tickets: ConnectionTickets) -> ForwardServiceServer<Forwarded> {
        ForwardServiceServer::new(Forwarded { rpc, tickets })
            .max_decoding_message_size(FORWARDED_BYTES_MAX)
            .max_encoding_message_size(RESPONSE_BYTES_MAX + FORWARDED_BYTES_MAX)
    }

    /// The node that calls.
    fn node<T>(&self, request: &Request<T>) -> Result<u64, Failure> {
        let ticket =
            request.metadata().get_bin(TICKET_KEY).and_then(|ticket| ticket.to_bytes().ok());
        // A node that is no member, or not yet, may be connected all the same.
        let members = self.rpc.membership.now();
        let shown = request.extensions().get::<Shown>();
        let holder = ticket.and_then(|ticket| self.tickets.holder(&ticket, shown?));
        let holder = holder.filter(|node| members.is_member(*node));
        // Nodes that have just lost their connection come with an old ticket.
        let words =
            "this node does not know which node forwards this; the nodes connect again in a moment";
        holder.map(|node| node.0).ok_or_else(|| not_now(Reason::NotLeader, words))
    }
}

fn caller(caller: Option<&peer_v1::Caller>, node: u64) -> Result<Caller, Failure> {
    let words = "a forwarded action without a caller that this node knows; upgrade this node";
    let caller = caller.and_then(|caller| Caller::forwarded(caller, node).ok());
    caller.ok_or_else(|| refused(Reason::InvalidFrame, words))
}

fn method(action: &ForwardedAction) -> Result<Method, Failure> {
    Method::at_path(&action.method).ok_or_else(|| {
        let words = format!("this node does not know the method {}; upgrade it", action.method);
        refused(Reason::InvalidFrame, words)
    })
}

fn decoded<M: Message + Default>(action: &ForwardedAction) -> Result<M, Failure> {
    M::decode(&action.request[..])
        .map_err(|error| refused(Reason::InvalidFrame, format!("{}: {error}", action.method)))
}

fn answer(response: &impl Message) -> ForwardedAnswer {
    ForwardedAnswer { response: response.encode_to_vec() }
}

fn not_forwarded(method: Method) -> Failure {
    refused(Reason::InvalidFrame, format!("{method:?} is not forwarded in this way"))
}

/// An action with one answer.
async fn carry_out(
    rpc: &Rpc,
    action: &ForwardedAction,
    caller: Caller,
) -> Result<ForwardedAnswer, Failure> {
    let method = method(action)?;
    macro_rules! served {
        ($serve:path, $request:ty) => {
            $serve(rpc, caller, decoded::<$request>(action)?)
                .await
                .map(|response| answer(&response))
        };
    }
    // It names its group. So an action of all groups comes here once for each group that this node leads.
    macro_rules! part {
        ($serve:path, $request:ty) => {{
            let part = part(rpc, action)?;
            $serve(rpc, caller, decoded::<$request>(action)?, part)
                .await
                .map(|response| answer(&response))
        }};
    }
    match method {
        Method::OpenSession => part!(unary::serve_part, OpenSessionRequest),
        Method::KeepAlive => part!(unary::serve_part, KeepAliveRequest),
        Method::KeepAliveMany => part!(keep_alive_many::serve_part, KeepAliveManyRequest),
        Method::CloseSession => part!(unary::serve_part, CloseSessionRequest),
        Method::Acquire => part!(unary::serve_part, AcquireRequest),
        Method::AcquireAll => part!(unary::serve_part, AcquireAllRequest),
        Method::Convert => part!(unary::serve_part, ConvertRequest),
        Method::Cancel => part!(unary::serve_part, CancelRequest),
        Method::Release => part!(unary::serve_part, ReleaseRequest),
        Method::Renew => part!(unary::serve_part, RenewRequest),
        Method::Proclaim => part!(unary::serve_part, ProclaimRequest),
        Method::Transfer => part!(unary::serve_part, TransferRequest),
        Method::Campaign => part!(unary::serve_part, CampaignRequest),
        Method::Resign => part!(unary::serve_part, ResignRequest),
        Method::Status => part!(reads::serve_part, StatusRequest),
        Method::List => part!(list_search::serve_part, ListRequest),
        Method::ListSessions => part!(reads::serve_part, ListSessionsRequest),
        Method::ListFreezes => part!(reads::serve_part, ListFreezesRequest),
        Method::Why => part!(reads::serve_part, WhyRequest),
        Method::CheckToken => part!(reads::serve_part, CheckTokenRequest),
        Method::ClusterStatus => served!(cluster::serve, ClusterStatusRequest),
        Method::History => served!(watch::history, HistoryRequest),
        Method::Break => part!(operator::serve_part, BreakRequest),
        Method::MoveLock => part!(operator::serve_part, MoveLockRequest),
        Method::Freeze => part!(operator::serve_part, FreezeRequest),
        Method::Thaw => part!(operator::serve_part, ThawRequest),
        Method::SetPermits => part!(operator::serve_part, SetPermitsRequest),
        Method::KillSession => part!(operator::serve_part, KillSessionRequest),
        Method::Reopen => part!(operator::serve_part, ReopenRequest),
        Method::SetLimits => part!(operator::serve_part, SetLimitsRequest),
        Method::ShowAccess => part!(reads::serve_part, ShowAccessRequest),
        Method::ChangeAccess => served!(access::change, ChangeAccessRequest),
        Method::AddNode => served!(cluster::change, AddNodeRequest),
        Method::PromoteNode => served!(cluster::change, PromoteNodeRequest),
        Method::RemoveNode => served!(cluster::change, RemoveNodeRequest),
        Method::TransferLeadership => {
            served!(cluster::transfer_leadership, TransferLeadershipRequest)
        }
        _ => Err(not_forwarded(method)),
    }
}

/// The group that the other node takes this one for the leader of. None from an older node, which knows one group.
fn part(rpc: &Rpc, action: &ForwardedAction) -> Result<Option<GroupId>, Failure> {
    match action.group {
        0 => Ok(None),
        group => rpc.membership.groups.with_number(group).map(Some),
    }
}

/// An action with many answers.
async fn carry_out_stream(
    rpc: &Rpc,
    action: &ForwardedAction,
    caller: Caller,
) -> Result<Answers, Failure> {
    let method = method(action)?;
    macro_rules! served {
        ($serve:path, $request:ty) => {{
            let answers = $serve(rpc, caller, decoded::<$request>(action)?).await?;
            Ok(Box::pin(answers.map(|item| item.map(|response| answer(&response)))))
        }};
    }
    match method {
        Method::Watch => {
            let part = part(rpc, action)?;
            let request = decoded::<WatchRequest>(action)?;
            let answers = watch::serve_part(rpc, caller, request, part).await?;
            Ok(Box::pin(answers.map(|item| item.map(|response| answer(&response)))))
        }
        Method::Observe => served!(election::observe, ObserveRequest),
        Method::SaveSnapshot => served!(cluster::save_snapshot, SaveSnapshotRequest),
        _ => Err(not_forwarded(method)),
    }
}

#[tonic::async_trait]
impl ForwardService for Forwarded {
    type ForwardStreamStream = Answers;
    type ForwardSessionStream = Answers;

    async fn forward(
        &self,
        request: Request<ForwardedAction>,
    ) -> Result<Response<ForwardedAnswer>, Status> {
        let node = self.node(&request)?;
        let action = request.into_inner();
        let caller = caller(action.caller.as_ref(), node)?;
        Ok(Response::new(carry_out(&self.rpc, &action, caller).await?))
    }

    async fn forward_stream(
        &self,
        request: Request<ForwardedAction>,
    ) -> Result<Response<Answers>, Status> {
        let node = self.node(&request)?;
        let action = request.into_inner();
        let caller = caller(action.caller.as_ref(), node)?;
        Ok(Response::new(carry_out_stream(&self.rpc, &action, caller).await?))
    }

    async fn forward_session(
        &self,
        request: Request<Streaming<ForwardedFrame>>,
    ) -> Result<Response<Answers>, Status> {
        let node = self.node(&request)?;
        let mut frames = request.into_inner();
        let first = timeout(FIRST_FRAME_TIMEOUT, frames.message()).await;
        let first = first.map_err(|_| took_too_long())??;
        let first =
            first.ok_or_else(|| refused(Reason::InvalidFrame, "a stream without a frame"))?;
        let caller = caller(first.caller.as_ref(), node)?;
        let frames = stream::serve_forwarded(&self.rpc, caller, first, frames)?;
        let answers = frames.map(|frame| frame.map(|frame| answer(&frame)));
        Ok(Response::new(Box::pin(answers)))
    }
}
