//! The format of a stored answer in a snapshot. The table stores answers for deduplication: see `state/answers.rs`.

use alloc::vec::Vec;

use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::id::{ActorId, FenceToken, PublicSessionId, RequestId};
use crate::model::outcome::{CycleLink, Rejection, ReleaseAnswer};
use crate::model::slot::MapEpoch;
use crate::model::time::LogicalTime;
use crate::state::answers::{Answer, Question, Reply};

pub(super) fn write(answer: &Answer, sink: &mut impl Sink) {
    write_question(&answer.question, sink);
    write_reply(&answer.reply, sink);
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Question, Reply), DecodeError> {
    Ok((read_question(reader)?, read_reply(reader)?))
}

pub(super) fn write_question(question: &Question, sink: &mut impl Sink) {
    match question {
        Question::Acquire { name } => {
            sink.u8(1);
            sink.bytes(name.as_bytes());
        }
        Question::CancelledBeforeArrival => sink.u8(2),
        Question::Release { name, token } => {
            sink.u8(3);
            sink.bytes(name.as_bytes());
            sink.varint(token.0);
        }
        Question::Renew { name, token } => {
            sink.u8(4);
            sink.bytes(name.as_bytes());
            sink.varint(token.0);
        }
        Question::Cancel { target } => {
            sink.u8(5);
            sink.varint(target.0);
        }
        Question::AcquireAll { names } => {
            sink.u8(6);
            sink.varint(*names);
        }
        Question::Convert { name, token } => {
            sink.u8(7);
            sink.bytes(name.as_bytes());
            sink.varint(token.0);
        }
        Question::Proclaim { name, token } => {
            sink.u8(8);
            sink.bytes(name.as_bytes());
            sink.varint(token.0);
        }
        Question::Transfer { name, token, to } => {
            sink.u8(9);
            sink.bytes(name.as_bytes());
            sink.varint(token.0);
            to.encode(sink);
        }
    }
}

pub(super) fn read_question(reader: &mut Reader<'_>) -> Result<Question, DecodeError> {
    let tag = reader.u8()?;
    let mut name_and_token =
        || -> Result<_, DecodeError> { Ok((reader.name()?, FenceToken(reader.varint()?))) };
    Ok(match tag {
        1 => Question::Acquire { name: reader.name()? },
        2 => Question::CancelledBeforeArrival,
        3 => name_and_token().map(|(name, token)| Question::Release { name, token })?,
        4 => name_and_token().map(|(name, token)| Question::Renew { name, token })?,
        5 => Question::Cancel { target: RequestId(reader.varint()?) },
        6 => Question::AcquireAll { names: reader.varint()? },
        7 => name_and_token().map(|(name, token)| Question::Convert { name, token })?,
        8 => name_and_token().map(|(name, token)| Question::Proclaim { name, token })?,
        9 => {
            let (name, token) = name_and_token()?;
            Question::Transfer { name, token, to: PublicSessionId::decode(reader)? }
        }
        tag => return Err(DecodeError::UnknownTag { what: "kept request", tag }),
    })
}

/// The refusals that the table stores as answers, each with its tag in the format.
const REJECTIONS: [(u8, Rejection); 12] = [
    (13, Rejection::NotHeld),
    (14, Rejection::TooManyHolds),
    (15, Rejection::TooManyWaits),
    (16, Rejection::QueueFull),
    (17, Rejection::Frozen),
    (18, Rejection::AlreadyHeld),
    (19, Rejection::NoPermitsSet),
    (20, Rejection::NoSuchWaiter),
    (21, Rejection::TooManyReentries),
    (22, Rejection::InvalidMode),
    (23, Rejection::AmbiguousHold),
    (24, Rejection::PermissionDenied),
];

