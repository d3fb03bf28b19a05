//! Who may do more than look.
//!
//! Two questions, asked in this order. Does the request come from this very page? A browser says where a
//! request comes from, and a site cannot make it lie; besides, only a page of the same origin can set our
//! header or send JSON without being asked first. Then: does the user know the secret? It is in no
//! cookie, so no browser sends it by itself.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use holdfast_proto::same_digest;
use sha2::{Digest, Sha256};

use crate::api_error::ApiError;

pub(crate) const ACTION_HEADER: &str = "holdfast-action";
pub(crate) const SECRET_HEADER: &str = "holdfast-secret";

/// So many wrong secrets within [`WRONG_WINDOW`], then all are refused until it is over.
const WRONG_MAX: usize = 5;
const WRONG_WINDOW: Duration = Duration::from_secs(30);

/// Whether the dashboard can do anything, and for whom.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Actions {
    #[default]
    Off,
    /// For those who know this.
    Secret(String),
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Actions::Off => "Off",
            Actions::Secret(_) => "Secret(..)",
        })
    }
}

pub(crate) struct Guard {
    /// Digests are compared, so that the time it takes tells nothing about the secret or its length.
    secret: Option<[u8; 32]>,
    wrong: Mutex<VecDeque<Instant>>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Guard {
    pub(crate) fn new(actions: Actions) -> Guard {
        let secret = match actions {
            Actions::Off => None,
            Actions::Secret(secret) => Some(digest(secret.as_bytes())),
        };
        Guard { secret, wrong: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.secret.is_some()
    }

    /// A caller that has proved who it is needs no secret: what it may do, the node decides.
    pub(crate) fn admit(
        &self,
        headers: &HeaderMap,
        is_known: bool,
        now: Instant,
    ) -> Result<(), ApiError> {
        if !is_from_our_page(headers) {
            let words = "the request does not come from the dashboard's own page";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "cross_site", words));
        }
        if is_known {
            return Ok(());
        }
        let Some(secret) = &self.secret else {
            let words = "this node allows no changes from the dashboard; set http.actions_secret_file in its \
                         configuration, or use the command line";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "actions_are_off", words));
        };
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        while wrong.front().is_some_and(|first| now.duration_since(*first) >= WRONG_WINDOW) {
            wrong.pop_front();
        }
        if wrong.len() >= WRONG_MAX {
            let words = "too many wrong secrets; wait half a minute, or use the command line";
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_wrong_secrets",
                words,
            ));
        }
        let given = headers.get(SECRET_HEADER).map(|value| digest(value.as_bytes()));
        if given.is_some_and(|given| same_digest(&given, secret)) {
            return Ok(());
        }
        wrong.push_back(now);
        let words = "this is not the secret that the node is configured with";
        Err(ApiError::new(StatusCode::UNAUTHORIZED, "wrong_secret", words))
    }
}

/// Whether a request that changes something comes from this very page, or from no browser at all.
pub fn is_from_our_page(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(CONTENT_TYPE.as_str()).unwrap_or_default();
    let is_json = kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json");
    // Absent where no browser sends it: then there is no site that could have made it.
    let same_site = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    let same_origin = headers.get(ORIGIN).is_none_or(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some() && host == text(HOST.as_str())
    });
    is_json && same_site && same_origin && text(ACTION_HEADER) == Some("1")
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        headers
    }

    const OURS: [(&str, &str); 6] = [
        ("content-type", "application/json"),
        ("host", "127.0.0.1:7422"),
        ("origin", "http://127.0.0.1:7422"),
        ("sec-fetch-site", "same-origin"),
        ("holdfast-action", "1"),
        ("holdfast-secret", "open sesame"),
    ];

    fn guard() -> Guard {
        Guard::new(Actions::Secret("open sesame".to_owned()))
    }

    #[test]
    fn our_page_with_the_secret_is_admitted_and_so_is_a_script_that_is_no_browser() {
        assert_eq!(guard().admit(&headers(&OURS), false, Instant::now()), Ok(()));
        let script: Vec<_> = OURS
            .into_iter()
            .filter(|(name, _)| !["origin", "sec-fetch-site"].contains(name))
            .collect();
        assert_eq!(guard().admit(&headers(&script), false, Instant::now()), Ok(()));
    }

    #[test]
    fn a_request_of_another_site_is_refused_whatever_it_knows() {
        for (name, value) in [
            ("content-type", "text/plain"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:7422.evil.example"),
            ("origin", "http://127.0.0.1:7432"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
            ("holdfast-action", "0"),
        ] {
            let mut headers = headers(&OURS);
            headers.insert(name, HeaderValue::from_static(value));
            let refused = guard().admit(&headers, false, Instant::now()).unwrap_err();
            assert_eq!((refused.status.as_u16(), &*refused.reason), (403, "cross_site"), "{value}");
        }
        let mut without = headers(&OURS);
        without.remove("holdfast-action");
        assert!(guard().admit(&without, false, Instant::now()).is_err());
    }

    #[test]
    fn after_some_wrong_secrets_even_the_right_one_has_to_wait() {
        let guard = guard();
        let now = Instant::now();
        let mut wrong = headers(&OURS);
        wrong.insert("holdfast-secret", HeaderValue::from_static("open sesam"));
        for _ in 0..WRONG_MAX {
            assert_eq!(guard.admit(&wrong, false, now).unwrap_err().status.as_u16(), 401);
        }
        assert_eq!(guard.admit(&headers(&OURS), false, now).unwrap_err().status.as_u16(), 429);
        assert_eq!(guard.admit(&headers(&OURS), false, now + WRONG_WINDOW), Ok(()));
    }

    #[test]
    fn without_a_secret_no_action_is_allowed() {
        let refused =
            Guard::new(Actions::Off).admit(&headers(&OURS), false, Instant::now()).unwrap_err();
        assert_eq!(refused.reason, "actions_are_off");
    }

    #[test]
    fn a_caller_that_is_known_needs_no_secret_and_still_has_to_come_from_our_page() {
        let guard = Guard::new(Actions::Off);
        assert_eq!(guard.admit(&headers(&OURS), true, Instant::now()), Ok(()));
        let mut other = headers(&OURS);
        other.insert("origin", HeaderValue::from_static("http://evil.example"));
        assert_eq!(guard.admit(&other, true, Instant::now()).unwrap_err().reason, "cross_site");
    }
}
