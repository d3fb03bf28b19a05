//! What the scripts do to a real Redis, in whatever order they are called. Redis runs one after the other, so an
//! order is all that several callers can make of them.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::health::Health;
use crate::node::Node;
use crate::store::{Attempt, Claim};

#[path = "../../fence/tests/servers/redis.rs"]
mod server;
#[path = "../../fence/tests/servers/start.rs"]
mod start;

use server::{Durability, RedisServer};

const KEY: &str = "holdfast:lock:a";
const LONG: Duration = Duration::from_secs(600);
const OWNERS: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Acquire(usize),
    Extend(usize),
    Release(usize),
    /// The lock's time is over.
    Expire,
    /// A program that knows nothing of us writes to the key.
    Overwrite,
    /// As another type.
    OverwriteWithList,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..OWNERS).prop_map(Step::Acquire),
        2 => (0..OWNERS).prop_map(Step::Extend),
        4 => (0..OWNERS).prop_map(Step::Release),
        1 => Just(Step::Expire),
        1 => Just(Step::Overwrite),
        1 => Just(Step::OverwriteWithList),
    ]
}

/// Who has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    None,
    Owner(usize),
    Stranger,
}

struct Scene {
    node: Arc<Node>,
    redis: MultiplexedConnection,
    claims: Vec<Claim>,
    has: Has,
    last_token: u64,
}

impl Scene {
    async fn run(&mut self, step: &Step) {
        match *step {
            Step::Acquire(owner) => {
                match self.node.acquire(&self.claims[owner], LONG).await.unwrap() {
                    Attempt::Granted { token } => {
                        assert_eq!(self.has, Has::None);
                        assert!(token > self.last_token, "{token} after {}", self.last_token);
                        (self.has, self.last_token) = (Has::Owner(owner), token);
                    }
                    Attempt::Busy { .. } => assert_ne!(self.has, Has::None),
                }
            }
            Step::Extend(owner) => {
                let extended = self.node.extend(&self.claims[owner], LONG).await.unwrap();
                assert_eq!(extended, self.has == Has::Owner(owner));
            }
            Step::Release(owner) => {
                let released = self.node.release(&self.claims[owner]).await.unwrap();
                assert_eq!(released, self.has == Has::Owner(owner));
                if released {
                    self.has = Has::None;
                }
            }
            Step::Expire => {
                let _: i64 = self.redis.del(KEY).await.unwrap();
                self.has = Has::None;
            }
            Step::Overwrite => {
                let _: () = self.redis.set(KEY, "another client").await.unwrap();
                self.has = Has::Stranger;
            }
            Step::OverwriteWithList => {
                let _: i64 = self.redis.del(KEY).await.unwrap();
                let _: i64 = self.redis.lpush(KEY, "another client").await.unwrap();
                self.has = Has::Stranger;
            }
        }
        self.check().await;
    }

    /// What is in Redis is what the model says.
    async fn check(&mut self) {
        let is_there: bool = self.redis.exists(KEY).await.unwrap();
        assert_eq!(is_there, self.has != Has::None);
        if let Has::Owner(owner) = self.has {
            let value: String = self.redis.get(KEY).await.unwrap();
            assert_eq!(value, self.claims[owner].owner);
            let left: i64 = self.redis.pttl(KEY).await.unwrap();
            assert!(left > 0, "a lock without an end");
        }
    }
}

#[test]
fn only_the_owner_frees_or_extends_a_lock_and_tokens_rise() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let Some(server) = runtime.block_on(RedisServer::start(Durability::None)) else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let node = Node::new(0, client, Duration::from_secs(10), Arc::new(Health::of(1, 1)));
    let redis = runtime.block_on(server.connect());
    let steps = proptest::collection::vec(step(), 1..40);
    let last_token = std::cell::Cell::new(0);
    TestRunner::new(ProptestConfig::with_cases(100))
        .run(&steps, |steps| {
            let claims = (0..OWNERS).map(|_| Claim::new("a").unwrap()).collect();
            let mut scene = Scene {
                node: Arc::clone(&node),
                redis: redis.clone(),
                claims,
                has: Has::None,
                last_token: last_token.get(),
            };
            runtime.block_on(async {
                scene.run(&Step::Expire).await;
                for step in &steps {
                    scene.run(step).await;
                }
            });
            last_token.set(scene.last_token);
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_server_that_is_restarted_goes_on_with_higher_tokens_whether_or_not_it_kept_its_data() {
    for durability in [Durability::Always, Durability::None] {
        let Some(mut server) = RedisServer::start(durability).await else { return };
        let grant = async |url: String| {
            let client = redis::Client::open(url).unwrap();
            let node = Node::new(0, client, Duration::from_secs(10), Arc::new(Health::of(1, 1)));
            let claim = Claim::new("a").unwrap();
            let Attempt::Granted { token } = node.acquire(&claim, LONG).await.unwrap() else {
                panic!("it is free")
            };
            assert!(node.release(&claim).await.unwrap());
            token
        };
        let mut last = grant(server.url()).await;
        for _ in 0..3 {
            let next = grant(server.url()).await;
            assert_eq!(next, last + 1);
            last = next;
        }
        server.crash();
        server.launch().await;
        let next = grant(server.url()).await;
        assert!(next > last, "{next} after {last}, {durability:?}");
        if durability == Durability::Always {
            assert_eq!(next, last + 1);
        }
    }
}
