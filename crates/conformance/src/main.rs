//! Whether a client library follows the protocol (docs/protocol.md).
//!
//! The library brings a *driver*: a program that reads requests as JSON lines and answers them. The suite starts it as a
//! child process, plays scenarios on a real cluster whose wires it can cut, and judges by the cluster's audit files and
//! by what the driver said when.
//!
//! - `driver`: the child process and what it is asked. `cluster`, `audit`: the nodes, and what they wrote down.
//!   `command`: the command line, for what an operator does.
//! - `scenarios`: what is played, on a `stage`. `vector_check`: cases of the pure parts.
//! - `suite`: plays all, and tells what it found. `soak`: random faults, judged in the same way.
//! - `rust_driver`: the driver of the Rust library.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its terminal")]

mod audit;
mod cluster;
mod command;
mod driver;
mod finding;
mod judge;
mod scenarios;
mod soak;
mod stage;
mod suite;
mod vector_check;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdfast_conformance::vectors;

/// Tries whether a client library follows the protocol.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Plays the scenarios with a driver.
    Run(suite::Options),
    /// Plays random faults for some minutes while several clients of the driver compete.
    Soak(soak::Options),
    /// Shows that the suite catches a driver that misbehaves.
    Misbehave(suite::Options),
    /// Writes the vectors into a directory.
    Vectors { directory: PathBuf },
    /// Lists the scenarios.
    List,
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().verb {
        Verb::Run(options) => suite::run(&options).await,
        Verb::Soak(options) => soak::run(&options).await,
        Verb::Misbehave(options) => suite::misbehave(&options).await,
        Verb::Vectors { directory } => {
            vectors::write(&directory).map(|()| true).map_err(finding::broken)
        }
        Verb::List => {
            suite::list();
            Ok(true)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}
