//! The moves of slots from and to a group, as far as its own log says.
//!
//! # Invariants
//!
//! * At most one move takes slots away at a time. From each other group at most one brings some.
//! * What has been taken out of the table is here as bytes, in parts, and nowhere else in the table.
//! * How the last move from each group has ended is remembered, so that a late step of it does no harm.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::codec::{DecodeError, Reader, Sink, in_order};
use crate::model::id::{PublicSessionId, SessionId};
use crate::model::name::LockName;
use crate::model::slot::{MapEpoch, SlotSet};
use crate::model::slot_move::{GroupNumber, MoveEnd, MoveId};
use crate::model::time::LogicalTime;
use crate::state::size;
use crate::state::snapshot::part::Part;

/// Other groups from which slots have come. A cluster has fewer groups.
pub(crate) const SOURCES_MAX: usize = 256;

/// What was in some slots: each part is written by [`Part::encode`].
pub(crate) type Parts = Vec<Box<[u8]>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    pub(crate) outgoing: Option<Box<Outgoing>>,
    pub(crate) incoming: BTreeMap<GroupNumber, Incoming>,
}

/// Slots that leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub(crate) id: MoveId,
    pub(crate) target: GroupNumber,
    pub(crate) slots: SlotSet,
    pub(crate) parts: Parts,
    /// The sessions of which the parts have something. The sessions themselves may have ended since.
    pub(crate) travellers: BTreeSet<PublicSessionId>,
    pub(crate) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// All locks up to this one are done.
    TakingLocks { passed: Option<LockName> },
    /// And all numbers of permits up to that of this lock.
    TakingPermits { passed: Option<LockName> },
    /// No grant in the slots had a higher token.
    Complete { last_token: u64 },
    /// The target has aborted, and the parts are put into the table again.
    Returning { epoch: MapEpoch, progress: Progress },
}

/// Parts that are put into the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// So many of the parts are in the table.
    pub(crate) done: usize,
    /// The sessions that came with them, and when each came. When all parts are in, their times are counted anew.
    pub(crate) guests: BTreeMap<SessionId, LogicalTime>,
}

/// Slots that come from one other group, by its last move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) id: MapEpoch,
    pub(crate) arrival: Arrival,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The parts that have come. None of it is in the table.
    Staged {
        parts: Parts,
    },
    /// The parts are put into the table. When all are in, the group owns the slots.
    Installing {
        epoch: MapEpoch,
        slots: SlotSet,
        parts: Parts,
        progress: Progress,
    },
    Ended(MoveEnd),
}

impl Progress {
    fn write(&self, sink: &mut impl Sink) {
        sink.count(self.done);
        sink.count(self.guests.len());
        for (guest, came_at) in &self.guests {
            guest.encode(sink);
            sink.varint(came_at.as_ms());
        }
    }

    fn read(reader: &mut Reader<'_>, parts: &Parts) -> Result<Progress, DecodeError> {
        let mut progress = Progress { done: reader.count()?, ..Progress::default() };
        if progress.done > parts.len() {
            let what = String::from("more parts are done than there are");
            return Err(DecodeError::Inconsistent(what));
        }
        for _ in 0..reader.count()? {
            let guest = SessionId::decode(reader)?;
            let last = progress.guests.last_key_value().map(|(last, _)| *last);
            in_order(last, guest, "guests")?;
            progress.guests.insert(guest, LogicalTime::from_ms(reader.varint()?));
        }
        Ok(progress)
    }
}

impl Moves {
    /// The slots that leave, if some do.
    pub fn outgoing(&self) -> Option<&Outgoing> {
        self.outgoing.as_deref()
    }

    /// How the move has ended for this group, which was to get the slots. Once this is known it stays so until the next
    /// move from the same group.
    pub fn end_of(&self, id: MoveId) -> Option<MoveEnd> {
        match &self.incoming(id)?.arrival {
            Arrival::Staged { .. } => None,
            Arrival::Installing { .. } => Some(MoveEnd::Committed),
            Arrival::Ended(end) => Some(*end),
        }
    }

    /// How many parts of the move this group has that was to get the slots.
    pub fn staged_parts(&self, id: MoveId) -> u32 {
        match self.incoming(id).map(|incoming| &incoming.arrival) {
            Some(Arrival::Staged { parts }) => parts.len() as u32,
            _ => 0,
        }
    }

