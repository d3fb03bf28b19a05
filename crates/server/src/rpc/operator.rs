//! What operators do: each call is one intervention, forwarded to the leader like any other.

use holdfast_core::command::Action;
use holdfast_core::{Command, Intervened, LogicalTime, Outcome};
use holdfast_proto::decode;
use holdfast_proto::failure::rejected;
use holdfast_proto::v1::operator_service_server::OperatorService;
use holdfast_proto::v1::{
    BreakRequest, BreakResponse, Failure, FreezeRequest, FreezeResponse, KillSessionRequest,
    KillSessionResponse, ListFreezesRequest, ListFreezesResponse, MoveLockRequest,
    MoveLockResponse, Reason, ReopenRequest, ReopenResponse, SetLimitsRequest, SetLimitsResponse,
    SetPermitsRequest, SetPermitsResponse, ThawRequest, ThawResponse,
};
use holdfast_replica::GroupId;
use holdfast_service::{About, Admitted, Caller, Method};
use prost::Message;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::credentials::bind;
use super::every_group::{self, Scope};
use super::failure::{bug, took_too_long, unavailable};
use super::route::Destination;
use super::unary::CALL_TIMEOUT;
use super::{Rpc, grpc, reads};

/// A request of an operator.
pub(super) trait Step: Message + Clone + 'static {
    const METHOD: Method;
    type Response: Message + Default;

    fn decode(self) -> Result<Command, Failure>;

    /// None if this is not what it asked for.
    fn response(at: LogicalTime, done: Intervened) -> Option<Self::Response>;

    /// The answer of all groups, from those of the groups that did something; at least one.
    fn merge_groups(parts: Vec<Self::Response>) -> Option<Self::Response> {
        parts.into_iter().next()
    }
}

/// With these reasons a group says that it has nothing of what the request is about. Another group may have it.
fn is_nothing_to_do(failure: &Failure) -> bool {
    matches!(failure.reason(), Reason::NotFrozen | Reason::NoSuchSession)
}

pub(super) async fn serve<S: Step>(
    rpc: &Rpc,
    caller: Caller,
    request: S,
) -> Result<S::Response, Failure> {
    serve_part(rpc, caller, request, None).await
}

/// For the group that a node names which asks all groups.
pub(super) async fn serve_part<S: Step>(
    rpc: &Rpc,
    caller: Caller,
    request: S,
    part: Option<GroupId>,
) -> Result<S::Response, Failure> {
    let _permit = rpc.door.begin(S::METHOD)?;
    let mut command = request.clone().decode()?;
    bind(rpc.door.service(), &caller, &mut command);
    let about = About::Command(&command);
    let scope = match about_one_lock(&command) {
        true => Scope::One(rpc.membership.groups.of_command(&command, GroupId::FIRST)),
        false => Scope::every(rpc, part),
    };
    let command = rpc.door.authorise(&caller, S::METHOD, about)?.admit(command);
    let carried_out = async {
        match scope {
            Scope::One(group) => in_group(rpc, &caller, &request, group, command).await,
            Scope::Every => {
                let parts = every_group::carry_out(rpc, |rpc, group| {
                    let (caller, request) = (caller.clone(), request.clone());
                    let command = command.clone();
                    async move { in_group(&rpc, &caller, &request, group, command).await }
                });
                let answers = every_group::all_changed(parts.await?, is_nothing_to_do)?;
                S::merge_groups(answers).ok_or_else(|| bug("no group has answered"))
            }
        }
    };
    timeout(CALL_TIMEOUT, carried_out).await.unwrap_or_else(|_| Err(took_too_long()))
}

async fn in_group<S: Step>(
    rpc: &Rpc,
    caller: &Caller,
    request: &S,
    group: GroupId,
    command: Admitted<Command>,
) -> Result<S::Response, Failure> {
    match rpc.destination(caller, S::METHOD, group).await? {
        Destination::Here => carry_out::<S>(rpc, group, command).await,
        Destination::At(leader) => {
            rpc.forwarding.call_group((leader, group), caller, S::METHOD, request).await
        }
    }
}

/// All other interventions concern every group.
fn about_one_lock(command: &Command) -> bool {
    let Command::Intervene(intervention) = command else { return false };
    match intervention.action {
        Action::Break { .. }
        | Action::Transfer { .. }
        | Action::SetPermits { .. }
        | Action::Reopen { .. } => true,
        Action::Freeze { .. }
        | Action::Thaw { .. }
        | Action::KillSession { .. }
        | Action::SetLimits { .. } => false,
    }
}

