//! Connections to the node that leads, for requests that arrived at one that does not.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::v1::Failure;
use holdfast_proto::v1::cluster_service_client::ClusterServiceClient;
use holdfast_proto::v1::election_service_client::ElectionServiceClient;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_replica::NodeId;
use tonic::transport::{Channel, Endpoint};
use tonic::{ConnectError, Status};

use super::failure::{bug, leader_did_not_answer, no_leader};
use super::serve::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX, STREAMS_PER_CONNECTION_MAX};
use crate::membership::Membership;

/// They are used in turn.
const CONNECTIONS_PER_NODE: usize = 32;

/// Streams that last, over all of these connections. What is left is for calls.
pub(super) const PASSED_ON_MAX: usize =
    CONNECTIONS_PER_NODE * STREAMS_PER_CONNECTION_MAX as usize / 4 * 3;

/// Every node as a possible leader. Connections are made when they are first needed and kept.
#[derive(Debug)]
pub(super) struct Leaders {
    membership: Arc<Membership>,
    connections: Mutex<BTreeMap<NodeId, Connections>>,
}

#[derive(Debug)]
struct Connections {
    address: String,
    channels: Vec<Channel>,
    next: usize,
}

/// The node that leads, as far as this node knows.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    pub(super) address: String,
    pub(super) client: LockServiceClient<Channel>,
    pub(super) cluster: ClusterServiceClient<Channel>,
    pub(super) operator: OperatorServiceClient<Channel>,
    pub(super) watch: WatchServiceClient<Channel>,
    pub(super) election: ElectionServiceClient<Channel>,
}

impl Leaders {
    pub(super) fn new(membership: Arc<Membership>) -> Leaders {
        Leaders { membership, connections: Mutex::default() }
    }

    pub(super) fn client_of(&self, node: NodeId) -> Result<Leader, Failure> {
        let address = self.membership.client_address(Some(node));
        if address.is_empty() {
            // A node that has just come knows who leads before it knows where.
            return Err(no_leader());
        }
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.get(&node).is_none_or(|known| known.address != address) {
            let now = self.membership.now();
            connections.retain(|node, _| now.is_member(*node));
            let address = address.clone();
            connections.insert(node, Connections { address, channels: Vec::new(), next: 0 });
        }
        let connections =
            connections.get_mut(&node).ok_or_else(|| bug("a connection was not kept"))?;
        let channel = connections.next()?;
        let cluster = ClusterServiceClient::new(channel.clone());
        let operator = OperatorServiceClient::new(channel.clone());
        let watch =
            WatchServiceClient::new(channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX);
        let election = ElectionServiceClient::new(channel.clone());
        let client = LockServiceClient::new(channel)
            .max_encoding_message_size(REQUEST_BYTES_MAX)
            .max_decoding_message_size(RESPONSE_BYTES_MAX);
        Ok(Leader { address, client, cluster, operator, watch, election })
    }
}

impl Connections {
    fn next(&mut self) -> Result<Channel, Failure> {
        let at = self.next % CONNECTIONS_PER_NODE;
        self.next = at + 1;
        if at == self.channels.len() {
            self.channels.push(endpoint(&self.address)?.connect_lazy());
        }
        self.channels.get(at).cloned().ok_or_else(|| bug("a connection was not kept"))
    }
}

impl Leader {
    /// What this node cannot do, the leader may.
    pub(super) fn instead(&self, failure: Failure) -> Failure {
        Failure { leader: self.address.clone(), ..failure }
    }

    /// The leader's own words if it is they who failed, and else that it could not be asked.
    pub(super) fn failure(&self, status: &Status) -> Failure {
        if status.metadata().contains_key(REASON_KEY) {
            return Failure::from_status(status);
        }
        leader_did_not_answer(self.address.clone(), was_never_sent(status), status.message())
    }
}

fn endpoint(address: &str) -> Result<Endpoint, Failure> {
    const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
    const KEEP_ALIVE: Duration = Duration::from_secs(1);
    const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
    const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024 * 1024;
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| bug(&format!("the leader's address '{address}': {error}")))?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES))
}

/// There was no connection on which it could have been sent.
fn was_never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::StatusRequest;

    use super::*;

    fn leader_at(address: String, channel: Channel) -> Leader {
        let cluster = ClusterServiceClient::new(channel.clone());
        let operator = OperatorServiceClient::new(channel.clone());
        let watch = WatchServiceClient::new(channel.clone());
        let election = ElectionServiceClient::new(channel.clone());
        let client = LockServiceClient::new(channel);
        Leader { address, client, cluster, operator, watch, election }
    }

    #[tokio::test]
    async fn a_leader_that_cannot_be_reached_never_had_the_request() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let channel = endpoint(&address).unwrap().connect_lazy();
        let mut leader = leader_at(address, channel);
        let status = leader.client.status(StatusRequest::default()).await.unwrap_err();
        let failure = leader.failure(&status);
        assert!(!failure.may_have_happened && failure.retryable, "{failure:?} {status:?}");
    }

    #[tokio::test]
    async fn a_leader_that_hangs_up_may_have_had_the_request() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                drop(connection);
            }
        });
        let channel = endpoint(&address).unwrap().connect_lazy();
        let mut leader = leader_at(address, channel);
        let status = leader.client.status(StatusRequest::default()).await.unwrap_err();
        assert!(leader.failure(&status).may_have_happened, "{status:?}");
    }
}
