//! The frames of a gRPC stream for its client: the deliveries of both tiers, and frames of the stream's own task.
//!
//! The transport pulls. Each time it has room, all deliveries of a tier so far go into one frame.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_core::RequestId;
use holdfast_engine::Delivery;
use holdfast_proto::Guarantee;
use holdfast_proto::v1::{Failure, ServerFrame};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use super::super::Rpc;
use super::super::door::Door;
use super::super::failure::{slow_reader, stopping};
use super::answers::{AnswerEncoder, Termination, WEIGHT_PER_FRAME_TARGET, refusals, weight};
use super::byte_room::{ByteRoom, FrameRoom};
use crate::connections::Connection;

/// Frames of the stream's own that wait to be taken.
const ITEMS_MAX: usize = 64;

const TERMINATION_TIMEOUT: Duration = Duration::from_secs(1);

/// The end that the stream's task holds.
#[derive(Debug)]
pub(super) struct OutgoingSender {
    items: mpsc::Sender<OutgoingItem>,
    room: ByteRoom,
    ended_here: Arc<AtomicBool>,
}

/// The end that the transport pulls from.
#[derive(Debug)]
pub(crate) struct Outgoing {
    door: Door,
    items: mpsc::Receiver<OutgoingItem>,
    served: Option<SessionDeliveries>,
    /// The shard, or the efficiency tier, dropped the stream without a reason.
    abandoned: bool,
    /// How the stream ends after the last frame: without an error, or with one.
    termination: Option<Termination>,
    ended_here: Arc<AtomicBool>,
}

#[derive(Debug)]
enum OutgoingItem {
    Deliveries(SessionDeliveries),
    Frame { frame: ServerFrame, _room: FrameRoom },
    End(Failure),
}

/// A stream whose session the shard knows.
#[derive(Debug)]
pub(super) struct SessionDeliveries {
    pub(super) deliveries: mpsc::Receiver<Vec<Delivery>>,
    /// From the efficiency tier.
    pub(super) from_memory: mpsc::Receiver<Vec<Delivery>>,
    pub(super) answers: AnswerEncoder,
}

/// What waits between the two ends counts for the client's connection.
pub(super) fn pair(rpc: &Rpc, connection: Option<Arc<Connection>>) -> (OutgoingSender, Outgoing) {
    let (sender, receiver) = mpsc::channel(ITEMS_MAX);
    let ended_here = Arc::new(AtomicBool::new(false));
    let room = ByteRoom::to_client(connection);
    let sender = OutgoingSender { items: sender, room, ended_here: Arc::clone(&ended_here) };
    let outgoing = Outgoing {
        door: rpc.door.clone(),
        items: receiver,
        served: None,
        abandoned: false,
        termination: None,
        ended_here,
    };
    (sender, outgoing)
}

/// The transport has dropped its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverDropped;

impl OutgoingSender {
    /// From here on the deliveries of the tiers are sent.
    pub(super) async fn serve(&self, served: SessionDeliveries) -> Result<(), ReceiverDropped> {
        self.items.send(OutgoingItem::Deliveries(served)).await.map_err(|_| ReceiverDropped)
    }

    pub(super) async fn frame(&self, frame: ServerFrame) -> Result<(), ReceiverDropped> {
        let room = tokio::select! {
            room = self.room.take(frame.encoded_len()) => room,
            () = self.items.closed() => return Err(ReceiverDropped),
        };
        self.items
            .send(OutgoingItem::Frame { frame, _room: room })
            .await
            .map_err(|_| ReceiverDropped)
    }

    /// Answers some operations with a failure each.
    pub(super) async fn refuse(
        &self,
        failures: Vec<(RequestId, Failure)>,
    ) -> Result<(), ReceiverDropped> {
        if failures.is_empty() {
            return Ok(());
        }
        self.frame(refusals(failures)).await
    }

    /// The stream ends with this status, after what was said before. A client that does not read is
    /// not waited for.
    pub(super) async fn end(&self, failure: Failure) {
        let _ = timeout(TERMINATION_TIMEOUT, self.items.send(OutgoingItem::End(failure))).await;
    }

    /// Returns when the client reads no more.
    pub(super) async fn unheard(&self) {
        self.items.closed().await;
    }

    /// The stream was ended by this node, not by the client's leaving.
    pub(super) fn ended_here(&self) -> bool {
        self.ended_here.load(Ordering::Acquire)
    }
}

impl Outgoing {
    /// All that a tier has delivered.
    fn gather(&mut self, guarantee: Guarantee, mut deliveries: Vec<Delivery>) -> ServerFrame {
        let mut frame = ServerFrame::default();
        let Some(SessionDeliveries { deliveries: replicated, from_memory, answers }) =
            &mut self.served
        else {
            return frame;
        };
        let from = if guarantee == Guarantee::Linearizable { replicated } else { from_memory };
        let mut gathered = 0;
        loop {
            gathered += weight(&deliveries);
            answers.add(guarantee, deliveries, &mut frame);
            if gathered >= WEIGHT_PER_FRAME_TARGET {
                break;
            }
            match from.try_recv() {
                Ok(more) => deliveries = more,
                Err(_) => break,
            }
        }
        answers.finish_frame();
        frame
    }

    /// The first reason to end is the one that is told.
    fn end_with(&mut self, termination: Termination) {
        self.termination.get_or_insert(termination);
    }

    fn why_abandoned(&self) -> Failure {
        if self.door.is_stopping() { stopping() } else { slow_reader() }
    }

    fn poll_deliveries(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(Guarantee, Vec<Delivery>)>> {
        match &mut self.served {
            Some(served) if !self.abandoned => {
                if let Poll::Ready(deliveries) = served.deliveries.poll_recv(cx) {
                    return Poll::Ready(deliveries.map(|list| (Guarantee::Linearizable, list)));
                }
                let in_memory = served.from_memory.poll_recv(cx);
                in_memory.map(|deliveries| deliveries.map(|list| (Guarantee::BestEffort, list)))
            }
            _ => Poll::Pending,
        }
    }
}

impl Stream for Outgoing {
    type Item = Result<ServerFrame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(termination) = self.served.as_mut().and_then(|it| it.answers.termination())
            {
                self.end_with(termination);
            }
            // What the stream's own task has sent before the session ended is told before the end.
            if matches!(self.termination, Some(Ok(())))
                && let Ok(OutgoingItem::Frame { frame, .. }) = self.items.try_recv()
            {
                return Poll::Ready(Some(Ok(frame)));
            }
            if let Some(termination) = &mut self.termination {
                let termination = std::mem::replace(termination, Ok(()));
                self.ended_here.store(true, Ordering::Release);
                return Poll::Ready(termination.err().map(|failure| Err(failure.to_status())));
            }
            match self.poll_deliveries(cx) {
                Poll::Ready(Some((guarantee, deliveries))) => {
                    return Poll::Ready(Some(Ok(self.gather(guarantee, deliveries))));
                }
                // The stream's own task may know better why.
                Poll::Ready(None) => self.abandoned = true,
                Poll::Pending => {}
            }
            match self.items.poll_recv(cx) {
                Poll::Ready(Some(OutgoingItem::Deliveries(served))) => self.served = Some(served),
                Poll::Ready(Some(OutgoingItem::Frame { frame, .. })) => {
                    return Poll::Ready(Some(Ok(frame)));
                }
                Poll::Ready(Some(OutgoingItem::End(failure))) => self.end_with(Err(failure)),
                Poll::Ready(None) => self.end_with(Ok(())),
                Poll::Pending if self.abandoned => {
                    let failure = self.why_abandoned();
                    self.end_with(Err(failure));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
