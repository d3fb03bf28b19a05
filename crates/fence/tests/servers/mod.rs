//! Real PostgreSQL and Redis servers, each with its own directory, on a free port of loopback, and gone
//! with the value that stands for it. Tests of other crates take the files that they need by `#[path]`.
//!
//! Where a server is not installed its tests are skipped, and say so; in CI that is a failure.
//! `cargo xtask test` installs both on Debian.

pub(crate) mod postgres;
pub(crate) mod redis;
mod start;
