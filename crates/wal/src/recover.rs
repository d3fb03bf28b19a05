//! Reads all that a directory holds, without changing it.

use std::collections::BTreeMap;

use crate::block::{BLOCK_BYTES, BlockNumber, HEADER_BYTES, PAYLOAD_BYTES, Sequence, Turn};
use crate::disk::{Disk, read_whole};
use crate::error::OpenError;
use crate::name::{self, FileName};
use crate::record::{self, Record, RecordFault};
use crate::replay::{Applied, GroupReplay};
use crate::scan::{SegmentBlocks, TurnScan};
use crate::segment::SegmentSummary;
use crate::snapshot;

/// The files of the log, sorted by what they are.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    segments: Vec<Sequence>,
    snapshots: BTreeMap<u32, u64>,
    /// Temporary files, and snapshots that a newer one replaces.
    pub(crate) leftovers: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Recovery {
    /// Those with at least one whole turn, oldest first.
    pub(crate) segments: Vec<SegmentSummary>,
    /// Segments at the end that no acknowledged turn has reached.
    pub(crate) unused: Vec<String>,
    pub(crate) groups: BTreeMap<u32, GroupReplay>,
    /// None if no turn was ever acknowledged.
    pub(crate) tail: Option<Tail>,
}

/// The end of the last segment that has a whole turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) last_turn: Turn,
    pub(crate) last_turn_start: BlockNumber,
    /// Behind the last whole turn.
    pub(crate) end: BlockNumber,
    /// How many blocks from there on a torn turn may have touched.
    pub(crate) torn_blocks: u64,
}

impl Inventory {
    pub(crate) fn take<D: Disk>(disk: &D) -> Result<Inventory, OpenError> {
        let io = |source| OpenError::Io { file: "the data directory".to_owned(), source };
        let mut inventory = Inventory::default();
        for file in disk.list().map_err(io)? {
            match name::parse(&file) {
                Some(FileName::Segment(sequence)) => inventory.segments.push(sequence),
                Some(FileName::Snapshot { group, index }) => inventory.add_snapshot(group, index),
                Some(FileName::Temporary) => inventory.leftovers.push(file),
                None => {}
            }
        }
        inventory.segments.sort_unstable();
        Ok(inventory)
    }

    fn add_snapshot(&mut self, group: u32, index: u64) {
        let newest = self.snapshots.entry(group).or_insert(index);
        if *newest != index {
            self.leftovers.push(name::snapshot(group, index.min(*newest)));
            *newest = index.max(*newest);
        }
    }
}

/// How far the turns of one segment reach, in blocks.
#[derive(Debug, Default)]
struct Reach {
    whole: u64,
    /// The length of the torn turn behind the whole ones.
    torn: u64,
    missing: Option<BlockNumber>,
}

/// A block that the last acknowledged turn did not reach. Anything written behind it was written
/// against the order.
#[derive(Debug)]
struct LogEnd {
    file: String,
    unwritten: BlockNumber,
}

impl LogEnd {
    fn passed_over(&self) -> OpenError {
        OpenError::Damaged {
            file: self.file.clone(),
            offset: self.unwritten.offset(),
            reason: "the block is missing although a later turn was written".to_owned(),
        }
    }
}

impl Recovery {
    pub(crate) fn read<D: Disk>(disk: &D, inventory: &Inventory) -> Result<Recovery, OpenError> {
        let mut recovery = Recovery {
            segments: Vec::new(),
            unused: Vec::new(),
            groups: BTreeMap::new(),
            tail: None,
        };
        for (group, index) in &inventory.snapshots {
            let loaded = snapshot::load(disk, *group, *index)?;
            recovery.groups.insert(*group, GroupReplay::new(loaded));
        }
        let mut end = None;
        let mut previous: Option<Sequence> = None;
        for sequence in &inventory.segments {
            if let Some(expected) = previous.map(Sequence::next).filter(|next| next != sequence) {
                return Err(OpenError::Missing {
                    file: name::segment(expected),
                    reason: format!("{} exists", name::segment(*sequence)),
                });
            }
            previous = Some(*sequence);
            recovery.read_segment(disk, *sequence, &mut end)?;
        }
        Ok(recovery)
    }

    pub(crate) fn last_turn(&self) -> Turn {
        self.tail.map_or(Turn::default(), |tail| tail.last_turn)
    }

