//! What a stream of gRPC tells its client: what both tiers deliver, and the words of the stream's own task.
//!
//! The transport pulls. Each time it has room, all that a tier has delivered by then goes into one frame.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_core::RequestId;
use holdfast_proto::Guarantee;
use holdfast_proto::v1::{Failure, ServerFrame};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use super::super::Rpc;
use super::super::door::Door;
use super::super::failure::{slow_reader, stopping};
use super::answers::{AnswerEncoder, LastWord, refusals};
use super::frame::Frame;
use crate::shard::Delivery;

/// Frames of the stream's own that wait to be taken.
const WORDS_MAX: usize = 64;

const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a frame is cut. One list of deliveries is never split.
const ANSWERS_PER_FRAME_TARGET: usize = 4_096;

/// The end that the stream's task holds.
#[derive(Debug)]
pub(super) struct Words {
    words: mpsc::Sender<Word>,
    ended_here: Arc<AtomicBool>,
}

/// The end that the transport pulls from.
#[derive(Debug)]
pub(crate) struct Outgoing {
    door: Door,
    words: mpsc::Receiver<Word>,
    served: Option<Served>,
    /// The shard, or the efficiency tier, let go of the stream without a word.
    abandoned: bool,
    /// What is said after the last frame: nothing, or why the stream ends.
    last_word: Option<LastWord>,
    ended_here: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Word {
    Served(Served),
    Frame(ServerFrame),
    End(Failure),
}

/// A stream whose session the shard knows.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) deliveries: mpsc::Receiver<Vec<Delivery>>,
    /// From the efficiency tier.
    pub(super) from_memory: mpsc::Receiver<Vec<Delivery>>,
    pub(super) answers: AnswerEncoder,
}

pub(super) fn pair(rpc: &Rpc) -> (Words, Outgoing) {
    let (sender, receiver) = mpsc::channel(WORDS_MAX);
    let ended_here = Arc::new(AtomicBool::new(false));
    let words = Words { words: sender, ended_here: Arc::clone(&ended_here) };
    let outgoing = Outgoing {
        door: rpc.door.clone(),
        words: receiver,
        served: None,
        abandoned: false,
        last_word: None,
        ended_here,
    };
    (words, outgoing)
}

/// The transport has dropped its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct NobodyListens;

impl Words {
    /// From here on the tiers are heard.
    pub(super) async fn serve(&self, served: Served) -> Result<(), NobodyListens> {
        self.words.send(Word::Served(served)).await.map_err(|_| NobodyListens)
    }

    pub(super) async fn frame(&self, frame: ServerFrame) -> Result<(), NobodyListens> {
        self.words.send(Word::Frame(frame)).await.map_err(|_| NobodyListens)
    }

    /// Answers some operations with a failure each.
    pub(super) async fn refuse(
        &self,
        failures: Vec<(RequestId, Failure)>,
    ) -> Result<(), NobodyListens> {
        if failures.is_empty() {
            return Ok(());
        }
        self.frame(refusals(failures)).await
    }

    /// The stream ends with this status, after what was said before. A client that does not read is
    /// not waited for.
    pub(super) async fn end(&self, failure: Failure) {
        let _ = timeout(LAST_WORD_TIMEOUT, self.words.send(Word::End(failure))).await;
    }

    /// Returns when the client reads no more.
    pub(super) async fn unheard(&self) {
        self.words.closed().await;
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
        let Some(Served { deliveries: replicated, from_memory, answers }) = &mut self.served else {
            return frame;
        };
        let from = if guarantee == Guarantee::Linearizable { replicated } else { from_memory };
        loop {
            answers.add(guarantee, deliveries, &mut frame);
            if frame.len() >= ANSWERS_PER_FRAME_TARGET {
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
    fn end_with(&mut self, last_word: LastWord) {
        self.last_word.get_or_insert(last_word);
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
            if let Some(last_word) = self.served.as_mut().and_then(|it| it.answers.last_word()) {
                self.end_with(last_word);
            }
            if let Some(last_word) = &mut self.last_word {
                let last_word = std::mem::replace(last_word, Ok(()));
                self.ended_here.store(true, Ordering::Release);
                return Poll::Ready(last_word.err().map(|failure| Err(failure.to_status())));
            }
            match self.poll_deliveries(cx) {
                Poll::Ready(Some((guarantee, deliveries))) => {
                    return Poll::Ready(Some(Ok(self.gather(guarantee, deliveries))));
                }
                // The stream's own task may know better why.
                Poll::Ready(None) => self.abandoned = true,
                Poll::Pending => {}
            }
            match self.words.poll_recv(cx) {
                Poll::Ready(Some(Word::Served(served))) => self.served = Some(served),
                Poll::Ready(Some(Word::Frame(frame))) => return Poll::Ready(Some(Ok(frame))),
                Poll::Ready(Some(Word::End(failure))) => self.end_with(Err(failure)),
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
