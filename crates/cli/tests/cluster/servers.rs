//! Servers of others, as the tests of the fence start them.

pub(crate) mod kafka;
#[path = "../../../fence/tests/servers/postgres.rs"]
pub(crate) mod postgres;
pub(crate) mod prometheus;
#[path = "../../../fence/tests/servers/redis.rs"]
pub(crate) mod redis;
#[path = "../../../fence/tests/servers/start.rs"]
mod start;
