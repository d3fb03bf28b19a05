//! The logic of a Holdfast client, without I/O: no clock, no threads, no randomness. Time is an argument, and the
//! actions to take come out as data.
//!
//! - [`session`]: the state machine of a client's session: hello, resume, resend, answers, losses, heartbeats.
//! - [`groups`]: in which group of the cluster a request is carried out.
//! - [`hold`]: what the session and a guard both know about a lock that is held.
//! - [`lease`]: how long a client may trust its locks.
//! - [`endpoints`]: which node to try. [`circuit`]: whether calls wait. [`backoff`]: when to try again.
//!   [`connect_errors`]: what each failed try said.
//! - [`error`], [`tier`], [`wire_time`]: types that all of them use.
//!
//! The library on tokio drives it with real sockets and clocks, the simulation with its own.

pub mod backoff;
pub mod circuit;
pub mod connect_errors;
pub mod endpoints;
pub mod error;
mod group_id;
pub mod groups;
pub mod hold;
mod in_flight;
pub mod lease;
pub mod loss;
#[cfg(feature = "planted")]
pub mod planted;
pub mod session;
pub mod tier;
pub mod wire_time;