async fn carry_out<S: Step>(
    rpc: &Rpc,
    group: GroupId,
    command: Admitted<Command>,
) -> Result<S::Response, Failure> {
    let answer = rpc.door.call(group, command, None).await?;
    match answer.result {
        Ok(Outcome::Intervened(done)) => {
            S::response(answer.at, done).ok_or_else(|| bug("the lock table did something else"))
        }
        Ok(Outcome::Rejected(rejection)) => Err(rejected(rejection)),
        Ok(_) => Err(bug("an intervention was answered as something else")),
        Err(reason) => Err(unavailable(reason, &rpc.membership)),
    }
}

impl Step for BreakRequest {
    const METHOD: Method = Method::Break;
    type Response = BreakResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::break_holds(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<BreakResponse> {
        match done {
            Intervened::Broken { holds } => {
                Some(BreakResponse { logical_time_ms: at.as_ms(), holds })
            }
            _ => None,
        }
    }
}

impl Step for MoveLockRequest {
    const METHOD: Method = Method::MoveLock;
    type Response = MoveLockResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::move_lock(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<MoveLockResponse> {
        match done {
            Intervened::Transferred { token } => {
                Some(MoveLockResponse { logical_time_ms: at.as_ms(), token: token.0 })
            }
            _ => None,
        }
    }
}

impl Step for FreezeRequest {
    const METHOD: Method = Method::Freeze;
    type Response = FreezeResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::freeze(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<FreezeResponse> {
        match done {
            Intervened::Frozen { until } => Some(FreezeResponse {
                logical_time_ms: at.as_ms(),
                remaining_ms: until.since(at).as_ms(),
            }),
            _ => None,
        }
    }

    /// The freeze is whole until it ends in the first group.
    fn merge_groups(parts: Vec<FreezeResponse>) -> Option<FreezeResponse> {
        parts.into_iter().min_by_key(|part| part.remaining_ms)
    }
}

impl Step for ThawRequest {
    const METHOD: Method = Method::Thaw;
    type Response = ThawResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::thaw(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<ThawResponse> {
        match done {
            Intervened::Thawed => Some(ThawResponse { logical_time_ms: at.as_ms() }),
            _ => None,
        }
    }
}

impl Step for SetPermitsRequest {
    const METHOD: Method = Method::SetPermits;
    type Response = SetPermitsResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::set_permits(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<SetPermitsResponse> {
        match done {
            Intervened::PermitsSet => Some(SetPermitsResponse { logical_time_ms: at.as_ms() }),
            _ => None,
        }
    }
}

impl Step for KillSessionRequest {
    const METHOD: Method = Method::KillSession;
    type Response = KillSessionResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::kill_session(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<KillSessionResponse> {
        match done {
            Intervened::SessionKilled => Some(KillSessionResponse { logical_time_ms: at.as_ms() }),
            _ => None,
        }
    }
}

impl Step for ReopenRequest {
    const METHOD: Method = Method::Reopen;
    type Response = ReopenResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::reopen(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<ReopenResponse> {
        match done {
            Intervened::Reopened => Some(ReopenResponse { logical_time_ms: at.as_ms() }),
            _ => None,
        }
    }
}

impl Step for SetLimitsRequest {
    const METHOD: Method = Method::SetLimits;
    type Response = SetLimitsResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::set_limits(self)
    }

    fn response(at: LogicalTime, done: Intervened) -> Option<SetLimitsResponse> {
        match done {
            Intervened::LimitsSet => Some(SetLimitsResponse { logical_time_ms: at.as_ms() }),
            _ => None,
        }
    }
}

#[tonic::async_trait]
impl OperatorService for Rpc {
    async fn set_limits(
        &self,
        request: Request<SetLimitsRequest>,
    ) -> Result<Response<SetLimitsResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn r#break(
        &self,
        request: Request<BreakRequest>,
    ) -> Result<Response<BreakResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn move_lock(
        &self,
        request: Request<MoveLockRequest>,
    ) -> Result<Response<MoveLockResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn freeze(
        &self,
        request: Request<FreezeRequest>,
    ) -> Result<Response<FreezeResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn thaw(&self, request: Request<ThawRequest>) -> Result<Response<ThawResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn set_permits(
        &self,
        request: Request<SetPermitsRequest>,
    ) -> Result<Response<SetPermitsResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn kill_session(
        &self,
        request: Request<KillSessionRequest>,
    ) -> Result<Response<KillSessionResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn reopen(
        &self,
        request: Request<ReopenRequest>,
    ) -> Result<Response<ReopenResponse>, Status> {
        grpc::call(request, |caller, request| serve(self, caller, request)).await
    }

    async fn list_freezes(
        &self,
        request: Request<ListFreezesRequest>,
    ) -> Result<Response<ListFreezesResponse>, Status> {
        grpc::call(request, |caller, request| reads::serve(self, caller, request)).await
    }
}
