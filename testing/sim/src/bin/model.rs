//! `model`: drives the real lock table through every order of a few moves. See [`holdfast_sim::model`].

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its terminal")]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use holdfast_sim::model::{Scope, explore};

/// Explores each scope, and says how far it got.
#[derive(Debug, Parser)]
#[command(name = "model")]
struct Arguments {
    /// Stop a scope when it has this many states.
    #[arg(long, default_value_t = Scope::WIDE.states_max)]
    states_max: usize,
    /// Of three clients at two locks.
    #[arg(long, default_value_t = Scope::WIDE.depth)]
    wide_depth: u32,
    /// Of two clients at one lock.
    #[arg(long, default_value_t = Scope::DEEP.depth)]
    deep_depth: u32,
    /// Of two clients at two locks in all modes.
    #[arg(long, default_value_t = Scope::MODES.depth)]
    modes_depth: u32,
    /// Of three clients at a semaphore and a lock.
    #[arg(long, default_value_t = Scope::PERMITS.depth)]
    permits_depth: u32,
    /// Of three clients in one queue.
    #[arg(long, default_value_t = Scope::QUEUE.depth)]
    queue_depth: u32,
}

fn main() -> ExitCode {
    let Arguments { states_max, wide_depth, deep_depth, modes_depth, permits_depth, queue_depth } =
        Arguments::parse();
    let scopes = [
        Scope { states_max, depth: wide_depth, ..Scope::WIDE },
        Scope { states_max, depth: deep_depth, ..Scope::DEEP },
        Scope { states_max, depth: modes_depth, ..Scope::MODES },
        Scope { states_max, depth: permits_depth, ..Scope::PERMITS },
        Scope { states_max, depth: queue_depth, ..Scope::QUEUE },
    ];
    for scope in scopes {
        let began = Instant::now();
        match explore(&scope) {
            Ok(reached) => println!(
                "{} sessions, {} locks: {} states, {} transitions, complete to depth {}{}, in {:.1} s",
                scope.sessions,
                scope.names,
                reached.states,
                reached.transitions,
                reached.depth,
                if reached.stopped_early { " (the next one in part)" } else { "" },
                began.elapsed().as_secs_f64(),
            ),
            Err(broken) => {
                eprintln!("{} sessions, {} locks: {broken}", scope.sessions, scope.names);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
