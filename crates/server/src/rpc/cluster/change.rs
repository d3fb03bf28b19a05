//! `AddNode`, `PromoteNode`, `RemoveNode`, `TransferLeadership`.
//!
//! The leader carries them out. If it hands over on the way (it does when it is the one to be removed), the
//! next leader is asked: until it is answered, nothing has happened or it can be asked for again.

use std::time::Duration;

use holdfast_proto::failure::refused;
use holdfast_proto::v1::cluster_service_server::ClusterService;
use holdfast_proto::v1::{
    AddNodeRequest, AddNodeResponse, Failure, PromoteNodeRequest, PromoteNodeResponse, Reason,
    RemoveNodeRequest, RemoveNodeResponse, SaveSnapshotRequest, TransferLeadershipRequest,
    TransferLeadershipResponse,
};
use holdfast_replica::{ChangeRefusal, HandOverRefusal, Member, MembershipChange, NodeId};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::{Request, Response, Status};

use super::super::places::Kind;
use super::save;
use crate::config::Address;
use crate::driver::{FIRST_GROUP, Input, Unavailable};
use crate::rpc::Rpc;
use crate::rpc::authorise::authorise_operator;
use crate::rpc::failure::{dropped_by_driver, took_too_long, unavailable};
use crate::rpc::forward::Leader;
use crate::rpc::origin::Origin;
use crate::rpc::route::Route;

/// A change of voters takes three rounds, and perhaps a change of leader before.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handing over takes milliseconds or comes to nothing.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What a request of an operator is, and how it is answered and forwarded.
trait Verb: Clone + Send + Sync + 'static {
    type Response: Send;

    fn change(&self) -> Result<MembershipChange, Failure>;

    fn response(rpc: &Rpc) -> Self::Response;

    fn forward(
        request: Request<Self>,
        leader: Leader,
    ) -> impl Future<Output = Result<Response<Self::Response>, Status>> + Send;
}

#[tonic::async_trait]
impl ClusterService for Rpc {
    type SaveSnapshotStream = save::Chunks;

    async fn save_snapshot(
        &self,
        request: Request<SaveSnapshotRequest>,
    ) -> Result<Response<save::Chunks>, Status> {
        save::serve(self, request).await
    }

    async fn add_node(
        &self,
        request: Request<AddNodeRequest>,
    ) -> Result<Response<AddNodeResponse>, Status> {
        serve(self, request).await
    }

    async fn promote_node(
        &self,
        request: Request<PromoteNodeRequest>,
    ) -> Result<Response<PromoteNodeResponse>, Status> {
        serve(self, request).await
    }

    async fn remove_node(
        &self,
        request: Request<RemoveNodeRequest>,
    ) -> Result<Response<RemoveNodeResponse>, Status> {
        serve(self, request).await
    }

    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Result<Response<TransferLeadershipResponse>, Status> {
        let _place = self.admit(Kind::Call)?;
        let origin = Origin::of(request.metadata())?;
        authorise_operator(&origin.principal)?;
        let request = request.into_inner();
        let carried_out = timeout(CHANGE_TIMEOUT, async {
            match self.route(&origin).await? {
                Route::Here => hand_over(self, request.to).await,
                Route::There(mut leader) => {
                    let forwarded = origin.forwarded(self.membership.me, request);
                    let answer = leader.cluster.transfer_leadership(forwarded).await;
                    answer.map(Response::into_inner).map_err(|status| leader.failure(&status))
                }
            }
        });
        let answer = carried_out.await.unwrap_or_else(|_| Err(took_too_long()))?;
        Ok(Response::new(answer))
    }
}

async fn serve<V: Verb>(rpc: &Rpc, request: Request<V>) -> Result<Response<V::Response>, Status> {
    let _place = rpc.admit(Kind::Call)?;
    let origin = Origin::of(request.metadata())?;
    authorise_operator(&origin.principal)?;
    let request = request.into_inner();
    let change = request.change()?;
    let carried_out = timeout(CHANGE_TIMEOUT, carry_out(rpc, &origin, request, change)).await;
    Ok(Response::new(carried_out.unwrap_or_else(|_| Err(took_too_long()))?))
}

