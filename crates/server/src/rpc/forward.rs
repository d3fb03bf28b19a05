//! Actions for the node that leads, sent by one that does not: encoded, on the peer port, together with their caller.
//!
//! * An action is sent once. If its answer does not come, its caller is told that it may have happened, and repeats it
//!   under the same request id, which the lock table recognises.
//! * A leader that does not know this service is an older one. Then the caller is told where the leader is.
//! * A connection has no more calls than the leader serves on it at a time. So none waits for another's end.

use std::collections::BTreeMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_engine::Unavailable;
use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::peer_v1::forward_service_client::ForwardServiceClient;
use holdfast_proto::peer_v1::{ForwardedAction, ForwardedAnswer, ForwardedFrame};
use holdfast_proto::v1::Failure;
use holdfast_replica::{GroupId, NodeId};
use holdfast_service::{Caller, Method, RELAYED_MAX};
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Request, Status, Streaming};

use super::failure::{bug, leader_did_not_answer, no_leader, overloaded, unavailable};
use super::message_sizes::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use crate::config::Address;
use crate::membership::Membership;
use crate::peers::{PeerLinks, STREAMS_PER_CONNECTION_MAX, TICKET_KEY, endpoint};
use crate::transport::PeerConnector;

const CONNECTIONS_PER_NODE: usize = 32;
const CALLS_PER_CONNECTION_MAX: usize = STREAMS_PER_CONNECTION_MAX as usize;
/// Streams that last leave a quarter of the room to calls that do not.
const _: () = assert!(RELAYED_MAX == CONNECTIONS_PER_NODE * CALLS_PER_CONNECTION_MAX / 4 * 3);
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
    channels: Vec<(Channel, CallSlot)>,
}

/// Of a call on its connection, which has as many calls as there are clones of it, not counting its own.
#[derive(Clone, Debug, Default)]
struct CallSlot(Arc<()>);

impl CallSlot {
    fn taken(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// The leader's frames for the stream of a session.
#[derive(Debug)]
pub(super) struct SessionAnswers {
    answers: Streaming<ForwardedAnswer>,
    _slot: CallSlot,
}

impl SessionAnswers {
    pub(super) async fn message(&mut self) -> Result<Option<ForwardedAnswer>, Status> {
        self.answers.message().await
    }
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
        let called = self.call_known(to, caller, method, request).await?;
        called.ok_or_else(|| self.older_leader(to))
    }

    /// The part of one group of an action that concerns all groups.
    pub(super) async fn call_group<R: Message + Default>(
        &self,
        (to, group): (NodeId, GroupId),
        caller: &Caller,
        method: Method,
        request: &impl Message,
    ) -> Result<R, Failure> {
        let group = self.group_on_wire(group);
        let action = ForwardedAction { group, ..action(caller, method, request)? };
        self.send(to, action).await?.ok_or_else(|| self.older_leader(to))
    }

    /// Where there is one group, no action names it, as in builds before there were several.
    fn group_on_wire(&self, group: GroupId) -> u32 {
        if self.membership.groups.is_one() { 0 } else { group.0 }
    }

    /// As [`Forwarding::call`]. None if the leader is of a version that takes no forwarded actions.
    pub(super) async fn call_known<R: Message + Default>(
        &self,
        to: NodeId,
        caller: &Caller,
        method: Method,
        request: &impl Message,
    ) -> Result<Option<R>, Failure> {
        self.send(to, action(caller, method, request)?).await
    }

    async fn send<R: Message + Default>(
        &self,
        to: NodeId,
        action: ForwardedAction,
    ) -> Result<Option<R>, Failure> {
        let (mut leader, _slot) = self.client(to)?;
        let action = self.request(to, action)?;
        match leader.forward(action).await {
            Ok(answer) => decoded(&answer.into_inner()).map(Some),
            Err(status) if is_of_older_leader(&status) => Ok(None),
            Err(status) => Err(self.failure(to, &status)),
        }
    }

    /// An action with many answers; of an action that concerns all groups, the part of one group.
    pub(super) async fn stream<R: Message + Default + 'static>(
        &self,
        (to, part): (NodeId, Option<GroupId>),
        caller: &Caller,
        method: Method,
        request: &impl Message,
    ) -> Result<Answers<R>, Failure> {
        let (mut leader, place) = self.client(to)?;
        let group = part.map_or(0, |group| self.group_on_wire(group));
        let action = ForwardedAction { group, ..action(caller, method, request)? };
        let answers = leader.forward_stream(self.request(to, action)?).await;
        let answers = answers.map_err(|status| self.failure(to, &status))?.into_inner();
        Ok(Box::pin(answers.map(move |answer| {
            let _slot = &place;
            Ok(decoded(&answer?)?)
        })))
    }

    /// The stream of a session.
    pub(super) async fn session(
        &self,
        to: NodeId,
        frames: impl Stream<Item = ForwardedFrame> + Send + 'static,
    ) -> Result<SessionAnswers, Failure> {
        let (mut leader, place) = self.client(to)?;
        let frames = self.request(to, frames)?;
        let answers = leader.forward_session(frames).await;
        let answers = answers.map_err(|status| self.failure(to, &status))?.into_inner();
        Ok(SessionAnswers { answers, _slot: place })
    }

    /// The leader's own words if it refused, and else that it could not be asked.
    pub(super) fn failure(&self, to: NodeId, status: &Status) -> Failure {
        if is_of_older_leader(status) {
            return self.older_leader(to);
        }
        if status.metadata().contains_key(REASON_KEY) {
            return Failure::from_status(status);
        }
        let never_sent = was_never_sent(status);
        leader_did_not_answer(self.address(to), never_sent, status.message())
    }

