//! `holdfast acquire`: take a lock and leave it held, for a script of several commands.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::{Acquired, CallError, Unary};
use holdfast_client::{AcquireError, SessionId};
use holdfast_proto::v1::{AcquireRequest, Grant, Reason};
use serde::Serialize;
use tokio::time::Instant;

use crate::duration;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::leaderless;
use crate::name;
use crate::obstacle;
use crate::one_shot::{self, ACQUIRE_REQUEST_ID};
use crate::open_session::{self, OpenError, OpenWait};
use crate::output::{self, Show};
use crate::owner::OwnerArgs;
use crate::signals::{self, Signals};
use crate::terms::TermsArgs;
use crate::tier::word_of_grant;
use crate::token;
use crate::traced::Traced;

/// How long to try to close a session that holds nothing, or that has no leader to ask.
const CLOSE_PATIENCE: Duration = Duration::from_millis(300);
/// The same, where the session may hold the lock or wait for it.
const GIVING_BACK_PATIENCE: Duration = Duration::from_secs(3);

/// Acquires a lock and leaves it held, without heartbeats.
///
/// The lock ends after --ttl unless `holdfast renew` is called before. Prints the session, which is a secret, and the
/// token. `release` and `renew` need both, and the tier if it is not the default. A permit has no fencing token, so its
/// fence is empty.
///
/// SIGINT, SIGTERM and SIGHUP release everything. After SIGKILL, the node that this program asked sees the connection
/// end and removes it from the queue. If the host or the network fails, the session keeps its place, and the lock if it
/// gets it, until --ttl is over. So does a lock that was granted before the kill. Use a short --ttl or `holdfast lock`
/// where that matters.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 held; 75 the lock is busy or frozen, the wait is over, or to wait would be a
deadlock; 128+N if signal N ended it. If the code is not 0, nothing is held, unless a message says
that the lock may be held.

Examples:
  out=$(holdfast acquire deploy --ttl 5m) || exit; eval \"$out\"
  ./deploy.sh --fence \"$fence\"
  holdfast release deploy --session \"$session\" --token \"$token\"

  holdfast acquire deploy --wait 30s --output json
  holdfast acquire sitemap --tier efficiency
  holdfast acquire gpu --permits 4 --reason 'training run 17'"
)]
pub(crate) struct AcquireArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse_new)]
    name: String,
    /// How long the lock is held after the grant or the last `holdfast renew`.
    #[arg(long, value_name = "D", default_value = "60s", allow_hyphen_values = true,
          value_parser = duration::parse_ttl)]
    ttl: Duration,
    /// How long to wait for the lock, and for a cluster that does not answer; 0s tries once.
    #[arg(long, value_name = "D", default_value = "0s", allow_hyphen_values = true,
          value_parser = duration::parse_wait)]
    wait: Duration,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Debug, Serialize)]
struct Held {
    name: String,
    session: String,
    public_session: String,
    #[serde(serialize_with = "token::as_text")]
    token: u64,
    fence: String,
    /// `linearizable` or `best_effort`.
    guarantee: &'static str,
    ttl_ms: u64,
}

impl Show for Held {
    /// Lines that a shell can `eval`; none of the values needs quoting.
    fn to_table(&self) -> String {
        format!("session={}\ntoken={}\nfence={}\n", self.session, self.token, self.fence)
    }
}

/// Why it is not to be held. If it may be all the same, it has to be given back within that time.
struct NotTaken {
    problem: Problem,
    give_back_within: Option<Duration>,
}

impl NotTaken {
    fn surely(problem: impl Into<Problem>) -> NotTaken {
        NotTaken { problem: problem.into(), give_back_within: None }
    }

    fn perhaps(problem: Problem, give_back_within: Duration) -> NotTaken {
        NotTaken { problem, give_back_within: Some(give_back_within) }
    }
}

/// If the session's secret cannot be printed, the lock is released: the caller could not release it.
pub(crate) async fn run(args: AcquireArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls_within(global, args.wait)?.tier(args.terms.tier.to_tier());
    let session = Cell::new(random_session()?);
    // From here on they end nothing by themselves, not even a second one while it is given back.
    let mut signals = Signals::listen_for_the_end()?;
    let taken = tokio::select! {
        taken = take(&calls, &session, &args, global) => taken,
        signal = signals.next() => {
            give_back(calls.timeout(GIVING_BACK_PATIENCE), session.get(), &args).await;
            return Ok(signals::exit_code(signal));
        }
    };
    let told = taken.and_then(|held| {
        let told = output::hand_over(global.output, &held);
        told.map_err(|problem| NotTaken::perhaps(problem, GIVING_BACK_PATIENCE))
    });
    let NotTaken { problem, give_back_within } = match told {
        Ok(code) => return Ok(code),
        Err(not_taken) => not_taken,
    };
    match give_back_within {
        Some(patience) => give_back(calls.timeout(patience), session.get(), &args).await,
        None => {
            let _ = one_shot::close_session(&calls.timeout(CLOSE_PATIENCE), session.get()).await;
        }
    }
    Err(problem)
}

/// With the session goes all that it holds and waits for.
async fn give_back(calls: Unary, session: SessionId, args: &AcquireArgs) {
    if let Err(error) = one_shot::close_session(&calls, session).await
        && error.is_retryable()
    {
        output::message(&format!(
            "cannot reach the cluster to release {}; the lock may stay held for another {}",
            args.name,
            duration::as_written(args.ttl)
        ));
    }
}

