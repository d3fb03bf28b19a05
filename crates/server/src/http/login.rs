//! Logins of browsers: a token is shown once, and then a cookie stands for it.
//!
//! The cookie is random, and made like a token. It is kept here as its digest, with the id and the digest of the token that
//! was shown. So a login ends when its token does. A restart of the node ends all logins. Each node has its own.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use holdfast_core::Identity;
use holdfast_dashboard::is_from_our_page;
use holdfast_proto::AccessToken;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::{Caller, Credential, Method, Protocol, Service, ShownToken};
use serde::Deserialize;
use serde_json::json;

use super::refusal::refusal;
use crate::audit::AuditNotes;
use crate::rpc::{identity_of, shown};

/// A browser keeps a cookie with the prefix `__Host-` only if it came by TLS, from this very host.
const COOKIE_WITH_TLS: &str = "__Host-holdfast";
const COOKIE_WITHOUT_TLS: &str = "holdfast";

/// A login that is not used for so long ends; and each of them after the second time.
const IDLE_MAX: Duration = Duration::from_secs(3600);
const AGE_MAX: Duration = Duration::from_secs(12 * 3600);
/// The one that was used least recently makes room.
const LOGINS_MAX: usize = 1_000;
/// Of one token, so that it cannot end the logins of others.
const LOGINS_PER_TOKEN_MAX: usize = 16;

/// So many wrong tokens from one address within the time; then it has to wait.
const WRONG_MAX: usize = 5;
const WRONG_WINDOW: Duration = Duration::from_secs(30);
const WRONG_KEPT_MAX: usize = 1_000;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Logins {
    service: Service,
    has_tls: bool,
    /// None: the node has no audit file.
    audit: Option<Arc<AuditNotes>>,
    state: Arc<Mutex<LoginState>>,
}

#[derive(Debug, Default)]
struct LoginState {
    /// By the public part of the cookie.
    logins: BTreeMap<u64, Login>,
    wrong: VecDeque<(Instant, IpAddr)>,
}

#[derive(Debug)]
struct Login {
    cookie_digest: [u8; 32],
    proof: ShownToken,
    since: Instant,
    used: Instant,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    token: String,
}

impl Logins {
    pub(crate) fn new(service: Service, has_tls: bool, audit: Option<Arc<AuditNotes>>) -> Logins {
        Logins { service, has_tls, audit, state: Arc::default() }
    }

    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    /// Of the request's cookie. None if it has none, or one that stands for nothing (any more).
    pub(super) fn identity(&self, headers: &HeaderMap) -> Option<(Identity, Credential)> {
        let cookie = self.cookie(headers)?;
        let proof = self.state().use_login(&cookie, Instant::now())?;
        let known = identity_of(&self.service, proof).ok();
        if known.is_none() {
            self.state().logins.remove(&cookie.id);
        }
        known
    }