    fn read_segment<D: Disk>(
        &mut self,
        disk: &D,
        sequence: Sequence,
        end: &mut Option<LogEnd>,
    ) -> Result<(), OpenError> {
        let name = name::segment(sequence);
        let io = |source| OpenError::Io { file: name.clone(), source };
        let bytes = read_whole(&disk.open(&name).map_err(io)?).map_err(io)?;
        let blocks = SegmentBlocks::read(&name, sequence, &bytes)?;
        let mut summary = SegmentSummary::new(sequence, blocks.count());

        let mut reach = Reach::default();
        if end.is_none() {
            reach = self.read_turns(&blocks, &mut summary, &name, bytes.len())?;
            let unwritten = reach.missing.or((reach.whole == 0).then_some(BlockNumber(0)));
            *end = unwritten.map(|unwritten| LogEnd { file: name.clone(), unwritten });
        }
        let touched = BlockNumber(reach.whole + reach.torn);
        if let Some(end) = end.as_ref().filter(|_| blocks.first_written(touched).is_some()) {
            return Err(end.passed_over());
        }
        if reach.whole > 0 {
            self.segments.push(summary);
        } else if self.segments.is_empty() && sequence != Sequence(1) {
            // Segments before this one were deleted, which waits for this one's first turn.
            return Err(OpenError::Damaged {
                file: name,
                offset: 0,
                reason: "the oldest segment has no whole turn".to_owned(),
            });
        } else {
            self.unused.push(name);
        }
        Ok(())
    }

    /// Replays the whole turns from the start of a segment on.
    fn read_turns(
        &mut self,
        blocks: &SegmentBlocks<'_>,
        summary: &mut SegmentSummary,
        name: &str,
        file_bytes: usize,
    ) -> Result<Reach, OpenError> {
        let mut reach = Reach::default();
        let mut payload = Vec::new();
        loop {
            let at = BlockNumber(reach.whole);
            // Only the first segment of all is known to start with the first turn.
            let expected = match self.tail {
                Some(tail) => Some(tail.last_turn.next()),
                None => (summary.sequence == Sequence(1)).then_some(Turn(1)),
            };
            match blocks.turn_at(at, expected)? {
                TurnScan::Unwritten => return Ok(reach),
                TurnScan::Torn { count, missing } => {
                    if let Some(tail) = self.tail.as_mut().filter(|_| reach.whole > 0) {
                        tail.torn_blocks = count;
                    }
                    return Ok(Reach { torn: count, missing: Some(missing), ..reach });
                }
                TurnScan::Whole { turn, count } => {
                    blocks.read_payload(at, count, &mut payload);
                    let position = TurnPosition { file: name, start: at, file_bytes };
                    self.replay_turn(summary, &position, turn, &payload)?;
                    reach.whole += count;
                    let end = BlockNumber(reach.whole);
                    let tail = Tail { last_turn: turn, last_turn_start: at, end, torn_blocks: 0 };
                    self.tail = Some(tail);
                }
            }
        }
    }

    fn replay_turn(
        &mut self,
        summary: &mut SegmentSummary,
        position: &TurnPosition<'_>,
        turn: Turn,
        payload: &[u8],
    ) -> Result<(), OpenError> {
        let mut rest = payload;
        if position.start == BlockNumber(0) {
            rest = position.check_segment_start(rest)?;
        }
        while !rest.is_empty() {
            let at = payload.len() - rest.len();
            let (group, record, after) =
                record::take(rest).map_err(|fault| position.refuse(at, fault))?;
            let replay = self.groups.entry(group).or_default();
            match replay.apply(turn, record).map_err(|reason| position.damaged(at, reason))? {
                Applied::Entry(index) => summary.note(group, index),
                Applied::LogReset => {
                    for summary in self.segments.iter_mut().chain([&mut *summary]) {
                        summary.index_max.remove(&group);
                    }
                }
                Applied::Other => {}
            }
            rest = after;
        }
        Ok(())
    }
}

/// Where a turn stands, to name a byte of it.
struct TurnPosition<'a> {
    file: &'a str,
    start: BlockNumber,
    file_bytes: usize,
}

impl TurnPosition<'_> {
    fn check_segment_start<'p>(&self, payload: &'p [u8]) -> Result<&'p [u8], OpenError> {
        match record::take(payload).map_err(|fault| self.refuse(0, fault))? {
            (_, Record::SegmentStart { blocks }, rest) => {
                if blocks.checked_mul(BLOCK_BYTES as u64) == Some(self.file_bytes as u64) {
                    return Ok(rest);
                }
                let bytes = self.file_bytes;
                Err(self.damaged(0, format!("the file has {bytes} bytes, not {blocks} blocks")))
            }
            _ => Err(self.damaged(0, "the segment does not start as one".to_owned())),
        }
    }

    fn refuse(&self, at: usize, fault: RecordFault) -> OpenError {
        let (what, found) = match fault {
            RecordFault::Malformed(reason) => return self.damaged(at, reason.to_owned()),
            RecordFault::UnknownVersion(version) => ("record version", version),
            RecordFault::UnknownKind(kind) => ("record kind", kind),
        };
        let (file, offset) = (self.file.to_owned(), self.offset(at));
        OpenError::UnknownFormat { file, offset, what, found: found.into() }
    }

    fn damaged(&self, at: usize, reason: String) -> OpenError {
        OpenError::Damaged { file: self.file.to_owned(), offset: self.offset(at), reason }
    }

    /// The byte of the file that holds this byte of the turn's payload.
    fn offset(&self, at: usize) -> u64 {
        let block = self.start.plus((at / PAYLOAD_BYTES) as u64);
        block.offset() + (HEADER_BYTES + at % PAYLOAD_BYTES) as u64
    }
}
