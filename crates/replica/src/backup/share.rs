//! What the backup of a cluster with several groups says of each group.
//!
//! ```text
//! 4  how many groups the cluster has
//! 8  the epoch of the map from slots to groups
//! 2  how many runs of slots follow
//!    for each run: the first slot (2), and how many slots it has (2)
//! ```
//!
//! The runs are in order, and no two touch. So a set of slots has one form.

use std::ops::RangeInclusive;

use holdfast_core::{MapEpoch, SLOTS, Slot, SlotSet};

use super::{BackupError, take};
use crate::id::GroupId;

/// A file with one part has format 1. No cluster has more than 64 groups.
const GROUPS: RangeInclusive<u32> = 2..=64;

/// The slots that a group owns, and how many groups there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupShare {
    /// The file has a part for each of them.
    pub groups: u32,
    pub epoch: MapEpoch,
    pub slots: SlotSet,
}

impl GroupShare {
    pub(super) fn write(&self, fields: &mut Vec<u8>) {
        fields.extend(self.groups.to_le_bytes());
        fields.extend(self.epoch.0.to_le_bytes());
        let runs = runs(&self.slots);
        fields.extend((runs.len() as u16).to_le_bytes());
        for (first, count) in runs {
            fields.extend(first.to_le_bytes());
            fields.extend(count.to_le_bytes());
        }
    }

    pub(super) fn read(rest: &mut &[u8], group: GroupId) -> Result<GroupShare, BackupError> {
        let groups = u32::from_le_bytes(take(rest)?);
        if !GROUPS.contains(&groups) || !(1..=groups).contains(&group.0) {
            return Err(BackupError::Damaged("the number of its groups is wrong"));
        }
        let epoch = MapEpoch(u64::from_le_bytes(take(rest)?));
        let wrong = BackupError::Damaged("the slots in its header are not in order");
        let mut slots = SlotSet::empty();
        let mut free_from = 0;
        for _ in 0..u16::from_le_bytes(take(rest)?) {
            let first = u16::from_le_bytes(take(rest)?);
            let count = u16::from_le_bytes(take(rest)?);
            let end = first.checked_add(count).filter(|end| *end <= SLOTS);
            let end = end.filter(|_| first >= free_from && count > 0).ok_or(wrong.clone())?;
            slots.extend((first..end).filter_map(Slot::new));
            free_from = end + 1;
        }
        Ok(GroupShare { groups, epoch, slots })
    }
}

/// The first slot of each run, and the number of its slots.
fn runs(slots: &SlotSet) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for slot in slots.iter() {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == slot.number() => *count += 1,
            _ => runs.push((slot.number(), 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<GroupShare, BackupError> {
        let mut rest = bytes;
        let share = GroupShare::read(&mut rest, GroupId(2))?;
        assert!(rest.is_empty());
        Ok(share)
    }

    fn with_runs(numbers: &[u16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        GroupShare { groups: 4, epoch: MapEpoch(1), slots: SlotSet::empty() }.write(&mut bytes);
        bytes.truncate(12);
        bytes.extend(((numbers.len() / 2) as u16).to_le_bytes());
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes
    }

    proptest! {
        #[test]
        fn a_share_is_read_back_as_written(
            numbers in proptest::collection::btree_set(0..SLOTS, 0..300),
            groups in GROUPS,
            epoch: u64,
        ) {
            let slots = numbers.into_iter().filter_map(Slot::new).collect();
            let share = GroupShare { groups, epoch: MapEpoch(epoch), slots };
            let mut bytes = Vec::new();
            share.write(&mut bytes);
            prop_assert_eq!(read(&bytes), Ok(share));
        }
    }

    #[test]
    fn runs_of_slots_that_touch_overlap_or_end_too_late_are_refused() {
        assert!(read(&with_runs(&[0, 2, 3, 1])).is_ok());
        assert!(read(&with_runs(&[0, SLOTS])).is_ok_and(|share| share.slots.is_all()));
        assert!(read(&with_runs(&[0, 2, 2, 1])).is_err(), "they touch");
        assert!(read(&with_runs(&[5, 1, 3, 1])).is_err(), "they are not in order");
        assert!(read(&with_runs(&[7, 0])).is_err(), "an empty run");
        assert!(read(&with_runs(&[SLOTS - 1, 2])).is_err());
        assert!(read(&with_runs(&[1, u16::MAX])).is_err());
    }

    #[test]
    fn a_group_that_the_cluster_does_not_have_is_refused() {
        for groups in [0, 1, 65, u32::MAX] {
            let mut bytes = with_runs(&[]);
            bytes[..4].copy_from_slice(&groups.to_le_bytes());
            assert!(read(&bytes).is_err(), "{groups} groups");
        }
        for group in [0, 5, u32::MAX] {
            let bytes = with_runs(&[]);
            assert!(GroupShare::read(&mut &bytes[..], GroupId(group)).is_err(), "group {group}");
        }
    }

    #[test]
    fn the_worst_set_of_slots_fits_into_a_header() {
        let every_other = (0..SLOTS).step_by(2).filter_map(Slot::new).collect();
        let share = GroupShare { groups: 64, epoch: MapEpoch(u64::MAX), slots: every_other };
        let mut bytes = Vec::new();
        share.write(&mut bytes);
        let texts = 2 * (2 + super::super::TEXT_BYTES_MAX) + 100;
        assert!(bytes.len() + texts < super::super::FIELDS_BYTES_MAX);
    }
}
