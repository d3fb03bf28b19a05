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
pub(crate) enum TurnScan {
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
    ) -> Result<TurnScan, OpenError> {
        let Some((written, header)) = self.first_written(start) else {
            return Ok(TurnScan::Unwritten);
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
            Some(missing) => TurnScan::Torn { count, missing },
            None => TurnScan::Whole { turn: header.turn, count },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{PAYLOAD_BYTES, encode_turn};

    const SEQUENCE: Sequence = Sequence(4);
    const BLOCKS: usize = 8;

    /// A segment with these turns: where each starts, its number, and its length in blocks.
    fn written(turns: &[(usize, u64, usize)]) -> Vec<u8> {
        let mut segment = vec![0; BLOCKS * BLOCK_BYTES];
        let mut blocks = Vec::new();
        for (start, turn, count) in turns {
            let payload = vec![7; count * PAYLOAD_BYTES];
            let first = BlockNumber(*start as u64);
            encode_turn(&mut blocks, SEQUENCE, first, Turn(*turn), &payload);
            segment[start * BLOCK_BYTES..][..blocks.len()].copy_from_slice(&blocks);
        }
        segment
    }

    fn turn_at(segment: &[u8], start: u64, expected: Option<Turn>) -> Result<TurnScan, u64> {
        let segment = SegmentBlocks::read("a segment", SEQUENCE, segment).unwrap();
        segment.turn_at(BlockNumber(start), expected).map_err(|error| match error {
            OpenError::Damaged { offset, .. } => offset / BLOCK_BYTES as u64,
            other => panic!("{other}"),
        })
    }

    #[test]
    fn turns_are_found_where_they_start() {
        let segment = written(&[(0, 6, 1), (1, 7, 3)]);
        assert_eq!(turn_at(&segment, 0, None), Ok(TurnScan::Whole { turn: Turn(6), count: 1 }));
        assert_eq!(
            turn_at(&segment, 1, Some(Turn(7))),
            Ok(TurnScan::Whole { turn: Turn(7), count: 3 })
        );
        assert_eq!(turn_at(&segment, 4, Some(Turn(8))), Ok(TurnScan::Unwritten));
    }

    #[test]
    fn a_repeated_turn_is_damage() {
        let segment = written(&[(0, 6, 1), (1, 6, 1)]);
        assert_eq!(turn_at(&segment, 1, Some(Turn(7))), Err(1));
    }

    #[test]
    fn a_turn_that_starts_late_is_damage() {
        let segment = written(&[(2, 6, 2)]);
        assert_eq!(turn_at(&segment, 1, Some(Turn(6))), Err(2));
    }

    #[test]
    fn a_block_of_another_turn_within_a_turn_is_damage() {
        let segment = written(&[(0, 6, 3), (1, 7, 1)]);
        assert_eq!(turn_at(&segment, 0, Some(Turn(6))), Err(1));
    }

    #[test]
    fn a_turn_may_end_with_its_segment_but_not_behind_it() {
        let segment = written(&[(6, 6, 2)]);
        assert_eq!(turn_at(&segment, 6, None), Ok(TurnScan::Whole { turn: Turn(6), count: 2 }));
        assert_eq!(turn_at(&segment[..7 * BLOCK_BYTES], 6, None), Err(6));
    }
}
