//! The efficiency tier over real Redis servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod failures;
mod holding;
mod limits;
mod redlock;
mod scene;
mod waiting;

#[path = "../../../fence/tests/servers/redis.rs"]
mod server;
#[path = "../../../fence/tests/servers/start.rs"]
mod start;
#[allow(dead_code, reason = "a part of the support is for other tests")]
#[path = "../support/mod.rs"]
mod support;
