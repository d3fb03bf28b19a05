//! The one binary of Holdfast: run a command under a lock, look at locks, run a cluster.
//!
//! Data goes to stdout, everything said to a person to stderr; see [`exit`] for the exit codes.
//! One file per verb.

mod acquire;
mod cli;
mod cluster;
mod duration;
mod exec_child;
mod exit;
mod kill_group;
mod lock;
mod log;
mod ls;
mod one_shot;
mod output;
mod release;
mod renew;
mod running;
mod sessions;
mod status;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, ClusterVerb, Verb};
use crate::exit::{Code, Problem};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_arguments(&error),
    };
    match run(cli) {
        Ok(code) => code,
        Err(problem) => {
            output::say(&problem.words);
            problem.code.into()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Problem> {
    // These two become another program, or only wait for one: no runtime, no threads.
    match cli.verb {
        Verb::ExecChild(args) => return exec_child::run(args),
        Verb::KillGroup(args) => return kill_group::run(args),
        _ => log::to_stderr("error"),
    }
    // One thread is enough for a client, and it is the main one: a child that asked to be killed
    // with its parent is killed when the *thread* that started it ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::new(Code::Unavailable, format!("cannot start: {error}")))?;
    let global = cli.global;
    let code = runtime.block_on(async {
        match cli.verb {
            Verb::Lock(args) => lock::run(args, &global).await,
            Verb::Acquire(args) => acquire::run(args, &global).await,
            Verb::Release(args) => release::run(args, &global).await,
            Verb::Renew(args) => renew::run(args, &global).await,
            Verb::Status(args) => status::run(args, &global).await,
            Verb::Ls(args) => ls::run(args, &global).await,
            Verb::Sessions => sessions::run(&global).await,
            Verb::Cluster { verb: ClusterVerb::Status } => cluster::status(&global).await,
            Verb::ExecChild(_) | Verb::KillGroup(_) => Ok(ExitCode::SUCCESS),
        }
    });
    runtime.shutdown_background();
    code
}
