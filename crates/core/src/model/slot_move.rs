//! Moves of slots from one group to another: their identity, and the steps that stand in the logs of both groups.
//!
//! `rules/slot_moves.rs` says what each step does.

use alloc::boxed::Box;
use core::fmt;

use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::id::SessionId;
use crate::model::slot::{MapEpoch, SlotSet};

/// A Raft group, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u64);

/// One move: the group that gives slots away, and the epoch from which on it does not own them. The epochs of a group
/// only rise, so no two moves have one id, and of two moves of one group the later is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId {
    pub source: GroupNumber,
    pub epoch: MapEpoch,
}

/// A step of a move. Each is a command in the log of one of the two groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// To the source: from here on it does not own the slots. What is in them is taken out of the table, in parts.
    Seal { id: MoveId, target: GroupNumber, slots: SlotSet },
    /// To the target: keep this part of what was in the slots aside. Parts come in their order, from 0 on.
    Adopt { id: MoveId, part: u32, bytes: Box<[u8]> },
    /// To the target, which has all parts: the move is decided, and it owns the slots once all parts are in.
    Commit { id: MoveId, epoch: MapEpoch, slots: SlotSet, parts: u32, last_token: u64 },
    /// To the target, which has not committed: it never will, and drops the parts.
    Abort { id: MoveId },
    /// To the source, after the target has aborted: it owns the slots again, as of this epoch.
    Return { id: MoveId, epoch: MapEpoch },
    /// To the source, after the target has committed: it drops the parts.
    Forget { id: MoveId },
}

/// What has left of a session, by moves of slots. The answers to heartbeats and resumptions tell it, so that a client
/// which was not told of each hold that left knows when to ask about its holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departures {
    /// That of the last move that took something of the session.
    pub epoch: MapEpoch,
    /// How many of its holds and waits have left so far, by all moves. A move takes them one after another, so the count
    /// can rise while the epoch stays.
    pub count: u64,
}

/// How a move has ended for the group that was to get the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveEnd {
    Committed,
    Aborted,
}

const SEAL: u8 = 1;
const ADOPT: u8 = 2;
const COMMIT: u8 = 3;
const ABORT: u8 = 4;
const RETURN: u8 = 5;
const FORGET: u8 = 6;

impl MoveId {
    /// The session to which the holds and waits of this session belong after the move.
    ///
    /// A session of the target cannot have them, not even that of the same client: each session counts its requests for
    /// itself, so two requests could have one id. The function is a bijection, so two sessions of one move are never
    /// taken for one. Like the id that it is made of, the new one is a secret.
    pub fn guest(self, session: SessionId) -> SessionId {
        let high = mix(self.source.0 ^ 0x5eed_0000_0000_0001);
        let (first, second) = (mix(high ^ self.epoch.0), mix(high.rotate_left(32) ^ self.epoch.0));
        SessionId(session.0 ^ (u128::from(first) << 64 | u128::from(second)))
    }

    pub(crate) fn write(self, sink: &mut impl Sink) {
        sink.varint(self.source.0);
        sink.varint(self.epoch.0);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<MoveId, DecodeError> {
        Ok(MoveId { source: GroupNumber(reader.varint()?), epoch: MapEpoch(reader.varint()?) })
    }
}

/// Steele, Lea and Flood's `SplitMix64`: neighbours come far apart.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl MoveStep {
    pub fn id(&self) -> MoveId {
        match self {
            MoveStep::Seal { id, .. }
            | MoveStep::Adopt { id, .. }
            | MoveStep::Commit { id, .. }
            | MoveStep::Abort { id }
            | MoveStep::Return { id, .. }
            | MoveStep::Forget { id } => *id,
        }
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        let tag = match self {
            MoveStep::Seal { .. } => SEAL,
            MoveStep::Adopt { .. } => ADOPT,
            MoveStep::Commit { .. } => COMMIT,
            MoveStep::Abort { .. } => ABORT,
            MoveStep::Return { .. } => RETURN,
            MoveStep::Forget { .. } => FORGET,
        };
        sink.u8(tag);
        self.id().write(sink);
        match self {
            MoveStep::Seal { target, slots, .. } => {
                sink.varint(target.0);
                slots.write(sink);
            }
            MoveStep::Adopt { part, bytes, .. } => {
                sink.varint(u64::from(*part));
                sink.bytes(bytes);
            }
            MoveStep::Commit { epoch, slots, parts, last_token, .. } => {
                sink.varint(epoch.0);
                slots.write(sink);
                sink.varint(u64::from(*parts));
                sink.varint(*last_token);
            }
            MoveStep::Return { epoch, .. } => sink.varint(epoch.0),
            MoveStep::Abort { .. } | MoveStep::Forget { .. } => {}
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<MoveStep, DecodeError> {
        let tag = reader.u8()?;
        let id = MoveId::read(reader)?;
        Ok(match tag {
            SEAL => MoveStep::Seal {
                id,
                target: GroupNumber(reader.varint()?),
                slots: SlotSet::read(reader)?,
            },
            ADOPT => MoveStep::Adopt { id, part: reader.u32()?, bytes: Box::from(reader.bytes()?) },
            COMMIT => MoveStep::Commit {
                id,
                epoch: MapEpoch(reader.varint()?),
                slots: SlotSet::read(reader)?,
                parts: reader.u32()?,
                last_token: reader.varint()?,
            },
            ABORT => MoveStep::Abort { id },
            RETURN => MoveStep::Return { id, epoch: MapEpoch(reader.varint()?) },
            FORGET => MoveStep::Forget { id },
            tag => return Err(DecodeError::UnknownTag { what: "step of a move", tag }),
        })
    }
}

impl fmt::Display for GroupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for MoveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.source, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_move_gives_each_session_another_id() {
        let mut seen = BTreeSet::new();
        for source in 1..=4 {
            for epoch in 1..=50 {
                let id = MoveId { source: GroupNumber(source), epoch: MapEpoch(epoch) };
                for session in 0..20 {
                    assert!(seen.insert(id.guest(SessionId(session))), "{id} {session}");
                }
            }
        }
    }
}
