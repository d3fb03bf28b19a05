//! What one Redis is asked. Each is one script, so nothing can happen in between.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Script;

use crate::node::Node;
use crate::store::StoreDown;
use crate::store::{Attempt, Claim};

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("acquire.lua")));
static EXTEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("extend.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("release.lua")));
static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("raise.lua")));

const TOKENS: &str = "holdfast:tokens";
const LOCK_PREFIX: &str = "holdfast:lock:";
const FREED_PREFIX: &str = "holdfast:freed:";

/// Where releases of the lock are told.
pub(super) fn channel(name: &str) -> String {
    format!("{FREED_PREFIX}{name}")
}

pub(super) fn name_of(channel: &str) -> Option<&str> {
    channel.strip_prefix(FREED_PREFIX)
}

fn key(claim: &Claim) -> String {
    format!("{LOCK_PREFIX}{}", claim.name)
}

impl Node {
    pub(super) async fn acquire(
        self: &Arc<Node>,
        claim: &Claim,
        ttl: Duration,
    ) -> Result<Attempt, StoreDown> {
        let mut call = ACQUIRE.key(key(claim));
        call.key(TOKENS).arg(&claim.owner).arg(whole_ms(ttl));
        let (granted, number): (bool, i64) = self.call(&call).await?;
        // -1 is the time left of a key that was not set by us and has none.
        let number = u64::try_from(number).ok();
        match (granted, number) {
            (true, Some(token)) => Ok(Attempt::Granted { token }),
            (true, None) => Err(StoreDown {
                message: format!("{}: the counter `{TOKENS}` is below zero", self.label()),
                may_have_happened: true,
            }),
            (false, ms) => Ok(Attempt::Busy { free_in: ms.map(Duration::from_millis) }),
        }
    }

    pub(super) async fn extend(
        self: &Arc<Node>,
        claim: &Claim,
        ttl: Duration,
    ) -> Result<bool, StoreDown> {
        let mut call = EXTEND.key(key(claim));
        call.arg(&claim.owner).arg(whole_ms(ttl));
        self.call(&call).await
    }

    pub(super) async fn release(self: &Arc<Node>, claim: &Claim) -> Result<bool, StoreDown> {
        let mut call = RELEASE.key(key(claim));
        call.arg(&claim.owner).arg(channel(&claim.name));
        self.call(&call).await
    }

    pub(super) async fn raise_tokens(self: &Arc<Node>, to: u64) -> Result<bool, StoreDown> {
        let mut call = RAISE.key(TOKENS);
        call.arg(to);
        self.call(&call).await
    }
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