/// Asks one leader after the other until one of them knows.
async fn carry_out<V: Verb>(
    rpc: &Rpc,
    origin: &Origin,
    request: V,
    change: MembershipChange,
) -> Result<V::Response, Failure> {
    loop {
        let failure = match rpc.route(origin).await? {
            Route::Here => match propose(rpc, change.clone()).await? {
                Ok(Ok(())) => return Ok(V::response(rpc)),
                Ok(Err(refusal)) => return Err(of_refusal(&refusal)),
                Err(reason) => unavailable(reason, &rpc.membership),
            },
            Route::There(leader) => {
                let forwarded = origin.forwarded(rpc.membership.me, request.clone());
                match V::forward(forwarded, leader.clone()).await {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) => leader.failure(&status),
                }
            }
        };
        let has_moved = failure.retryable && failure.reason() == Reason::NotLeader;
        if !has_moved || origin.is_forwarded() {
            return Err(failure);
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
}

async fn propose(
    rpc: &Rpc,
    change: MembershipChange,
) -> Result<Result<Result<(), ChangeRefusal>, Unavailable>, Failure> {
    let (reply, answer) = oneshot::channel();
    rpc.ask(Input::ChangeMembership { group: FIRST_GROUP, change, reply })?;
    answer.await.map_err(|_| dropped_by_driver())
}

async fn hand_over(rpc: &Rpc, to: u64) -> Result<TransferLeadershipResponse, Failure> {
    let to = Some(NodeId(to)).filter(|node| *node != NodeId(0));
    let (reply, answer) = oneshot::channel();
    rpc.ask(Input::HandOver { group: FIRST_GROUP, to, reply })?;
    let answer = answer.await.map_err(|_| dropped_by_driver())?;
    let successor = answer.map_err(|refusal| of_hand_over(rpc, &refusal))?;
    let mut leadership = rpc.driver.watch_leadership();
    let handed_over = timeout(
        HAND_OVER_TIMEOUT,
        leadership.wait_for(|now| {
            let leads = now.leader == Some(successor);
            leads && (to.is_some() || successor != rpc.membership.me)
        }),
    );
    match handed_over.await {
        Ok(Ok(_)) => Ok(TransferLeadershipResponse { leader: successor.0 }),
        Ok(Err(_)) => Err(dropped_by_driver()),
        Err(_) => Err(took_too_long()),
    }
}

fn of_refusal(refusal: &ChangeRefusal) -> Failure {
    let reason = match refusal {
        ChangeRefusal::InvalidId => Reason::InvalidNodeId,
        ChangeRefusal::InvalidAddress { .. } => Reason::InvalidAddress,
        ChangeRefusal::IdInUse { .. } | ChangeRefusal::IdUsedBefore { .. } => Reason::NodeIdInUse,
        ChangeRefusal::AddressInUse { .. } => Reason::AddressInUse,
        ChangeRefusal::UnknownNode { .. } => Reason::UnknownNode,
        ChangeRefusal::NotAVoter { .. } => Reason::NotAVoter,
        ChangeRefusal::LastVoter { .. } => Reason::LastVoter,
        ChangeRefusal::UnderWay { .. } => Reason::ChangeUnderWay,
        ChangeRefusal::NoQuorumLeft { .. } => Reason::NoQuorumLeft,
        ChangeRefusal::NotCaughtUp { .. } => Reason::NotCaughtUp,
        ChangeRefusal::TooManyNodes => Reason::TooManyNodes,
    };
    refused(reason, refusal.to_string())
}

fn of_hand_over(rpc: &Rpc, refusal: &HandOverRefusal) -> Failure {
    match refusal {
        HandOverRefusal::NotLeader { leader } => {
            unavailable(Unavailable::NotLeader { leader: *leader }, &rpc.membership)
        }
        HandOverRefusal::NotAVoter { node } if rpc.membership.now().is_member(*node) => {
            refused(Reason::NotAVoter, refusal.to_string())
        }
        HandOverRefusal::NotAVoter { node } => {
            refused(Reason::UnknownNode, format!("there is no node {node}"))
        }
        HandOverRefusal::Unreachable { .. } | HandOverRefusal::NobodyElse => {
            refused(Reason::NoQuorumLeft, refusal.to_string())
        }
    }
}

fn node_id(node: u64) -> Result<NodeId, Failure> {
    match node {
        0 => Err(refused(Reason::InvalidNodeId, ChangeRefusal::InvalidId.to_string())),
        node => Ok(NodeId(node)),
    }
}

fn address(text: &str) -> Result<String, Failure> {
    match Address::new(text) {
        Ok(address) if address.is_unspecified() => {
            let words = format!("'{text}' cannot be dialled; give the address that others reach");
            Err(refused(Reason::InvalidAddress, words))
        }
        Ok(address) => Ok(address.to_string()),
        Err(error) => Err(refused(Reason::InvalidAddress, error.to_string())),
    }
}

impl Verb for AddNodeRequest {
    type Response = AddNodeResponse;

    fn change(&self) -> Result<MembershipChange, Failure> {
        let member = Member {
            peer_address: address(&self.peer_address)?,
            client_address: address(&self.client_address)?,
            directory: None,
            stays_learner: self.stays_learner,
            replaces: Some(NodeId(self.replaces)).filter(|node| *node != NodeId(0)),
        };
        Ok(MembershipChange::Add { node: node_id(self.node)?, member })
    }

    fn response(rpc: &Rpc) -> AddNodeResponse {
        AddNodeResponse { cluster: rpc.membership.cluster.clone() }
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<AddNodeResponse>, Status> {
        leader.cluster.add_node(request).await
    }
}

impl Verb for PromoteNodeRequest {
    type Response = PromoteNodeResponse;

    fn change(&self) -> Result<MembershipChange, Failure> {
        Ok(MembershipChange::Promote { node: node_id(self.node)? })
    }

    fn response(_: &Rpc) -> PromoteNodeResponse {
        PromoteNodeResponse {}
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<PromoteNodeResponse>, Status> {
        leader.cluster.promote_node(request).await
    }
}

impl Verb for RemoveNodeRequest {
    type Response = RemoveNodeResponse;

    fn change(&self) -> Result<MembershipChange, Failure> {
        Ok(MembershipChange::Remove { node: node_id(self.node)? })
    }

    fn response(_: &Rpc) -> RemoveNodeResponse {
        RemoveNodeResponse {}
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<RemoveNodeResponse>, Status> {
        leader.cluster.remove_node(request).await
    }
}
