//! To look at a lock on the stream of the session: one frame for many, and no connection of its own.

use holdfast_proto::v1::StatusResponse;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::check_name;
use crate::session::{Command, Handle};
use crate::unary::CallError;

/// If the stream breaks or the session ends meanwhile, or the node is too old for it, the answer comes by a call.
pub(crate) async fn status(handle: &Handle, name: &str) -> Result<StatusResponse, CallError> {
    check_name(name).map_err(CallError::Rejected)?;
    let _place = handle.admit_look().await.map_err(CallError::Unavailable)?;
    let (reply, answer) = oneshot::channel();
    handle.send(Command::Status { name: name.to_owned(), reply });
    match timeout(handle.request_timeout(), answer).await {
        Ok(Ok(Ok(status))) => Ok(status),
        Ok(Ok(Err(rejection))) => Err(CallError::Rejected(rejection)),
        Ok(Err(_)) => handle.calls().status(name).await,
        Err(_) => Err(CallError::Unavailable(handle.unavailable(false))),
    }
}
