use proptest::prelude::*;

use super::*;
use crate::v1::notice::Kind as NoticeKind;
use crate::v1::{Busy, Failure, Queued};

/// Of every length.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..=64_u32).prop_map(|(number, shift)| number.checked_shr(shift).unwrap_or(0))
}

fn granted() -> impl Strategy<Value = AnswerResult> {
    let texts = (".{0,300}", ".{0,60}");
    let numbers = (number(), number(), number(), number());
    (texts, numbers, proptest::option::of(number()), any::<(i32, i32)>()).prop_map(
        |((name, fence), (at, token, session, acquire), deadline_ms, (guarantee, mode))| {
            let grant = Grant {
                name,
                token,
                fence,
                guarantee,
                deadline_ms,
                session_deadline_ms: session,
                mode,
                acquire_request_id: acquire,
            };
            let outcome = Some(Outcome::Granted(grant));
            AnswerResult::Acquire(AcquireResponse { logical_time_ms: at, outcome })
        },
    )
}

fn result() -> impl Strategy<Value = AnswerResult> {
    let released = (number(), any::<i32>(), any::<u32>()).prop_map(|(at, outcome, remaining)| {
        AnswerResult::Release(ReleaseResponse { logical_time_ms: at, outcome, remaining })
    });
    let busy = number().prop_map(|logical_time_ms| {
        let outcome = Some(Outcome::Busy(Busy {}));
        AnswerResult::Acquire(AcquireResponse { logical_time_ms, outcome })
    });
    let failure = ".{0,40}"
        .prop_map(|message| AnswerResult::Failure(Failure { message, ..Failure::default() }));
    prop_oneof![4 => granted(), 4 => released, 1 => busy, 1 => failure]
}

fn server_frame() -> impl Strategy<Value = ServerFrame> {
    let answer = (number(), proptest::option::weighted(0.9, result()))
        .prop_map(|(request_id, result)| Answer { request_id, result });
    let notice = (number(), number()).prop_map(|(request_id, position)| Notice {
        kind: Some(NoticeKind::Queued(Queued { request_id, position })),
    });
    let (answers, notices) =
        (proptest::collection::vec(answer, 0..8), proptest::collection::vec(notice, 0..3));
    (answers, notices).prop_map(|(answers, notices)| ServerFrame { answers, notices })
}

proptest! {
    #[test]
    fn a_borrowed_frame_equals_the_generated_decoding(frame in server_frame()) {
        prop_assert_eq!(read_server_frame(&frame.encode_to_vec()), Ok(frame));
    }

    #[test]
    fn damage_is_found_or_overlooked_by_both(
        frame in server_frame(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = frame.encode_to_vec();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        prop_assert_eq!(read_server_frame(&bytes), ServerFrame::decode(&*bytes));
        bytes.truncate(cut.index(bytes.len() + 1));
        prop_assert_eq!(read_server_frame(&bytes), ServerFrame::decode(&*bytes));
    }

    /// As the encoding allows: of a number the last counts, of a message the sum.
    #[test]
    fn a_field_in_two_pieces_is_merged(first in granted(), second in granted()) {
        let piece = |result| Answer { request_id: 7, result: Some(result) }.encode_to_vec();
        let answer = [piece(first), piece(second)].concat();
        let frame = [&[0x0a][..], &length(answer.len()), &answer].concat();
        let read = read_server_frame(&frame);
        prop_assert_eq!(&read, &ServerFrame::decode(&*frame));
        prop_assert_eq!(read.map(|frame| frame.answers.len()), Ok(1));
    }
}

fn length(bytes: usize) -> Vec<u8> {
    let mut length = Vec::new();
    prost::encoding::encode_varint(bytes as u64, &mut length);
    length
}

#[test]
fn grants_and_releases_need_no_generated_decoding() {
    let grant = Grant { name: "wallet".into(), token: 7, mode: 1, ..Grant::default() };
    let granted = AcquireResponse { logical_time_ms: 5, outcome: Some(Outcome::Granted(grant)) };
    for result in [
        AnswerResult::Acquire(granted),
        AnswerResult::Release(ReleaseResponse { logical_time_ms: 5, ..Default::default() }),
    ] {
        let reported = Answer { request_id: 3, result: Some(result) };
        assert_eq!(answer(&reported.encode_to_vec()), Some(reported));
    }
}
