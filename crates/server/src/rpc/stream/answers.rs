//! What the two tiers tell a stream, as its frames say it; and which of it ends the stream.

use std::sync::Arc;

use holdfast_core::{LockName, Outcome, RequestId};
use holdfast_engine::{Delivery, ReadAnswer, Unavailable};
use holdfast_proto::Guarantee;
use holdfast_proto::decode::operation::Opening;
use holdfast_proto::encode;
use holdfast_proto::v1::{self, Answer, Failure, answer, notice};
use holdfast_replica::GroupId;
use holdfast_service::{Caller, hidden_names};

use super::super::Rpc;
use super::super::door::Door;
use super::super::failure::{stopping, unavailable};
use super::super::reads::status_on_stream;
use super::super::response::{self, ResponseContext};
use super::frame::{Frame, queued};
use super::read_quota::ReadQuota;
use crate::membership::Membership;

/// Where a frame is cut, by the weight of its deliveries. One list of deliveries is never split.
pub(super) const WEIGHT_PER_FRAME_TARGET: usize = 4_096;

pub(super) fn weight(deliveries: &[Delivery]) -> usize {
    deliveries.iter().map(Delivery::weight).sum()
}

/// How a stream ends: without a word, or with a reason.
pub(super) type Termination = Result<(), Failure>;

#[derive(Debug)]
pub(super) struct AnswerEncoder {
    door: Door,
    caller: Caller,
    membership: Arc<Membership>,
    group: GroupId,
    opening: RequestId,
    resumed: bool,
    /// The opening has been answered.
    is_open: bool,
    /// In the frame that is being made.
    reads_answered: usize,
    end: StreamEnd,
}

/// Whether the stream ends, and how. After the session's end it still gives the answers to the reads under way.
#[derive(Debug)]
struct StreamEnd {
    reads: ReadQuota,
    termination: Option<Termination>,
}

impl StreamEnd {
    /// The first reason to end is the one that is told. But an error means that nothing more comes, also no answers to
    /// reads: it ends the wait for them.
    fn set(&mut self, termination: Termination) {
        self.reads.close();
        match &self.termination {
            Some(Ok(())) if termination.is_err() => self.termination = Some(termination),
            Some(_) => {}
            None => self.termination = Some(termination),
        }
    }

    fn take(&mut self) -> Option<Termination> {
        let reads = &self.reads;
        self.termination.take_if(|termination| termination.is_err() || reads.is_none_under_way())
    }
}

impl AnswerEncoder {
    pub(super) fn new(
        rpc: &Rpc,
        caller: &Caller,
        opening: &Opening,
        reads: ReadQuota,
    ) -> AnswerEncoder {
        AnswerEncoder {
            door: rpc.door.clone(),
            caller: caller.clone(),
            membership: Arc::clone(&rpc.membership),
            group: GroupId(opening.group),
            opening: opening.request,
            resumed: opening.resumed,
            is_open: false,
            reads_answered: 0,
            end: StreamEnd { reads, termination: None },
        }
    }

    /// Adds what a tier has delivered to a frame.
    pub(super) fn add(
        &mut self,
        guarantee: Guarantee,
        deliveries: Vec<Delivery>,
        frame: &mut impl Frame,
    ) {
        let membership = Arc::clone(&self.membership);
        let term = self.door.leadership(self.group).term;
        let resumed = self.resumed;
        let map = (!self.is_open).then(|| self.door.group_map()).flatten();
        let (membership, map) = (&*membership, map.as_ref());
        let context = ResponseContext { membership, map, resumed, term, guarantee };
        frame.reserve(deliveries.len());
        for delivery in deliveries {
            self.add_one(context, delivery, frame);
        }
    }

    /// The frame is made. Reads end not sooner than here: so no frame has the answers to more of them than may be under
    /// way.
    pub(super) fn finish_frame(&mut self) {
        self.end.reads.end(std::mem::take(&mut self.reads_answered));
    }

    /// How the stream ends, if it does now.
    pub(super) fn termination(&mut self) -> Option<Termination> {
        self.end.take()
    }

    fn add_one(
        &mut self,
        context: ResponseContext<'_>,
        delivery: Delivery,
        frame: &mut impl Frame,
    ) {
        match delivery {
            Delivery::Answer { request, mut answer } => {
                if let Ok(outcome @ Outcome::Deadlock(_)) = &mut answer.result {
                    let visible = self.door.service().visible_names(&self.caller);
                    hidden_names::in_outcome(outcome, &visible);
                }
                if matches!(answer.result, Ok(Outcome::SessionClosed)) {
                    self.end.set(Ok(()));
                }
                if self.is_open || self.opening != request {
                    return frame.answer_of_tier(request, &answer, context);
                }
                self.is_open = true;
                let result = response::result(&answer, context);
                // A stream without a session is of no use.
                if let answer::Result::Failure(failure) = &result {
                    self.end.set(Err(failure.clone()));
                }
                frame.answer(Answer { request_id: request.0, result: Some(result) });
            }
            Delivery::Status { request, name, answer } => {
                self.reads_answered += 1;
                frame.answer(self.status(request, &name, &answer));
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
                self.end.set(Ok(()));
            }
            Delivery::MembersChanged => {
                let endpoints = context.membership.client_addresses();
                frame.tell(notice::Kind::MembersChanged(v1::MembersChanged { endpoints }));
            }
            Delivery::LeaderMoved { leader } => {
                let moved = v1::LeaderMoved { leader: context.membership.client_address(leader) };
                frame.tell(notice::Kind::LeaderMoved(moved));
                let failure = if self.door.is_stopping() {
                    stopping()
                } else {
                    unavailable(Unavailable::NotLeader { leader }, context.membership)
                };
                self.end.set(Err(failure));
            }
        }
    }

    /// How the lock stands in both tiers.
    fn status(
        &self,
        request: RequestId,
        name: &LockName,
        answer: &Result<Box<ReadAnswer>, Unavailable>,
    ) -> Answer {
        let memory = self.door.memory();
        let status = status_on_stream(&self.membership, memory, self.group, name, answer);
        let result = match status {
            Ok(status) => answer::Result::Status(Box::new(status)),
            Err(failure) => answer::Result::Failure(failure),
        };
        Answer { request_id: request.0, result: Some(result) }
    }
}

/// A frame that answers operations with a failure each.
pub(super) fn refusals(failures: Vec<(RequestId, Failure)>) -> v1::ServerFrame {
    let answers = failures.into_iter().map(|(request, failure)| Answer {
        request_id: request.0,
        result: Some(answer::Result::Failure(failure)),
    });
    v1::ServerFrame { answers: answers.collect(), notices: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_waits_for_reads_after_its_sessions_end_and_for_none_after_its_leader() {
        let mut end = StreamEnd { reads: ReadQuota::default(), termination: None };
        assert!(end.reads.begin() && end.take().is_none());
        end.set(Ok(()));
        assert!(end.take().is_none(), "a read is under way");
        assert!(!end.reads.begin(), "a client that reads on would never see the end");
        end.set(Err(stopping()));
        assert_eq!(end.take(), Some(Err(stopping())), "no answer comes any more");

        let mut end = StreamEnd { reads: ReadQuota::default(), termination: None };
        assert!(end.reads.begin());
        end.set(Ok(()));
        end.reads.end(1);
        assert_eq!(end.take(), Some(Ok(())));
    }
}
