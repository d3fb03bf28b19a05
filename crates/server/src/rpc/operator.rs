//! What operators do: each call is one intervention, forwarded to the leader like any other.

use holdfast_core::{Command, Intervened, LogicalTime, Outcome};
use holdfast_proto::decode;
use holdfast_proto::failure::rejected;
use holdfast_proto::v1::operator_service_server::OperatorService;
use holdfast_proto::v1::{
    BreakRequest, BreakResponse, Failure, FreezeRequest, FreezeResponse, KillSessionRequest,
    KillSessionResponse, ListFreezesRequest, ListFreezesResponse, MoveLockRequest,
    MoveLockResponse, ReopenRequest, ReopenResponse, SetLimitsRequest, SetLimitsResponse,
    SetPermitsRequest, SetPermitsResponse, ThawRequest, ThawResponse,
};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::authorise::authorise;
use super::failure::{bug, took_too_long, unavailable};
use super::forward::Leader;
use super::origin::Origin;
use super::places::Kind;
use super::route::Route;
use super::unary::CALL_TIMEOUT;
use super::{Rpc, look};

/// A request of an operator.
trait Step: Clone + Send + Sync + 'static {
    type Response: Send;

    fn decode(self) -> Result<Command, Failure>;

    /// None if this is not what it asked for.
    fn response(at: LogicalTime, done: Intervened) -> Option<Self::Response>;

    fn forward(
        request: Request<Self>,
        leader: Leader,
    ) -> impl Future<Output = Result<Response<Self::Response>, Status>> + Send;
}

async fn serve<S: Step>(rpc: &Rpc, request: Request<S>) -> Result<Response<S::Response>, Status> {
    let _place = rpc.admit(Kind::Call)?;
    let origin = Origin::of(request.metadata())?;
    let request = request.into_inner();
    let command = request.clone().decode()?;
    authorise(&origin.principal, &command)?;
    let carried_out = timeout(CALL_TIMEOUT, carry_out(rpc, &origin, request, command)).await;
    Ok(Response::new(carried_out.unwrap_or_else(|_| Err(took_too_long()))?))
}

async fn carry_out<S: Step>(
    rpc: &Rpc,
    origin: &Origin,
    request: S,
    command: Command,
) -> Result<S::Response, Failure> {
    let leader = match rpc.route(origin).await? {
        Route::Here => {
            let answer = rpc.call(command).await?;
            return match answer.result {
                Ok(Outcome::Intervened(done)) => S::response(answer.at, done)
                    .ok_or_else(|| bug("the lock table did something else")),
                Ok(Outcome::Rejected(rejection)) => Err(rejected(rejection)),
                Ok(_) => Err(bug("an intervention was answered as something else")),
                Err(reason) => Err(unavailable(reason, &rpc.membership)),
            };
        }
        Route::There(leader) => leader,
    };
    let request = origin.forwarded(rpc.membership.me, request);
    match S::forward(request, leader.clone()).await {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(leader.failure(&status)),
    }
}

impl Step for BreakRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<BreakResponse>, Status> {
        leader.operator.r#break(request).await
    }
}

impl Step for MoveLockRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<MoveLockResponse>, Status> {
        leader.operator.move_lock(request).await
    }
}

impl Step for FreezeRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<FreezeResponse>, Status> {
        leader.operator.freeze(request).await
    }
}

impl Step for ThawRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<ThawResponse>, Status> {
        leader.operator.thaw(request).await
    }
}

impl Step for SetPermitsRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<SetPermitsResponse>, Status> {
        leader.operator.set_permits(request).await
    }
}

impl Step for KillSessionRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<KillSessionResponse>, Status> {
        leader.operator.kill_session(request).await
    }
}

impl Step for ReopenRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<ReopenResponse>, Status> {
        leader.operator.reopen(request).await
    }
}

impl Step for SetLimitsRequest {
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

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<SetLimitsResponse>, Status> {
        leader.operator.set_limits(request).await
    }
}

#[tonic::async_trait]
impl OperatorService for Rpc {
    async fn set_limits(
        &self,
        request: Request<SetLimitsRequest>,
    ) -> Result<Response<SetLimitsResponse>, Status> {
        serve(self, request).await
    }

    async fn r#break(
        &self,
        request: Request<BreakRequest>,
    ) -> Result<Response<BreakResponse>, Status> {
        serve(self, request).await
    }

    async fn move_lock(
        &self,
        request: Request<MoveLockRequest>,
    ) -> Result<Response<MoveLockResponse>, Status> {
        serve(self, request).await
    }

    async fn freeze(
        &self,
        request: Request<FreezeRequest>,
    ) -> Result<Response<FreezeResponse>, Status> {
        serve(self, request).await
    }

    async fn thaw(&self, request: Request<ThawRequest>) -> Result<Response<ThawResponse>, Status> {
        serve(self, request).await
    }

    async fn set_permits(
        &self,
        request: Request<SetPermitsRequest>,
    ) -> Result<Response<SetPermitsResponse>, Status> {
        serve(self, request).await
    }

    async fn kill_session(
        &self,
        request: Request<KillSessionRequest>,
    ) -> Result<Response<KillSessionResponse>, Status> {
        serve(self, request).await
    }

    async fn reopen(
        &self,
        request: Request<ReopenRequest>,
    ) -> Result<Response<ReopenResponse>, Status> {
        serve(self, request).await
    }

    async fn list_freezes(
        &self,
        request: Request<ListFreezesRequest>,
    ) -> Result<Response<ListFreezesResponse>, Status> {
        look::serve(self, request).await
    }
}
