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
    match method {
        Method::OpenSession => served!(unary::serve, OpenSessionRequest),
        Method::KeepAlive => served!(unary::serve, KeepAliveRequest),
        Method::KeepAliveMany => served!(keep_alive_many::serve, KeepAliveManyRequest),
        Method::CloseSession => served!(unary::serve, CloseSessionRequest),
        Method::Acquire => served!(unary::serve, AcquireRequest),
        Method::AcquireAll => served!(unary::serve, AcquireAllRequest),
        Method::Convert => served!(unary::serve, ConvertRequest),
        Method::Cancel => served!(unary::serve, CancelRequest),
        Method::Release => served!(unary::serve, ReleaseRequest),
        Method::Renew => served!(unary::serve, RenewRequest),
        Method::Proclaim => served!(unary::serve, ProclaimRequest),
        Method::Transfer => served!(unary::serve, TransferRequest),
        Method::Campaign => served!(unary::serve, CampaignRequest),
        Method::Resign => served!(unary::serve, ResignRequest),
        Method::Status => served!(reads::serve, StatusRequest),
        Method::List => served!(list_search::serve, ListRequest),
        Method::ListSessions => served!(reads::serve, ListSessionsRequest),
        Method::ListFreezes => served!(reads::serve, ListFreezesRequest),
        Method::Why => served!(reads::serve, WhyRequest),
        Method::CheckToken => served!(reads::serve, CheckTokenRequest),
        Method::ClusterStatus => served!(cluster::serve, ClusterStatusRequest),
        Method::History => served!(watch::history, HistoryRequest),
        Method::Break => served!(operator::serve, BreakRequest),
        Method::MoveLock => served!(operator::serve, MoveLockRequest),
        Method::Freeze => served!(operator::serve, FreezeRequest),
        Method::Thaw => served!(operator::serve, ThawRequest),
        Method::SetPermits => served!(operator::serve, SetPermitsRequest),
        Method::KillSession => served!(operator::serve, KillSessionRequest),
        Method::Reopen => served!(operator::serve, ReopenRequest),
        Method::SetLimits => served!(operator::serve, SetLimitsRequest),
        Method::ShowAccess => served!(reads::serve, ShowAccessRequest),
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
        Method::Watch => served!(watch::serve, WatchRequest),
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
