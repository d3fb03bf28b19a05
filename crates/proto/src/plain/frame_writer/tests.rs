use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::v1::{AcquireResponse, Busy, Queued, ServerFrame, acquire_response, answer, notice};
use crate::{Guarantee as Strength, TOKEN_LIMIT, plain};

const BYTES_MAX: usize = 1 << 20;

/// What is said, in both forms.
#[derive(Clone, Debug)]
enum Said {
    Granted { request_id: u64, logical_time_ms: u64, grant: OwnedGrant },
    Released { request_id: u64, response: ReleaseResponse },
    Other { request_id: u64, logical_time_ms: u64 },
    Notice { request_id: u64, position: u64 },
}

type OwnedGrant = (String, u64, Option<Fence>, (bool, Option<u64>), (u64, i32, u64));

fn borrowed(grant: &OwnedGrant) -> BorrowedGrant<'_> {
    let (name, token, fence, (best_effort, deadline_ms), (session_deadline_ms, mode, acquire)) =
        grant;
    BorrowedGrant {
        name,
        token: *token,
        fence: *fence,
        guarantee: if *best_effort { Guarantee::BestEffort } else { Guarantee::Linearizable },
        deadline_ms: *deadline_ms,
        session_deadline_ms: *session_deadline_ms,
        mode: Mode::try_from(*mode).unwrap(),
        acquire_request_id: *acquire,
    }
}

/// Of every length.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..=64_u32).prop_map(|(number, shift)| number.checked_shr(shift).unwrap_or(0))
}

fn grant() -> impl Strategy<Value = OwnedGrant> {
    let fence = (any::<bool>(), 0..TOKEN_LIMIT, 0..63).prop_map(|(any, number, shift)| {
        any.then(|| Fence::new(Strength::Linearizable, "wallet", number >> shift).unwrap())
    });
    let deadline = (any::<bool>(), proptest::option::of(number()));
    (".{0,300}", number(), fence, deadline, (number(), 0..4, number()))
}

fn said() -> impl Strategy<Value = Said> {
    let response = (number(), 0..5, any::<u32>(), 0_u32..=32).prop_map(
        |(logical_time_ms, outcome, remaining, shift)| ReleaseResponse {
            logical_time_ms,
            outcome,
            remaining: remaining.checked_shr(shift).unwrap_or(0),
        },
    );
    prop_oneof![
        (number(), number(), grant()).prop_map(|(request_id, logical_time_ms, grant)| {
            Said::Granted { request_id, logical_time_ms, grant }
        }),
        (number(), response)
            .prop_map(|(request_id, response)| Said::Released { request_id, response }),
        (number(), number())
            .prop_map(|(request_id, logical_time_ms)| Said::Other { request_id, logical_time_ms }),
        (number(), number())
            .prop_map(|(request_id, position)| Said::Notice { request_id, position }),
    ]
}

fn acquired(logical_time_ms: u64, outcome: acquire_response::Outcome) -> answer::Result {
    answer::Result::Acquire(AcquireResponse { logical_time_ms, outcome: Some(outcome) })
}

fn say(said: &Said, writer: &mut FrameWriter, frame: &mut ServerFrame) {
    match said.clone() {
        Said::Granted { request_id, logical_time_ms, grant } => {
            writer.granted(request_id, logical_time_ms, &borrowed(&grant));
            let granted = acquire_response::Outcome::Granted(borrowed(&grant).into());
            let result = Some(acquired(logical_time_ms, granted));
            frame.answers.push(Answer { request_id, result });
        }
        Said::Released { request_id, response } => {
            writer.released(request_id, &response);
            let result = Some(answer::Result::Release(response));
            frame.answers.push(Answer { request_id, result });
        }
        Said::Other { request_id, logical_time_ms } => {
            let busy = acquired(logical_time_ms, acquire_response::Outcome::Busy(Busy {}));
            let answer = Answer { request_id, result: Some(busy) };
            writer.answer(&answer);
            frame.answers.push(answer);
        }
        Said::Notice { request_id, position } => {
            let queued = notice::Kind::Queued(Queued { request_id, position });
            let notice = Notice { kind: Some(queued) };
            writer.notice(&notice);
            frame.notices.push(notice);
        }
    }
}

proptest! {
    #[test]
    fn the_piece_is_that_of_the_message(
        frames in proptest::collection::vec(proptest::collection::vec(said(), 0..12), 1..4),
    ) {
        let mut writer = FrameWriter::default();
        for all in frames {
            let mut frame = ServerFrame::default();
            all.iter().for_each(|said| say(said, &mut writer, &mut frame));
            let mut expected = Vec::new();
            prop_assert!(plain::put(&mut expected, FRAME, &frame, BYTES_MAX));
            prop_assert_eq!(writer.finish(BYTES_MAX), Some(&expected[..]));
            writer.clear();
        }
    }
}

#[test]
fn there_is_room_for_the_largest() {
    let name = "x".repeat(512);
    let grant = BorrowedGrant {
        name: &name,
        token: u64::MAX,
        fence: Fence::new(Strength::Linearizable, &name, TOKEN_LIMIT - 1),
        guarantee: Guarantee::BestEffort,
        deadline_ms: Some(u64::MAX),
        session_deadline_ms: u64::MAX,
        mode: Mode::Permit,
        acquire_request_id: u64::MAX,
    };
    let mut writer = FrameWriter::default();
    writer.granted(u64::MAX, u64::MAX, &grant);
    let response =
        ReleaseResponse { logical_time_ms: u64::MAX, outcome: i32::MIN, remaining: u32::MAX };
    writer.released(u64::MAX, &response);
    let piece = writer.finish(BYTES_MAX).unwrap();
    let frame = ServerFrame::decode(&piece[LENGTH_BYTES + 1..]).unwrap();
    assert_eq!(frame.answers.len(), 2);
    assert_eq!(frame.answers[1].result, Some(answer::Result::Release(response)));
}

#[test]
fn a_frame_that_is_too_large_is_none() {
    let mut writer = FrameWriter::default();
    let response = ReleaseResponse::default();
    writer.released(1, &response);
    let bytes = writer.finish(BYTES_MAX).unwrap().len() - LENGTH_BYTES - 1;
    assert!(writer.finish(bytes).is_some());
    assert_eq!(writer.finish(bytes - 1), None);
}
