//! `ShowAccess`, `ChangeAccess`, `WhoAmI`: who may do what.

use std::time::Duration;

use holdfast_core::{Outcome, RoleName};
use holdfast_engine::{Query, ReadAnswer, ReadData};
use holdfast_proto::failure::rejected;
use holdfast_proto::v1::access_service_server::AccessService;
use holdfast_proto::v1::{
    ChangeAccessRequest, ChangeAccessResponse, Failure, ShowAccessRequest, ShowAccessResponse,
    WhoAmIRequest, WhoAmIResponse,
};
use holdfast_proto::{decode, encode};
use holdfast_replica::GroupId;
use holdfast_service::{Caller, Method};
use tokio::time::{Instant, timeout};
use tonic::{Request, Response, Status};

use super::credentials::bind;
use super::failure::{bug, took_too_long, unavailable};
use super::reads::{self, ReadRequest};
use super::route::{Destination, LEADER_WAIT};
use super::unary::CALL_TIMEOUT;
use super::{Rpc, grpc};

/// How long a change may take, with the time until all groups have it. After that the answer names the groups that do
/// not have it yet. The node that forwards the change may have waited for a leader before.
const ADOPTION_PATIENCE: Duration = Duration::from_secs(3);
const _: () =
    assert!(ADOPTION_PATIENCE.as_millis() + LEADER_WAIT.as_millis() < CALL_TIMEOUT.as_millis());

impl ReadRequest for ShowAccessRequest {
    const METHOD: Method = Method::ShowAccess;
    type Response = ShowAccessResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::Access)
    }

    fn response(&self, answer: ReadAnswer, _: GroupId) -> Option<ShowAccessResponse> {
        let ReadData::Access(access, quotas) = answer.data else { return None };
        Some(encode::access::show(&access, &quotas))
    }
}

pub(super) async fn change(
    rpc: &Rpc,
    caller: Caller,
    request: ChangeAccessRequest,
) -> Result<ChangeAccessResponse, Failure> {
    const METHOD: Method = Method::ChangeAccess;
    let _permit = rpc.door.begin(METHOD)?;
    let mut command = decode::change_access(request.clone(), &caller.on_behalf_of.to_string())?;
    bind(rpc.door.service(), &caller, &mut command);
    let command = rpc.door.admit(&caller, METHOD, command)?;
    let begun = Instant::now();
    let carried_out = async {
        match rpc.destination(&caller, METHOD, GroupId::FIRST).await? {
            Destination::Here => {
                let answer = rpc.door.call(GroupId::FIRST, command, None).await?;
                match answer.result {
                    Ok(Outcome::AccessChanged { generation }) => {
                        let patience = ADOPTION_PATIENCE.saturating_sub(begun.elapsed());
                        let behind = rpc.door.groups_behind(generation, patience).await;
                        let groups_behind = behind.into_iter().map(|group| group.0).collect();
                        Ok(ChangeAccessResponse { generation, groups_behind })
                    }
                    Ok(Outcome::Rejected(rejection)) => Err(rejected(rejection)),
                    Ok(_) => Err(bug("a change of the policy was answered as something else")),
                    Err(reason) => Err(unavailable(reason, &rpc.membership)),
                }
            }
            Destination::At(leader) => rpc.forwarding.call(leader, &caller, METHOD, &request).await,
        }
    };
    timeout(CALL_TIMEOUT, carried_out).await.unwrap_or_else(|_| Err(took_too_long()))
}

fn who_am_i(rpc: &Rpc, caller: &Caller) -> Result<WhoAmIResponse, Failure> {
    let _permit = rpc.door.begin(Method::WhoAmI)?;
    rpc.door.admit(caller, Method::WhoAmI, ())?;
    let access = rpc.door.service().policy().access();
    let names =
        |roles: &mut dyn Iterator<Item = &RoleName>| roles.map(RoleName::to_string).collect();
    let identity = caller.identity();
    let bound = identity.and_then(|identity| access.roles().bindings.get(&identity.principal));
    Ok(WhoAmIResponse {
        principal: caller.on_behalf_of.to_string(),
        claimed_roles: names(&mut identity.into_iter().flat_map(|identity| &identity.claimed)),
        mode: rpc.door.service().mode().name().to_owned(),
        generation: access.generation(),
        roles: names(&mut bound.into_iter().flatten()),
    })
}

#[tonic::async_trait]
impl AccessService for Rpc {
    async fn show_access(
        &self,
        request: Request<ShowAccessRequest>,
    ) -> Result<Response<ShowAccessResponse>, Status> {
        grpc::call(request, |caller, request| reads::serve(self, caller, request)).await
    }

    async fn change_access(
        &self,
        request: Request<ChangeAccessRequest>,
    ) -> Result<Response<ChangeAccessResponse>, Status> {
        grpc::call(request, |caller, request| change(self, caller, request)).await
    }

    async fn who_am_i(
        &self,
        request: Request<WhoAmIRequest>,
    ) -> Result<Response<WhoAmIResponse>, Status> {
        grpc::call(request, |caller, _| async move { who_am_i(self, &caller) }).await
    }
}
