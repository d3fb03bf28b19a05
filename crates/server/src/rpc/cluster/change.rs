//! `AddNode`, `PromoteNode`, `RemoveNode`, `TransferLeadership`.
//!
//! The leader carries them out. If it hands over on the way (it does when it is the one to be removed), the
//! next leader is asked: until it is answered, nothing has happened or it can be asked for again.
//!
//! In a cluster with several groups the root group makes the change, and the others follow by themselves. The leader of
//! the root group waits for them for a while, and answers by its own copies of them: what those have is committed.

use std::time::Duration;

use holdfast_engine::Unavailable;
use holdfast_proto::decode::group;
use holdfast_proto::failure::refused;
use holdfast_proto::peer_v1::Timing;
use holdfast_proto::v1::cluster_service_server::ClusterService;
use holdfast_proto::v1::{
    AddNodeRequest, AddNodeResponse, Failure, PromoteNodeRequest, PromoteNodeResponse, Reason,
    RemoveNodeRequest, RemoveNodeResponse, SaveSnapshotRequest, TransferLeadershipRequest,
    TransferLeadershipResponse,
};
use holdfast_replica::{ChangeRefusal, GroupId, HandOverRefusal, Member, MembershipChange, NodeId};
use holdfast_service::{Admitted, Caller, Method};
use prost::Message;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Request, Response, Status};

use super::save;
use crate::config::Address;
use crate::rpc::Rpc;
use crate::rpc::every_group::numbers;
use crate::rpc::failure::{dropped_by_shard, took_too_long, unavailable};
use crate::rpc::grpc;
use crate::rpc::route::Destination;

/// A change of voters takes three rounds, and perhaps a change of leader before.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Less than `CHANGE_TIMEOUT` leaves after the change of the root group. A group follows within milliseconds if it has a
/// leader.
const OTHER_GROUPS_TIMEOUT: Duration = Duration::from_secs(3);
/// Handing over takes milliseconds or comes to nothing.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What a request of an operator is, and how it is answered.
pub(in crate::rpc) trait Verb: Message + 'static {
    const METHOD: Method;
    type Response: Message + Default;

    fn change(&self) -> Result<MembershipChange, Failure>;

    /// The root group has made the change; these other groups have not, as far as this node knows.
    fn response(&self, rpc: &Rpc, groups_behind: &[GroupId]) -> Result<Self::Response, Failure>;
}

#[tonic::async_trait]
impl ClusterService for Rpc {
    type SaveSnapshotStream = save::Chunks;

    async fn save_snapshot(
        &self,
        request: Request<SaveSnapshotRequest>,
    ) -> Result<Response<save::Chunks>, Status> {
        grpc::call(request, |caller, request| save::serve(self, caller, request)).await
    }

    async fn add_node(
        &self,
        request: Request<AddNodeRequest>,
    ) -> Result<Response<AddNodeResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn promote_node(
        &self,
        request: Request<PromoteNodeRequest>,
    ) -> Result<Response<PromoteNodeResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn remove_node(
        &self,
        request: Request<RemoveNodeRequest>,
    ) -> Result<Response<RemoveNodeResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Result<Response<TransferLeadershipResponse>, Status> {
        grpc::call(request, |caller, request| transfer_leadership(self, caller, request)).await
    }
}

pub(in crate::rpc) async fn serve<V: Verb>(
    rpc: &Rpc,
    caller: Caller,
    request: V,
) -> Result<V::Response, Failure> {
    let _permit = rpc.door.begin(V::METHOD)?;
    let change = rpc.door.admit(&caller, V::METHOD, request.change()?)?;
    let carried_out = timeout(CHANGE_TIMEOUT, carry_out(rpc, &caller, request, change)).await;
    carried_out.unwrap_or_else(|_| Err(took_too_long()))
}

