//! Each checker as it is used, against the real store where there is one: what it must refuse, and what
//! becomes of a resource at which writers with different tokens meet.
//!
//! One binary, because linking several would take longer than running them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, reason = "it tells how much was tried")]

mod conditions;
mod http;
mod in_process;
mod meeting;
mod postgres;
mod redis;
#[path = "../servers/mod.rs"]
mod servers;
