//! Commands as bytes in the log: a kind, the session in full, the rest as varints.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    Acquire, AcquireAll, Action, Call, Command, HoldRef, Intervention, Member, Mode, OpenSession,
    Owner, Policy, Terms,
};
use crate::model::access::change::ChangeAccess;
use crate::model::access::identity::Identity;
use crate::model::access::policy::Access;
use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::id::{
    ActorId, FenceToken, LogIndex, PublicSessionId, RequestId, SessionId, StreamId,
};
use crate::model::rules_version::RulesVersion;
use crate::model::slot::{MapEpoch, SlotSet};
use crate::model::slot_move::MoveStep;
use crate::model::time::{LogicalTime, Span};

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
const ACQUIRE_ALL: u8 = 12;
const CONVERT: u8 = 13;
const PROCLAIM: u8 = 14;
const TRANSFER: u8 = 15;
const INTERVENE: u8 = 16;
const EVENTS_PUBLISHED: u8 = 17;
const ADOPT_RULES: u8 = 18;
const ABANDON: u8 = 19;
/// Followed by the identity, unlike [`OPEN_SESSION`].
const OPEN_SESSION_AS: u8 = 20;
/// Followed by the identity, unlike [`ATTACH_STREAM`].
const ATTACH_STREAM_AS: u8 = 21;
const CHANGE_ACCESS: u8 = 22;
/// Followed by the identity, unlike [`INTERVENE`].
const INTERVENE_AS: u8 = 23;
/// Followed by the identity, unlike [`CHANGE_ACCESS`].
const CHANGE_ACCESS_AS: u8 = 24;
const SET_OWNERSHIP: u8 = 25;
const ADOPT_POLICY: u8 = 26;
const MOVE_SLOTS: u8 = 27;

