//! An open stream to a node, on a connection of its own or as a gRPC call.

use std::time::{Duration, Instant};

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{OpenSessionResponse, ServerFrame};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::dial::Connection;
use super::frame::Frame;
use super::plain::{self, PlainInbound, PlainOutbound};

/// Frames that wait for a call. The rest waits with the session, to be sent there or elsewhere.
const FRAMES_AHEAD_MAX: usize = 16;

/// How long a stream that was left is kept, so that the node hears the farewell before the end.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// A node that takes nothing for so long is given up, also by what was left behind for it.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// An open stream whose session is open on the other side too.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
    pub(crate) welcome: OpenSessionResponse,
    /// The frame that brought the welcome; it may hold notices too.
    pub(crate) first_frame: ServerFrame,
}

/// What the node sends.
#[derive(Debug)]
pub(crate) enum Inbound {
    Plain(PlainInbound),
    Grpc(Streaming<ServerFrame>),
}

/// What the node is sent.
#[derive(Debug)]
pub(crate) enum Outbound {
    Plain(PlainOutbound),
    Grpc(mpsc::Sender<Frame>),
}

/// What the inbound half comes from.
#[derive(Debug)]
pub(super) enum Opening {
    Plain(PlainInbound),
    Call(LockServiceClient<Channel>, mpsc::Receiver<Frame>),
}

/// The first frame waits for room, if it is not on its way when this returns.
pub(super) fn open(connection: Connection, first: Frame) -> (Outbound, Opening) {
    match connection {
        Connection::Plain(socket) => {
            let (mut outbound, inbound) = plain::open(socket);
            outbound.send(&first);
            (Outbound::Plain(outbound), Opening::Plain(inbound))
        }
        Connection::Grpc(client) => {
            let (outbound, frames) = mpsc::channel(FRAMES_AHEAD_MAX);
            // There is room, and the receiver is still here, so this cannot fail.
            let _ = outbound.try_send(first);
            (Outbound::Grpc(outbound), Opening::Call(client, frames))
        }
    }
}

impl Opening {
    pub(super) async fn inbound(self) -> Result<Inbound, Status> {
        match self {
            Opening::Plain(inbound) => Ok(Inbound::Plain(inbound)),
            Opening::Call(mut client, frames) => {
                // What was written here can be read here.
                let frames = ReceiverStream::new(frames).filter_map(|frame| frame.decode().ok());
                Ok(Inbound::Grpc(client.session(frames).await?.into_inner()))
            }
        }
    }
}

impl Inbound {
    /// Nothing is lost if it is not waited for to the end.
    pub(crate) async fn message(&mut self) -> Result<Option<ServerFrame>, Status> {
        match self {
            Inbound::Plain(frames) => frames.message().await,
            Inbound::Grpc(frames) => frames.message().await,
        }
    }

    /// Of HTTP/2 the connection notices that by itself.
    pub(crate) fn has_fallen_silent(&mut self, now: Instant) -> bool {
        match self {
            Inbound::Plain(frames) => frames.has_fallen_silent(now),
            Inbound::Grpc(_) => false,
        }
    }

    pub(super) async fn read_to_end(mut self) {
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
    pub(crate) fn send(&mut self, frame: Frame) {
        match self {
            Outbound::Plain(outbound) => outbound.send(&frame),
            Outbound::Grpc(frames) => {
                // If the call has ended, what is still to be read says so.
                let _ = frames.try_send(frame);
            }
        }
    }

    /// Asks whether anybody is there, if nobody was asked for a while. HTTP/2 does so by itself.
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
                outbound.send(&Frame::default());
                let _ = timeout(WRITE_PATIENCE, outbound.shut()).await;
            }
            // Fails if the call has ended already.
            Outbound::Grpc(frames) => {
                let _ = timeout(FAREWELL_TIMEOUT, frames.send(Frame::default())).await;
            }
        }
    }
}

impl Stream {
    /// The session goes on elsewhere. A stream that is simply dropped means to the servers that the
    /// client is gone, and its session would end after its linger time.
    pub(crate) fn leave(self) {
        take_leave(self.outbound, self.inbound.read_to_end());
    }
}

/// Says farewell and ends this side. `rest` returns when the node has ended its own: to hang up
/// earlier could overtake the farewell.
pub(super) fn take_leave(outbound: Outbound, rest: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move { tokio::join!(outbound.end(), timeout(FAREWELL_TIMEOUT, rest)) });
}
