//! Blocks: the unit in which the disk is trusted to write, and the unit that carries a checksum.
//!
//! A turn is cut into blocks of 512 bytes. Every block is full except the last one of its turn:
//!
//! ```text
//! offset  bytes
//!      0      4  CRC32C of bytes 4..512, then of the block's number in its segment
//!      4      1  format version
//!      5      1  zero
//!      6      2  payload bytes used
//!      8      8  segment sequence
//!     16      8  turn
//!     24      4  position in the turn
//!     28      4  blocks in the turn
//!     32    480  payload, then zeros
//! ```
//!
//! Numbers are little endian. The checksum includes where the block belongs, so a block that is stale
//! or in a wrong place does not pass. A block of zeros is one that was never written: the checksum of a
//! written block covers a version that is not zero.

pub(crate) const BLOCK_BYTES: usize = 512;
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const PAYLOAD_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

/// The version of blocks and segments. Every version keeps the checksum and the version byte where
/// they are, so that an older program can tell a newer log from a broken one.
pub(crate) const FORMAT_VERSION: u8 = 1;

/// Names a segment. Rises by one with each segment, never reused for other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) fn next(self) -> Sequence {
        Sequence(self.0.wrapping_add(1))
    }
}

/// Numbers the turns of a log through all its segments, without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(pub(crate) u64);

impl Turn {
    pub(crate) fn next(self) -> Turn {
        Turn(self.0.wrapping_add(1))
    }

    pub(crate) fn previous(self) -> Turn {
        Turn(self.0.wrapping_sub(1))
    }
}

/// The position of a block in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockNumber(pub(crate) u64);

impl BlockNumber {
    pub(crate) fn offset(self) -> u64 {
        self.0.saturating_mul(BLOCK_BYTES as u64)
    }

    pub(crate) fn plus(self, blocks: u64) -> BlockNumber {
        BlockNumber(self.0.saturating_add(blocks))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) sequence: Sequence,
    pub(crate) turn: Turn,
    pub(crate) position: u32,
    pub(crate) count: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block<'a> {
    Unwritten,
    Written(BlockHeader, &'a [u8]),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BlockFault {
    /// Not what was written here.
    Damaged(&'static str),
    UnknownVersion(u8),
}

pub(crate) fn blocks_for(payload_bytes: usize) -> u64 {
    payload_bytes.div_ceil(PAYLOAD_BYTES) as u64
}

/// Replaces `out` by the blocks of one turn.
pub(crate) fn encode_turn(
    out: &mut Vec<u8>,
    sequence: Sequence,
    first: BlockNumber,
    turn: Turn,
    payload: &[u8],
) {
    let count = blocks_for(payload.len());
    out.clear();
    out.reserve(count as usize * BLOCK_BYTES);
    for (number, (position, chunk)) in (first.0..).zip(payload.chunks(PAYLOAD_BYTES).enumerate()) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[FORMAT_VERSION, 0]);
        out.extend_from_slice(&(chunk.len() as u16).to_le_bytes());
        out.extend_from_slice(&sequence.0.to_le_bytes());
        out.extend_from_slice(&turn.0.to_le_bytes());
        out.extend_from_slice(&(position as u32).to_le_bytes());
        out.extend_from_slice(&(count as u32).to_le_bytes());
        out.extend_from_slice(chunk);
        out.resize(start + BLOCK_BYTES, 0);
        let checksum = checksum(&out[start..], BlockNumber(number));
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Reads one block of exactly 512 bytes.
pub(crate) fn decode(bytes: &[u8], number: BlockNumber) -> Result<Block<'_>, BlockFault> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Block::Unwritten);
    }
    if bytes.len() != BLOCK_BYTES {
        return Err(BlockFault::Damaged("the file ends within a block"));
    }
    let is_whole = u32_at(bytes, 0) == checksum(bytes, number);
    #[cfg(feature = "planted")]
    let is_whole = is_whole || crate::planted::Bug::ChecksumIgnored.is_active();
    if !is_whole {
        return Err(BlockFault::Damaged("the block fails its checksum"));
    }
    if bytes[4] != FORMAT_VERSION {
        return Err(BlockFault::UnknownVersion(bytes[4]));
    }
    let used = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    let header = BlockHeader {
        sequence: Sequence(u64_at(bytes, 8)),
        turn: Turn(u64_at(bytes, 16)),
        position: u32_at(bytes, 24),
        count: u32_at(bytes, 28),
    };
    let is_last = u64::from(header.position) + 1 == u64::from(header.count);
    let used_fits =
        if is_last { (1..=PAYLOAD_BYTES).contains(&used) } else { used == PAYLOAD_BYTES };
    if header.position >= header.count || !used_fits {
        return Err(BlockFault::Damaged("the block contradicts itself"));
    }
    Ok(Block::Written(header, &bytes[HEADER_BYTES..HEADER_BYTES + used]))
}

