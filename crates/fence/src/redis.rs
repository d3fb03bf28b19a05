//! Redis: one script that checks and writes.
//!
//! [`FencedKey::run`] runs one command on condition that the claim passes, and raises the mark in the same
//! step; nothing can happen in between. Run also the reading command in this way if a later write
//! depends on what it reads.
//!
//! The mark has a key of its own beside the data's, in the same hash slot, so that it works in a cluster.
//! A resource whose data lies under several keys has one of them as its [`FencedKey`], always the same, and all
//! must share a hash tag (`{wallet:42}:cents`, `{wallet:42}:currency`).
//!
//! Caveats, and they are Redis's:
//! - **durability**: a server without an append-only file forgets marks on a restart, with `appendfsync
//!   everysec` those of the last second on a crash of the machine, and a replica that takes over those that had
//!   not reached it. Data and marks are forgotten alike, but the late writer is not: it passes until
//!   the next holder has shown its token. Where that is damage, use `appendonly yes` and `appendfsync
//!   always`, no failover to asynchronous replicas, or another store;
//! - **eviction**: with any `maxmemory-policy` but `noeviction` or `volatile-*` marks can be evicted. They
//!   have no TTL, and must not be given one;
//! - if the command itself fails, the mark stays raised.

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, RedisError, Script, Value};

use crate::rule::{Claim, HighWaterMark, Refusal};

/// The script, for other languages: its keys and arguments are explained in it.
pub const SCRIPT: &str = include_str!("redis/write.lua");

const MARK_PREFIX: &str = "holdfast:mark:";

/// The key of the data, and beside it that of its mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedKey {
    data: String,
    mark: String,
}

/// A key of which no other can be said to be in the same slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key `{0}` has braces that are no hash tag: write `{{tag}}rest`, or leave them out")]
pub struct NoHashTag(pub String);

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the fenced command failed: {0}")]
    Redis(#[from] RedisError),
}

impl FencedKey {
    pub fn new(data: impl Into<String>) -> Result<FencedKey, NoHashTag> {
        let data = data.into();
        let mark = match hash_tag(&data) {
            // What stands before it has no brace, so the first tag of the mark's key is that of the data's.
            Some(_) => format!("{MARK_PREFIX}{data}"),
            None if data.contains(['{', '}']) => return Err(NoHashTag(data)),
            None => format!("{MARK_PREFIX}{{{data}}}"),
        };
        Ok(FencedKey { data, mark })
    }

    pub fn data(&self) -> &str {
        &self.data
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// `SET key value`, if the claim passes.
    pub async fn set<C: ConnectionLike>(
        &self,
        connection: &mut C,
        claim: &Claim,
        value: impl redis::ToRedisArgs,
    ) -> Result<(), WriteError> {
        self.run(connection, claim, Cmd::new().arg("SET").arg(&self.data).arg(value)).await
    }

    /// Runs one command that touches nothing but this key, and others of the same hash tag, if the claim
    /// passes. Its name is the first argument of `command`, as in [`redis::cmd`].
    pub async fn run<C: ConnectionLike, T: FromRedisValue>(
        &self,
        connection: &mut C,
        claim: &Claim,
        command: &Cmd,
    ) -> Result<T, WriteError> {
        let script = Script::new(SCRIPT);
        let mut call = script.prepare_invoke();
        call.key(&self.mark).key(&self.data).arg(claim.token());
        for argument in command.args_iter() {
            if let redis::Arg::Simple(bytes) = argument {
                call.arg(bytes);
            }
        }
        let (passed, answer): (bool, Value) = call.invoke_async(connection).await?;
        if passed {
            return Ok(redis::from_redis_value(answer).map_err(RedisError::from)?);
        }
        let highest = redis::from_redis_value(answer).map_err(RedisError::from)?;
        Err(HighWaterMark::from_token(highest).stale(claim).into())
    }

    /// The highest token that was seen.
    pub async fn highest<C: ConnectionLike>(
        &self,
        connection: &mut C,
    ) -> Result<HighWaterMark, RedisError> {
        let token: Option<u64> = Cmd::get(&self.mark).query_async(connection).await?;
        Ok(HighWaterMark::from_token(token.unwrap_or(0)))
    }
}

/// What Redis hashes instead of the whole key: what stands between the first brace and the next closing
/// one, if that is not empty.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_in_the_slot_of_the_data() {
        for (data, mark, tag) in [
            ("wallet:42", "holdfast:mark:{wallet:42}", "wallet:42"),
            ("{wallet:42}:cents", "holdfast:mark:{wallet:42}:cents", "wallet:42"),
            ("a{b}c{d}", "holdfast:mark:a{b}c{d}", "b"),
            ("a{{b}}c", "holdfast:mark:a{{b}}c", "{b"),
        ] {
            let key = FencedKey::new(data).unwrap();
            assert_eq!(key.mark(), mark);
            assert_eq!(hash_tag(key.mark()), Some(tag), "{data}");
        }
    }

    #[test]
    fn braces_that_are_no_tag_are_refused() {
        for key in ["a{}b", "a}b", "a{b", "{}{b}"] {
            assert!(FencedKey::new(key).is_err(), "{key}");
        }
    }
}
