//! Redlock: five Redis that know nothing of each other; whoever has a majority of them has the lock.
//!
//! All five are asked at once. Whoever does not get a majority gives back what he got and tries again after a random time, as
//! the algorithm demands: without it, nobody ever has a majority.

use std::path::Path;
use std::time::Duration;

use holdfast_bench::{Connections, Locks, Outcome, Servers};

use super::Service;
use super::redis::{Durability, Redis, RedisClient};
use crate::server::Place;

const SERVERS: usize = 5;
const MAJORITY: usize = SERVERS / 2 + 1;
const LONGEST_PAUSE_US: u64 = 20_000;

#[derive(Debug)]
pub(crate) struct Redlock(Vec<Redis>);

impl Redlock {
    pub(crate) async fn start(place: &Place, program: &Path) -> Outcome<Redlock> {
        let mut servers = Vec::new();
        for number in 1..=SERVERS {
            let name = format!("redlock-{number}");
            servers.push(Redis::start(place, program, &name, Durability::Nothing).await?);
        }
        Ok(Redlock(servers))
    }
}

/// A connection to each, which clients share.
#[derive(Clone)]
pub(crate) struct RedlockClient([RedisClient; SERVERS]);

impl Connections for Redlock {
    type Client = RedlockClient;

    async fn connect(&self) -> Outcome<RedlockClient> {
        let mut connections = Vec::new();
        for redis in &self.0 {
            connections.push(redis.connect().await?);
        }
        let five = connections.try_into().map_err(|_| "there are not five")?;
        Ok(RedlockClient(five))
    }
}

impl Service for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn servers(&self) -> Servers {
        Servers(self.0.iter().map(Redis::pid).collect())
    }
}

impl RedlockClient {
    async fn try_acquire(&self, name: &str, owner: &str) -> Outcome<bool> {
        let [a, b, c, d, e] = &self.0;
        let answers = tokio::join!(
            a.try_acquire(name, owner),
            b.try_acquire(name, owner),
            c.try_acquire(name, owner),
            d.try_acquire(name, owner),
            e.try_acquire(name, owner),
        );
        let granted = [answers.0?, answers.1?, answers.2?, answers.3?, answers.4?];
        Ok(granted.iter().filter(|granted| **granted).count() >= MAJORITY)
    }

    /// From how many it was deleted.
    async fn delete(&self, name: &str, owner: &str) -> Outcome<usize> {
        let [a, b, c, d, e] = &self.0;
        let answers = tokio::join!(
            a.delete(name, owner),
            b.delete(name, owner),
            c.delete(name, owner),
            d.delete(name, owner),
            e.delete(name, owner),
        );
        let deleted = [answers.0?, answers.1?, answers.2?, answers.3?, answers.4?];
        Ok(deleted.iter().filter(|deleted| **deleted).count())
    }
}

impl Locks for RedlockClient {
    /// The name and the owner.
    type Held = (String, String);

    async fn another(&self) -> Outcome<RedlockClient> {
        Ok(self.clone())
    }

    async fn acquire(&self, name: &str) -> Outcome<(String, String)> {
        let owner = self.0[0].new_owner();
        while !self.try_acquire(name, &owner).await? {
            self.delete(name, &owner).await?;
            tokio::time::sleep(random_pause()).await;
        }
        Ok((name.to_owned(), owner))
    }

    async fn release(&self, (name, owner): (String, String)) -> Outcome {
        if self.delete(&name, &owner).await? >= MAJORITY {
            Ok(())
        } else {
            Err(format!("{name} was lost").into())
        }
    }

    /// What a majority says need not be true a moment later, nor was it at any one.
    async fn read(&self, _name: &str) -> Outcome<Option<()>> {
        Ok(None)
    }

    async fn close(self) -> Outcome {
        Ok(())
    }
}

fn random_pause() -> Duration {
    use std::hash::{BuildHasher, Hasher, RandomState};
    Duration::from_micros(RandomState::new().build_hasher().finish() % LONGEST_PAUSE_US)
}
