//! Commands as bytes in the log: a kind, the session in full, the rest as varints.

use alloc::boxed::Box;
use alloc::string::String;

use super::{Acquire, Call, Command, Mode, OpenSession, Owner};
use crate::codec::{DecodeError, Reader, Sink};
use crate::id::{ActorId, FenceToken, PublicSessionId, RequestId, SessionId, StreamId};
use crate::time::Span;

const OPEN_SESSION: u8 = 1;
const ATTACH_STREAM: u8 = 2;
const DETACH_STREAM: u8 = 3;
const TOUCH: u8 = 4;
const CLOSE_SESSION: u8 = 5;
const ACQUIRE: u8 = 6;
const CANCEL: u8 = 7;
const RELEASE: u8 = 8;
const RENEW: u8 = 9;
const BEGIN_TERM: u8 = 10;
const TICK: u8 = 11;

impl Command {
    pub(crate) fn encode(&self, sink: &mut impl Sink) {
        match self {
            Command::OpenSession(open) => {
                sink.u8(OPEN_SESSION);
                open.encode(sink);
            }
            Command::AttachStream { session, stream } => {
                sink.u8(ATTACH_STREAM);
                session.encode(sink);
                sink.varint(stream.0);
            }
            Command::DetachStream { session, stream } => {
                sink.u8(DETACH_STREAM);
                session.encode(sink);
                sink.varint(stream.0);
            }
            Command::Touch { session, acked_through } => {
                sink.u8(TOUCH);
                session.encode(sink);
                sink.varint(acked_through.0);
            }
            Command::CloseSession { session } => {
                sink.u8(CLOSE_SESSION);
                session.encode(sink);
            }
            Command::Acquire(acquire) => {
                sink.u8(ACQUIRE);
                acquire.encode(sink);
            }
            Command::Cancel { call, target } => {
                sink.u8(CANCEL);
                call.encode(sink);
                sink.varint(target.0);
            }
            Command::Release { call, name, token } => {
                sink.u8(RELEASE);
                call.encode(sink);
                sink.bytes(name.as_bytes());
                sink.varint(token.0);
            }
            Command::Renew { call, name, token, ttl } => {
                sink.u8(RENEW);
                call.encode(sink);
                sink.bytes(name.as_bytes());
                sink.varint(token.0);
                sink.optional(ttl.map(Span::as_ms));
            }
            Command::BeginTerm { grace } => {
                sink.u8(BEGIN_TERM);
                sink.varint(grace.as_ms());
            }
            Command::Tick => sink.u8(TICK),
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Command, DecodeError> {
        Ok(match reader.u8()? {
            OPEN_SESSION => Command::OpenSession(OpenSession::decode(reader)?),
            ATTACH_STREAM => Command::AttachStream {
                session: SessionId::decode(reader)?,
                stream: StreamId(reader.varint()?),
            },
            DETACH_STREAM => Command::DetachStream {
                session: SessionId::decode(reader)?,
                stream: StreamId(reader.varint()?),
            },
            TOUCH => Command::Touch {
                session: SessionId::decode(reader)?,
                acked_through: RequestId(reader.varint()?),
            },
            CLOSE_SESSION => Command::CloseSession { session: SessionId::decode(reader)? },
            ACQUIRE => Command::Acquire(Acquire::decode(reader)?),
            CANCEL => {
                Command::Cancel { call: Call::decode(reader)?, target: RequestId(reader.varint()?) }
            }
            RELEASE => Command::Release {
                call: Call::decode(reader)?,
                name: reader.name()?,
                token: FenceToken(reader.varint()?),
            },
            RENEW => Command::Renew {
                call: Call::decode(reader)?,
                name: reader.name()?,
                token: FenceToken(reader.varint()?),
                ttl: reader.optional()?.map(Span::from_ms),
            },
            BEGIN_TERM => Command::BeginTerm { grace: Span::from_ms(reader.varint()?) },
            TICK => Command::Tick,
            tag => return Err(DecodeError::UnknownTag { what: "command", tag }),
        })
    }
}

impl SessionId {
    pub(crate) fn encode(self, sink: &mut impl Sink) {
        sink.put(&self.0.to_le_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<SessionId, DecodeError> {
        reader.array().map(|bytes| SessionId(u128::from_le_bytes(bytes)))
    }
}

impl PublicSessionId {
    pub(crate) fn encode(self, sink: &mut impl Sink) {
        sink.put(&self.0.to_le_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PublicSessionId, DecodeError> {
        reader.array().map(|bytes| PublicSessionId(u64::from_le_bytes(bytes)))
    }
}

impl Owner {
    pub(crate) fn encode(&self, sink: &mut impl Sink) {
        sink.bytes(self.application.as_bytes());
        sink.bytes(self.host.as_bytes());
        sink.varint(u64::from(self.pid));
        sink.bytes(self.note.as_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Owner, DecodeError> {
        Ok(Owner {
            application: String::from(reader.text()?),
            host: String::from(reader.text()?),
            pid: u32::try_from(reader.varint()?).map_err(|_| DecodeError::InvalidNumber)?,
            note: String::from(reader.text()?),
        })
    }
}

impl Mode {
    pub(crate) fn encode(self, sink: &mut impl Sink) {
        sink.u8(match self {
            Mode::Exclusive => 1,
        });
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Mode, DecodeError> {
        match reader.u8()? {
            1 => Ok(Mode::Exclusive),
            tag => Err(DecodeError::UnknownTag { what: "lock mode", tag }),
        }
    }
}

impl Call {
    fn encode(&self, sink: &mut impl Sink) {
        self.session.encode(sink);
        sink.varint(self.request.0);
        sink.varint(self.acked_through.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Call, DecodeError> {
        Ok(Call {
            session: SessionId::decode(reader)?,
            request: RequestId(reader.varint()?),
            acked_through: RequestId(reader.varint()?),
        })
    }
}

impl OpenSession {
    fn encode(&self, sink: &mut impl Sink) {
        self.session.encode(sink);
        self.public.encode(sink);
        sink.optional(self.stream.map(|stream| stream.0));
        sink.varint(self.ttl.as_ms());
        sink.varint(self.linger.as_ms());
        self.owner.encode(sink);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<OpenSession, DecodeError> {
        Ok(OpenSession {
            session: SessionId::decode(reader)?,
            public: PublicSessionId::decode(reader)?,
            stream: reader.optional()?.map(StreamId),
            ttl: Span::from_ms(reader.varint()?),
            linger: Span::from_ms(reader.varint()?),
            owner: Owner::decode(reader)?,
        })
    }
}

impl Acquire {
    fn encode(&self, sink: &mut impl Sink) {
        self.call.encode(sink);
        sink.varint(self.actor.0);
        sink.bytes(self.name.as_bytes());
        self.mode.encode(sink);
        sink.varint(self.wait.as_ms());
        sink.optional(self.ttl.map(Span::as_ms));
        sink.optional(self.max_hold.map(Span::as_ms));
        sink.bytes(&self.metadata);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Acquire, DecodeError> {
        Ok(Acquire {
            call: Call::decode(reader)?,
            actor: ActorId(reader.varint()?),
            name: reader.name()?,
            mode: Mode::decode(reader)?,
            wait: Span::from_ms(reader.varint()?),
            ttl: reader.optional()?.map(Span::from_ms),
            max_hold: reader.optional()?.map(Span::from_ms),
            metadata: Box::from(reader.bytes()?),
        })
    }
}
