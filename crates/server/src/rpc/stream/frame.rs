//! A frame that is being made: a message for the call `Session`, bytes for a plain connection.

use holdfast_core::{Outcome, RequestId};
use holdfast_proto::plain::FrameWriter;
use holdfast_proto::v1::{Answer, Notice, ServerFrame, notice};

use super::super::encode::{self, Surroundings};
use crate::driver;

pub(super) trait Frame {
    fn answer(&mut self, answer: Answer);

    fn notice(&mut self, notice: Notice);

    /// Answers and notices so far.
    fn len(&self) -> usize;

    /// So many answers will come, or a few less.
    fn reserve(&mut self, _answers: usize) {}

    fn tell(&mut self, kind: notice::Kind) {
        self.notice(Notice { kind: Some(kind) });
    }

    /// What was answered by the tier that is described.
    fn answer_of_tier(
        &mut self,
        request: RequestId,
        answer: &driver::Answer,
        around: Surroundings<'_>,
    ) {
        let result = Some(encode::result(answer, around));
        self.answer(Answer { request_id: request.0, result });
    }

    /// All of one that was made elsewhere.
    fn take(&mut self, frame: ServerFrame) {
        frame.answers.into_iter().for_each(|answer| self.answer(answer));
        frame.notices.into_iter().for_each(|notice| self.notice(notice));
    }
}

impl Frame for ServerFrame {
    fn answer(&mut self, answer: Answer) {
        self.answers.push(answer);
    }

    fn notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    fn len(&self) -> usize {
        self.answers.len() + self.notices.len()
    }

    fn reserve(&mut self, answers: usize) {
        self.answers.reserve(answers);
    }

    fn take(&mut self, frame: ServerFrame) {
        *self = frame;
    }
}

impl Frame for FrameWriter {
    fn answer(&mut self, answer: Answer) {
        FrameWriter::answer(self, &answer);
    }

    fn notice(&mut self, notice: Notice) {
        FrameWriter::notice(self, &notice);
    }

    fn len(&self) -> usize {
        FrameWriter::len(self)
    }

    fn answer_of_tier(
        &mut self,
        request: RequestId,
        answer: &driver::Answer,
        around: Surroundings<'_>,
    ) {
        match &answer.result {
            Ok(Outcome::Granted(grant)) => {
                let grant = encode::grant(grant, around.guarantee);
                self.granted(request.0, answer.at.as_ms(), &grant);
            }
            Ok(Outcome::Release(release)) => {
                self.released(request.0, &encode::released(answer.at, *release));
            }
            _ => {
                let result = Some(encode::result(answer, around));
                FrameWriter::answer(self, &Answer { request_id: request.0, result });
            }
        }
    }
}
