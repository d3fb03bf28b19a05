//! How the client's side of a stream ended.
//!
//! It matters. A client that *went away* starts its session's linger time; one that is merely *cut
//! off* keeps its locks for its TTL. tonic shows too little of the difference (a cancelled request
//! looks like one that ended cleanly), so [`WatchBody`] sits below it and remembers the error that the
//! transport gave.
//!
//! | what happened | what the transport says | the client |
//! |---|---|---|
//! | it ended its side | end of stream | is gone |
//! | it dropped the call | `RST_STREAM` from it | is gone |
//! | its process ended | EOF or reset of the connection | is gone |
//! | TCP gave up, no route | any other I/O error | is cut off |
//!
//! A stream that another node relays is different: that node says how it ended, and without that the node itself is gone
//! while the client may live.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use holdfast_proto::failure::REASON_KEY;
use http_body_util::BodyExt;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The sender said that nothing more comes.
    Finished,
    /// The sender gave the call up.
    Reset,
    /// The sender's end of the connection was closed.
    Disconnected,
    /// What became of the sender is unknown.
    CutOff,
}

impl Ending {
    pub(super) fn means_client_gone(self) -> bool {
        self != Ending::CutOff
    }

    fn of(status: &Status) -> Ending {
        let mut cause: Option<&(dyn Error + 'static)> = Some(status);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<h2::Error>() {
                return Ending::of_h2(error);
            }
            cause = error.source();
        }
        Ending::CutOff
    }

    /// Of a connection that broke in this way.
    pub(super) fn of_io(kind: ErrorKind) -> Ending {
        match kind {
            ErrorKind::UnexpectedEof
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted => Ending::Disconnected,
            _ => Ending::CutOff,
        }
    }

    fn of_h2(error: &h2::Error) -> Ending {
        if let Some(io) = error.get_io() {
            return Ending::of_io(io.kind());
        }
        match (error.is_remote(), error.is_reset()) {
            (true, true) => Ending::Reset,
            (true, false) => Ending::Disconnected,
            // This side ended it.
            (false, _) => Ending::CutOff,
        }
    }
}

/// Filled when the request's body breaks; empty for one that ended cleanly.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyEnd(Arc<OnceLock<Ending>>);

impl BodyEnd {
    pub(super) fn broken(&self) -> Option<Ending> {
        self.0.get().copied()
    }
}

/// Puts a [`BodyEnd`] into the extensions of every request.
#[derive(Clone, Debug)]
pub(in crate::rpc) struct WatchBody<S> {
    inner: S,
}

impl<S> WatchBody<S> {
    pub(in crate::rpc) fn new(inner: S) -> WatchBody<S> {
        WatchBody { inner }
    }
}

impl<S: NamedService> NamedService for WatchBody<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, R, F> Service<http::Request<Body>> for WatchBody<S>
where
    S: Service<http::Request<Body>, Response = R, Error = Infallible, Future = F>,
    F: Future<Output = Result<R, Infallible>>,
{
    type Response = R;
    type Error = Infallible;
    type Future = F;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> F {
        let end = BodyEnd::default();
        request.extensions_mut().insert(end.clone());
        self.inner.call(request.map(|body| {
            Body::new(body.map_err(move |status: Status| {
                // Only the first error tells the cause. One with a reason is this node's own: it refuses the body.
                if !status.metadata().contains_key(REASON_KEY) {
                    let _ = end.0.set(Ending::of(&status));
                }
                status
            }))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_cut_off_does_not_count_as_disconnected() {
        assert!(!Ending::CutOff.means_client_gone());
        assert!(Ending::Disconnected.means_client_gone());
        assert!(Ending::Reset.means_client_gone());
    }
}
