//! A part of what was in slots that move: some of their holds, waits, closed locks and numbers of permits.
//!
//! A part can be read without the others: it has each session that its holds and waits need. Times are those of the
//! group that wrote it, with its present time, so that the reader can count from its own.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{hold, session, wait};
use crate::model::codec::{DecodeError, Reader, Sink, in_order};
use crate::model::id::{FenceToken, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::time::LogicalTime;
use crate::state::answers::{Answer, Question, Reply};
use crate::state::hold::Hold;
use crate::state::session::Session;
use crate::state::wait::Wait;

const VERSION: u8 = 1;
/// That of a snapshot in which a session is written as here.
const SESSION_VERSION: u8 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The time at which it was taken out of the table.
    pub(crate) at: LogicalTime,
    /// The generation of the policy that the group had.
    pub(crate) generation: u64,
    /// Without holds, waits and answers.
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) closed: Vec<(LockName, LogicalTime)>,
    pub(crate) holds: Vec<MovedHold>,
    pub(crate) waits: Vec<(SessionId, RequestId, Wait)>,
    pub(crate) permits: Vec<(LockName, u32)>,
    /// About what it takes, as long as it is made.
    pub(crate) bytes: usize,
}

/// A hold with the kept answers that are made from it.
#[derive(Clone, Debug)]
pub(crate) struct MovedHold {
    pub(crate) name: LockName,
    pub(crate) hold: Hold,
    pub(crate) answers: Vec<(RequestId, MovedAnswer)>,
}

/// A kept answer that is made from a hold. The hold says its name and its acquire: a session can have thousands of
/// answers for one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovedAnswer {
    Granted,
    /// With the fingerprint of the names.
    GrantedAll {
        names: u64,
    },
    Reentered,
    /// With the token that the hold had before.
    Converted {
        token: FenceToken,
    },
}

impl MovedAnswer {
    /// None if the answer is not made from this hold.
    pub(crate) fn of(
        answer: &Answer,
        request: RequestId,
        name: &LockName,
        acquire: RequestId,
    ) -> Option<MovedAnswer> {
        match (&answer.question, &answer.reply) {
            (Question::Acquire { .. }, Reply::Granted) if request == acquire => {
                Some(MovedAnswer::Granted)
            }
            (Question::AcquireAll { names }, Reply::Granted) if request == acquire => {
                Some(MovedAnswer::GrantedAll { names: *names })
            }
            (Question::Acquire { name: meant }, Reply::Reentered { acquire: entered })
                if *entered == acquire && meant == name =>
            {
                Some(MovedAnswer::Reentered)
            }
            (Question::Convert { name: meant, token }, Reply::Converted { acquire: converted })
                if *converted == acquire && meant == name =>
            {
                Some(MovedAnswer::Converted { token: *token })
            }
            _ => None,
        }
    }

    pub(crate) fn into_answer(self, name: &LockName, acquire: RequestId) -> Answer {
        let name = name.clone();
        let (question, reply) = match self {
            MovedAnswer::Granted => (Question::Acquire { name }, Reply::Granted),
            MovedAnswer::GrantedAll { names } => (Question::AcquireAll { names }, Reply::Granted),
            MovedAnswer::Reentered => (Question::Acquire { name }, Reply::Reentered { acquire }),
            MovedAnswer::Converted { token } => {
                (Question::Convert { name, token }, Reply::Converted { acquire })
            }
        };
        Answer { question, reply }
    }

    fn write(self, sink: &mut impl Sink) {
        match self {
            MovedAnswer::Granted => sink.u8(1),
            MovedAnswer::GrantedAll { names } => {
                sink.u8(2);
                sink.varint(names);
            }
            MovedAnswer::Reentered => sink.u8(3),
            MovedAnswer::Converted { token } => {
                sink.u8(4);
                sink.varint(token.0);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<MovedAnswer, DecodeError> {
        Ok(match reader.u8()? {
            1 => MovedAnswer::Granted,
            2 => MovedAnswer::GrantedAll { names: reader.varint()? },
            3 => MovedAnswer::Reentered,
            4 => MovedAnswer::Converted { token: FenceToken(reader.varint()?) },
            tag => return Err(DecodeError::UnknownTag { what: "answer of a hold", tag }),
        })
    }
}

impl Part {
    pub(crate) fn new(at: LogicalTime, generation: u64) -> Part {
        Part {
            at,
            generation,
            sessions: BTreeMap::new(),
            closed: Vec::new(),
            holds: Vec::new(),
            waits: Vec::new(),
            permits: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.closed.is_empty()
            && self.holds.is_empty()
            && self.waits.is_empty()
            && self.permits.is_empty()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut sink = Vec::with_capacity(self.bytes);
        sink.u8(VERSION);
        sink.varint(self.at.as_ms());
        sink.varint(self.generation);
        sink.count(self.sessions.len());
        for (id, session) in &self.sessions {
            id.encode(&mut sink);
            session::write(session, &mut sink);
        }
        sink.count(self.closed.len());
        for (name, until) in &self.closed {
            sink.bytes(name.as_bytes());
            sink.varint(until.as_ms());
        }
        sink.count(self.holds.len());
        for MovedHold { name, hold, answers } in &self.holds {
            sink.bytes(name.as_bytes());
            hold::write(hold, &mut sink);
            sink.count(answers.len());
            for (request, answer) in answers {
                sink.varint(request.0);
                answer.write(&mut sink);
            }
        }
        sink.count(self.waits.len());
        for (id, request, wait) in &self.waits {
            id.encode(&mut sink);
            sink.varint(request.0);
            wait::write(wait, &mut sink);
        }
        sink.count(self.permits.len());
        for (name, limit) in &self.permits {
            sink.bytes(name.as_bytes());
            sink.varint(u64::from(*limit));
        }
        sink
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Part, DecodeError> {
        let mut reader = Reader::new(bytes);
        reader.version("part of a move", VERSION)?;
        let mut part = Part::new(LogicalTime::from_ms(reader.varint()?), reader.varint()?);
        for _ in 0..reader.count()? {
            let id = SessionId::decode(&mut reader)?;
            in_order(part.sessions.last_key_value().map(|(last, _)| *last), id, "sessions")?;
            part.sessions.insert(id, session::read(&mut reader, SESSION_VERSION)?);
        }
        for _ in 0..reader.count()? {
            part.closed.push((reader.name()?, LogicalTime::from_ms(reader.varint()?)));
        }
        for _ in 0..reader.count()? {
            let name = reader.name()?;
            let hold = hold::read(&mut reader)?;
            part.expect_session(hold.session)?;
            let mut answers = Vec::new();
            for _ in 0..reader.count()? {
                answers.push((RequestId(reader.varint()?), MovedAnswer::read(&mut reader)?));
            }
            part.holds.push(MovedHold { name, hold, answers });
        }
        for _ in 0..reader.count()? {
            let id = SessionId::decode(&mut reader)?;
            part.expect_session(id)?;
            part.waits.push((id, RequestId(reader.varint()?), wait::read(&mut reader)?));
        }
        for _ in 0..reader.count()? {
            part.permits.push((reader.name()?, reader.u32()?));
        }
        reader.end()?;
        Ok(part)
    }

    fn expect_session(&self, id: SessionId) -> Result<(), DecodeError> {
        match self.sessions.contains_key(&id) {
            true => Ok(()),
            false => Err(DecodeError::Inconsistent(String::from("a part lacks a session"))),
        }
    }
}
