//! When the credential ends that a framed connection has shown. The runtime keeps the time, not the shard: most credentials
//! are good for days, and the shard looks at the connections that it keeps time for all the while.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use holdfast_proto::v1::Failure;
use holdfast_service::Caller;
use tokio::runtime::Handle;

use super::FramedFrontEnd;

pub(super) struct CredentialEnd(Pin<Box<dyn Future<Output = Failure> + Send>>);

impl CredentialEnd {
    /// None if it has no end.
    pub(super) fn of(front_end: &Arc<FramedFrontEnd>, caller: &Caller) -> Option<CredentialEnd> {
        front_end.rpc.door.service().credential_left(caller)?;
        let (front_end, caller) = (Arc::clone(front_end), caller.clone());
        let end = async move { front_end.rpc.credential_end(&caller).await };
        Some(CredentialEnd(Box::pin(end)))
    }

    /// The waker is called at the end. To be called no more after that.
    pub(super) fn poll(&mut self, runtime: &Handle, waker: &Waker) -> Option<Failure> {
        let _timers = runtime.enter();
        match self.0.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(failure) => Some(failure),
            Poll::Pending => None,
        }
    }
}

impl fmt::Debug for CredentialEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialEnd")
    }
}
