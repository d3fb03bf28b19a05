//! The service that the layer makes.

use std::fmt;
use std::mem;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, header};
use tower_service::Service;

use super::{EnterError, FenceLayer, Store};

/// Handles a request while no other is at its resource.
pub struct FenceService<Inner, S, B> {
    inner: Inner,
    fence: FenceLayer<S, B>,
}

impl<Inner, S, B> FenceService<Inner, S, B> {
    pub(super) fn new(inner: Inner, fence: FenceLayer<S, B>) -> FenceService<Inner, S, B> {
        FenceService { inner, fence }
    }
}

impl<Inner, S, B, Answer> Service<Request<B>> for FenceService<Inner, S, B>
where
    Inner: Service<Request<B>, Response = Response<Answer>> + Clone + Send + 'static,
    Inner::Future: Send + 'static,
    Inner::Error: Send + 'static,
    Answer: From<String> + Send + 'static,
    S: Store,
    B: Send + 'static,
{
    type Response = Response<Answer>;
    type Error = Inner::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Inner::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Inner::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that was polled to be ready is the one that may be called.
        let fresh = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, fresh);
        let claim = match self.fence.claim(&request) {
            Ok(Some(claim)) => claim,
            Ok(None) => return Box::pin(inner.call(request)),
            Err(refusal) => return Box::pin(async move { Ok(answer(&refusal.into())) }),
        };
        let store = self.fence.store.clone();
        Box::pin(async move {
            // Who hangs up while it waits here leaves nothing behind.
            let permit = match store.enter(&claim).await {
                Ok(permit) => permit,
                Err(error) => return Ok(answer(&error)),
            };
            let handling = async move {
                request.extensions_mut().insert(claim);
                let response = inner.call(request).await;
                drop(permit);
                response
            };
            match tokio::spawn(handling).await {
                Ok(response) => response,
                Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
                Err(_) => Ok(answer(&EnterError::Unavailable("the service stops".to_owned()))),
            }
        })
    }
}

fn answer<Answer: From<String>>(error: &EnterError) -> Response<Answer> {
    let mut response = Response::new(Answer::from(format!("{error}\n")));
    *response.status_mut() = error.status();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

impl<Inner: Clone, S: Clone, B> Clone for FenceService<Inner, S, B> {
    fn clone(&self) -> Self {
        FenceService { inner: self.inner.clone(), fence: self.fence.clone() }
    }
}

impl<Inner: fmt::Debug, S: fmt::Debug, B> fmt::Debug for FenceService<Inner, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceService")
            .field("inner", &self.inner)
            .field("fence", &self.fence)
            .finish()
    }
}