fn write_reply(reply: &Reply, sink: &mut impl Sink) {
    match reply {
        Reply::Granted => sink.u8(1),
        Reply::Busy => sink.u8(2),
        Reply::TimedOut => sink.u8(3),
        Reply::Cancelled => sink.u8(4),
        Reply::CancelDone => sink.u8(5),
        Reply::CancelTooLate => sink.u8(6),
        Reply::CancelNothing => sink.u8(7),
        Reply::Release(ReleaseAnswer::Released) => sink.u8(8),
        Reply::Release(ReleaseAnswer::NotOwner) => sink.u8(9),
        Reply::Release(ReleaseAnswer::AlreadyReleased) => sink.u8(10),
        Reply::Release(ReleaseAnswer::Expired) => sink.u8(11),
        Reply::Renewed { deadline } => {
            sink.u8(12);
            sink.optional(deadline.map(LogicalTime::as_ms));
        }
        Reply::Release(ReleaseAnswer::StillHeld { remaining }) => {
            sink.u8(30);
            sink.varint(u64::from(*remaining));
        }
        Reply::Reentered { acquire } => {
            sink.u8(31);
            sink.varint(acquire.0);
        }
        Reply::Converted { acquire } => {
            sink.u8(32);
            sink.varint(acquire.0);
        }
        Reply::Deadlock(cycle) => {
            sink.u8(33);
            sink.count(cycle.len());
            for link in cycle {
                link.session.encode(sink);
                sink.varint(link.actor.0);
                sink.bytes(link.waits_for.as_bytes());
            }
        }
        Reply::Died { since } => {
            sink.u8(34);
            sink.varint(since.as_ms());
        }
        Reply::Proclaimed => sink.u8(35),
        Reply::Transferred { token } => {
            sink.u8(36);
            sink.varint(token.0);
        }
        Reply::Rejected(Rejection::OtherPermits { limit }) => {
            sink.u8(37);
            sink.varint(u64::from(*limit));
        }
        Reply::Moved { epoch } => {
            sink.u8(38);
            sink.varint(epoch.0);
        }
        Reply::Divided { epoch } => {
            sink.u8(39);
            sink.varint(epoch.0);
        }
        Reply::Rejected(rejection) => {
            let number = REJECTIONS.iter().find(|(_, known)| known == rejection);
            debug_assert!(number.is_some(), "{rejection:?} is never stored as an answer");
            sink.u8(number.map_or(13, |(number, _)| *number));
        }
    }
}

fn read_reply(reader: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    Ok(match reader.u8()? {
        1 => Reply::Granted,
        2 => Reply::Busy,
        3 => Reply::TimedOut,
        4 => Reply::Cancelled,
        5 => Reply::CancelDone,
        6 => Reply::CancelTooLate,
        7 => Reply::CancelNothing,
        8 => Reply::Release(ReleaseAnswer::Released),
        9 => Reply::Release(ReleaseAnswer::NotOwner),
        10 => Reply::Release(ReleaseAnswer::AlreadyReleased),
        11 => Reply::Release(ReleaseAnswer::Expired),
        12 => Reply::Renewed { deadline: reader.optional()?.map(LogicalTime::from_ms) },
        30 => Reply::Release(ReleaseAnswer::StillHeld { remaining: reader.u32()? }),
        31 => Reply::Reentered { acquire: RequestId(reader.varint()?) },
        32 => Reply::Converted { acquire: RequestId(reader.varint()?) },
        33 => {
            let mut cycle = Vec::new();
            for _ in 0..reader.count()? {
                cycle.push(CycleLink {
                    session: PublicSessionId::decode(reader)?,
                    actor: ActorId(reader.varint()?),
                    waits_for: reader.name()?,
                });
            }
            Reply::Deadlock(cycle.into_boxed_slice())
        }
        34 => Reply::Died { since: LogicalTime::from_ms(reader.varint()?) },
        35 => Reply::Proclaimed,
        36 => Reply::Transferred { token: FenceToken(reader.varint()?) },
        37 => Reply::Rejected(Rejection::OtherPermits { limit: reader.u32()? }),
        38 => Reply::Moved { epoch: MapEpoch(reader.varint()?) },
        39 => Reply::Divided { epoch: MapEpoch(reader.varint()?) },
        tag => match REJECTIONS.iter().find(|(number, _)| *number == tag) {
            Some((_, rejection)) => Reply::Rejected(*rejection),
            None => return Err(DecodeError::UnknownTag { what: "kept answer", tag }),
        },
    })
}
