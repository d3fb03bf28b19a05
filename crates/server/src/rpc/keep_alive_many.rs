//! `KeepAliveMany`: one call for all the sessions that a program looks after.
//!
//! Each of them costs a few microseconds, where a heartbeat of its own costs tens: a frame, a wake-up and a share of a commit.

use holdfast_core::{SessionId, Span};
use holdfast_engine::Touched;
use holdfast_proto::decode::secret_id;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, KeepAliveManyRequest, KeepAliveManyResponse, Reason};
use holdfast_replica::GroupId;
use holdfast_service::{Admitted, Caller, Method};
use tokio::time::timeout;

use super::Rpc;
use super::credentials::own_session;
use super::every_group::{self, Scope};
use super::failure::{bug, took_too_long};
use super::route::Destination;
use super::unary::CALL_TIMEOUT;

const METHOD: Method = Method::KeepAliveMany;
const SESSIONS_PER_CALL_MAX: usize = 4_096;

pub(super) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: KeepAliveManyRequest,
) -> Result<KeepAliveManyResponse, Failure> {
    serve_part(rpc, caller, request, None).await
}

/// For the group that a node names which forwards the request.
pub(super) async fn serve_part(
    rpc: &Rpc,
    caller: Caller,
    request: KeepAliveManyRequest,
    part: Option<GroupId>,
) -> Result<KeepAliveManyResponse, Failure> {
    let _permit = rpc.door.begin(METHOD)?;
    let mut sessions = decode(&request)?;
    sessions.iter_mut().for_each(|session| *session = own_session(&caller, *session));
    let scope = match request.group {
        0 => Scope::every(rpc, part),
        named => Scope::One(rpc.membership.groups.with_number(named)?),
    };
    let sessions = rpc.door.admit(&caller, METHOD, sessions)?;
    let carried_out = async {
        match scope {
            Scope::One(group) => in_group(rpc, &caller, &request, group, sessions).await,
            Scope::Every => {
                let parts = every_group::carry_out(rpc, |rpc, group| {
                    let (caller, request) = (caller.clone(), request.clone());
                    let sessions = sessions.clone();
                    async move { in_group(&rpc, &caller, &request, group, sessions).await }
                });
                let parts = parts.await?;
                let is_begun = parts.values().any(Result::is_ok);
                let answers = every_group::all_answers(parts).map_err(|failure| Failure {
                    may_have_happened: failure.may_have_happened || is_begun,
                    ..failure
                })?;
                merge(answers, request.session_ids.len())
                    .ok_or_else(|| bug("a group has not answered for each session"))
            }
        }
    };
    timeout(CALL_TIMEOUT, carried_out).await.unwrap_or_else(|_| Err(took_too_long()))
}

async fn in_group(
    rpc: &Rpc,
    caller: &Caller,
    request: &KeepAliveManyRequest,
    group: GroupId,
    sessions: Admitted<Vec<SessionId>>,
) -> Result<KeepAliveManyResponse, Failure> {
    match rpc.destination(caller, METHOD, group).await? {
        Destination::Here => {
            let Touched { at, ttls } = rpc.door.touch(group, sessions).await?;
            let ttl_ms = ttls.into_iter().map(|ttl| ttl.map_or(0, Span::as_ms)).collect();
            Ok(KeepAliveManyResponse { logical_time_ms: at.as_ms(), ttl_ms })
        }
        Destination::At(leader) => {
            rpc.forwarding.call_group((leader, group), caller, METHOD, request).await
        }
    }
}

/// A session that was opened in all groups lives only while it lives in all of them. None if a group has not answered for
/// each session.
fn merge(parts: Vec<KeepAliveManyResponse>, session_count: usize) -> Option<KeepAliveManyResponse> {
    let mut parts =
        parts.into_iter().map(|part| Some(part).filter(|it| it.ttl_ms.len() == session_count));
    let mut all = parts.next()??;
    for part in parts {
        for (ttl_ms, in_group_ms) in all.ttl_ms.iter_mut().zip(part?.ttl_ms) {
            *ttl_ms = (*ttl_ms).min(in_group_ms);
        }
    }
    Some(all)
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
