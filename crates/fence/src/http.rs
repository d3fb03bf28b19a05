//! HTTP: a tower layer that takes the token from the header `holdfast-fence`.
//!
//! | answer | when | what the client does |
//! |---|---|---|
//! | 428 | the header is missing | takes the lock and sends its token |
//! | 400 | the header cannot be read, comes twice, or has the number 0 | sends the token as it was granted |
//! | 403 | the token is of another resource or tier, or a permit's | takes the right lock |
//! | 412 | the token is out of date | acquires the lock again, and begins with reading |
//! | 503 | the marks cannot be read, or there are too many | tries again later |
//!
//! The body says the same in words.
//!
//! **To check and then to handle is not one step.** A request that passed could be overtaken by
//! one with a higher token, and write after it. So [`Store::enter`] gives a permit, and no other request for
//! the resource passes while it lives; the layer keeps it until the handler has answered. The handler runs
//! in a task of its own, because a client that goes away must not end it halfway, with its write still on the
//! way and the permit given back.
//!
//! The handler must have written when it answers: what it leaves to a task, or to the streaming of the
//! body, is not protected. It finds the [`Claim`] among the extensions of the request, and can
//! hand it on to a store that checks tokens itself.
//!
//! [`InProcess`] is a store for a service of one process. One for several processes must keep the marks
//! durably in one place, and its permit must exclude the others: for instance a transaction that has called
//! `postgres::check`, which ends when the permit is dropped. A store that only looks at the
//! mark and gives it free again protects nothing; it is better then to check where the data is written.

mod in_process;
mod service;

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Request, StatusCode};
use tower_layer::Layer;

pub use in_process::InProcess;
pub use service::FenceService;

use crate::rule::{Accepts, Claim, Presented, Refusal, admit};
use crate::token::ParseFenceError;

/// The header that carries the full token.
pub const HEADER: &str = "holdfast-fence";

/// Where the marks of a service are kept.
pub trait Store: Clone + Send + Sync + 'static {
    /// While it lives no other request for the same resource passes.
    type Permit: Send + 'static;

    /// Waits until no other request is at the resource; then lets the claim pass and remembers it, or refuses it.
    fn enter(&self, claim: &Claim)
    -> impl Future<Output = Result<Self::Permit, EnterError>> + Send;
}

/// Why a request may not be handled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnterError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The marks cannot be read or kept just now: nothing may pass.
    #[error("the fence cannot be checked: {0}")]
    Unavailable(String),
}

impl EnterError {
    pub fn status(&self) -> StatusCode {
        match self {
            EnterError::Refused(refusal) => match refusal {
                Refusal::Missing { .. } => StatusCode::PRECONDITION_REQUIRED,
                Refusal::Malformed { .. } | Refusal::Zero { .. } => StatusCode::BAD_REQUEST,
                Refusal::NotFenceable { .. }
                | Refusal::OtherResource { .. }
                | Refusal::BestEffort { .. }
                | Refusal::NotBestEffort { .. } => StatusCode::FORBIDDEN,
                Refusal::Stale { .. } => StatusCode::PRECONDITION_FAILED,
            },
            EnterError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

type Naming<B> = dyn Fn(&Request<B>) -> Option<String> + Send + Sync;

/// Lets a request pass only under a token that is not out of date.
pub struct FenceLayer<S, B> {
    store: S,
    accepts: Accepts,
    naming: Arc<Naming<B>>,
}

impl<S: Store, B> FenceLayer<S, B> {
    /// `resource` tells which lock protects what a request touches, from what decides what it touches: its
    /// path, say, never a header that names the lock. None: it touches nothing that is fenced, and
    /// passes without a token.
    pub fn new(
        store: S,
        resource: impl Fn(&Request<B>) -> Option<String> + Send + Sync + 'static,
    ) -> FenceLayer<S, B> {
        FenceLayer { store, accepts: Accepts::Linearizable, naming: Arc::new(resource) }
    }

    pub fn accepts(mut self, accepts: Accepts) -> FenceLayer<S, B> {
        self.accepts = accepts;
        self
    }

    /// None: the request touches nothing that is fenced.
    fn claim(&self, request: &Request<B>) -> Result<Option<Claim>, Refusal> {
        let Some(resource) = (self.naming)(request) else { return Ok(None) };
        let presented = presented(request.headers(), &resource)?;
        admit(presented, &resource, self.accepts).map(Some)
    }
}

/// The one header. Of two it could not be said which is meant.
fn presented<'a>(headers: &'a HeaderMap, resource: &str) -> Result<Presented<'a>, Refusal> {
    let malformed =
        || Refusal::Malformed { resource: resource.to_owned(), error: ParseFenceError::WrongParts };
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(Presented::Nothing) };
    if values.next().is_some() {
        return Err(malformed());
    }
    value.to_str().map(Presented::Text).map_err(|_| malformed())
}

impl<S: Store, B, Inner> Layer<Inner> for FenceLayer<S, B> {
    type Service = FenceService<Inner, S, B>;

    fn layer(&self, inner: Inner) -> Self::Service {
        FenceService::new(inner, self.clone())
    }
}

impl<S: Clone, B> Clone for FenceLayer<S, B> {
    fn clone(&self) -> Self {
        FenceLayer {
            store: self.store.clone(),
            accepts: self.accepts,
            naming: Arc::clone(&self.naming),
        }
    }
}

impl<S: fmt::Debug, B> fmt::Debug for FenceLayer<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("store", &self.store)
            .field("accepts", &self.accepts)
            .finish_non_exhaustive()
    }
}
