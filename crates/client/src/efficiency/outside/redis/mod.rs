//! Locks in Redis.
//!
//! - [`node`]: the connection to one Redis, and how it comes back.
//! - [`calls`]: what one Redis is asked, each a script.
//! - [`listener`]: news of releases, by push.
//! - [`one`]: a store of one Redis; [`redlock`]: a store of several independent ones.
//!
//! A lock is the key `holdfast:lock:NAME` whose value names its owner, with a TTL. Tokens come from one counter
//! for all names, `holdfast:tokens`, so that a name that is not in use costs no memory. Redis Cluster is not for
//! this: it would have to be one slot.

mod calls;
mod listener;
mod node;
mod one;
mod redlock;
#[cfg(test)]
mod tests;

pub(crate) use one::OneRedis;
pub(crate) use redlock::Redlock;
