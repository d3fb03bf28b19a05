//! What Holdfast can bear: programs that measure, and judge nothing.
//!
//! They start three real nodes of the given binary on loopback, with the disk's sync on, and tell what they
//! saw. The machine is shared by nodes and load, so compare figures of one run only.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "programs for people")]

mod capacity;
mod mass_expiry;
mod probe;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use holdfast_bench::Outcome;

/// As in the binary that is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: u64 = 3;

#[derive(Debug, Parser)]
#[command(
    about = "Measures what a cluster of three nodes on this machine can bear",
    after_help = "Examples:
  cargo build --profile dist -p holdfast
  cargo run --profile dist -p holdfast-bench -- --binary target/dist/holdfast capacity
  cargo run --profile dist -p holdfast-bench -- --binary target/dist/holdfast mass-expiry --sessions 100000"
)]
struct Arguments {
    /// The `holdfast` that is measured.
    #[arg(long)]
    binary: PathBuf,
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// Holds many locks: memory of each node, and how long others wait meanwhile, while a snapshot of
    /// them is taken, and when they are given back.
    Capacity(capacity::CapacityArgs),
    /// Opens many sessions that all end in the same second: how long others wait meanwhile.
    MassExpiry(mass_expiry::MassExpiryArgs),
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments = Arguments::parse();
    match arguments.workload {
        Workload::Capacity(args) => capacity::run(&arguments.binary, args).await,
        Workload::MassExpiry(args) => mass_expiry::run(&arguments.binary, args).await,
    }
}
