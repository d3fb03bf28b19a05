//! What a stream tells its client: the driver's deliveries, and the words of the stream's own task.
//!
//! The transport pulls. Each time it has room, all that the driver has delivered by then goes into one
//! frame.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use holdfast_core::{Outcome, RequestId};
use holdfast_proto::Guarantee;
use holdfast_proto::encode;
use holdfast_proto::v1::{self, Answer, Failure, ServerFrame, answer, notice};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use super::super::Rpc;
use super::super::failure::{slow_reader, stopping, unavailable};
use super::super::response::{self, ResponseContext};
use super::frame::{Frame, queued};
use super::looks::Looks;
use super::pen::Pen;
use super::speaker::{self, Lists};
use super::view::View;
use crate::driver::{Delivery, Outbox, Unavailable};

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
    /// Of a plain connection.
    pen: Option<Arc<Pen>>,
}

/// The end that the transport pulls from.
#[derive(Debug)]
pub(crate) struct Outgoing {
    rpc: Rpc,
    view: View,
    words: mpsc::Receiver<Word>,
    served: Option<Served>,
    /// The driver, or the efficiency tier, let go of the stream without a word.
    abandoned: bool,
    /// In the frame that is being made.
    looks_answered: usize,
    /// Lists of the driver's that are in it, too.
    lists_taken: usize,
    /// What is said after the last frame: nothing, or why the stream ends.
    last_word: Option<Result<(), Failure>>,
    ended_here: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Word {
    Served(Served),
    Frame(ServerFrame),
    End(Failure),
}

/// A stream whose session the driver knows.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) deliveries: Lists,
    /// From the efficiency tier.
    pub(super) from_memory: mpsc::Receiver<Vec<Delivery>>,
    pub(super) opening: RequestId,
    pub(super) resumed: bool,
    /// The opening has been answered.
    pub(super) open: bool,
    pub(super) looks: Looks,
}

pub(super) fn pair(rpc: Rpc, pen: Option<Arc<Pen>>) -> (Words, Outgoing) {
    let (sender, receiver) = mpsc::channel(WORDS_MAX);
    let ended_here = Arc::new(AtomicBool::new(false));
    let words = Words { words: sender, ended_here: Arc::clone(&ended_here), pen };
    let outgoing = Outgoing {
        view: View::of(&rpc),
        rpc,
        words: receiver,
        served: None,
        abandoned: false,
        looks_answered: 0,
        lists_taken: 0,
        last_word: None,
        ended_here,
    };
    (words, outgoing)
}

/// The transport has dropped its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct NobodyListens;

impl Words {
    /// From here on the driver speaks.
    pub(super) async fn serve(&self, served: Served) -> Result<(), NobodyListens> {
        self.words.send(Word::Served(served)).await.map_err(|_| NobodyListens)
    }

    /// Where the driver speaks, and what then is left to say.
    pub(super) fn outbox(&self, rpc: &Rpc, looks: &Looks) -> (Box<dyn Outbox>, Lists) {
        let pen = self.pen.as_ref();
        speaker::outbox(pen.map(|pen| (pen, View::of(rpc), looks)))
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
        let answers = failures.into_iter().map(|(request, failure)| Answer {
            request_id: request.0,
            result: Some(answer::Result::Failure(failure)),
        });
        self.frame(ServerFrame { answers: answers.collect(), notices: Vec::new() }).await
    }

    /// The stream ends with this status, after what was said before. A client that does not read is
    /// not waited for.
    pub(super) async fn end(&self, failure: Failure) {
        let _ = timeout(LAST_WORD_TIMEOUT, self.words.send(Word::End(failure))).await;
    }

    /// Says that somebody is here, with a frame that has nothing in it. If there is no room, other words say so.
    pub(super) fn echo(&self) -> impl Fn() + Send + Sync + 'static {
        // Whoever has it does not keep the stream open.
        let words = self.words.downgrade();
        move || {
            if let Some(words) = words.upgrade() {
                let _ = words.try_send(Word::Frame(ServerFrame::default()));
            }
        }
    }

    /// Returns when nobody reads any more.
    pub(super) async fn unheard(&self) {
        self.words.closed().await;
    }

    /// The stream was ended by this node, not by the client's leaving.
    pub(super) fn ended_here(&self) -> bool {
        self.ended_here.load(Ordering::Acquire)
    }
}

