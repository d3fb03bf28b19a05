//! The services that are compared, each in a file of its own: how it is started, and how locks are taken there.

mod etcd;
mod holdfast;
mod observers;
mod redis;
mod redlock;
mod zookeeper;

use std::pin::Pin;

use clap::ValueEnum;
use holdfast_bench::{Locks, Outcome};

use crate::figures::Figures;
use crate::programs::Programs;
use crate::server::Installation;
use crate::service::Service;
use crate::task::{Task, perform};

/// A service that is not shown by name.
pub(crate) trait Peer {
    fn name(&self) -> &'static str;

    /// One turn of a task; none if the service has nothing like it.
    fn turn<'a>(&'a mut self, task: &'a Task) -> Turning<'a>;
}

pub(crate) type Turning<'a> = Pin<Box<dyn Future<Output = Outcome<Option<Figures>>> + 'a>>;

impl<S: Service> Peer for S
where
    <S::Client as Locks>::Held: 'static,
{
    fn name(&self) -> &'static str {
        Service::name(self)
    }

    fn turn<'a>(&'a mut self, task: &'a Task) -> Turning<'a> {
        Box::pin(perform(self, task))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum PeerName {
    /// Three nodes.
    Holdfast,
    /// Five nodes; for the workload of one client.
    Holdfast5,
    /// The efficiency tier of three nodes: in memory, as Redis is.
    HoldfastEfficiency,
    /// Three nodes with audit files, the dashboard open, metrics scraped each second, and a watcher.
    HoldfastObserved,
    /// Three nodes, in which 500,000 locks are held all the time.
    HoldfastFull,
    /// Three nodes, and its lock service.
    Etcd,
    /// Three nodes, and the standard recipe.
    Zookeeper,
    /// One that keeps nothing.
    Redis,
    /// One with `appendfsync always`.
    RedisFsync,
    /// Five that keep nothing.
    Redlock,
}

impl PeerName {
    /// Those who are asked unless others are named.
    pub(crate) const DEFAULT: [PeerName; 8] = [
        PeerName::Holdfast,
        PeerName::Holdfast5,
        PeerName::HoldfastFull,
        PeerName::Etcd,
        PeerName::Zookeeper,
        PeerName::Redis,
        PeerName::RedisFsync,
        PeerName::Redlock,
    ];
}

/// `locks_held`: how many locks are held in [`PeerName::HoldfastFull`].
pub(crate) async fn start(
    name: PeerName,
    installation: &Installation,
    programs: &Programs,
    locks_held: usize,
) -> Outcome<Box<dyn Peer>> {
    use holdfast::{Kind, OwnCluster};
    use redis::{Durability, Redis};
    Ok(match name {
        PeerName::Holdfast => Box::new(OwnCluster::start(installation, Kind::ThreeNodes).await?),
        PeerName::Holdfast5 => Box::new(OwnCluster::start(installation, Kind::FiveNodes).await?),
        PeerName::HoldfastEfficiency => {
            Box::new(OwnCluster::start(installation, Kind::Efficiency).await?)
        }
        PeerName::HoldfastFull => Box::new(OwnCluster::start_full(installation, locks_held).await?),
        PeerName::HoldfastObserved => {
            Box::new(OwnCluster::start(installation, Kind::Observed).await?)
        }
        PeerName::Etcd => Box::new(etcd::Etcd::start(installation, &programs.etcd()?).await?),
        PeerName::Zookeeper => {
            let (java, class_path) = programs.zookeeper()?;
            Box::new(zookeeper::ZooKeeper::start(installation, &java, &class_path).await?)
        }
        PeerName::Redis => {
            let program = programs.redis()?;
            Box::new(Redis::start(installation, &program, "redis", Durability::Nothing).await?)
        }
        PeerName::RedisFsync => {
            let program = programs.redis()?;
            Box::new(
                Redis::start(installation, &program, "redis-fsync", Durability::Everything).await?,
            )
        }
        PeerName::Redlock => {
            Box::new(redlock::Redlock::start(installation, &programs.redis()?).await?)
        }
    })
}
