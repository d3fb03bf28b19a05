//! The status of a lock, read on the stream of the session: one frame for many, and no connection of its own.

use holdfast_client_core::error::RequestError;
use holdfast_client_core::session::{Request, Success};
use holdfast_proto::v1::StatusResponse;

use crate::limits::check_name;
use crate::session::Handle;
use crate::unary::CallError;

/// If the stream breaks or the session ends meanwhile, or the node is too old for it, the answer comes by a call.
pub(crate) async fn status(handle: &Handle, name: &str) -> Result<StatusResponse, CallError> {
    check_name(name).map_err(CallError::Rejected)?;
    match handle.read(Request::Status { name: name.to_owned() }).await {
        Ok(Success::Status(status)) => Ok(*status),
        Err(RequestError::Rejected(rejection)) => Err(CallError::Rejected(rejection)),
        Err(RequestError::Unavailable(unavailable)) => Err(CallError::Unavailable(unavailable)),
        Ok(_) | Err(_) => handle.calls().status(name).await,
    }
}
