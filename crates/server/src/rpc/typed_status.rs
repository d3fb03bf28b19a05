//! Gives a reason to the refusals that the gRPC library makes by itself: a call whose `grpc-timeout` elapses, and a
//! message over the size limit. A client finds `holdfast-reason` on every refusal of this port.
//!
//! The library answers an elapsed `grpc-timeout` with CANCELLED. This layer stands below that timer, so it must end the
//! call a little earlier.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_proto::failure::REASON_KEY;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::{Code, Status};
use tower_layer::Layer;

use super::failure::{deadline_exceeded, message_too_large};

const TIMEOUT_HEADER: &str = "grpc-timeout";
/// Timers of this runtime are exact to a millisecond.
const EARLIER_BY: Duration = Duration::from_millis(2);
/// `grpc-timeout` has at most so many digits.
const DIGITS_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct TypedStatusLayer;

impl<S> Layer<S> for TypedStatusLayer {
    type Service = TypedStatus<S>;

    fn layer(&self, inner: S) -> TypedStatus<S> {
        TypedStatus { inner }
    }
}

#[derive(Clone, Debug)]
pub(super) struct TypedStatus<S> {
    inner: S,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<http::Response<Body>, E>> + Send>>;

impl<S> Service<http::Request<Body>> for TypedStatus<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let patience = patience_of(request.headers());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = match patience {
                None => answer.await?,
                Some(patience) => match timeout(patience, answer).await {
                    Ok(response) => response?,
                    Err(_) => return Ok(deadline_exceeded().to_status().into_http()),
                },
            };
            Ok(with_reason(response))
        })
    }
}

/// How long the caller is willing to wait, less what this layer needs to be first.
fn patience_of(headers: &http::HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT_HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    let given = match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    };
    Some(given - EARLIER_BY.min(given / 2))
}

/// A refusal without a reason is the library's own.
fn with_reason(response: http::Response<Body>) -> http::Response<Body> {
    if response.headers().contains_key(REASON_KEY) {
        return response;
    }
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() == Code::OutOfRange => {
            message_too_large(status.message()).to_status().into_http()
        }
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(text: &str) -> Option<Duration> {
        let mut headers = http::HeaderMap::new();
        headers.insert(TIMEOUT_HEADER, text.parse().unwrap());
        patience_of(&headers)
    }

    #[test]
    fn a_call_ends_a_little_before_its_deadline() {
        assert_eq!(patience("2S"), Some(Duration::from_millis(1_998)));
        assert_eq!(patience("500m"), Some(Duration::from_millis(498)));
        assert_eq!(patience("1H"), Some(Duration::from_millis(3_599_998)));
        assert_eq!(patience("1m"), Some(Duration::from_micros(500)));
        assert_eq!(patience("99999999n"), Some(Duration::from_nanos(97_999_999)));
    }

    #[test]
    fn a_deadline_that_no_client_should_send_is_none() {
        for text in ["", "S", "12", "-1S", "123456789S", "1d", "+1S"] {
            assert_eq!(patience(text), None, "{text}");
        }
    }

    #[test]
    fn a_refusal_with_a_reason_stays_as_it_is() {
        let status = super::super::failure::no_leader().to_status();
        let kept = with_reason(status.into_http());
        assert_eq!(kept.headers().get(REASON_KEY).unwrap(), "no_quorum");
        let typed = with_reason(Status::out_of_range("found 5 bytes").into_http());
        assert_eq!(typed.headers().get(REASON_KEY).unwrap(), "message_too_large");
        let other = with_reason(Status::unimplemented("").into_http());
        assert!(!other.headers().contains_key(REASON_KEY));
    }
}