/// Asks one leader after the other until one of them knows.
async fn carry_out<V: Verb>(
    rpc: &Rpc,
    caller: &Caller,
    request: V,
    change: Admitted<MembershipChange>,
) -> Result<V::Response, Failure> {
    loop {
        let failure = match rpc.destination(caller, V::METHOD, GroupId::FIRST).await? {
            Destination::Here => match rpc.door.change_membership(change.clone()).await? {
                Ok(Ok(())) => {
                    let behind = wait_for_other_groups(rpc, change.get()).await;
                    return request.response(rpc, &behind);
                }
                Ok(Err(refusal)) => return Err(of_refusal(&refusal)),
                Err(reason) => unavailable(reason, &rpc.membership),
            },
            Destination::At(leader) => {
                match rpc.forwarding.call_known(leader, caller, V::METHOD, &request).await {
                    Ok(Some(response)) => return Ok(response),
                    // It stays the leader and does not learn: its client has to ask it.
                    Ok(None) => return Err(rpc.forwarding.older_leader(leader)),
                    Err(failure) => failure,
                }
            }
        };
        let has_moved = failure.retryable && failure.reason() == Reason::NotLeader;
        if !has_moved || caller.forwarded_by.is_some() {
            return Err(failure);
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
}

/// The groups that have not followed in time.
async fn wait_for_other_groups(rpc: &Rpc, change: &MembershipChange) -> Vec<GroupId> {
    let groups_behind = || {
        let has_followed =
            |group| rpc.membership.in_group(group, |members| members.has_followed(change));
        let others = rpc.membership.groups.all().skip(1);
        others.filter(|group| !has_followed(*group)).collect::<Vec<GroupId>>()
    };
    let give_up_at = Instant::now() + OTHER_GROUPS_TIMEOUT;
    loop {
        let behind = groups_behind();
        if behind.is_empty() || Instant::now() >= give_up_at {
            return behind;
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
}

/// The change is not complete. It goes on without its caller.
fn not_in_all_groups(what: &str, groups_behind: &[GroupId]) -> Result<(), Failure> {
    if groups_behind.is_empty() {
        return Ok(());
    }
    let behind = numbers(groups_behind);
    let words = format!(
        "{what} in group 1, and not yet in {behind}, which will follow as soon as it is possible there; send it again to wait \
         for them"
    );
    Err(Failure { may_have_happened: true, ..refused(Reason::ChangeUnderWay, words) })
}

pub(in crate::rpc) async fn transfer_leadership(
    rpc: &Rpc,
    caller: Caller,
    request: TransferLeadershipRequest,
) -> Result<TransferLeadershipResponse, Failure> {
    const METHOD: Method = Method::TransferLeadership;
    let _permit = rpc.door.begin(METHOD)?;
    let to = Some(NodeId(request.to)).filter(|node| *node != NodeId(0));
    let to = rpc.door.admit(&caller, METHOD, to)?;
    let group = rpc.membership.groups.with_number(group(request.group))?;
    let carried_out = async {
        match rpc.destination(&caller, METHOD, group).await? {
            Destination::Here => hand_over(rpc, group, to).await,
            Destination::At(leader) => rpc.forwarding.call(leader, &caller, METHOD, &request).await,
        }
    };
    timeout(CHANGE_TIMEOUT, carried_out).await.unwrap_or_else(|_| Err(took_too_long()))
}

async fn hand_over(
    rpc: &Rpc,
    group: GroupId,
    to: Admitted<Option<NodeId>>,
) -> Result<TransferLeadershipResponse, Failure> {
    let is_chosen = to.get().is_some();
    let answer = rpc.door.hand_over(group, to).await?;
    let successor = answer.map_err(|refusal| of_hand_over(rpc, &refusal))?;
    let mut leadership = rpc.door.watch_leadership(group);
    let handed_over = timeout(
        HAND_OVER_TIMEOUT,
        leadership.wait_for(|now| {
            let leads = now.leader == Some(successor);
            leads && (is_chosen || successor != rpc.membership.me)
        }),
    );
    match handed_over.await {
        Ok(Ok(_)) => Ok(TransferLeadershipResponse { leader: successor.0 }),
        Ok(Err(_)) => Err(dropped_by_shard()),
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
        HandOverRefusal::Unreachable { .. } | HandOverRefusal::NoOtherVoter => {
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
    const METHOD: Method = Method::AddNode;
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

    /// The caller needs the answer for the configuration of the new node, and waits for the groups afterwards.
    fn response(&self, rpc: &Rpc, groups_behind: &[GroupId]) -> Result<AddNodeResponse, Failure> {
        let Timing { tick_ms, election_ticks } = rpc.membership.timing;
        let groups = rpc.membership.groups.all().len();
        Ok(AddNodeResponse {
            cluster: rpc.membership.cluster.clone(),
            tick_ms,
            election_ticks,
            groups: if groups == 1 { 0 } else { groups as u32 },
            groups_behind: groups_behind.iter().map(|group| group.0).collect(),
        })
    }
}

impl Verb for PromoteNodeRequest {
    const METHOD: Method = Method::PromoteNode;
    type Response = PromoteNodeResponse;

    fn change(&self) -> Result<MembershipChange, Failure> {
        Ok(MembershipChange::Promote { node: node_id(self.node)? })
    }

    fn response(&self, _: &Rpc, groups_behind: &[GroupId]) -> Result<PromoteNodeResponse, Failure> {
        not_in_all_groups(&format!("node {} is a voter", self.node), groups_behind)?;
        Ok(PromoteNodeResponse {})
    }
}

impl Verb for RemoveNodeRequest {
    const METHOD: Method = Method::RemoveNode;
    type Response = RemoveNodeResponse;

    fn change(&self) -> Result<MembershipChange, Failure> {
        Ok(MembershipChange::Remove { node: node_id(self.node)? })
    }

    fn response(&self, _: &Rpc, groups_behind: &[GroupId]) -> Result<RemoveNodeResponse, Failure> {
        not_in_all_groups(&format!("node {} is removed", self.node), groups_behind)?;
        Ok(RemoveNodeResponse {})
    }
}
