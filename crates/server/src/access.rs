//! What a node demands of its callers, by its configuration; and how a new cluster gets its first administrator.
//!
//! A node that demands credentials writes a token into `<data_dir>/bootstrap` when it first starts. Until the policy is
//! changed for the first time, that token is an administrator's. From then on it is nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_proto::AccessToken;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::{AuthMode, Caller, Method, Service};

use crate::audit::AuditNotes;
use crate::boot_clock;
use crate::config::NodeConfig;
use crate::durable_file::{self, FileError};
use crate::metrics::Metrics;
use crate::shard::unix_ms;

const BOOTSTRAP_FILE: &str = "bootstrap";

#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the operating system gives no random numbers: {0}")]
    Random(getrandom::Error),
    #[error("{} has no token: remove it and start the node again", path.display())]
    NotAToken { path: PathBuf },
    #[error(
        "there is no file {}: start the node with auth.mode = \"required\" or \"permissive\" first",
        path.display()
    )]
    Missing { path: PathBuf },
}

/// The service, as the configuration wants it.
pub(crate) fn service(
    service: Service,
    config: &NodeConfig,
    metrics: &Arc<Metrics>,
    notes: Option<Arc<AuditNotes>>,
) -> Result<Service, BootstrapError> {
    let mode = config.auth.mode;
    let (denials, metrics) = (Denials::default(), Arc::clone(metrics));
    let service = match notes.clone() {
        None => service,
        Some(notes) => {
            let observer = move |caller: &Caller, method| notes.admitted(caller, method);
            service.observed_by(Arc::new(observer))
        }
    };
    let observer = move |caller: &Caller, method: Method, failure: &Failure| {
        let is_too_often = failure.reason() == Reason::RateLimited;
        if is_too_often {
            metrics.rate_limited.rise()
        } else {
            metrics.denied.rise()
        }
        if let Some(notes) = &notes {
            notes.denied(caller, method, failure, is_too_often || mode.is_enforced(method));
        }
        let principal = caller.on_behalf_of.to_string();
        let Some(not_logged) =
            denials.to_be_logged((principal.clone(), method, failure.reason()), Instant::now())
        else {
            return;
        };
        let (address, reason) = (caller.address, failure.reason().wire_name());
        if is_too_often || mode.is_enforced(method) {
            tracing::warn!(%principal, ?address, ?method, %reason, not_logged, "denied");
        } else {
            tracing::warn!(
                %principal, ?address, ?method, %reason, not_logged, "would be denied if auth.mode were required"
            );
        }
    };
    let service = service
        .with_mode(mode)
        .with_clock(unix_ms)
        .with_rate_clock(|| boot_clock::now().0)
        .denials_observed_by(Arc::new(observer));
    if mode == AuthMode::Off {
        return Ok(service);
    }
    let path = bootstrap_token_file(&config.data_dir);
    if durable_file::read(&path)?.is_none() {
        let token = AccessToken::random().map_err(BootstrapError::Random)?;
        durable_file::replace(&path, &format!("{}\n", token.to_secret_text()))?;
        tracing::info!(path = %path.display(), "wrote the token for the first administrator");
    }
    Ok(service.with_bootstrap(bootstrap_token(&config.data_dir)?.digest()))
}

/// Who was denied what, and why.
type Denial = (String, Method, Reason);

/// What was denied lately. A line in the log costs the thread that serves the caller, and a caller can be denied many
/// times a second. So each kind of denial is logged once in a while, and there are few lines a second.
#[derive(Debug, Default)]
struct Denials(Mutex<LoggedDenials>);

#[derive(Debug, Default)]
struct LoggedDenials {
    logged_at: HashMap<Denial, Instant>,
    /// Of which the lines are counted.
    second_began: Option<Instant>,
    lines: usize,
    not_logged: u64,
}

const LOGGED_AGAIN_AFTER: Duration = Duration::from_secs(60);
const LINES_PER_SECOND_MAX: usize = 10;
const KINDS_OF_DENIALS_MAX: usize = 4_096;

impl Denials {
    /// How many were not logged since the last one that was; none if this one is not to be logged either.
    fn to_be_logged(&self, denial: Denial, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let is_within = |begun: &Instant, span| now.saturating_duration_since(*begun) < span;
        if !state.second_began.is_some_and(|began| is_within(&began, Duration::from_secs(1))) {
            (state.second_began, state.lines) = (Some(now), 0);
        }
        let is_known =
            state.logged_at.get(&denial).is_some_and(|at| is_within(at, LOGGED_AGAIN_AFTER));
        if is_known || state.lines >= LINES_PER_SECOND_MAX {
            state.not_logged += 1;
            return None;
        }
        if state.logged_at.len() >= KINDS_OF_DENIALS_MAX {
            state.logged_at.retain(|_, at| is_within(at, LOGGED_AGAIN_AFTER));
        }
        state.logged_at.insert(denial, now);
        state.lines += 1;
        Some(std::mem::take(&mut state.not_logged))
    }
}

/// The file with the token by which a new cluster gets its first administrator.
pub fn bootstrap_token_file(data_dir: &Path) -> PathBuf {
    data_dir.join(BOOTSTRAP_FILE)
}

/// The token in that file.
pub fn bootstrap_token(data_dir: &Path) -> Result<AccessToken, BootstrapError> {
    let path = bootstrap_token_file(data_dir);
    match durable_file::read(&path)? {
        None => Err(BootstrapError::Missing { path }),
        Some(text) => text.trim().parse().map_err(|_| BootstrapError::NotAToken { path }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_the_first_administrator_is_whole_and_kept_or_the_node_does_not_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut configs = NodeConfig::dev_cluster(1, dir.path(), 1_000).unwrap();
        let mut config = configs.remove(0);
        config.auth.mode = AuthMode::Required;
        durable_file::create_dir(&config.data_dir).unwrap();
        let start = || super::service(Service::default(), &config, &Arc::new(Metrics::new()), None);
        start().unwrap();
        let token = bootstrap_token(&config.data_dir).unwrap();
        start().unwrap();
        assert_eq!(bootstrap_token(&config.data_dir).unwrap().digest(), token.digest());
        // As a crash could leave it.
        std::fs::write(config.data_dir.join(BOOTSTRAP_FILE), "").unwrap();
        assert!(matches!(start(), Err(BootstrapError::NotAToken { .. })));
    }

    #[test]
    fn denials_of_one_kind_and_of_many_kinds_give_few_lines() {
        let (denials, begun) = (Denials::default(), Instant::now());
        let of =
            |principal: usize| (principal.to_string(), Method::Acquire, Reason::PermissionDenied);
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert_eq!(denials.to_be_logged(of(0), at(0)), Some(0));
        for _ in 0..10_000 {
            assert_eq!(denials.to_be_logged(of(0), at(500)), None);
        }
        let lines = (1..=10_000).filter_map(|other| denials.to_be_logged(of(other), at(600)));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [&[10_000][..], &[0; LINES_PER_SECOND_MAX - 2]].concat()
        );
        let unheard = 10_000 - (LINES_PER_SECOND_MAX as u64 - 1);
        assert_eq!(denials.to_be_logged(of(20_000), at(1_000)), Some(unheard), "a new second");
        assert_eq!(denials.to_be_logged(of(0), at(60_000)), Some(0), "it goes on");
    }
}
