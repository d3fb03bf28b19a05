//! The status of a lock, read on the stream of the session in its group: one frame for many, and no connection of its own.

use holdfast_client_core::error::RequestError;
use holdfast_client_core::session::{Request, Success};
use holdfast_proto::v1::StatusResponse;

use crate::limits::check_name;
use crate::session::Sessions;
use crate::unary::CallError;

/// If there is no session in the group of the lock, if the stream breaks or the session ends meanwhile, or the node is too old for it, the answer comes by a call.
pub(crate) async fn status(sessions: &Sessions, name: &str) -> Result<StatusResponse, CallError> {
    check_name(name).map_err(CallError::Rejected)?;
    match sessions.read(Request::Status { name: name.to_owned() }).await {
        Ok(Success::Status(status)) => Ok(*status),
        Err(RequestError::Rejected(rejection)) => Err(CallError::Rejected(rejection)),
        Err(RequestError::Unavailable(unavailable)) => Err(CallError::Unavailable(unavailable)),
        Ok(_) | Err(_) => sessions.calls().status(name).await,
    }
}
