//! `holdfast cluster`: look after the cluster itself. One file per verb.

mod add;
mod limits;
mod promote;
mod remove;
mod replace;
mod status;
mod transfer;

pub(crate) use status::{known_lag, role_text};

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use holdfast_client::{Client, ClientBuilder, ConnectError, Unavailable, UnavailableCause};

use crate::exit::Problem;
use crate::global::Global;
use crate::leaderless;
use crate::one_shot;

/// Whoever has waited in vain does not wait long to hear why.
const SECOND_LOOK_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    Status(status::StatusArgs),
    Add(add::AddArgs),
    Remove(remove::RemoveArgs),
    Replace(replace::ReplaceArgs),
    Promote(promote::PromoteArgs),
    Transfer(transfer::TransferArgs),
    Limits(limits::LimitsArgs),
}

pub(crate) async fn run(verb: ClusterVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        ClusterVerb::Status(args) => status::run(args, global).await,
        ClusterVerb::Add(args) => add::run(args, global).await,
        ClusterVerb::Remove(args) => remove::run(args, global).await,
        ClusterVerb::Replace(args) => replace::run(args, global).await,
        ClusterVerb::Promote(args) => promote::run(args, global).await,
        ClusterVerb::Transfer(args) => transfer::run(args, global).await,
        ClusterVerb::Limits(args) => limits::run(args, global).await,
    }
}

/// A session of its own. Whoever wants to wait for the lock for a short time does not wait longer for a leader.
pub(crate) async fn connect(
    builder: ClientBuilder,
    wait: Option<Duration>,
    global: &Global,
) -> Result<Client, Problem> {
    let connected = tokio::select! {
        connected = global.reaching(builder).connect(&global.endpoints) => connected,
        problem = leaderless::noticed(wait, global) => return Err(problem),
    };
    match connected {
        Ok(client) => Ok(client),
        Err(ConnectError::Unavailable(unavailable)) => {
            Err(why_unavailable(unavailable, global).await)
        }
        Err(error) => Err(error.into()),
    }
}

/// A node without a leader keeps a stream waiting, and says why only to somebody who asks.
pub(crate) async fn why_unavailable(mut unavailable: Unavailable, global: &Global) -> Problem {
    if unavailable.cause == UnavailableCause::Other
        && let Ok(calls) = one_shot::calls(global)
        && let Ok(answer) = calls.timeout(SECOND_LOOK_PATIENCE).cluster_status().await
        && answer.groups.iter().any(|group| group.leader == 0)
    {
        unavailable.cause = UnavailableCause::NoLeader;
    }
    Problem::from(&unavailable)
}
