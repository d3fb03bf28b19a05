//! Loads for a lock service, and what they show.
//!
//! - [`Locks`]: what a lock service must offer to be measured. [`holdfast::HoldfastClient`] is ours; those of others are
//!   in `bench/compare`, so that nothing of them is in the product.
//! - [`workload`]: one file per workload, the same code for every service.
//! - [`Cluster`]: real nodes on loopback, each a process of its own, with the disk's sync on.
//! - [`Turn`] is what one run of a workload has shown, [`median`] what several have.
//!
//! One operation is one acquire or one release. A load is closed if a client asks again when it was answered, and open if
//! it asks when it is time.
//!
//! Caveat: load and nodes usually share a machine, so compare only what was measured side by side.

mod cluster;
mod cpu;
pub mod frames;
mod held_name;
pub mod holdfast;
mod locks;
mod notes;
mod turn;
mod window;
pub mod workload;

pub use cluster::Cluster;
pub use cpu::{CpuTimes, Servers, resident_bytes};
pub use locks::{Connections, Locks, clients_over, close_all};
pub use notes::{Latency, Notes};
pub use turn::{Cores, Turn, Waits, median};
pub use window::{Length, Window};

/// Whatever went wrong, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

pub type Outcome<T = ()> = Result<T, Failure>;

/// All names that are locked begin so.
pub const PREFIX: &str = "bench/";