impl Command {
    pub(crate) fn encode(&self, sink: &mut impl Sink) {
        match self {
            Command::OpenSession(open) => {
                sink.u8(if open.identity.is_some() { OPEN_SESSION_AS } else { OPEN_SESSION });
                open.encode(sink);
                write_identity(open.identity.as_deref(), sink);
            }
            Command::AttachStream { session, stream, identity } => {
                sink.u8(if identity.is_some() { ATTACH_STREAM_AS } else { ATTACH_STREAM });
                session.encode(sink);
                sink.varint(stream.0);
                write_identity(identity.as_deref(), sink);
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
            Command::AcquireAll(acquire) => {
                sink.u8(ACQUIRE_ALL);
                acquire.encode(sink);
            }
            Command::Convert { call, hold, to, wait, policy } => {
                sink.u8(CONVERT);
                call.encode(sink);
                hold.encode(sink);
                to.encode(sink);
                sink.varint(wait.as_ms());
                policy.encode(sink);
            }
            Command::Release { call, hold } => {
                sink.u8(RELEASE);
                call.encode(sink);
                hold.encode(sink);
            }
            Command::Renew { call, hold, ttl } => {
                sink.u8(RENEW);
                call.encode(sink);
                hold.encode(sink);
                sink.optional(ttl.map(Span::as_ms));
            }
            Command::Proclaim { call, hold, metadata } => {
                sink.u8(PROCLAIM);
                call.encode(sink);
                hold.encode(sink);
                sink.bytes(metadata);
            }
            Command::Transfer { call, hold, to } => {
                sink.u8(TRANSFER);
                call.encode(sink);
                hold.encode(sink);
                to.encode(sink);
            }
            Command::Intervene(intervention) => {
                sink.u8(if intervention.identity.is_some() { INTERVENE_AS } else { INTERVENE });
                intervention.encode(sink);
                write_identity(intervention.identity.as_deref(), sink);
            }
            Command::BeginTerm { grace } => {
                sink.u8(BEGIN_TERM);
                sink.varint(grace.as_ms());
            }
            Command::Tick => sink.u8(TICK),
            Command::EventsPublished { through, index, term } => {
                sink.u8(EVENTS_PUBLISHED);
                sink.varint(*through);
                sink.varint(index.0);
                sink.varint(*term);
            }
            Command::Abandon { session, request } => {
                sink.u8(ABANDON);
                session.encode(sink);
                sink.varint(request.0);
            }
            Command::AdoptRules { version } => {
                sink.u8(ADOPT_RULES);
                version.encode(sink);
            }
            Command::ChangeAccess(change) => {
                sink.u8(if change.identity.is_some() { CHANGE_ACCESS_AS } else { CHANGE_ACCESS });
                change.write(sink);
                write_identity(change.identity.as_deref(), sink);
            }
            Command::AdoptPolicy(policy) => {
                sink.u8(ADOPT_POLICY);
                policy.write(sink, RulesVersion::NINE);
            }
            Command::SetOwnership { epoch, slots } => {
                sink.u8(SET_OWNERSHIP);
                sink.varint(epoch.0);
                slots.write(sink);
            }
            Command::MoveSlots(step) => {
                sink.u8(MOVE_SLOTS);
                step.write(sink);
            }
        }
    }

    /// As the given version of the log's format wrote it.
    pub(crate) fn decode(reader: &mut Reader<'_>, version: u8) -> Result<Command, DecodeError> {
        Ok(match reader.u8()? {
            OPEN_SESSION => Command::OpenSession(OpenSession::decode(reader)?),
            OPEN_SESSION_AS if version >= 5 => {
                let mut open = OpenSession::decode(reader)?;
                open.identity = Some(Identity::read(reader)?);
                Command::OpenSession(open)
            }
            ATTACH_STREAM => Command::AttachStream {
                session: SessionId::decode(reader)?,
                stream: StreamId(reader.varint()?),
                identity: None,
            },
            ATTACH_STREAM_AS if version >= 5 => Command::AttachStream {
                session: SessionId::decode(reader)?,
                stream: StreamId(reader.varint()?),
                identity: Some(Identity::read(reader)?),
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
            ACQUIRE => Command::Acquire(Acquire::decode(reader, version)?),
            CANCEL => {
                Command::Cancel { call: Call::decode(reader)?, target: RequestId(reader.varint()?) }
            }
            RELEASE => Command::Release {
                call: Call::decode(reader)?,
                hold: HoldRef::decode(reader, version)?,
            },
            RENEW => Command::Renew {
                call: Call::decode(reader)?,
                hold: HoldRef::decode(reader, version)?,
                ttl: reader.optional()?.map(Span::from_ms),
            },
            ACQUIRE_ALL => Command::AcquireAll(AcquireAll::decode(reader)?),
            CONVERT => Command::Convert {
                call: Call::decode(reader)?,
                hold: HoldRef::decode(reader, version)?,
                to: Mode::decode(reader)?,
                wait: Span::from_ms(reader.varint()?),
                policy: Policy::decode(reader)?,
            },
            PROCLAIM => Command::Proclaim {
                call: Call::decode(reader)?,
                hold: HoldRef::decode(reader, version)?,
                metadata: Box::from(reader.bytes()?),
            },
            TRANSFER => Command::Transfer {
                call: Call::decode(reader)?,
                hold: HoldRef::decode(reader, version)?,
                to: PublicSessionId::decode(reader)?,
            },
            INTERVENE => Command::Intervene(Intervention::decode(reader, version)?),
            INTERVENE_AS if version >= 6 => {
                let mut intervention = Intervention::decode(reader, version)?;
                intervention.identity = Some(Identity::read(reader)?);
                Command::Intervene(intervention)
            }
            BEGIN_TERM => Command::BeginTerm { grace: Span::from_ms(reader.varint()?) },
            TICK => Command::Tick,
            EVENTS_PUBLISHED if version >= 3 => Command::EventsPublished {
                through: reader.varint()?,
                index: LogIndex(reader.varint()?),
                term: reader.varint()?,
            },
            ABANDON if version >= 4 => Command::Abandon {
                session: SessionId::decode(reader)?,
                request: RequestId(reader.varint()?),
            },
            ADOPT_RULES if version >= 4 => {
                Command::AdoptRules { version: RulesVersion::decode(reader)? }
            }
            CHANGE_ACCESS if version >= 5 => {
                Command::ChangeAccess(Box::new(ChangeAccess::read(reader, version)?))
            }
            CHANGE_ACCESS_AS if version >= 6 => {
                let mut change = ChangeAccess::read(reader, version)?;
                change.identity = Some(Identity::read(reader)?);
                Command::ChangeAccess(Box::new(change))
            }
            SET_OWNERSHIP if version >= 8 => Command::SetOwnership {
                epoch: MapEpoch(reader.varint()?),
                slots: SlotSet::read(reader)?,
            },
            ADOPT_POLICY if version >= 10 => {
                Command::AdoptPolicy(Box::new(Access::read(reader, RulesVersion::NINE)?))
            }
            MOVE_SLOTS if version >= 11 => Command::MoveSlots(Box::new(MoveStep::read(reader)?)),
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
            pid: reader.u32()?,
            note: String::from(reader.text()?),
        })
    }
}

impl Mode {
    pub(crate) fn encode(self, sink: &mut impl Sink) {
        match self {
            Mode::Exclusive => sink.u8(1),
            Mode::Shared => sink.u8(2),
            Mode::Permit { limit } => {
                sink.u8(3);
                sink.varint(u64::from(limit));
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Mode, DecodeError> {
        match reader.u8()? {
            1 => Ok(Mode::Exclusive),
            2 => Ok(Mode::Shared),
            3 => Ok(Mode::Permit { limit: reader.u32()? }),
            tag => Err(DecodeError::UnknownTag { what: "lock mode", tag }),
        }
    }
}

impl Policy {
    pub(crate) fn encode(self, sink: &mut impl Sink) {
        sink.u8(match self {
            Policy::Detect => 1,
            Policy::Wait => 2,
            Policy::WaitDie => 3,
            Policy::WoundWait => 4,
        });
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Policy, DecodeError> {
        match reader.u8()? {
            1 => Ok(Policy::Detect),
            2 => Ok(Policy::Wait),
            3 => Ok(Policy::WaitDie),
            4 => Ok(Policy::WoundWait),
            tag => Err(DecodeError::UnknownTag { what: "waiting policy", tag }),
        }
    }
}

impl HoldRef {
    fn encode(&self, sink: &mut impl Sink) {
        sink.bytes(self.name.as_bytes());
        sink.varint(self.token.0);
        sink.varint(self.acquire.0);
    }

    fn decode(reader: &mut Reader<'_>, version: u8) -> Result<HoldRef, DecodeError> {
        Ok(HoldRef {
            name: reader.name()?,
            token: FenceToken(reader.varint()?),
            acquire: RequestId(if version == 1 { 0 } else { reader.varint()? }),
        })
    }
}

impl Terms {
    pub(crate) fn encode(&self, sink: &mut impl Sink) {
        sink.varint(self.wait.as_ms());
        self.policy.encode(sink);
        sink.optional(self.since.map(LogicalTime::as_ms));
        sink.u8(u8::from(self.preemptible));
        sink.u8(u8::from(self.reentrant));
        sink.optional(self.ttl.map(Span::as_ms));
        sink.optional(self.max_hold.map(Span::as_ms));
        sink.optional(self.lock_delay.map(Span::as_ms));
        sink.bytes(&self.metadata);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Terms, DecodeError> {
        let wait = Span::from_ms(reader.varint()?);
        let policy = Policy::decode(reader)?;
        // Most ask for nothing else.
        if reader.take_if(&[0; 7]) {
            return Ok(Terms { wait, policy, ..Terms::default() });
        }
        Ok(Terms {
            wait,
            policy,
            since: reader.optional()?.map(LogicalTime::from_ms),
            preemptible: reader.bool("preemptible")?,
            reentrant: reader.bool("reentrant")?,
            ttl: reader.optional()?.map(Span::from_ms),
            max_hold: reader.optional()?.map(Span::from_ms),
            lock_delay: reader.optional()?.map(Span::from_ms),
            metadata: Box::from(reader.bytes()?),
        })
    }

    /// That version had no search for cycles: every request waited to its end.
    fn decode_version_1(reader: &mut Reader<'_>) -> Result<Terms, DecodeError> {
        Ok(Terms {
            wait: Span::from_ms(reader.varint()?),
            policy: Policy::Wait,
            ttl: reader.optional()?.map(Span::from_ms),
            max_hold: reader.optional()?.map(Span::from_ms),
            metadata: Box::from(reader.bytes()?),
            ..Terms::default()
        })
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
            identity: None,
        })
    }
}

impl Acquire {
    fn encode(&self, sink: &mut impl Sink) {
        self.call.encode(sink);
        sink.varint(self.actor.0);
        sink.bytes(self.name.as_bytes());
        self.mode.encode(sink);
        self.terms.encode(sink);
    }

    fn decode(reader: &mut Reader<'_>, version: u8) -> Result<Acquire, DecodeError> {
        Ok(Acquire {
            call: Call::decode(reader)?,
            actor: ActorId(reader.varint()?),
            name: reader.name()?,
            mode: Mode::decode(reader)?,
            terms: match version {
                1 => Terms::decode_version_1(reader)?,
                _ => Terms::decode(reader)?,
            },
        })
    }
}

impl AcquireAll {
    fn encode(&self, sink: &mut impl Sink) {
        self.call.encode(sink);
        sink.varint(self.actor.0);
        sink.count(self.members.len());
        for member in &self.members {
            sink.bytes(member.name.as_bytes());
            member.mode.encode(sink);
        }
        self.terms.encode(sink);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<AcquireAll, DecodeError> {
        let call = Call::decode(reader)?;
        let actor = ActorId(reader.varint()?);
        let count = reader.count()?;
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(Member { name: reader.name()?, mode: Mode::decode(reader)? });
        }
        let terms = Terms::decode(reader)?;
        Ok(AcquireAll { call, actor, members: members.into_boxed_slice(), terms })
    }
}

impl Intervention {
    fn encode(&self, sink: &mut impl Sink) {
        sink.bytes(self.by.as_bytes());
        sink.bytes(self.reason.as_bytes());
        match &self.action {
            Action::Break { name, token } => {
                sink.u8(1);
                sink.bytes(name.as_bytes());
                sink.optional(token.map(|token| token.0));
            }
            Action::Transfer { name, token, to } => {
                sink.u8(2);
                sink.bytes(name.as_bytes());
                sink.varint(token.0);
                to.encode(sink);
            }
            Action::Freeze { prefix, ttl } => {
                sink.u8(3);
                sink.bytes(prefix.as_bytes());
                sink.varint(ttl.as_ms());
            }
            Action::Thaw { prefix } => {
                sink.u8(4);
                sink.bytes(prefix.as_bytes());
            }
            Action::SetPermits { name, limit } => {
                sink.u8(5);
                sink.bytes(name.as_bytes());
                sink.optional(limit.map(u64::from));
            }
            Action::KillSession { session } => {
                sink.u8(6);
                session.encode(sink);
            }
            Action::Reopen { name } => {
                sink.u8(7);
                sink.bytes(name.as_bytes());
            }
            Action::SetLimits { bytes, locks } => {
                sink.u8(8);
                sink.optional(*bytes);
                sink.optional(*locks);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, version: u8) -> Result<Intervention, DecodeError> {
        let by = Box::from(reader.text()?);
        let reason = Box::from(reader.text()?);
        let action = match reader.u8()? {
            1 => Action::Break { name: reader.name()?, token: reader.optional()?.map(FenceToken) },
            2 => Action::Transfer {
                name: reader.name()?,
                token: FenceToken(reader.varint()?),
                to: PublicSessionId::decode(reader)?,
            },
            3 => Action::Freeze {
                prefix: Box::from(reader.text()?),
                ttl: Span::from_ms(reader.varint()?),
            },
            4 => Action::Thaw { prefix: Box::from(reader.text()?) },
            5 => Action::SetPermits { name: reader.name()?, limit: optional_u32(reader)? },
            6 => Action::KillSession { session: PublicSessionId::decode(reader)? },
            7 if version >= 4 => Action::Reopen { name: reader.name()? },
            8 if version >= 4 => {
                Action::SetLimits { bytes: reader.optional()?, locks: reader.optional()? }
            }
            tag => return Err(DecodeError::UnknownTag { what: "intervention", tag }),
        };
        Ok(Intervention { by, reason, action, identity: None })
    }
}

fn write_identity(identity: Option<&Identity>, sink: &mut impl Sink) {
    if let Some(identity) = identity {
        identity.write(sink);
    }
}

fn optional_u32(reader: &mut Reader<'_>) -> Result<Option<u32>, DecodeError> {
    let number = reader.optional()?.map(u32::try_from).transpose();
    number.map_err(|_| DecodeError::InvalidNumber)
}