    /// Its client can ask the leader itself.
    pub(super) fn older_leader(&self, leader: NodeId) -> Failure {
        unavailable(Unavailable::NotLeader { leader: Some(leader) }, &self.membership)
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

    fn client(&self, node: NodeId) -> Result<(ForwardServiceClient<Channel>, CallSlot), Failure> {
        // A node that has just come knows who leads before it knows where.
        let address = self.membership.peer_address(node).ok_or_else(no_leader)?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.get(&node).is_none_or(|known| known.address != address) {
            let now = self.membership.now();
            connections.retain(|node, _| now.is_member(*node));
            connections.insert(node, Connections { address, channels: Vec::new() });
        }
        let connections =
            connections.get_mut(&node).ok_or_else(|| bug("a connection was not kept"))?;
        let links = &self.links;
        let (channel, place) = connections.least_used(|address| links.connector(node, address))?;
        let client = ForwardServiceClient::new(channel)
            .max_encoding_message_size(FORWARDED_BYTES_MAX)
            .max_decoding_message_size(RESPONSE_BYTES_MAX + ENVELOPE_BYTES_MAX);
        Ok((client, place))
    }
}

impl Connections {
    /// A new one as long as there may be more and none is without a call.
    fn least_used(
        &mut self,
        connector: impl FnOnce(&Address) -> PeerConnector,
    ) -> Result<(Channel, CallSlot), Failure> {
        let least = self.channels.iter().min_by_key(|(_, place)| place.taken());
        match least {
            Some((channel, place))
                if place.taken() == 0 || self.channels.len() == CONNECTIONS_PER_NODE =>
            {
                if place.taken() >= CALLS_PER_CONNECTION_MAX {
                    return Err(overloaded());
                }
                Ok((channel.clone(), place.clone()))
            }
            _ => {
                let channel = self.connect(connector)?;
                let place = CallSlot::default();
                self.channels.push((channel.clone(), place.clone()));
                Ok((channel, place))
            }
        }
    }

    fn connect(
        &self,
        connector: impl FnOnce(&Address) -> PeerConnector,
    ) -> Result<Channel, Failure> {
        let wrong = |why: &dyn std::fmt::Display| {
            bug(&format!("the leader's address '{}': {why}", self.address))
        };
        let address = Address::new(&self.address).map_err(|error| wrong(&error))?;
        let endpoint = endpoint(&address).map_err(|error| wrong(&error))?;
        Ok(endpoint.connect_with_connector_lazy(connector(&address)))
    }
}

fn action(
    caller: &Caller,
    method: Method,
    request: &impl Message,
) -> Result<ForwardedAction, Failure> {
    let path = method.path().ok_or_else(|| bug("a method without a path was forwarded"))?;
    let (caller, method) = (Some(caller.to_wire()), path.to_owned());
    Ok(ForwardedAction { caller, method, request: request.encode_to_vec(), ..Default::default() })
}

fn decoded<R: Message + Default>(answer: &ForwardedAnswer) -> Result<R, Failure> {
    R::decode(&answer.response[..]).map_err(|error| bug(&format!("the leader's answer: {error}")))
}

/// It does not know the service.
fn is_of_older_leader(status: &Status) -> bool {
    status.code() == Code::Unimplemented && !status.metadata().contains_key(REASON_KEY)
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
    use holdfast_proto::failure::not_now;
    use holdfast_proto::v1::Reason;
    use holdfast_proto::v1::lock_service_server::LockServiceServer;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;

    use super::*;
    use crate::transport::Transport;
    use crate::wrong_port::WrongPort;

    #[tokio::test]
    async fn a_connection_takes_no_more_calls_than_the_leader_serves_on_it() {
        let connector = |address: &Address| Transport::default().connector(NodeId(1), address);
        let address = "127.0.0.1:1".to_owned();
        let mut connections = Connections { address, channels: Vec::new() };
        drop(connections.least_used(connector).unwrap());
        let first = connections.least_used(connector).unwrap();
        assert_eq!(connections.channels.len(), 1, "one without a call is used again");
        let mut places = vec![first.1];
        while let Ok((_, place)) = connections.least_used(connector) {
            places.push(place);
        }
        assert_eq!(places.len(), CONNECTIONS_PER_NODE * CALLS_PER_CONNECTION_MAX);
        for (_, place) in &connections.channels {
            assert_eq!(place.taken(), CALLS_PER_CONNECTION_MAX);
        }
        places.pop();
        assert!(connections.least_used(connector).is_ok(), "there is room again");
    }

    async fn status_of(address: String) -> Status {
        let endpoint = endpoint(&Address::new(&address).unwrap()).unwrap();
        let connector = Transport::default().connector(NodeId(1), &Address::new(&address).unwrap());
        let channel = endpoint.connect_with_connector_lazy(connector);
        let mut client = ForwardServiceClient::new(channel);
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
    async fn a_peer_port_without_this_service_is_that_of_an_older_leader() {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap().to_string();
        let lost_clients = WrongPort::<LockServiceServer<()>>::new("ask elsewhere");
        tokio::spawn(Server::builder().add_service(lost_clients).serve_with_incoming(incoming));
        let status = status_of(address).await;
        assert!(is_of_older_leader(&status), "{status:?}");
        let refusal = not_now(Reason::NotLeader, "it says so").to_status();
        assert!(!is_of_older_leader(&refusal), "{refusal:?}");
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
