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
    use proptest::prelude::*;

    use super::*;

    fn begin(total_bytes: u64) -> Result<Assembly, AssemblyError> {
        Assembly::begin(&SnapshotStart { group: 1, total_bytes })
    }

    #[test]
    fn a_snapshot_is_accepted_only_as_announced() {
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

    /// What can happen to the pieces of a snapshot on their way.
    #[derive(Clone, Debug)]
    enum Mishap {
        Lost(prop::sample::Index),
        Doubled(prop::sample::Index),
        Swapped(prop::sample::Index, prop::sample::Index),
        Shortened(prop::sample::Index),
        Lengthened(prop::sample::Index, Vec<u8>),
    }

    fn mishap() -> impl Strategy<Value = Mishap> {
        let place = any::<prop::sample::Index>;
        prop_oneof![
            place().prop_map(Mishap::Lost),
            place().prop_map(Mishap::Doubled),
            (place(), place()).prop_map(|(one, other)| Mishap::Swapped(one, other)),
            place().prop_map(Mishap::Shortened),
            (place(), proptest::collection::vec(any::<u8>(), 1..40))
                .prop_map(|(at, bytes)| Mishap::Lengthened(at, bytes)),
        ]
    }

    fn befall(pieces: &mut Vec<Vec<u8>>, mishap: &Mishap) {
        if pieces.is_empty() {
            return;
        }
        let at = |place: &prop::sample::Index| place.index(pieces.len());
        match mishap {
            Mishap::Lost(place) => drop(pieces.remove(at(place))),
            Mishap::Doubled(place) => pieces.push(pieces[at(place)].clone()),
            Mishap::Swapped(one, other) => {
                let (one, other) = (at(one), at(other));
                pieces.swap(one, other);
            }
            Mishap::Shortened(place) => {
                let place = at(place);
                pieces[place].pop();
            }
            Mishap::Lengthened(place, bytes) => {
                let place = at(place);
                pieces[place].extend(bytes);
            }
        }
    }

    proptest! {
        /// What is in them is for consensus to judge; their number and their order are not.
        #[test]
        fn pieces_that_are_not_as_long_as_announced_are_refused_and_all_others_kept_as_they_came(
            mut pieces in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..60), 0..12
            ),
            mishaps in proptest::collection::vec(mishap(), 0..4),
            announced_more in prop_oneof![3 => Just(0_u64), 1 => 1_u64..100],
        ) {
            let sent: usize = pieces.iter().map(Vec::len).sum();
            let announced = sent as u64 + announced_more;
            for mishap in &mishaps {
                befall(&mut pieces, mishap);
            }
            let arrived = pieces.concat();
            let mut assembly = begin(announced).unwrap();
            let added = pieces.iter().try_for_each(|piece| assembly.add(piece));
            let assembled = added.and_then(|()| assembly.finish());
            if arrived.len() as u64 == announced {
                prop_assert_eq!(assembled, Ok((GroupId(1), arrived)));
            } else {
                prop_assert!(assembled.is_err());
            }
        }
    }
}