fn random_session() -> Result<SessionId, Problem> {
    SessionId::random()
        .map_err(|error| Problem::new(Code::Unavailable, format!("no randomness: {error}")))
}

/// Opens the session. A try that got no answer may have opened it, and it may have ended before the next try. Its id is
/// used up then, and another takes its place.
async fn open_unused<T>(
    session: &Cell<SessionId>,
    open: impl AsyncFn(SessionId) -> Result<T, CallError>,
) -> Result<T, OpenError> {
    loop {
        match open(session.get()).await {
            Err(CallError::Unavailable(unavailable)) => {
                return Err(OpenError::Unavailable(unavailable));
            }
            Err(CallError::Rejected(refused)) if refused.reason == Reason::SessionExists => {
                session.set(random_session().map_err(OpenError::Other)?);
            }
            opened => return opened.map_err(|error| OpenError::Other(error.into())),
        }
    }
}

async fn take(
    calls: &Unary,
    session: &Cell<SessionId>,
    args: &AcquireArgs,
    global: &Global,
) -> Result<Held, NotTaken> {
    let began = Instant::now();
    let open_as = async |session| {
        let owner = args.owner.of("acquire", String::new());
        calls.open_session(session, args.ttl, None, owner).await
    };
    let open = async || open_unused(session, &open_as).await;
    let wait = OpenWait { wait: Some(args.wait), retries: true };
    let opened = open_session::retry(wait, global, output::message, open).await;
    let opened = opened.map_err(NotTaken::surely)?;
    let (session, wait) = (session.get(), open_session::wait_left(args.wait, began));

    let mut traced = Traced::begin(&args.name);
    let acquired = tokio::select! {
        acquired = acquire(calls, session, args, wait, traced.traceparent()) => acquired,
        problem = leaderless::noticed(Some(args.wait), global) => {
            return Err(NotTaken::perhaps(problem, CLOSE_PATIENCE));
        }
    };
    traced.answered(&acquired);
    traced.finish().await;
    let grant = match acquired {
        Ok(Acquired::Granted(grant)) => grant,
        Err(error) => {
            let problem = why_not(Err(error), calls, args).await;
            return Err(NotTaken::perhaps(problem, GIVING_BACK_PATIENCE));
        }
        refused => return Err(NotTaken::surely(why_not(refused, calls, args).await)),
    };
    Ok(Held {
        name: args.name.clone(),
        session: session.to_secret_text(),
        public_session: opened.public_id,
        token: grant.token,
        guarantee: word_of_grant(grant.guarantee()),
        fence: grant.fence,
        ttl_ms: opened.ttl_ms,
    })
}

/// While it waits, this process keeps the session alive. Afterwards no process does.
async fn acquire(
    calls: &Unary,
    session: SessionId,
    args: &AcquireArgs,
    wait: Duration,
    traceparent: String,
) -> Result<Acquired, CallError> {
    let request = args.terms.on_wire(AcquireRequest {
        request_id: ACQUIRE_REQUEST_ID,
        name: args.name.clone(),
        wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        traceparent,
        ..Default::default()
    });
    let heartbeats = async {
        loop {
            tokio::time::sleep(args.ttl / 3).await;
            if let Err(error) = calls.keep_alive(session, one_shot::next_request_id()).await
                && !error.is_retryable()
            {
                return error;
            }
        }
    };
    let acquired = tokio::select! {
        acquired = calls.acquire(session, request) => acquired?,
        error = heartbeats => return Err(error),
    };
    if let Acquired::Granted(Grant { .. }) = acquired
        && !args.wait.is_zero()
    {
        // The TTL counts from the last request: without this one it would count from a heartbeat.
        calls.keep_alive(session, one_shot::next_request_id()).await?;
    }
    Ok(acquired)
}

async fn why_not(
    acquired: Result<Acquired, CallError>,
    calls: &Unary,
    args: &AcquireArgs,
) -> Problem {
    let error = match acquired {
        Ok(Acquired::Busy) => AcquireError::Busy,
        Ok(Acquired::Deadlock(cycle)) => AcquireError::Deadlock(cycle),
        Ok(Acquired::Died { since }) => AcquireError::Died { since },
        Ok(_) => AcquireError::TimedOut,
        Err(CallError::Rejected(rejection)) => AcquireError::Rejected(rejection),
        Err(error) => return error.into(),
    };
    let names = std::slice::from_ref(&args.name);
    obstacle::why_not(error, calls, args.terms.tier, names, args.wait).await
}

#[cfg(test)]
mod tests {
    use holdfast_client::Rejection;

    use super::*;

    #[tokio::test]
    async fn a_session_that_was_opened_and_has_ended_unseen_is_opened_under_another_id() {
        let session = Cell::new(random_session().unwrap());
        let first = session.get();
        let open = async |id| match id == first {
            true => Err(CallError::Rejected(Rejection {
                reason: Reason::SessionExists,
                message: "the session id is in use".to_owned(),
                may_have_happened: false,
                retry_after: None,
                map_epoch: 0,
            })),
            false => Ok(id),
        };
        let Ok(opened) = open_unused(&session, open).await else { panic!("it gives up") };
        assert!(opened != first && opened == session.get(), "what is given back is the new one");
    }
}
