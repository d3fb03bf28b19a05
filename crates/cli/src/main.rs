//! The one binary of Holdfast: run a command under a lock, look at locks, run a cluster.
//!
//! Data goes to stdout, everything said to a person to stderr; see [`exit`] for the exit codes.
//! One file per verb.

mod access;
mod acquire;
mod advise_ttl;
mod bench;
mod break_lock;
mod cert;
mod check_token;
mod cli;
mod client_config;
mod cluster;
mod companion;
mod companion_link;
mod completions;
mod demo;
#[cfg(test)]
mod deployment;
mod dev;
#[cfg(test)]
mod documentation;
mod duration;
mod efficiency;
mod elect;
mod end_group;
mod exec_child;
mod exit;
mod fence;
mod freeze;
mod freezes;
mod global;
mod held;
mod hint;
mod history;
mod intervention;
mod kill_session;
mod leaderless;
mod live;
mod lock;
mod log;
mod ls;
mod man;
mod misuse_hint;
mod mode;
mod name;
mod new_cluster;
mod nonblocking_output;
mod observe;
mod obstacle;
mod one_shot;
mod open_session;
mod otlp;
mod output;
mod owner;
mod queue_display;
mod recover;
mod release;
mod renew;
mod renewal_warning;
mod reopen;
mod running;
mod server;
mod session_arg;
mod sessions;
mod set_permits;
mod signals;
mod snapshot;
mod status;
mod status_fd;
mod stop_signal;
mod supervise;
mod suspension;
mod systemd;
mod terms;
mod text;
mod thaw;
mod tier;
mod token;
mod top;
mod traced;
mod transfer;
mod watch;
mod who;
mod why;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::FromArgMatches;
use tokio::runtime::Builder;

use crate::cli::{Cli, Verb};
use crate::exit::{Code, Problem};

/// A node asks for and gives back some dozen pieces of memory for each operation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let parsed = cli::command().try_get_matches().and_then(|matches| {
        hint::remember(&matches);
        Cli::from_arg_matches(&matches)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return exit::of_arguments(error),
    };
    match run(cli) {
        Ok(code) => code,
        Err(problem) => {
            output::message(&problem.words);
            problem.code.into()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Problem> {
    let global = match cli.verb {
        Verb::ExecChild(_)
        | Verb::Companion
        | Verb::Completions(_)
        | Verb::Man(_)
        | Verb::Fence { .. }
        | Verb::Cert { .. }
        | Verb::Dev(_)
        | Verb::Demo(_)
        | Verb::Server(_) => cli.global.without_cluster(),
        _ => cli.global.resolve()?,
    };
    match cli.verb {
        // These two become another program, or only wait for one: no runtime.
        Verb::ExecChild(args) => exec_child::run(args),
        Verb::Companion => companion::run(),
        Verb::Completions(args) => completions::run(&args, cli::shown()),
        Verb::Man(args) => man::run(&args, cli::shown()),
        Verb::Fence { verb } => fence::run(&verb),
        Verb::Cert { verb } => cert::run(verb, &global),
        Verb::Dev(args) => {
            log::to_stderr("warn");
            on_all_cores(dev::run(args))
        }
        Verb::Bench(args) => {
            log::to_stderr("error");
            let mut runtime = Builder::new_multi_thread();
            if let Some(threads) = args.threads {
                runtime.worker_threads(threads.get());
            }
            block_on(runtime, bench::run(args, &global))
        }
        Verb::Demo(args) => on_one_thread(demo::run(args, &global)),
        // Its configuration says what is logged.
        Verb::Server(args) => beside_the_shard(server::run(args)),
        Verb::Lock(args) => on_one_thread(lock::run(args, &global)),
        Verb::Elect(args) => on_one_thread(elect::run(args, &global)),
        Verb::Observe(args) => on_one_thread(observe::run(args, &global)),
        Verb::Acquire(args) => on_one_thread(acquire::run(args, &global)),
        Verb::Release(args) => on_one_thread(release::run(args, &global)),
        Verb::AdviseTtl(args) => on_one_thread(advise_ttl::run(args, &global)),
        Verb::Renew(args) => on_one_thread(renew::run(args, &global)),
        Verb::CheckToken(args) => on_one_thread(check_token::run(args, &global)),
        Verb::Status(args) => on_one_thread(status::run(args, &global)),
        Verb::Ls(args) => on_one_thread(ls::run(args, &global)),
        Verb::Watch(args) => on_one_thread(watch::run(args, &global)),
        Verb::Top(args) => on_one_thread(top::run(args, &global)),
        Verb::Sessions => on_one_thread(sessions::run(&global)),
        Verb::Why(args) => on_one_thread(why::run(args, &global)),
        Verb::History(args) => on_one_thread(history::run(args, &global)),
        Verb::Who(args) => on_one_thread(who::run(args, &global)),
        Verb::Break(args) => on_one_thread(break_lock::run(args, &global)),
        Verb::Transfer(args) => on_one_thread(transfer::run(args, &global)),
        Verb::Freeze(args) => on_one_thread(freeze::run(args, &global)),
        Verb::Thaw(args) => on_one_thread(thaw::run(args, &global)),
        Verb::Reopen(args) => on_one_thread(reopen::run(args, &global)),
        Verb::Freezes => on_one_thread(freezes::run(&global)),
        Verb::SetPermits(args) => on_one_thread(set_permits::run(args, &global)),
        Verb::KillSession(args) => on_one_thread(kill_session::run(args, &global)),
        Verb::Cluster { verb } => on_one_thread(cluster::run(verb, &global)),
        Verb::Snapshot { verb } => on_one_thread(snapshot::run(verb, &global)),
        Verb::Access { verb } => on_one_thread(access::run(verb, &global)),
        Verb::Recover(args) => on_one_thread(recover::run(args, &global)),
    }
}

type Outcome = Result<ExitCode, Problem>;

fn on_all_cores(verb: impl Future<Output = Outcome>) -> Outcome {
    block_on(Builder::new_multi_thread(), verb)
}

/// The shard's thread, on which all order depends, and those that speak with clients share the cores. Half of
/// them is enough for the clients; with more, threads wake each other for work that one of them could do at once.
fn beside_the_shard(verb: impl Future<Output = Outcome>) -> Outcome {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads((cores / 2).max(1));
    block_on(runtime, verb)
}

/// One thread is enough for a client, and it is the main one: a child that asked to be killed with
/// its parent is killed when the *thread* that started it ends.
fn on_one_thread(verb: impl Future<Output = Outcome>) -> Outcome {
    log::to_stderr("error");
    block_on(Builder::new_current_thread(), verb)
}

fn block_on(mut runtime: Builder, verb: impl Future<Output = Outcome>) -> Outcome {
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| Problem::new(Code::Unavailable, format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(verb);
    // Whatever still runs is given up: the verb has waited for all that matters.
    runtime.shutdown_background();
    outcome
}