fn checksum(block: &[u8], number: BlockNumber) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[4..]), &number.0.to_le_bytes())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_block() -> Vec<u8> {
        let mut blocks = Vec::new();
        encode_turn(&mut blocks, Sequence(3), BlockNumber(7), Turn(9), b"payload");
        blocks
    }

    #[test]
    fn a_block_reads_back_as_it_was_written() {
        let blocks = one_block();
        let header = BlockHeader { sequence: Sequence(3), turn: Turn(9), position: 0, count: 1 };
        assert_eq!(decode(&blocks, BlockNumber(7)), Ok(Block::Written(header, b"payload")));
    }

    #[test]
    fn a_block_in_a_wrong_place_fails_its_checksum() {
        let fault = decode(&one_block(), BlockNumber(8)).map(|_| ()).unwrap_err();
        assert_eq!(fault, BlockFault::Damaged("the block fails its checksum"));
    }

    #[test]
    fn a_block_of_another_version_is_named_as_such() {
        let mut blocks = one_block();
        blocks[4] = 2;
        let sum = checksum(&blocks, BlockNumber(7));
        blocks[..4].copy_from_slice(&sum.to_le_bytes());
        let fault = decode(&blocks, BlockNumber(7)).map(|_| ()).unwrap_err();
        assert_eq!(fault, BlockFault::UnknownVersion(2));
    }

    /// With a checksum that is right: no crash and no flipped bit makes such a block.
    #[test]
    fn a_block_that_contradicts_itself_is_damaged() {
        let contradictions: [(&str, u16, u32, u32); 5] = [
            ("of a turn of no blocks", 480, 0, 0),
            ("behind the end of its turn", 480, 1, 1),
            ("not full, and not the last", 479, 0, 2),
            ("the last, and empty", 0, 1, 2),
            ("fuller than full", 481, 0, 1),
        ];
        for (words, used, position, count) in contradictions {
            let mut block = one_block();
            block[6..8].copy_from_slice(&used.to_le_bytes());
            block[24..28].copy_from_slice(&position.to_le_bytes());
            block[28..32].copy_from_slice(&count.to_le_bytes());
            let sum = checksum(&block, BlockNumber(7));
            block[..4].copy_from_slice(&sum.to_le_bytes());
            let fault = decode(&block, BlockNumber(7)).map(|_| ());
            let expected = BlockFault::Damaged("the block contradicts itself");
            assert_eq!(fault, Err(expected), "{words}");
        }
    }

    #[test]
    fn a_turn_fills_every_block_but_its_last() {
        let mut blocks = Vec::new();
        let payload = vec![1; PAYLOAD_BYTES * 2 + 1];
        encode_turn(&mut blocks, Sequence(1), BlockNumber(0), Turn(1), &payload);
        assert_eq!(blocks.len(), 3 * BLOCK_BYTES);
        let used: Vec<usize> = (0..3)
            .map(|n| match decode(&blocks[n * 512..][..512], BlockNumber(n as u64)).unwrap() {
                Block::Written(_, payload) => payload.len(),
                Block::Unwritten => 0,
            })
            .collect();
        assert_eq!(used, [PAYLOAD_BYTES, PAYLOAD_BYTES, 1]);
    }
}