    /// Whether parts that have come are still being put into the table.
    pub fn is_installing(&self) -> bool {
        self.incoming.values().any(|it| matches!(it.arrival, Arrival::Installing { .. }))
    }

    pub(crate) fn incoming(&self, id: MoveId) -> Option<&Incoming> {
        self.incoming.get(&id.source).filter(|incoming| incoming.id == id.epoch)
    }

    pub(crate) fn is_returning(&self) -> bool {
        let stage = self.outgoing.as_ref().map(|outgoing| &outgoing.stage);
        matches!(stage, Some(Stage::Returning { .. }))
    }

    /// Whether slots have ever come from another group.
    pub(crate) fn has_come(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Of the parts that are put into the table, if some are. Slots come by one move at a time.
    pub(crate) fn progress_mut(&mut self) -> Option<(&mut Parts, &mut Progress)> {
        let installing = self.incoming.values_mut().find_map(|it| match &mut it.arrival {
            Arrival::Installing { parts, progress, .. } => Some((parts, progress)),
            _ => None,
        });
        installing.or_else(|| {
            let outgoing = self.outgoing.as_mut()?;
            match &mut outgoing.stage {
                Stage::Returning { progress, .. } => Some((&mut outgoing.parts, progress)),
                _ => None,
            }
        })
    }

    pub(crate) fn progress(&self) -> Option<&Progress> {
        let installing = self.incoming.values().find_map(|it| match &it.arrival {
            Arrival::Installing { progress, .. } => Some(progress),
            _ => None,
        });
        installing.or_else(|| match &self.outgoing.as_ref()?.stage {
            Stage::Returning { progress, .. } => Some(progress),
            _ => None,
        })
    }

    /// Any log entry goes on with it.
    pub(crate) fn has_work(&self) -> bool {
        let leaves = self.outgoing.as_ref();
        leaves.is_some_and(|outgoing| !matches!(outgoing.stage, Stage::Complete { .. }))
            || self.is_installing()
    }

    /// A step of a move is missing.
    pub(crate) fn is_open(&self) -> bool {
        let is_ended = |incoming: &Incoming| matches!(incoming.arrival, Arrival::Ended(_));
        self.outgoing.is_some() || !self.incoming.values().all(is_ended)
    }

    /// What the parts take, and what is remembered of the sessions in them.
    pub(crate) fn bytes(&self) -> u64 {
        let travellers = self.outgoing.as_ref().map_or(0, |it| it.travellers.len());
        let guests = self.progress().map_or(0, |it| it.guests.len());
        let leaving = self.outgoing.iter().flat_map(|outgoing| &outgoing.parts);
        let coming = self.incoming.values().flat_map(|incoming| match &incoming.arrival {
            Arrival::Staged { parts } | Arrival::Installing { parts, .. } => parts.as_slice(),
            Arrival::Ended(_) => &[],
        });
        let parts: u64 = leaving.chain(coming).map(|part| part.len() as u64).sum();
        parts + size::TRAVELLER * (travellers + guests) as u64
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.u8(u8::from(self.outgoing.is_some()));
        if let Some(outgoing) = &self.outgoing {
            outgoing.write(sink);
        }
        sink.count(self.incoming.len());
        for (source, incoming) in &self.incoming {
            sink.varint(source.0);
            sink.varint(incoming.id.0);
            match &incoming.arrival {
                Arrival::Ended(MoveEnd::Committed) => sink.u8(0),
                Arrival::Ended(MoveEnd::Aborted) => sink.u8(1),
                Arrival::Staged { parts } => {
                    sink.u8(2);
                    write_parts(parts, sink);
                }
                Arrival::Installing { epoch, slots, parts, progress } => {
                    sink.u8(3);
                    sink.varint(epoch.0);
                    slots.write(sink);
                    write_parts(parts, sink);
                    progress.write(sink);
                }
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Moves, DecodeError> {
        let has_outgoing = reader.bool("slots that leave")?;
        let outgoing = if has_outgoing { Some(Box::new(Outgoing::read(reader)?)) } else { None };
        let mut incoming = BTreeMap::new();
        for _ in 0..reader.count()? {
            let source = GroupNumber(reader.varint()?);
            in_order(incoming.last_key_value().map(|(last, _)| *last), source, "moves")?;
            let id = MapEpoch(reader.varint()?);
            let arrival = match reader.u8()? {
                0 => Arrival::Ended(MoveEnd::Committed),
                1 => Arrival::Ended(MoveEnd::Aborted),
                2 => Arrival::Staged { parts: read_parts(reader)? },
                3 => {
                    let epoch = MapEpoch(reader.varint()?);
                    let slots = SlotSet::read(reader)?;
                    let parts = read_parts(reader)?;
                    let progress = Progress::read(reader, &parts)?;
                    Arrival::Installing { epoch, slots, parts, progress }
                }
                tag => return Err(DecodeError::UnknownTag { what: "slots that come", tag }),
            };
            incoming.insert(source, Incoming { id, arrival });
        }
        Ok(Moves { outgoing, incoming })
    }
}

impl Outgoing {
    pub fn id(&self) -> MoveId {
        self.id
    }

    pub fn target(&self) -> GroupNumber {
        self.target
    }

    pub fn slots(&self) -> &SlotSet {
        &self.slots
    }

    /// All parts, and the highest token, once all is taken out of the table. What is in them does not change any more.
    pub fn complete(&self) -> Option<(&[Box<[u8]>], u64)> {
        match self.stage {
            Stage::Complete { last_token } => Some((&self.parts, last_token)),
            _ => None,
        }
    }

    /// Whether the slots come back, because the target has aborted.
    pub fn is_returning(&self) -> bool {
        matches!(self.stage, Stage::Returning { .. })
    }

    fn write(&self, sink: &mut impl Sink) {
        self.id.write(sink);
        sink.varint(self.target.0);
        self.slots.write(sink);
        write_parts(&self.parts, sink);
        sink.count(self.travellers.len());
        for public in &self.travellers {
            public.encode(sink);
        }
        match &self.stage {
            Stage::TakingLocks { passed } => {
                sink.u8(0);
                write_passed(passed.as_ref(), sink);
            }
            Stage::TakingPermits { passed } => {
                sink.u8(1);
                write_passed(passed.as_ref(), sink);
            }
            Stage::Complete { last_token } => {
                sink.u8(2);
                sink.varint(*last_token);
            }
            Stage::Returning { epoch, progress } => {
                sink.u8(3);
                sink.varint(epoch.0);
                progress.write(sink);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Outgoing, DecodeError> {
        let id = MoveId::read(reader)?;
        let target = GroupNumber(reader.varint()?);
        let slots = SlotSet::read(reader)?;
        let parts = read_parts(reader)?;
        let mut travellers = BTreeSet::new();
        for _ in 0..reader.count()? {
            let public = PublicSessionId::decode(reader)?;
            in_order(travellers.last().copied(), public, "sessions on their way")?;
            travellers.insert(public);
        }
        let stage = match reader.u8()? {
            0 => Stage::TakingLocks { passed: read_passed(reader)? },
            1 => Stage::TakingPermits { passed: read_passed(reader)? },
            2 => Stage::Complete { last_token: reader.varint()? },
            3 => Stage::Returning {
                epoch: MapEpoch(reader.varint()?),
                progress: Progress::read(reader, &parts)?,
            },
            tag => return Err(DecodeError::UnknownTag { what: "slots that leave", tag }),
        };
        Ok(Outgoing { id, target, slots, parts, travellers, stage })
    }
}

fn write_passed(passed: Option<&LockName>, sink: &mut impl Sink) {
    sink.u8(u8::from(passed.is_some()));
    if let Some(passed) = passed {
        sink.bytes(passed.as_bytes());
    }
}

fn read_passed(reader: &mut Reader<'_>) -> Result<Option<LockName>, DecodeError> {
    Ok(if reader.bool("taken lock")? { Some(reader.name()?) } else { None })
}

fn write_parts(parts: &Parts, sink: &mut impl Sink) {
    sink.count(parts.len());
    for part in parts {
        sink.bytes(part);
    }
}

/// Each is known to be readable, so that it can be put into the table later.
fn read_parts(reader: &mut Reader<'_>) -> Result<Parts, DecodeError> {
    let mut parts = Parts::new();
    for _ in 0..reader.count()? {
        let bytes = reader.bytes()?;
        Part::decode(bytes)?;
        parts.push(Box::from(bytes));
    }
    Ok(parts)
}