impl Outgoing {
    /// Puts what is said next into a frame that is empty. None if nothing more is said.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        frame: &mut impl Frame,
    ) -> Poll<Option<Result<(), Status>>> {
        loop {
            if let Some(last_word) = &mut self.last_word {
                let last_word = std::mem::replace(last_word, Ok(()));
                self.ended_here.store(true, Ordering::Release);
                return Poll::Ready(last_word.err().map(|failure| Err(failure.to_status())));
            }
            match self.poll_deliveries(cx) {
                Poll::Ready(Some((guarantee, deliveries))) => {
                    self.gather(guarantee, deliveries, frame);
                    self.end_looks();
                    return Poll::Ready(Some(Ok(())));
                }
                // The stream's own task may know better why.
                Poll::Ready(None) => self.abandoned = true,
                Poll::Pending => {}
            }
            match self.words.poll_recv(cx) {
                Poll::Ready(Some(Word::Served(served))) => self.served = Some(served),
                Poll::Ready(Some(Word::Frame(made))) => {
                    frame.take(made);
                    return Poll::Ready(Some(Ok(())));
                }
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

    /// The frame was written, and the driver may write again.
    pub(super) fn is_written(&mut self) {
        let lists = std::mem::take(&mut self.lists_taken);
        if let Some(served) = &self.served {
            served.deliveries.unsaid.is_said(lists);
        }
    }

    /// All that a tier has delivered.
    fn gather(
        &mut self,
        guarantee: Guarantee,
        mut deliveries: Vec<Delivery>,
        frame: &mut impl Frame,
    ) {
        let membership = Arc::clone(&self.rpc.membership);
        let resumed = self.served.as_ref().is_some_and(|served| served.resumed);
        let term = self.rpc.door.leadership().term;
        let around = ResponseContext { membership: &membership, resumed, term, guarantee };
        let is_of_driver = matches!(guarantee, Guarantee::Linearizable);
        loop {
            self.lists_taken += usize::from(is_of_driver);
            frame.reserve(deliveries.len());
            for delivery in deliveries {
                self.add(around, delivery, frame);
            }
            if frame.len() >= ANSWERS_PER_FRAME_TARGET {
                return;
            }
            let more = self.served.as_mut().and_then(|served| {
                let lists = &mut served.deliveries.lists;
                let from = if is_of_driver { lists } else { &mut served.from_memory };
                from.try_recv().ok()
            });
            match more {
                Some(more) => deliveries = more,
                None => return,
            }
        }
    }

    fn add(&mut self, around: ResponseContext<'_>, delivery: Delivery, frame: &mut impl Frame) {
        match delivery {
            Delivery::Answer { request, answer } => {
                if matches!(answer.result, Ok(Outcome::SessionClosed)) {
                    self.end_with(Ok(()));
                }
                match &mut self.served {
                    Some(served) if !served.open && served.opening == request => {
                        served.open = true;
                        let result = response::result(&answer, around);
                        // A stream without a session is of no use.
                        if let answer::Result::Failure(failure) = &result {
                            self.end_with(Err(failure.clone()));
                        }
                        frame.answer(Answer { request_id: request.0, result: Some(result) });
                    }
                    _ => frame.answer_of_tier(request, &answer, around),
                }
            }
            Delivery::Status { request, name, answer } => {
                self.looks_answered += 1;
                frame.answer(self.view.status(request, &name, &answer));
            }
            Delivery::Queued { request, position } => {
                frame.tell(queued(request, position));
            }
            Delivery::HoldEnded { name, token, acquire, reason } => {
                frame.tell(notice::Kind::HoldEnded(v1::HoldEnded {
                    name: name.as_str().to_owned(),
                    token: token.0,
                    acquire_request_id: acquire.0,
                    reason: encode::end_reason(reason).into(),
                }));
            }
            Delivery::Losses(losses) => losses.into_iter().for_each(|(token, acquire)| {
                let acquire_request_id = acquire.map_or(0, |acquire| acquire.0);
                let ended =
                    v1::HoldEnded { token: token.0, acquire_request_id, ..Default::default() };
                frame.tell(notice::Kind::HoldEnded(ended));
            }),
            Delivery::SessionEnded { reason } => {
                let ended = v1::SessionEnded { reason: encode::end_reason(reason).into() };
                frame.tell(notice::Kind::SessionEnded(ended));
                self.end_with(Ok(()));
            }
            Delivery::MembersChanged => {
                let endpoints = around.membership.client_addresses();
                frame.tell(notice::Kind::MembersChanged(v1::MembersChanged { endpoints }));
            }
            Delivery::LeaderMoved { leader } => {
                let moved = v1::LeaderMoved { leader: around.membership.client_address(leader) };
                frame.tell(notice::Kind::LeaderMoved(moved));
                let failure = if self.is_stopping() {
                    stopping()
                } else {
                    unavailable(Unavailable::NotLeader { leader }, around.membership)
                };
                self.end_with(Err(failure));
            }
        }
    }

    /// Not sooner than their frame is made: then none has the answers to more of them than may be under way.
    fn end_looks(&mut self) {
        let answered = std::mem::take(&mut self.looks_answered);
        if let Some(served) = &self.served {
            served.looks.end(answered);
        }
    }

    /// The first reason to end is the one that is told.
    fn end_with(&mut self, last_word: Result<(), Failure>) {
        self.last_word.get_or_insert(last_word);
    }

    fn why_abandoned(&self) -> Failure {
        if self.is_stopping() { stopping() } else { slow_reader() }
    }

    fn is_stopping(&self) -> bool {
        self.rpc.door.is_stopping()
    }

    fn poll_deliveries(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(Guarantee, Vec<Delivery>)>> {
        match &mut self.served {
            Some(served) if !self.abandoned => {
                let replicated = served.deliveries.lists.poll_recv(cx);
                if let Poll::Ready(deliveries) = replicated {
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
        let mut frame = ServerFrame::default();
        let made = ready!(self.poll_frame(cx, &mut frame));
        Poll::Ready(made.map(|made| made.map(|()| frame)))
    }
}
