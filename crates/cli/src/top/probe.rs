//! How long the cluster takes to answer, measured from here over connections that stay open.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use holdfast_client::NodeChannel;
use holdfast_client::unary::Unary;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{ClusterStatusRequest, StatusRequest};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(1);
const SAMPLES_MAX: usize = 120;
const NAME: &str = "holdfast top looks here";

/// Of the last samples, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Latency {
    pub(super) median_us: u64,
    pub(super) p99_us: u64,
    pub(super) longest_us: u64,
    pub(super) samples: usize,
}

#[derive(Debug, Default)]
pub(super) struct Samples(VecDeque<u64>);

impl Samples {
    pub(super) fn add(&mut self, took: Duration) {
        self.0.push_back(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        if self.0.len() > SAMPLES_MAX {
            self.0.pop_front();
        }
    }

    pub(super) fn latency(&self) -> Option<Latency> {
        let mut sorted: Vec<u64> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        let last = *sorted.last()?;
        Some(Latency {
            median_us: sorted[sorted.len() / 2],
            p99_us: *sorted.get(sorted.len() * 99 / 100).unwrap_or(&last),
            longest_us: last,
            samples: sorted.len(),
        })
    }
}

/// What one round of asking has shown.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// By client address. None: it did not answer.
    pub(super) nodes: BTreeMap<String, Option<Duration>>,
    /// A linearizable read.
    pub(super) read: Option<Duration>,
}

/// Connections to the nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Probe {
    channels: BTreeMap<String, NodeChannel>,
    /// An unused lock: a read of it needs a quorum, and changes nothing.
    name: String,
}

impl Probe {
    /// That reads a name with this prefix: the caller may see no others.
    pub(super) fn under(prefix: &str) -> Probe {
        Probe { name: format!("{prefix}{NAME}"), ..Probe::default() }
    }

    /// To the nodes of the moment.
    pub(super) fn connect_to(&mut self, calls: &Unary, addresses: &[String]) {
        self.channels.retain(|address, _| addresses.contains(address));
        for address in addresses {
            if !self.channels.contains_key(address)
                && let Some(channel) = calls.channel(address)
            {
                self.channels.insert(address.clone(), channel);
            }
        }
    }

    /// Each node is asked for what it knows by itself, and the leader for what needs a quorum.
    pub(super) async fn ask(self, leader: Option<String>) -> Round {
        let mut round = Round::default();
        let mut asked = JoinSet::new();
        for (address, channel) in self.channels.clone() {
            asked.spawn(async move { (address, own_view(channel).await) });
        }
        while let Some(answered) = asked.join_next().await {
            if let Ok((address, took)) = answered {
                round.nodes.insert(address, took);
            }
        }
        if let Some(channel) = leader.and_then(|leader| self.channels.get(&leader)) {
            round.read = read(channel.clone(), self.name).await;
        }
        round
    }
}

async fn own_view(channel: NodeChannel) -> Option<Duration> {
    let request = ClusterStatusRequest { own_view: true, ..Default::default() };
    let mut node = LockServiceClient::new(channel);
    let start = Instant::now();
    timeout(PATIENCE, node.cluster_status(request)).await.ok()?.ok()?;
    Some(start.elapsed())
}

async fn read(channel: NodeChannel, name: String) -> Option<Duration> {
    let mut node = LockServiceClient::new(channel);
    let start = Instant::now();
    let request = StatusRequest { name, request_id: 0 };
    timeout(PATIENCE, node.status(request)).await.ok()?.ok()?;
    Some(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_that_of_the_last_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.latency(), None);
        (1..=1_000).for_each(|us| samples.add(Duration::from_micros(us)));
        let latency = samples.latency().unwrap();
        assert_eq!((latency.samples, latency.median_us, latency.longest_us), (120, 941, 1_000));
        assert_eq!(latency.p99_us, 999);
    }
}
