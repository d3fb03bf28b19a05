//! Puts the pieces of a snapshot together again, within the size that was announced.

use holdfast_proto::peer_v1::SnapshotStart;
use holdfast_replica::GroupId;

const PIECE_BYTES_MAX: usize = 1024 * 1024;
const TOTAL_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Room is made as pieces arrive, so that an announcement alone costs little.
const FIRST_CAPACITY_MAX: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Assembly {
    group: GroupId,
    total: usize,
    message: Vec<u8>,
}

/// Why a snapshot is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AssemblyError {
    #[error("the snapshot has {bytes} bytes; at most {TOTAL_BYTES_MAX} are taken")]
    TooLarge { bytes: u64 },
    #[error("a piece has {bytes} bytes; at most {PIECE_BYTES_MAX} are taken")]
    PieceTooLarge { bytes: usize },
    #[error("more bytes came than the {total} that were announced")]
    TooMany { total: usize },
    #[error("{received} bytes came of the {total} that were announced")]
    TooFew { received: usize, total: usize },
}

impl Assembly {
    pub(super) fn begin(start: &SnapshotStart) -> Result<Assembly, AssemblyError> {
        let too_large = AssemblyError::TooLarge { bytes: start.total_bytes };
        if start.total_bytes > TOTAL_BYTES_MAX {
            return Err(too_large);
        }
        let total = usize::try_from(start.total_bytes).map_err(|_| too_large)?;
        let message = Vec::with_capacity(total.min(FIRST_CAPACITY_MAX));
        Ok(Assembly { group: GroupId(start.group), total, message })
    }

    pub(super) fn add(&mut self, piece: &[u8]) -> Result<(), AssemblyError> {
        if piece.len() > PIECE_BYTES_MAX {
            return Err(AssemblyError::PieceTooLarge { bytes: piece.len() });
        }
        if self.message.len() + piece.len() > self.total {
            return Err(AssemblyError::TooMany { total: self.total });
        }
        self.message.extend_from_slice(piece);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(GroupId, Vec<u8>), AssemblyError> {
        if self.message.len() < self.total {
            return Err(AssemblyError::TooFew { received: self.message.len(), total: self.total });
        }
        Ok((self.group, self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(total_bytes: u64) -> Result<Assembly, AssemblyError> {
        Assembly::begin(&SnapshotStart { group: 1, total_bytes })
    }

    #[test]
    fn what_was_announced_is_what_is_taken() {
        let mut assembly = begin(3).unwrap();
        assembly.add(&[1, 2]).unwrap();
        assembly.add(&[3]).unwrap();
        assert_eq!(assembly.finish(), Ok((GroupId(1), vec![1, 2, 3])));
    }

    #[test]
    fn more_less_and_too_much_are_refused() {
        assert_eq!(begin(1).unwrap().add(&[1, 2]), Err(AssemblyError::TooMany { total: 1 }));
        assert_eq!(
            begin(1).unwrap().finish(),
            Err(AssemblyError::TooFew { received: 0, total: 1 })
        );
        let bytes = TOTAL_BYTES_MAX + 1;
        assert_eq!(begin(bytes).unwrap_err(), AssemblyError::TooLarge { bytes });
        let piece = vec![0; PIECE_BYTES_MAX + 1];
        let refused = begin(1 << 30).unwrap().add(&piece);
        assert_eq!(refused, Err(AssemblyError::PieceTooLarge { bytes: piece.len() }));
    }
}
