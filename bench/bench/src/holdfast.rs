//! Holdfast, through its client library.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client::{Client, Guard, GuardAll, ReleaseOutcome, Tier, Tls};

use crate::Outcome;
use crate::locks::{Connections, Locks};

/// Longer than any queue of a workload.
const WAIT: Duration = Duration::from_secs(120);

/// A cluster, by the addresses of its nodes.
#[derive(Debug, Clone)]
pub struct Holdfast {
    pub endpoints: String,
    pub tier: Tier,
    /// None: plaintext.
    pub tls: Option<Tls>,
}

/// A session with the cluster, which several clients share.
#[derive(Debug)]
struct Connection {
    session: Client,
    tier: Tier,
}

#[derive(Debug)]
pub struct HoldfastClient(Arc<Connection>);

#[derive(Debug)]
pub enum Held {
    One(Guard),
    All(GuardAll),
}

impl Connections for Holdfast {
    type Client = HoldfastClient;

    async fn connect(&self) -> Outcome<HoldfastClient> {
        let builder = match &self.tls {
            Some(tls) => Client::builder().tls(tls.clone()),
            None => Client::builder(),
        };
        let session = builder.connect(&self.endpoints).await?;
        Ok(HoldfastClient(Arc::new(Connection { session, tier: self.tier })))
    }
}

impl Locks for HoldfastClient {
    type Held = Held;

    async fn another(&self) -> Outcome<HoldfastClient> {
        Ok(HoldfastClient(Arc::clone(&self.0)))
    }

    async fn acquire(&self, name: &str) -> Outcome<Held> {
        let request = self.0.session.lock(name).tier(self.0.tier).wait(WAIT);
        Ok(Held::One(request.acquire().await?))
    }

    async fn acquire_all(&self, names: &[String]) -> Outcome<Vec<Held>> {
        let names = names.iter().map(String::as_str);
        let request = self.0.session.lock_all(names).tier(self.0.tier).wait(WAIT);
        Ok(vec![Held::All(request.acquire().await?)])
    }

    async fn release(&self, held: Held) -> Outcome {
        match held {
            Held::One(guard) => is_released(guard.release().await?),
            Held::All(guards) => {
                let outcomes = guards.release().await?;
                outcomes.into_iter().try_for_each(|(_, outcome)| is_released(outcome))
            }
        }
    }

    async fn read(&self, name: &str) -> Outcome<Option<()>> {
        let status = self.0.session.status(name).await?;
        let holders = match self.0.tier {
            Tier::Efficiency => status.efficiency.map_or(0, |lock| lock.holder_count),
            _ => status.holder_count,
        };
        match holders {
            1 => Ok(Some(())),
            others => Err(format!("{name} is said to have {others} holders").into()),
        }
    }

    /// The last client of a session ends it.
    async fn close(self) -> Outcome {
        if let Some(connection) = Arc::into_inner(self.0) {
            connection.session.close().await?;
        }
        Ok(())
    }
}

fn is_released(outcome: ReleaseOutcome) -> Outcome {
    match outcome {
        ReleaseOutcome::Released => Ok(()),
        other => Err(format!("a lock was not released but {other:?}").into()),
    }
}