    fn cookie(&self, headers: &HeaderMap) -> Option<AccessToken> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.trim(), value.trim()))
        });
        let (_, value) = pairs.find(|(name, _)| *name == self.cookie_name())?;
        value.parse().ok()
    }

    fn cookie_name(&self) -> &'static str {
        if self.has_tls { COOKIE_WITH_TLS } else { COOKIE_WITHOUT_TLS }
    }

    fn set_cookie(&self, value: &str, max_age: Duration) -> [(HeaderName, String); 1] {
        let secure = if self.has_tls { "; Secure" } else { "" };
        let (name, seconds) = (self.cookie_name(), max_age.as_secs());
        let text =
            format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
        [(SET_COOKIE, text)]
    }

    fn log_in(
        &self,
        caller: &Caller,
        body: &[u8],
        now: Instant,
    ) -> Result<(String, Identity), Failure> {
        let address = caller.address;
        self.state().refuse_if_often_wrong(address, now)?;
        let checked = serde_json::from_slice::<LoginBody>(body)
            .map_err(|_| {
                refused(Reason::InvalidFrame, "a login is written as {\"token\": \"hft_...\"}")
            })
            .and_then(|credential| {
                let token: Result<AccessToken, _> = credential.token.trim().parse();
                let wrong = |error| refused(Reason::Unauthenticated, format!("{error}"));
                let proof = shown(&token.map_err(wrong)?);
                Ok((identity_of(&self.service, proof)?, proof))
            });
        let ((identity, credential), proof) = checked.inspect_err(|failure| {
            self.state().note_wrong(address, now);
            self.service.note_denial(caller, Method::HttpLogin, failure);
        })?;
        if let Some(audit) = &self.audit {
            let known = caller.clone().authenticated(identity.clone(), credential);
            audit.logged_in_at_dashboard(&known);
        }
        let cookie = AccessToken::random().map_err(|error| {
            let words = format!("the operating system gives no random numbers: {error}");
            refused(Reason::Unspecified, words)
        })?;
        let login = Login { cookie_digest: cookie.digest(), proof, since: now, used: now };
        self.state().keep(cookie.id, login);
        Ok((cookie.to_secret_text(), identity))
    }

    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoginState {
    fn use_login(&mut self, cookie: &AccessToken, now: Instant) -> Option<ShownToken> {
        let login = self.logins.get_mut(&cookie.id)?;
        if !cookie.has_digest(&login.cookie_digest) {
            return None;
        }
        let is_over = now.duration_since(login.since) >= AGE_MAX
            || now.duration_since(login.used) >= IDLE_MAX;
        if is_over {
            self.logins.remove(&cookie.id);
            return None;
        }
        login.used = now;
        Some(login.proof)
    }

    fn end(&mut self, cookie: &AccessToken) {
        let own = self.logins.get(&cookie.id);
        if own.is_some_and(|login| cookie.has_digest(&login.cookie_digest)) {
            self.logins.remove(&cookie.id);
        }
    }

    fn keep(&mut self, cookie: u64, login: Login) {
        let token = login.proof.id;
        let is_of_token = |login: &Login| login.proof.id == token;
        if self.logins.values().filter(|login| is_of_token(login)).count() >= LOGINS_PER_TOKEN_MAX {
            self.end_least_recently_used(is_of_token);
        } else if self.logins.len() >= LOGINS_MAX {
            self.end_least_recently_used(|_| true);
        }
        self.logins.insert(cookie, login);
    }

    fn end_least_recently_used(&mut self, is_meant: impl Fn(&Login) -> bool) {
        let meant = self.logins.iter().filter(|(_, login)| is_meant(login));
        if let Some(cookie) = meant.min_by_key(|(_, login)| login.used).map(|(cookie, _)| *cookie) {
            self.logins.remove(&cookie);
        }
    }

    fn refuse_if_often_wrong(
        &mut self,
        address: Option<IpAddr>,
        now: Instant,
    ) -> Result<(), Failure> {
        while self.wrong.front().is_some_and(|(at, _)| now.duration_since(*at) >= WRONG_WINDOW) {
            self.wrong.pop_front();
        }
        let count = self.wrong.iter().filter(|(_, from)| Some(*from) == address).count();
        if count < WRONG_MAX {
            return Ok(());
        }
        let words = "too many wrong tokens from this address; wait half a minute";
        Err(refused(Reason::Overloaded, words))
    }

    fn note_wrong(&mut self, address: Option<IpAddr>, now: Instant) {
        if self.wrong.len() >= WRONG_KEPT_MAX {
            self.wrong.pop_front();
        }
        self.wrong.extend(address.map(|address| (now, address)));
    }
}

pub(super) fn routes(logins: Logins) -> Router {
    Router::new()
        .route("/api/login", post(log_in))
        .route("/api/logout", post(log_out))
        .with_state(logins)
}

