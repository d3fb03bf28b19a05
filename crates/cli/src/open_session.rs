//! Opens the session of a command, and tries again while no node serves it and the caller wants to wait.

use std::time::Duration;

use holdfast_client::{Client, ClientBuilder, ConnectError, Unavailable, UnavailableCause};
use tokio::time::{Instant, sleep};

use crate::duration::in_words;
use crate::exit::Problem;
use crate::global::Global;
use crate::leaderless;
use crate::one_shot;

/// A caller that has waited in vain does not wait much longer for the reason.
const REASON_PATIENCE: Duration = Duration::from_secs(1);
const WAIT_LEFT_MIN: Duration = Duration::from_millis(100);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How often the same reason is told again.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// How long a command tries to open its session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenWait {
    /// `--wait`, if the caller gave it. The command waits no longer than that for a leader.
    pub(crate) wait: Option<Duration>,
    /// Whether the command tries again until that time is over.
    pub(crate) retries: bool,
}

impl OpenWait {
    fn left(self, began: Instant) -> Option<Duration> {
        self.wait.map(|wait| wait.saturating_sub(began.elapsed()))
    }
}

pub(crate) enum OpenError {
    /// No node serves the command. One may do so later.
    Unavailable(Unavailable),
    Other(Problem),
}

/// What is left of a wait for a lock after the session was opened. A wait never becomes a single try.
pub(crate) fn wait_left(total: Duration, began: Instant) -> Duration {
    total.saturating_sub(began.elapsed()).max(total.min(WAIT_LEFT_MIN))
}

/// Opens a session that is kept alive.
pub(crate) async fn connect(
    builder: ClientBuilder,
    wait: OpenWait,
    global: &Global,
    progress: impl Fn(&str),
) -> Result<Client, Problem> {
    let mut builder = global.reaching(builder);
    if wait.wait.is_some_and(|wait| wait.is_zero()) {
        builder = builder.fail_if_rate_limited();
    }
    let open = async || match builder.clone().connect(&global.endpoints).await {
        Err(ConnectError::Unavailable(unavailable)) => Err(OpenError::Unavailable(unavailable)),
        connected => connected.map_err(|error| OpenError::Other(error.into())),
    };
    retry(wait, global, progress, open).await
}

/// Opens a session until it is open, or the wait is over. `progress` gets a line for the caller when no node serves it
/// yet.
pub(crate) async fn retry<T>(
    wait: OpenWait,
    global: &Global,
    progress: impl Fn(&str),
    open: impl AsyncFn() -> Result<T, OpenError>,
) -> Result<T, Problem> {
    let began = Instant::now();
    let mut last_shown: Option<(String, Instant)> = None;
    loop {
        let problem = tokio::select! {
            opened = open() => match opened {
                Ok(opened) => return Ok(opened),
                Err(OpenError::Unavailable(unavailable)) => {
                    why_unavailable(unavailable, global).await
                }
                Err(OpenError::Other(problem)) => return Err(problem),
            },
            problem = leaderless::noticed(wait.left(began), global) => problem,
        };
        let left = wait.left(began).filter(|left| wait.retries && !left.is_zero());
        let Some(left) = left else { return Err(problem) };
        let cause = problem.first_line();
        let is_news =
            |(line, at): &(String, Instant)| line != cause || at.elapsed() >= PROGRESS_INTERVAL;
        if last_shown.as_ref().is_none_or(is_news) {
            let left = in_words(left.as_secs().max(1).saturating_mul(1_000));
            progress(&format!("{cause}; trying again for another {left}"));
            last_shown = Some((cause.to_owned(), Instant::now()));
        }
        sleep(RETRY_PAUSE.min(left)).await;
    }
}

/// A node without a leader keeps a stream waiting. A single call learns the reason.
pub(crate) async fn why_unavailable(mut unavailable: Unavailable, global: &Global) -> Problem {
    if unavailable.cause == UnavailableCause::Other
        && let Ok(calls) = one_shot::calls(global)
        && let Ok(answer) = calls.timeout(REASON_PATIENCE).cluster_status().await
        && answer.groups.iter().any(|group| group.leader == 0)
    {
        unavailable.cause = UnavailableCause::NoLeader;
    }
    Problem::from(&unavailable)
}
