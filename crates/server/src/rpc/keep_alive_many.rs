//! `KeepAliveMany`: one call for all the sessions that a program looks after.
//!
//! Each of them costs a few microseconds, where a heartbeat of its own costs tens: a frame, a wake-up and a share of a commit.

use holdfast_core::{Command, RequestId, SessionId, Span};
use holdfast_proto::decode::secret_id;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, KeepAliveManyRequest, KeepAliveManyResponse, Reason};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::Rpc;
use super::authorise::authorise;
use super::failure::{dropped_by_driver, took_too_long, unavailable};
use super::origin::Origin;
use super::places::Kind;
use super::route::Route;
use super::unary::CALL_TIMEOUT;
use crate::driver::{FIRST_GROUP, Input, Touched};

const SESSIONS_PER_CALL_MAX: usize = 4_096;

pub(super) async fn serve(
    rpc: &Rpc,
    request: Request<KeepAliveManyRequest>,
) -> Result<Response<KeepAliveManyResponse>, Status> {
    let _place = rpc.admit(Kind::Call)?;
    let origin = Origin::of(request.metadata())?;
    let request = request.into_inner();
    let sessions = decode(&request)?;
    for session in &sessions {
        let touch = Command::Touch { session: *session, acked_through: RequestId(0) };
        authorise(&origin.principal, &touch)?;
    }
    let carried_out = timeout(CALL_TIMEOUT, carry_out(rpc, &origin, request, sessions)).await;
    Ok(Response::new(carried_out.unwrap_or_else(|_| Err(took_too_long()))?))
}

fn decode(request: &KeepAliveManyRequest) -> Result<Vec<SessionId>, Failure> {
    let count = request.session_ids.len();
    if count == 0 || count > SESSIONS_PER_CALL_MAX {
        let words =
            format!("the call names {count} sessions; one takes 1 to {SESSIONS_PER_CALL_MAX}");
        return Err(refused(Reason::InvalidSessionId, words));
    }
    request.session_ids.iter().map(|text| secret_id(text)).collect()
}

async fn carry_out(
    rpc: &Rpc,
    origin: &Origin,
    request: KeepAliveManyRequest,
    sessions: Vec<SessionId>,
) -> Result<KeepAliveManyResponse, Failure> {
    match rpc.route(origin).await? {
        Route::Here => {
            let (reply, answer) = oneshot::channel();
            rpc.ask(Input::Touches { group: FIRST_GROUP, sessions, reply })?;
            let answer = answer.await.map_err(|_| dropped_by_driver())?;
            let Touched { at, ttls } =
                answer.map_err(|reason| unavailable(reason, &rpc.membership))?;
            let ttl_ms = ttls.into_iter().map(|ttl| ttl.map_or(0, Span::as_ms)).collect();
            Ok(KeepAliveManyResponse { logical_time_ms: at.as_ms(), ttl_ms })
        }
        Route::There(mut leader) => {
            let request = origin.forwarded(rpc.membership.me, request);
            match leader.client.keep_alive_many(request).await {
                Ok(response) => Ok(response.into_inner()),
                Err(status) => Err(leader.failure(&status)),
            }
        }
    }
}
