//! The token check of a resource: it refuses a lock holder that comes too late.
//!
//! A lock alone is not mutual exclusion. Its holder can pause for longer than its lease, a second holder
//! starts, and then the first one wakes up and writes. So every grant carries a token that is higher than all
//! before it, and the resource remembers the highest it has seen and refuses a lower one. This crate
//! is that memory for several kinds of resource. `docs/fencing.md` tells how to choose one.
//!
//! - [`rule`]: the rule, in plain code. All checkers share it.
//! - [`in_process`]: a map of high-water marks, for a resource that lives in one process.
//! - `postgres` (feature `postgres`): a migration, and the check inside the transaction that writes.
//! - `redis` (feature `redis`): one script that checks and writes.
//! - `http` (feature `http`): a tower layer that takes the token from a header.
//! - [`dynamodb`] and [`object_store`]: the conditions to send along with a write.
//!
//! It knows nothing of servers and clients of Holdfast: a resource needs no connection to them.
//!
//! Two things no checker can do for its caller:
//! - **Show the token before reading** what the write will depend on, not only on writing. Otherwise a late
//!   writer can slip in between the reading and the writing of its successor, and what it wrote is lost.
//! - **Keep the marks as long as the data.** A mark that is forgotten lets the late writer in.
//!
//! A fence is no proof of identity: every process that reaches the resource can make one up. It protects from
//! those who mean well and are late.

pub mod dynamodb;
#[cfg(feature = "http")]
pub mod http;
pub mod in_process;
pub mod object_store;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod rule;
mod token;

pub use rule::{Accepts, Claim, HighWaterMark, Refusal, admit};
pub use token::{Fence, FenceText, Guarantee, ParseFenceError, TOKEN_LIMIT, name_hash};

/// What creates schema, table and functions of the PostgreSQL checker, for tools that run migrations themselves. It can
/// be run again.
pub const POSTGRES_MIGRATION: &str = include_str!("../sql/postgres.sql");