async fn log_in(State(logins): State<Logins>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if !is_from_our_page(&parts.headers) {
        return cross_site();
    }
    let caller = parts.extensions.get::<Caller>().cloned();
    let caller = caller.unwrap_or_else(|| Caller::client(Protocol::Http, None));
    let body: Bytes = match axum::body::to_bytes(body, super::BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    match logins.log_in(&caller, &body, Instant::now()) {
        Ok((cookie, identity)) => {
            let body = Json(json!({ "principal": identity.principal.as_str() }));
            (logins.set_cookie(&cookie, AGE_MAX), body).into_response()
        }
        Err(failure) => refusal(&failure),
    }
}

async fn log_out(State(logins): State<Logins>, headers: HeaderMap) -> Response {
    if !is_from_our_page(&headers) {
        return cross_site();
    }
    if let Some(cookie) = logins.cookie(&headers) {
        logins.state().end(&cookie);
    }
    (logins.set_cookie("", Duration::ZERO), Json(json!({}))).into_response()
}

fn cross_site() -> Response {
    let words = "the request does not come from the dashboard's own page\n";
    (StatusCode::FORBIDDEN, words).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cookie, and what it stands for.
    fn login(now: Instant) -> (AccessToken, Login) {
        let cookie = AccessToken::random().unwrap();
        let proof = shown(&AccessToken::random().unwrap());
        let cookie_digest = cookie.digest();
        (cookie, Login { cookie_digest, proof, since: now, used: now })
    }

    #[test]
    fn a_login_ends_when_it_is_not_used_and_at_a_certain_age() {
        let (start, mut state) = (Instant::now(), LoginState::default());
        let (cookie, kept) = login(start);
        state.keep(cookie.id, kept);
        let mut other = AccessToken::random().unwrap();
        other.id = cookie.id;
        assert!(state.use_login(&other, start).is_none(), "the id is public");
        state.end(&other);
        let mut now = start;
        while now < start + AGE_MAX - IDLE_MAX {
            now += IDLE_MAX / 2;
            assert!(state.use_login(&cookie, now).is_some());
        }
        assert!(state.use_login(&cookie, start + AGE_MAX).is_none());
        let (cookie, kept) = login(start);
        state.keep(cookie.id, kept);
        assert!(state.use_login(&cookie, start + IDLE_MAX).is_none());
        assert!(state.logins.is_empty());
    }

    #[test]
    fn logins_are_limited_and_the_one_that_was_used_least_recently_ends() {
        let (start, mut state) = (Instant::now(), LoginState::default());
        for number in 0..=LOGINS_MAX as u64 {
            state.keep(number, login(start + Duration::from_millis(number)).1);
        }
        assert_eq!(state.logins.len(), LOGINS_MAX);
        assert!(!state.logins.contains_key(&0));
    }

    #[test]
    fn many_logins_of_one_token_end_only_its_own() {
        let (start, mut state) = (Instant::now(), LoginState::default());
        state.keep(0, login(start).1);
        let proof = login(start).1.proof;
        for number in 1..=LOGINS_MAX as u64 {
            let at = start + Duration::from_millis(number);
            state.keep(number, Login { proof, ..login(at).1 });
        }
        assert_eq!(state.logins.len(), 1 + LOGINS_PER_TOKEN_MAX);
        assert!(state.logins.contains_key(&0));
    }

    #[test]
    fn wrong_tokens_of_one_address_do_not_keep_another_address_out() {
        let (now, mut state) = (Instant::now(), LoginState::default());
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().ok());
        for _ in 0..WRONG_MAX {
            assert!(state.refuse_if_often_wrong(one, now).is_ok());
            state.note_wrong(one, now);
        }
        assert!(state.refuse_if_often_wrong(one, now).is_err());
        assert!(state.refuse_if_often_wrong(other, now).is_ok());
        assert!(state.refuse_if_often_wrong(one, now + WRONG_WINDOW).is_ok());
        (0..2 * WRONG_KEPT_MAX).for_each(|_| state.note_wrong(one, now));
        assert_eq!(state.wrong.len(), WRONG_KEPT_MAX);
    }
}
