//! A frame that is being made: a message for the call `Session`, bytes for a framed connection.

use holdfast_core::{Outcome, RequestId};
use holdfast_proto::Guarantee;
use holdfast_proto::encode;
use holdfast_proto::plain::FrameWriter;
use holdfast_proto::v1::{Answer, Notice, Queued, ServerFrame, notice};

use super::super::response::{self, ResponseContext};

pub(super) trait Frame {
    fn answer(&mut self, answer: Answer);

    fn notice(&mut self, notice: Notice);

    /// So many answers will come, or a few less.
    fn reserve(&mut self, _answers: usize) {}

    fn tell(&mut self, kind: notice::Kind) {
        self.notice(Notice { kind: Some(kind) });
    }

    /// What was answered by the tier that is described.
    fn answer_of_tier(
        &mut self,
        request: RequestId,
        answer: &holdfast_engine::Answer,
        around: ResponseContext<'_>,
    ) {
        let result = Some(response::result(answer, around));
        self.answer(Answer { request_id: request.0, result });
    }
}

impl Frame for ServerFrame {
    fn answer(&mut self, answer: Answer) {
        self.answers.push(answer);
    }

    fn notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    fn reserve(&mut self, answers: usize) {
        self.answers.reserve(answers);
    }
}

impl Frame for FrameWriter {
    fn answer(&mut self, answer: Answer) {
        FrameWriter::answer(self, &answer);
    }

    fn notice(&mut self, notice: Notice) {
        FrameWriter::notice(self, &notice);
    }

    fn answer_of_tier(
        &mut self,
        request: RequestId,
        answer: &holdfast_engine::Answer,
        around: ResponseContext<'_>,
    ) {
        if !answer_if_common(self, request, answer, around.guarantee) {
            let result = Some(response::result(answer, around));
            FrameWriter::answer(self, &Answer { request_id: request.0, result });
        }
    }
}

/// Grants, releases and heartbeats are written without a message in between. False for anything else.
fn answer_if_common(
    frame: &mut FrameWriter,
    request: RequestId,
    answer: &holdfast_engine::Answer,
    guarantee: Guarantee,
) -> bool {
    match &answer.result {
        Ok(Outcome::Granted(grant)) => {
            let grant = encode::grant(grant, guarantee);
            frame.granted(request.0, answer.at.as_ms(), &grant);
        }
        Ok(Outcome::Release(release)) => {
            frame.released(request.0, &encode::released(answer.at, *release));
        }
        Ok(Outcome::Touched { ttl, .. }) => {
            let result = Some(encode::touched(answer.at, *ttl));
            frame.answer(&Answer { request_id: request.0, result });
        }
        _ => return false,
    }
    true
}

pub(super) fn queued(request: RequestId, position: u64) -> notice::Kind {
    notice::Kind::Queued(Queued { request_id: request.0, position })
}
