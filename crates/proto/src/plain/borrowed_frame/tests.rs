use proptest::prelude::*;

use super::*;
use crate::v1::RenewRequest;

/// What the generated decoding makes of the same operation.
fn is_same(read: &BorrowedOperation<'_>, message: &Operation) -> bool {
    match (read, &message.kind) {
        (BorrowedOperation::Message(read), _) => read == message,
        (BorrowedOperation::Acquire(read), Some(Kind::Acquire(request))) => {
            *read == BorrowedAcquire::from(request)
        }
        (BorrowedOperation::Release(read), Some(Kind::Release(request))) => {
            *read == BorrowedRelease::from(request)
        }
        _ => false,
    }
}

/// Both read the same, or both refuse. Tells how many operations needed no message.
fn compare(bytes: &[u8]) -> Result<usize, TestCaseError> {
    let (read, message) = (BorrowedFrame::decode(bytes), ClientFrame::decode(bytes));
    if let Ok(message) = &message {
        prop_assert_eq!(BorrowedFrame::count_operations(bytes), message.operations.len());
    }
    let (read, message) = match (read, message) {
        (Ok(read), Ok(message)) => (read, message),
        (read, message) => {
            prop_assert_eq!(read.err(), message.err());
            return Ok(0);
        }
    };
    prop_assert_eq!(read.acked_through, message.acked_through);
    prop_assert_eq!(read.operations.len(), message.operations.len());
    for (read, message) in read.operations.iter().zip(&message.operations) {
        prop_assert!(is_same(read, message), "{read:?} is not {message:?}");
    }
    let is_message = |read: &&BorrowedOperation<'_>| matches!(read, BorrowedOperation::Message(_));
    Ok(read.operations.len() - read.operations.iter().filter(is_message).count())
}

/// Of every length that is not unusual.
fn number() -> impl Strategy<Value = u64> {
    (0..1_u64 << 63, 0..=63_u32).prop_map(|(number, shift)| number >> shift)
}

fn acquire() -> impl Strategy<Value = Kind> {
    let texts = (".{0,40}", ".{0,300}", proptest::collection::vec(any::<u8>(), 0..40), ".{0,60}");
    let numbers = (number(), number(), number(), number());
    let choices = (0..9, 0..9, 0..9, any::<u32>(), any::<bool>(), any::<bool>());
    let optional = || proptest::option::of(number());
    (texts, numbers, choices, (optional(), optional(), optional(), optional())).prop_map(
        |(
            (session_id, name, metadata, traceparent),
            (request_id, acked_through, wait_ms, actor),
            (mode, policy, tier, permits, preemptible, reentrant),
            (ttl_ms, max_hold_ms, since_ms, lock_delay_ms),
        )| {
            Kind::Acquire(AcquireRequest {
                session_id,
                request_id,
                acked_through,
                name,
                mode,
                wait_ms,
                ttl_ms,
                max_hold_ms,
                actor,
                metadata,
                permits,
                policy,
                since_ms,
                preemptible,
                reentrant,
                lock_delay_ms,
                tier,
                traceparent,
                resume_later: false,
            })
        },
    )
}

fn release() -> impl Strategy<Value = Kind> {
    let numbers = (number(), number(), number(), number());
    (".{0,40}", ".{0,300}", numbers, 0..9).prop_map(
        |(session_id, name, (request_id, acked_through, token, acquire_request_id), tier)| {
            Kind::Release(ReleaseRequest {
                session_id,
                request_id,
                acked_through,
                name,
                token,
                acquire_request_id,
                tier,
            })
        },
    )
}

fn frame() -> impl Strategy<Value = ClientFrame> {
    let operation =
        prop_oneof![acquire(), release()].prop_map(|kind| Operation { kind: Some(kind) });
    (number(), proptest::collection::vec(operation, 0..6))
        .prop_map(|(acked_through, operations)| ClientFrame { acked_through, operations })
}

proptest! {
    #[test]
    fn common_operations_are_read_without_a_message(frame in frame()) {
        let count = frame.operations.len();
        prop_assert_eq!(compare(&frame.encode_to_vec())?, count);
    }

    #[test]
    fn damaged_bytes_decode_as_the_generated_decoding_does(
        frame in frame(),
        damages in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut: prop::sample::Index,
        is_cut: bool,
    ) {
        let mut bytes = frame.encode_to_vec();
        prop_assume!(!bytes.is_empty());
        for (at, byte) in damages {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        compare(&bytes)?;
    }

    #[test]
    fn arbitrary_bytes_decode_as_the_generated_decoding_does(bytes: Vec<u8>) {
        compare(&bytes)?;
    }

    #[test]
    fn fields_in_any_order_and_of_any_kind_are_what_the_generated_decoding_makes_of_them(
        fields in proptest::collection::vec((0_u64..20, 0_u64..6, any::<u64>(), 0..=64_u32), 0..8),
        kind in prop_oneof![Just(5_u32), Just(7), Just(8)],
        twice: bool,
    ) {
        use prost::encoding::{WireType, encode_key, encode_varint};
        let mut request = Vec::new();
        for (tag, wire_type, number, shift) in fields {
            let number = number.checked_shr(shift).unwrap_or(0);
            encode_varint(tag << 3 | wire_type, &mut request);
            match wire_type {
                0 => encode_varint(number, &mut request),
                2 => request.extend([2, b'a', number as u8 & 0x7f]),
                _ => request.extend(number.to_le_bytes()),
            }
        }
        let wrapped = |tag, inside: &[u8]| {
            let mut bytes = Vec::new();
            encode_key(tag, WireType::LengthDelimited, &mut bytes);
            encode_varint(inside.len() as u64, &mut bytes);
            bytes.extend(inside);
            bytes
        };
        let mut operation = wrapped(kind, &request);
        if twice {
            operation.extend(operation.clone());
        }
        compare(&wrapped(2, &operation))?;
    }
}

#[test]
fn other_kinds_are_messages_among_the_usual_ones() {
    let kinds = [
        Some(Kind::Acquire(AcquireRequest::default())),
        Some(Kind::Renew(RenewRequest::default())),
        None,
        Some(Kind::Release(ReleaseRequest::default())),
    ];
    let operations = kinds.into_iter().map(|kind| Operation { kind }).collect();
    let frame = ClientFrame { acked_through: 1, operations };
    assert_eq!(compare(&frame.encode_to_vec()).unwrap(), 2);
}

#[test]
fn the_largest_number_is_read_though_it_is_unusual() {
    let request = ReleaseRequest { token: u64::MAX, ..ReleaseRequest::default() };
    let operations = vec![Operation { kind: Some(Kind::Release(request)) }];
    let frame = ClientFrame { acked_through: u64::MAX, operations };
    assert_eq!(compare(&frame.encode_to_vec()).unwrap(), 0);
}
