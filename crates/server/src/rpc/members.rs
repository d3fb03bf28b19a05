//! What the other members say of themselves, on their client ports. It is asked when this node has lost its peers, so the
//! peer ports are no way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{ClusterStatusRequest, ClusterStatusResponse, Failure};
use holdfast_replica::NodeId;
use tonic::transport::{Channel, Endpoint};

use super::failure::{bug, no_leader};
use super::message_sizes::RESPONSE_BYTES_MAX;
use crate::membership::Membership;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Connections are made when they are first needed and kept.
#[derive(Debug)]
pub(super) struct Members {
    membership: Arc<Membership>,
    connections: Mutex<BTreeMap<NodeId, (String, Channel)>>,
}

impl Members {
    pub(super) fn new(membership: Arc<Membership>) -> Members {
        Members { membership, connections: Mutex::default() }
    }

    pub(super) async fn own_view_of(&self, node: NodeId) -> Result<ClusterStatusResponse, Failure> {
        let mut member = LockServiceClient::new(self.connection(node)?)
            .max_decoding_message_size(RESPONSE_BYTES_MAX);
        let request = ClusterStatusRequest { own_view: true, ..Default::default() };
        let view = member.cluster_status(request).await;
        view.map(tonic::Response::into_inner).map_err(|status| Failure::from_status(&status))
    }

    fn connection(&self, node: NodeId) -> Result<Channel, Failure> {
        let address = self.membership.client_address(Some(node));
        if address.is_empty() {
            return Err(no_leader());
        }
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, channel)) = connections.get(&node)
            && *known == address
        {
            return Ok(channel.clone());
        }
        let now = self.membership.now();
        connections.retain(|node, _| now.is_member(*node));
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| bug(&format!("the address '{address}': {error}")))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        let channel = endpoint.connect_lazy();
        connections.insert(node, (address, channel.clone()));
        Ok(channel)
    }
}
