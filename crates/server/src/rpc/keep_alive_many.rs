//! `KeepAliveMany`: one call for all the sessions that a program looks after.
//!
//! Each of them costs a few microseconds, where a heartbeat of its own costs tens: a frame, a wake-up and a share of a commit.

use holdfast_core::{SessionId, Span};
use holdfast_proto::decode::{group, secret_id};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, KeepAliveManyRequest, KeepAliveManyResponse, Reason};
use holdfast_service::{Caller, Method};
use tokio::time::timeout;

use super::Rpc;
use super::credentials::own_session;
use super::failure::took_too_long;
use super::route::Destination;
use super::unary::CALL_TIMEOUT;
use crate::shard::Touched;

const SESSIONS_PER_CALL_MAX: usize = 4_096;

pub(super) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: KeepAliveManyRequest,
) -> Result<KeepAliveManyResponse, Failure> {
    const METHOD: Method = Method::KeepAliveMany;
    let _permit = rpc.door.begin(METHOD)?;
    let mut sessions = decode(&request)?;
    sessions.iter_mut().for_each(|session| *session = own_session(&caller, *session));
    let group = rpc.membership.groups.with_number(group(request.group))?;
    let sessions = rpc.door.admit(&caller, METHOD, sessions)?;
    let carried_out = async {
        match rpc.destination(&caller, METHOD, group).await? {
            Destination::Here => {
                let Touched { at, ttls } = rpc.door.touch(group, sessions).await?;
                let ttl_ms = ttls.into_iter().map(|ttl| ttl.map_or(0, Span::as_ms)).collect();
                Ok(KeepAliveManyResponse { logical_time_ms: at.as_ms(), ttl_ms })
            }
            Destination::At(leader) => rpc.forwarding.call(leader, &caller, METHOD, &request).await,
        }
    };
    timeout(CALL_TIMEOUT, carried_out).await.unwrap_or_else(|_| Err(took_too_long()))
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
