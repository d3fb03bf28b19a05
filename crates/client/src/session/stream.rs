//! An open stream to a node, on a connection of its own or as a gRPC call.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use holdfast_proto::plain::EncodedClientFrame;
use holdfast_proto::v1::ServerFrame;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::dial::Connection;
use super::plain::{self, PlainInbound, PlainOutbound};

/// Frames that wait for a call. The rest waits with the session, to be sent there or elsewhere.
const FRAMES_AHEAD_MAX: usize = 16;

/// How long a stream that was left is kept, so that the node hears the farewell before the end.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// A node that takes nothing for so long is given up, also by what was left behind for it.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
}

/// What the node sends.
pub(crate) enum Inbound {
    Plain(PlainInbound),
    /// The node has not answered the call yet.
    Called(Pin<Box<dyn Future<Output = Result<Streaming<ServerFrame>, Status>> + Send>>),
    Grpc(Streaming<ServerFrame>),
}

/// What the node is sent.
#[derive(Debug)]
pub(crate) enum Outbound {
    Plain(PlainOutbound),
    Grpc(mpsc::Sender<EncodedClientFrame>),
}

impl Inbound {
    /// Nothing is lost if it is not waited for to the end.
    pub(crate) async fn message(&mut self) -> Result<Option<ServerFrame>, Status> {
        if let Inbound::Called(call) = self {
            match call.await {
                Ok(frames) => *self = Inbound::Grpc(frames),
                Err(status) => {
                    // A call that has ended must not be waited for again.
                    *self = Inbound::Called(Box::pin(std::future::pending()));
                    return Err(status);
                }
            }
        }
        match self {
            Inbound::Plain(frames) => frames.message().await,
            Inbound::Grpc(frames) => frames.message().await,
            Inbound::Called(_) => Ok(None),
        }
    }

    /// Of HTTP/2 the connection notices that by itself.
    pub(crate) fn has_fallen_silent(&mut self, now: Instant) -> bool {
        match self {
            Inbound::Plain(frames) => frames.has_fallen_silent(now),
            Inbound::Called(_) | Inbound::Grpc(_) => false,
        }
    }

    async fn read_to_end(mut self) {
        while let Ok(Some(_)) = self.message().await {}
    }
}

impl Outbound {
    /// Whether a frame can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Outbound::Plain(outbound) => outbound.has_room(),
            Outbound::Grpc(frames) => frames.capacity() > 0 && !frames.is_closed(),
        }
    }

    /// To be called when there is room.
    pub(crate) fn send(&mut self, frame: EncodedClientFrame) {
        match self {
            Outbound::Plain(outbound) => outbound.send(&frame),
            Outbound::Grpc(frames) => {
                // If the call has ended, what is still to be read says so.
                let _ = frames.try_send(frame);
            }
        }
    }

    /// Asks whether the node is there, if it was not asked for a while. HTTP/2 does so by itself.
    pub(crate) fn ping_if_due(&mut self, now: Instant) {
        if let Outbound::Plain(outbound) = self {
            outbound.ping_if_due(now);
        }
    }

    /// Whether [`Outbound::room`] is worth waiting for.
    pub(crate) fn may_get_room(&self) -> bool {
        match self {
            Outbound::Plain(outbound) => !outbound.has_room() && !outbound.is_broken(),
            Outbound::Grpc(frames) => frames.capacity() == 0 && !frames.is_closed(),
        }
    }

    /// Returns when there is room, or will not be any more. What waits to be sent goes out meanwhile. Nothing is lost if it is not
    /// waited for to the end.
    pub(crate) async fn room(&mut self) {
        match self {
            Outbound::Plain(outbound) => outbound.room().await,
            Outbound::Grpc(frames) => drop(frames.reserve().await),
        }
    }

    /// Says farewell and ends this side.
    async fn end(self) {
        match self {
            Outbound::Plain(mut outbound) => {
                // After what still waits: a node that stands still hears it when it goes on.
                outbound.send(&EncodedClientFrame::default());
                let _ = timeout(WRITE_PATIENCE, outbound.shut()).await;
            }
            // Fails if the call has ended already.
            Outbound::Grpc(frames) => {
                let _ = timeout(FAREWELL_TIMEOUT, frames.send(EncodedClientFrame::default())).await;
            }
        }
    }
}

impl Stream {
    pub(super) fn open(connection: Connection) -> Stream {
        match connection {
            Connection::Plain(socket) => {
                let (outbound, inbound) = plain::open(socket);
                Stream { outbound: Outbound::Plain(outbound), inbound: Inbound::Plain(inbound) }
            }
            Connection::Grpc(mut client) => {
                let (outbound, frames) = mpsc::channel(FRAMES_AHEAD_MAX);
                // What was encoded here can be decoded here.
                let frames = ReceiverStream::new(frames)
                    .filter_map(|frame: EncodedClientFrame| frame.decode().ok());
                let call = async move { Ok(client.session(frames).await?.into_inner()) };
                let inbound = Inbound::Called(Box::pin(call));
                Stream { outbound: Outbound::Grpc(outbound), inbound }
            }
        }
    }

    /// Says farewell and ends this side: the session goes on elsewhere. A stream that is simply dropped means to the
    /// servers that the client is gone, and its session would end after its linger time. The other side is read to its
    /// end: to hang up earlier could overtake the farewell.
    pub(super) fn leave(self) {
        let Stream { outbound, inbound } = self;
        tokio::spawn(async move {
            tokio::join!(outbound.end(), timeout(FAREWELL_TIMEOUT, inbound.read_to_end()))
        });
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Inbound::Plain(_) => "Plain",
            Inbound::Called(_) => "Called",
            Inbound::Grpc(_) => "Grpc",
        })
    }
}
