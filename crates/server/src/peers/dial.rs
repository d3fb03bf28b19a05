//! One task per peer: connect, say hello, check who answers, give the shard a wire until it or the connection
//! breaks; and again.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::peer_v1::PeerFrame;
use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_tls::explain_any;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tonic::{Code, Status};

use super::backoff::Backoff;
use super::handshake::{Handshake, REMOVED_KEY};
use super::link::Link;
use super::wire::{self, ConnectionTicket};
use super::{CONNECT_TIMEOUT, HANDSHAKE_TIMEOUT, endpoint};
use crate::config::Address;
use crate::transport::byte_stream;

/// A peer that refuses will not change its mind within milliseconds: an operator has to act.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// A connection that was up for so long was no accident: the next is tried at once.
const LASTING: Duration = Duration::from_secs(1);

/// How a connection ended.
#[derive(Debug)]
enum End {
    /// It never began.
    NoConnection(String),
    /// Nothing listens there.
    NobodyThere(String),
    /// One of the two sides does not want the other.
    Refused(String),
    /// This node was removed from the cluster.
    Removed(String),
    /// It was up.
    Broke(String),
}

pub(super) async fn keep_dialled(link: Arc<Link>, address: Address, handshake: Arc<Handshake>) {
    let node = link.node;
    let mut backoff = Backoff::new();
    let mut last_refusal = String::new();
    loop {
        let begun = Instant::now();
        let end = one_connection(&link, &address, &handshake).await;
        link.down();
        match end {
            End::NoConnection(why) => tracing::debug!(%node, %address, why, "cannot reach peer"),
            End::NobodyThere(why) => {
                tracing::debug!(%node, %address, why, "no process listens at the peer's address");
                link.report_refused();
            }
            End::Broke(why) => {
                tracing::info!(%node, %address, why, "lost the connection to peer");
                last_refusal.clear();
                if begun.elapsed() >= LASTING {
                    // At once: whether its process has ended shows in whether it can be dialled.
                    backoff.reset();
                    continue;
                }
            }
            End::Refused(words) => {
                if words != last_refusal {
                    tracing::error!(%node, %address, "peer refused: {words}");
                    last_refusal = words;
                }
                sleep(PAUSE_AFTER_REFUSAL).await;
                continue;
            }
            End::Removed(words) => {
                tracing::error!(%node, %address, "peer refused: {words}");
                link.report_removed().await;
                sleep(PAUSE_AFTER_REFUSAL).await;
                continue;
            }
        }
        sleep(backoff.wait()).await;
    }
}

async fn one_connection(link: &Link, address: &Address, handshake: &Handshake) -> End {
    let node = link.node;
    let endpoint = match endpoint(address) {
        Ok(endpoint) => endpoint,
        Err(error) => return End::NoConnection(error.to_string()),
    };
    let transport = &handshake.transport;
    let connector = transport.connector(node, address);
    let channel = match endpoint.connect_with_connector(connector).await {
        Ok(channel) => channel,
        Err(error) => return unreached(&error),
    };
    let mut client = PeerServiceClient::new(channel);
    // The exchange lasts for as long as this side does not end it.
    let hello = PeerFrame { hello: Some(handshake.hello(node)) };
    let hello = tokio_stream::once(hello).chain(tokio_stream::pending());

    let greeting = timeout(HANDSHAKE_TIMEOUT, async {
        let mut replies = client.exchange(hello).await?.into_inner();
        let welcome = replies.message().await?;
        Ok::<_, Status>((replies, welcome))
    });
    let (mut replies, welcome) = match greeting.await {
        Ok(Ok((replies, Some(welcome)))) => (replies, welcome),
        Ok(Ok((_, None))) => return End::NoConnection("it hung up without a welcome".to_owned()),
        Ok(Err(status)) => return from_status(&status),
        Err(_) => return End::NoConnection("it did not welcome us in time".to_owned()),
    };
    match handshake.check_welcome(node, &welcome) {
        Ok(peer) => link.identify(peer).await,
        Err(refusal) => return End::Refused(refusal.to_string()),
    }

    let Ok(ticket) = welcome.wire_pass.as_slice().try_into().map(ConnectionTicket) else {
        return End::Refused("its welcome has no ticket for a wire".to_owned());
    };
    let certificate =
        match timeout(CONNECT_TIMEOUT, wire::dial(transport, node, address, ticket)).await {
            Ok(Ok(socket)) => {
                let certificate = socket.remote_certificate();
                if let Err(error) = byte_stream(socket).and_then(|stream| link.up(stream)) {
                    return End::NoConnection(error.to_string());
                }
                certificate
            }
            Ok(Err(error)) => return unreached(&error),
            Err(_) => return End::NoConnection("there was no wire in time".to_owned()),
        };
    link.set_ticket(Some(ticket));
    tracing::info!(%node, %address, "connected to peer");
    let termination = tokio::select! {
        termination = replies.message() => termination,
        () = link.broken() => return End::Broke("the wire broke".to_owned()),
        why = transport.until_refused(certificate) => return End::Refused(why),
    };
    match termination {
        Ok(Some(_)) => End::Broke("it welcomed us twice".to_owned()),
        Ok(None) => End::Broke("it ended the stream".to_owned()),
        Err(status) if is_removal(&status) => End::Removed(status.message().to_owned()),
        Err(status) => End::Broke(status.message().to_owned()),
    }
}

fn unreached(error: &(dyn std::error::Error + 'static)) -> End {
    if let Some(why) = explain_any(error) {
        return End::Refused(why);
    }
    let words = error_chain(error);
    let is_refused = std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_refused { End::NobodyThere(words) } else { End::NoConnection(words) }
}

fn is_removal(status: &Status) -> bool {
    status.metadata().contains_key(REMOVED_KEY)
}

fn from_status(status: &Status) -> End {
    if is_removal(status) {
        return End::Removed(status.message().to_owned());
    }
    // A node that does not accept our certificate says so after the handshake.
    if let Some(why) = explain_any(status) {
        return End::Refused(why);
    }
    match status.code() {
        Code::FailedPrecondition
        | Code::InvalidArgument
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => End::Refused(status.message().to_owned()),
        _ => End::NoConnection(status.message().to_owned()),
    }
}

/// With its causes: "transport error" alone explains nothing.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    async fn dialled(address: &str) -> End {
        let endpoint = endpoint(&Address::new(address).unwrap()).unwrap();
        unreached(&endpoint.connect().await.unwrap_err())
    }

    #[tokio::test]
    async fn a_refused_connection_differs_from_an_unknown_host() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let shut = listener.local_addr().unwrap().to_string();
        drop(listener);
        let end = dialled(&shut).await;
        assert!(matches!(end, End::NobodyThere(_)), "{end:?}");
        let end = dialled("no-such-host.invalid:7421").await;
        assert!(matches!(end, End::NoConnection(_)), "{end:?}");
    }
}
