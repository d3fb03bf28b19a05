//! A deterministic simulation of whole Holdfast clusters, and the checkers that judge what happened.
//!
//! One thread, one seed: [`run`] builds a cluster of real replicas on real logs, with simulated disks,
//! network, clocks and clients (`world`), lets things go wrong (`fault`), heals them, lets the rest
//! settle, and hands the [`history::History`] to the checkers ([`check`]).
//!
//! # Invariants
//!
//! * The same seed gives the same run, to the last bit: no thread, no wall clock, no unordered map.
//! * What is simulated is what surrounds the product; replica, lock table, log and the client's lease
//!   logic are the real code.
//!
//! # Caveats
//!
//! * Requests travel one by one, not in frames of a stream; so they overtake each other more than they
//!   do in the product.

mod agenda;
mod best_effort;
pub mod check;
mod client;
mod clock;
mod coverage;
mod fault;
pub mod history;
mod message;
pub mod model;
mod names;
mod network;
mod node;
mod options;
mod plan;
#[cfg(feature = "planted")]
pub mod planted;
mod recorder;
mod rng;
mod run;
mod settle;
mod store;
mod trace;
mod workload;
mod world;

pub use coverage::Coverage;
pub use fault::FaultKind;
pub use options::Options;
pub use run::{RunReport, run, run_with};
pub use workload::{CommandKind, Origin};
