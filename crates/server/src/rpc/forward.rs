//! Actions for the node that leads, sent by one that does not: encoded, on the peer port, together with their caller.
//!
//! * An action is sent once. If its answer does not come, its caller is told that it may have happened, and repeats it
//!   under the same request id, which the lock table recognises.
//! * A leader that does not know this service is an older one. Then the caller is told where the leader is.

use std::collections::BTreeMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::peer_v1::forward_service_client::ForwardServiceClient;
use holdfast_proto::peer_v1::{ForwardedAction, ForwardedAnswer, ForwardedFrame};
use holdfast_proto::v1::Failure;
use holdfast_replica::NodeId;
use holdfast_service::{Caller, Method};
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Request, Status, Streaming};

use super::failure::{bug, leader_did_not_answer, no_leader, unavailable};
use super::serve::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use crate::config::Address;
use crate::driver::Unavailable;
use crate::membership::Membership;
use crate::peers::{PeerLinks, TICKET_KEY, endpoint};

/// They are used in turn.
const CONNECTIONS_PER_NODE: usize = 32;
/// What is around a message.
const ENVELOPE_BYTES_MAX: usize = 64 * 1024;
pub(super) const FORWARDED_BYTES_MAX: usize = REQUEST_BYTES_MAX + ENVELOPE_BYTES_MAX;

/// Every node as a possible leader. Connections are made when they are first needed and kept.
#[derive(Debug)]
pub(super) struct Forwarding {
    membership: Arc<Membership>,
    links: PeerLinks,
    connections: Mutex<BTreeMap<NodeId, Connections>>,
}

pub(super) type Answers<R> = Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>;

#[derive(Debug)]
struct Connections {
    address: String,
    channels: Vec<Channel>,
    next: usize,
}

impl Forwarding {
    pub(super) fn new(membership: Arc<Membership>, links: PeerLinks) -> Forwarding {
        Forwarding { membership, links, connections: Mutex::default() }
    }

    /// An action with one answer.
    pub(super) async fn call<R: Message + Default>(
        &self,
        to: NodeId,
        caller: &Caller,
        method: Method,
        request: &impl Message,
    ) -> Result<R, Failure> {
        let mut leader = self.client(to)?;
        let action = self.request(to, action(caller, method, request)?)?;
        let answer = leader.forward(action).await.map_err(|status| self.failure(to, &status))?;
        decoded(&answer.into_inner())
    }

    /// An action with many answers.
    pub(super) async fn stream<R: Message + Default + 'static>(
        &self,
        to: NodeId,
        caller: &Caller,
        method: Method,
        request: &impl Message,
    ) -> Result<Answers<R>, Failure> {
        let mut leader = self.client(to)?;
        let action = self.request(to, action(caller, method, request)?)?;
        let answers = leader.forward_stream(action).await;
        let answers = answers.map_err(|status| self.failure(to, &status))?.into_inner();
        Ok(Box::pin(answers.map(|answer| Ok(decoded(&answer?)?))))
    }

    /// The stream of a session.
    pub(super) async fn session(
        &self,
        to: NodeId,
        frames: impl Stream<Item = ForwardedFrame> + Send + 'static,
    ) -> Result<Streaming<ForwardedAnswer>, Failure> {
        let mut leader = self.client(to)?;
        let frames = self.request(to, frames)?;
        let answers = leader.forward_session(frames).await;
        Ok(answers.map_err(|status| self.failure(to, &status))?.into_inner())
    }

    /// The leader's own words if it refused, and else that it could not be asked.
    pub(super) fn failure(&self, to: NodeId, status: &Status) -> Failure {
        if status.metadata().contains_key(REASON_KEY) {
            return Failure::from_status(status);
        }
        if status.code() == Code::Unimplemented {
            return unavailable(Unavailable::NotLeader { leader: Some(to) }, &self.membership);
        }
        let never_sent = was_never_sent(status);
        leader_did_not_answer(self.address(to), never_sent, status.message())
    }

    /// Of the node's client port.
    pub(super) fn address(&self, node: NodeId) -> String {
        self.membership.client_address(Some(node))
    }

    fn request<T>(&self, to: NodeId, message: T) -> Result<Request<T>, Failure> {
        let not_connected =
            || leader_did_not_answer(self.address(to), true, "the nodes are not connected");
        let ticket = self.links.ticket(to).ok_or_else(not_connected)?;
        let mut request = Request::new(message);
        let ticket = MetadataValue::from_bytes(ticket.as_bytes());
        request.metadata_mut().insert_bin(TICKET_KEY, ticket);
        Ok(request)
    }

    fn client(&self, node: NodeId) -> Result<ForwardServiceClient<Channel>, Failure> {
        // A node that has just come knows who leads before it knows where.
        let address = self.membership.peer_address(node).ok_or_else(no_leader)?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.get(&node).is_none_or(|known| known.address != address) {
            let now = self.membership.now();
            connections.retain(|node, _| now.is_member(*node));
            connections.insert(node, Connections { address, channels: Vec::new(), next: 0 });
        }
        let connections =
            connections.get_mut(&node).ok_or_else(|| bug("a connection was not kept"))?;
        Ok(ForwardServiceClient::new(connections.next()?)
            .max_encoding_message_size(FORWARDED_BYTES_MAX)
            .max_decoding_message_size(RESPONSE_BYTES_MAX + ENVELOPE_BYTES_MAX))
    }
}

impl Connections {
    fn next(&mut self) -> Result<Channel, Failure> {
        let at = self.next % CONNECTIONS_PER_NODE;
        self.next = at + 1;
        if at == self.channels.len() {
            let wrong = |why: &dyn std::fmt::Display| {
                bug(&format!("the leader's address '{}': {why}", self.address))
            };
            let address = Address::new(&self.address).map_err(|error| wrong(&error))?;
            let endpoint = endpoint(&address).map_err(|error| wrong(&error))?;
            self.channels.push(endpoint.connect_lazy());
        }
        self.channels.get(at).cloned().ok_or_else(|| bug("a connection was not kept"))
    }
}

fn action(
    caller: &Caller,
    method: Method,
    request: &impl Message,
) -> Result<ForwardedAction, Failure> {
    let path = method.path().ok_or_else(|| bug("a method without a path was forwarded"))?;
    let (caller, method) = (Some(caller.to_wire()), path.to_owned());
    Ok(ForwardedAction { caller, method, request: request.encode_to_vec() })
}

fn decoded<R: Message + Default>(answer: &ForwardedAnswer) -> Result<R, Failure> {
    R::decode(&answer.response[..]).map_err(|error| bug(&format!("the leader's answer: {error}")))
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
    use super::*;

    async fn status_of(address: String) -> Status {
        let endpoint = endpoint(&Address::new(&address).unwrap()).unwrap();
        let mut client = ForwardServiceClient::new(endpoint.connect_lazy());
        client.forward(ForwardedAction::default()).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_leader_that_cannot_be_reached_never_had_the_request() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let status = status_of(address).await;
        assert!(was_never_sent(&status), "{status:?}");
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
        let status = status_of(address).await;
        assert!(!was_never_sent(&status), "{status:?}");
    }
}
