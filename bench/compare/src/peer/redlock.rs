//! Redlock: five Redis that know nothing of each other; a client that has a majority of them has the lock.
//!
//! All five are asked at once. A client that does not get a majority gives back what it got and tries again after a random time, as
//! the algorithm demands: without it, no client ever has a majority.

use std::path::Path;
use std::time::Duration;

use holdfast_bench::{Connections, Locks, Outcome, Servers};

use super::redis::{Durability, Redis, RedisClient};
use crate::server::Installation;
use crate::service::Service;

const SERVERS: usize = 5;
const MAJORITY: usize = SERVERS / 2 + 1;
const LONGEST_PAUSE_US: u64 = 20_000;

#[derive(Debug)]
pub(crate) struct Redlock(Vec<Redis>);

impl Redlock {
    pub(crate) async fn start(installation: &Installation, program: &Path) -> Outcome<Redlock> {
        let mut servers = Vec::new();
        for number in 1..=SERVERS {
            let name = format!("redlock-{number}");
            servers.push(Redis::start(installation, program, &name, Durability::Nothing).await?);
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
    /// How many of the five say yes, asked all at once.
    async fn agreeing<'a, A>(&'a self, ask: impl Fn(&'a RedisClient) -> A) -> Outcome<usize>
    where
        A: Future<Output = Outcome<bool>>,
    {
        let [a, b, c, d, e] = &self.0;
        let answers = tokio::join!(ask(a), ask(b), ask(c), ask(d), ask(e));
        let answers = [answers.0?, answers.1?, answers.2?, answers.3?, answers.4?];
        Ok(answers.into_iter().filter(|yes| *yes).count())
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
        while self.agreeing(|redis| redis.try_acquire(name, &owner)).await? < MAJORITY {
            self.agreeing(|redis| redis.delete(name, &owner)).await?;
            tokio::time::sleep(random_pause()).await;
        }
        Ok((name.to_owned(), owner))
    }

    async fn release(&self, (name, owner): (String, String)) -> Outcome {
        if self.agreeing(|redis| redis.delete(&name, &owner)).await? >= MAJORITY {
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
