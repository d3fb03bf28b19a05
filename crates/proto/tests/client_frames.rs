//! Frames of clients that were changed on their way: what becomes a command is within all limits, applies to
//! a lock table, and survives the log.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, reason = "a failure says where its input is kept")]

use holdfast_core::{
    Batch, Command, Limits, LockName, LockTable, LogIndex, LogicalTime, RequestId, SessionId,
};
use holdfast_proto::decode::operation::{self, Opening, StreamOperation};
use holdfast_proto::decode::{Scope, page};
use holdfast_proto::plain::{BorrowedFrame, BorrowedOperation};
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{
    AcquireRequest, CancelRequest, ClientFrame, OpenSessionRequest, Operation,
};
use holdfast_proto::v1::{ReleaseRequest, RenewRequest, ResumeSessionRequest, StatusRequest};
use proptest::prelude::*;
use prost::Message;

use support::{Target, cases};

#[path = "../../../fuzz/support.rs"]
mod support;

const CASES_USUAL: u32 = 2_000;
const SESSION: &str = "000102030405060708090a0b0c0d0e0f";

const FRAMES: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "client_frames", feed: take_frames };

fn take_frames(input: &[Vec<u8>]) {
    let mut commands = Vec::new();
    for bytes in input {
        let Ok(frame) = ClientFrame::decode(&bytes[..]) else { continue };
        let borrowed = || BorrowedFrame::decode(bytes).unwrap().operations.into_iter();
        commands.extend(Opening::decode(&frame).map(|opening| opening.command));
        let acked_through = RequestId(frame.acked_through);
        let stream = Scope::Stream { session: SessionId(5), acked_through };
        for (number, operation) in frame.operations.into_iter().enumerate() {
            if let Some(Kind::Acquire(acquire)) = &operation.kind {
                let _ = (page::after_name(&acquire.name), page::after_session(&acquire.name));
            }
            for scope in [Scope::Unary, stream] {
                let message = BorrowedOperation::Message(operation.clone());
                let decoded = operation::decode(message, scope);
                // However it was read.
                let read = borrowed().nth(number).unwrap();
                assert_eq!(decoded, operation::decode(read, scope));
                match decoded.1 {
                    Ok(StreamOperation::Change(_, command)) => commands.push(command),
                    Ok(StreamOperation::Status(name)) => {
                        assert!(LockName::new(name.as_str()).is_ok())
                    }
                    Err(_) => {}
                }
            }
        }
    }
    for command in &commands {
        assert_eq!(command.check(&Limits::default()), Ok(()));
    }
    let batch = Batch { at: LogicalTime::from_ms(1), commands };
    assert_eq!(Batch::decode(&batch.encode()).as_ref(), Ok(&batch));
    let mut table = LockTable::new(Limits::default());
    for command in batch.commands {
        table.apply(LogIndex(1), batch.at, command, &mut Vec::new());
    }
    table.apply(LogIndex(2), LogicalTime::from_ms(u64::MAX), Command::Tick, &mut Vec::new());
    assert_eq!(table.check(), Ok(()));
}

fn valid_frames() -> Vec<Vec<u8>> {
    let (session_id, name) = (SESSION.to_owned(), "wallet:42".to_owned());
    let kinds = [
        Kind::Open(OpenSessionRequest {
            session_id: session_id.clone(),
            request_id: 1,
            ttl_ms: 5_000,
            linger_ms: Some(500),
            ..Default::default()
        }),
        Kind::Acquire(AcquireRequest {
            session_id: session_id.clone(),
            request_id: 2,
            name: name.clone(),
            wait_ms: 1_000,
            ttl_ms: Some(700),
            max_hold_ms: Some(9_000),
            metadata: vec![1; 9],
            ..Default::default()
        }),
        Kind::Renew(RenewRequest {
            request_id: 3,
            name: name.clone(),
            token: 1,
            ttl_ms: Some(800),
            ..Default::default()
        }),
        Kind::Cancel(CancelRequest { request_id: 4, target: 2, ..Default::default() }),
        Kind::Status(StatusRequest { request_id: 6, name: name.clone() }),
        Kind::Release(ReleaseRequest { request_id: 5, name, token: 1, ..Default::default() }),
    ];
    let frame = |kinds: &[Kind]| {
        let operations = kinds.iter().map(|kind| Operation { kind: Some(kind.clone()) }).collect();
        ClientFrame { acked_through: 1, operations }.encode_to_vec()
    };
    let resume =
        Kind::Resume(ResumeSessionRequest { session_id, request_id: 9, ..Default::default() });
    vec![frame(&kinds), frame(&kinds[1..]), frame(&kinds[..1]), frame(&[resume])]
}

#[test]
fn the_corpus_is_taken() {
    FRAMES.replay(&[valid_frames()]);
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn damaged_frames_become_sound_commands_or_none(
        damages in proptest::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), support::damage()),
            1..4,
        ),
    ) {
        let frames = valid_frames();
        let damaged = damages.iter().map(|(which, other, damage)| {
            damage.of(which.get::<Vec<u8>>(&frames), other.get::<Vec<u8>>(&frames))
        });
        FRAMES.feed(&damaged.collect::<Vec<_>>());
    }
}
