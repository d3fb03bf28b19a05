//! Finds the turns of a segment, and tells a turn that a crash cut short from damage.
//!
//! A block is written whole or not at all, and space is zero before it is used. So:
//!
//! - a block that is not zero and not valid is damage, wherever it stands;
//! - a turn that misses blocks was never acknowledged, if nothing was written after it: the next turn
//!   is written only when this one is synced. With anything after it, it is damage.

use crate::block::{
    BLOCK_BYTES, Block, BlockFault, BlockHeader, BlockNumber, Sequence, Turn, decode,
};
use crate::error::OpenError;

#[derive(Debug)]
pub(crate) struct SegmentBlocks<'a> {
    name: &'a str,
    blocks: Vec<Block<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Whole {
        turn: Turn,
        count: u64,
    },
    /// Some blocks of the turn are there, this one is not.
    Torn {
        count: u64,
        missing: BlockNumber,
    },
    Unwritten,
}

impl<'a> SegmentBlocks<'a> {
    /// Checks every block by itself.
    pub(crate) fn read(
        name: &'a str,
        sequence: Sequence,
        bytes: &'a [u8],
    ) -> Result<SegmentBlocks<'a>, OpenError> {
        let mut segment = SegmentBlocks { name, blocks: Vec::new() };
        for (number, bytes) in (0..).map(BlockNumber).zip(bytes.chunks(BLOCK_BYTES)) {
            let block = decode(bytes, number).map_err(|fault| match fault {
                BlockFault::Damaged(reason) => segment.damaged(number, reason),
                BlockFault::UnknownVersion(version) => OpenError::UnknownFormat {
                    file: name.to_owned(),
                    offset: number.offset(),
                    what: "log format version",
                    found: version.into(),
                },
            })?;
            match &block {
                Block::Written(header, _) if header.sequence != sequence => {
                    return Err(segment.damaged(number, "the block belongs to another segment"));
                }
                _ => segment.blocks.push(block),
            }
        }
        Ok(segment)
    }

    pub(crate) fn count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The first written block at or after this one.
    pub(crate) fn first_written(&self, from: BlockNumber) -> Option<(BlockNumber, BlockHeader)> {
        self.blocks.iter().enumerate().skip(from.0 as usize).find_map(|(number, block)| match block
        {
            Block::Written(header, _) => Some((BlockNumber(number as u64), *header)),
            Block::Unwritten => None,
        })
    }

    /// Looks at the turn that starts at this block. `expected` is None where any number may stand.
    pub(crate) fn turn_at(
        &self,
        start: BlockNumber,
        expected: Option<Turn>,
    ) -> Result<Found, OpenError> {
        let Some((written, header)) = self.first_written(start) else {
            return Ok(Found::Unwritten);
        };
        if let Some(turn) = expected.filter(|turn| *turn < header.turn) {
            let (turn, later) = (turn.0, header.turn.0);
            let reason = format!("turn {turn} is missing although turn {later} was written");
            return Err(self.damaged(start, &reason));
        }
        let in_place = start.plus(header.position.into()) == written;
        if !in_place || expected.is_some_and(|turn| turn != header.turn) {
            return Err(self.damaged(written, "the block does not belong here"));
        }
        let count = u64::from(header.count);
        if start.plus(count).0 > self.count() {
            return Err(self.damaged(written, "the turn is longer than its segment"));
        }
        let mut missing = None;
        for position in 0..header.count {
            let number = start.plus(position.into());
            match self.blocks.get(number.0 as usize) {
                Some(Block::Written(found, _)) if *found == BlockHeader { position, ..header } => {}
                Some(Block::Written(..)) => {
                    return Err(self.damaged(number, "the block belongs to another turn"));
                }
                Some(Block::Unwritten) | None => missing = missing.or(Some(number)),
            }
        }
        Ok(match missing {
            Some(missing) => Found::Torn { count, missing },
            None => Found::Whole { turn: header.turn, count },
        })
    }

    /// Replaces `payload` by that of a whole turn.
    pub(crate) fn read_payload(&self, start: BlockNumber, count: u64, payload: &mut Vec<u8>) {
        payload.clear();
        for block in self.blocks.iter().skip(start.0 as usize).take(count as usize) {
            if let Block::Written(_, bytes) = block {
                payload.extend_from_slice(bytes);
            }
        }
    }

    fn damaged(&self, number: BlockNumber, reason: &str) -> OpenError {
        OpenError::Damaged {
            file: self.name.to_owned(),
            offset: number.offset(),
            reason: reason.to_owned(),
        }
    }
}
