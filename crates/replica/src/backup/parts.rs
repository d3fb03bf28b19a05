//! The parts of a backup file: one for each group of the cluster, in the order of their numbers.
//!
//! Invariant: the parts of a file that is accepted are all groups of one cluster, each once, and every slot belongs to
//! exactly one of them. Each part was written at a moment of its own; the map from slots to groups was the same one.

use holdfast_core::{MapEpoch, SLOTS, Slot, SlotSet};

use super::{BackupError, BackupHeader, BodyCheck, GroupShare, MAGIC};
use crate::id::{ClusterId, GroupId};

/// The snapshot of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPart<'a> {
    pub header: BackupHeader,
    pub body: &'a [u8],
}

/// Returns all parts of a file. Everything but the content of the bodies is checked.
pub fn read_parts(bytes: &[u8]) -> Result<Vec<BackupPart<'_>>, BackupError> {
    let mut parts = Vec::new();
    let mut check = PartsCheck::default();
    let mut rest = bytes;
    while !check.is_complete() {
        let (header, after) = check.read_header(rest)?;
        let length = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
        let (body, after) = after.split_at_checked(length).unwrap_or((after, &[]));
        let mut body_check = BodyCheck::default();
        body_check.take(body);
        body_check.end(&header)?;
        parts.push(BackupPart { header, body });
        rest = after;
    }
    match rest.is_empty() {
        true => Ok(parts),
        false => Err(BackupError::Damaged("there is more in it than its header says")),
    }
}

/// Checks parts that come one after the other.
#[derive(Clone, Debug, Default)]
pub struct PartsCheck {
    /// What all parts have in common; none before the first one.
    common: Option<Common>,
    parts: u32,
    owned: Option<SlotSet>,
}

#[derive(Clone, Debug)]
struct Common {
    groups: u32,
    cluster: String,
    /// None as long as no part has one: the leader of a new group may not know it yet.
    cluster_id: Option<ClusterId>,
    epoch: Option<MapEpoch>,
}

impl PartsCheck {
    /// Reads the header of the next part, and returns the bytes behind it.
    pub fn read_header<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(BackupHeader, &'a [u8]), BackupError> {
        if self.parts > 0 && bytes.len() < MAGIC.len() {
            self.end()?;
        }
        let (header, rest) = BackupHeader::decode(bytes).map_err(|error| match error {
            BackupError::Foreign | BackupError::UnknownVersion { .. } if self.parts > 0 => {
                BackupError::Damaged("something else is where its next group should be")
            }
            error => error,
        })?;
        self.take(&header)?;
        Ok((header, rest))
    }

    /// Whether the last part that was taken is the last one of the file.
    pub fn is_complete(&self) -> bool {
        self.common.as_ref().is_some_and(|common| common.groups == self.parts)
    }

    /// All parts were taken: are they all groups?
    pub fn end(&self) -> Result<(), BackupError> {
        match &self.common {
            Some(Common { groups, .. }) if *groups > self.parts => {
                Err(BackupError::GroupsMissing { found: self.parts, groups: *groups })
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, header: &BackupHeader) -> Result<(), BackupError> {
        let BackupHeader { cluster, cluster_id, group, share, .. } = header;
        let groups = share.as_ref().map_or(1, |share| share.groups);
        let epoch = share.as_ref().map(|share| share.epoch);
        let (cluster, cluster_id) = (cluster.clone(), *cluster_id);
        let first = || Common { groups, cluster: cluster.clone(), cluster_id, epoch };
        let common = self.common.get_or_insert_with(first);
        common.cluster_id = common.cluster_id.or(cluster_id);
        let is_same_id = cluster_id.is_none() || common.cluster_id == cluster_id;
        let is_alike = (common.groups, &common.cluster, common.epoch) == (groups, &cluster, epoch);
        if !is_same_id || !is_alike {
            return Err(BackupError::Unrelated { group: *group });
        }
        self.parts += 1;
        let Some(share) = share else {
            // Another one is refused, as more than there is room for.
            return Ok(());
        };
        self.take_slots(*group, share)
    }

    fn take_slots(&mut self, group: GroupId, share: &GroupShare) -> Result<(), BackupError> {
        let expected = GroupId(self.parts);
        if group != expected {
            return Err(BackupError::GroupsOutOfOrder { expected, found: group });
        }
        let owned = self.owned.get_or_insert_with(SlotSet::empty);
        if let Some(slot) = share.slots.iter().find(|slot| owned.contains(*slot)) {
            return Err(BackupError::SlotOwnedTwice { slot, group });
        }
        owned.extend(share.slots.iter());
        if self.parts < share.groups {
            return Ok(());
        }
        let owned = &*owned;
        let slots = (0..SLOTS).filter_map(Slot::new);
        match slots.into_iter().find(|slot| !owned.contains(*slot)) {
            Some(slot) => Err(BackupError::SlotWithoutOwner { slot }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::LogicalTime;
    use proptest::prelude::*;

    use super::*;

    /// A part of a cluster with equal shares.
    fn header(group: u32, groups: u32, body: &[u8]) -> BackupHeader {
        let mut check = BodyCheck::default();
        check.take(body);
        let owner = |slot: u16| 1 + u32::from(slot) * groups / u32::from(SLOTS);
        let slots = (0..SLOTS).filter(|slot| owner(*slot) == group).filter_map(Slot::new);
        BackupHeader {
            cluster: "prod".into(),
            cluster_id: Some(ClusterId([7; 16])),
            group: GroupId(group),
            index: 40 + u64::from(group),
            term: 3,
            logical_time: LogicalTime::from_ms(7),
            created_unix_ms: 1_790_000_000_000,
            made_by: "0.2.0".into(),
            body_bytes: check.bytes(),
            body_crc32c: check.crc32c(),
            share: (groups > 1).then(|| GroupShare {
                groups,
                epoch: MapEpoch(1),
                slots: slots.collect(),
            }),
        }
    }

    fn body_of(group: u32) -> Vec<u8> {
        format!("the body of group {group}").into_bytes()
    }

    fn part(group: u32, groups: u32, change: impl Fn(&mut BackupHeader)) -> Vec<u8> {
        let mut header = header(group, groups, &body_of(group));
        change(&mut header);
        [header.encode(), body_of(group)].concat()
    }

    fn file(groups: u32) -> Vec<u8> {
        (1..=groups).flat_map(|group| part(group, groups, |_| {})).collect()
    }

    fn refusal(bytes: &[u8]) -> BackupError {
        read_parts(bytes).unwrap_err()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn all_groups_are_read_back_as_written(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..=64),
        ) {
            let groups = bodies.len() as u32;
            let headers: Vec<BackupHeader> =
                (1..).zip(&bodies).map(|(group, body)| header(group, groups, body)).collect();
            let parts = headers.iter().zip(&bodies);
            let bytes: Vec<u8> =
                parts.flat_map(|(header, body)| [header.encode(), body.clone()].concat()).collect();
            let read = read_parts(&bytes).unwrap();
            prop_assert_eq!(read.len(), bodies.len());
            for ((part, header), body) in read.iter().zip(&headers).zip(&bodies) {
                prop_assert_eq!((&part.header, part.body), (header, &body[..]));
            }
        }
    }

    #[test]
    fn a_file_of_several_groups_is_refused_by_a_build_that_knows_one() {
        // Those builds read the magic and the version before everything else, and refuse all but version 1.
        assert_eq!(file(1)[..12], *b"HFBACKUP\x01\0\0\0");
        assert_eq!(file(2)[..12], *b"HFBACKUP\x02\0\0\0");
    }

    #[test]
    fn a_file_that_ends_anywhere_too_early_is_refused() {
        let good = file(3);
        for length in 0..good.len() {
            assert!(read_parts(&good[..length]).is_err(), "{length} of {} bytes", good.len());
        }
        let words = refusal(&[part(1, 3, |_| {}), part(2, 3, |_| {})].concat()).to_string();
        assert_eq!(words, "it ends too early: 2 of 3 groups are there");
    }

    #[test]
    fn every_changed_byte_of_a_file_is_detected() {
        let good = file(3);
        assert_eq!(read_parts(&good).unwrap().len(), 3);
        for at in 0..good.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(read_parts(&bad).is_err(), "byte {at} with {flip:#x}");
            }
        }
    }

    #[test]
    fn a_file_with_more_than_its_groups_is_refused() {
        for more in [vec![0], part(1, 1, |_| {}), part(3, 3, |_| {})] {
            for groups in [1, 3] {
                let longer = [file(groups), more.clone()].concat();
                assert!(matches!(refusal(&longer), BackupError::Damaged(_)), "{groups} groups");
            }
        }
    }

    #[test]
    fn a_group_that_is_missing_doubled_or_in_the_wrong_place_is_refused() {
        let parts = |order: &[u32]| -> Vec<u8> {
            order.iter().flat_map(|group| part(*group, 3, |_| {})).collect()
        };
        for (order, expected, found) in
            [(&[1, 3][..], 2, 3), (&[1, 1, 2, 3], 2, 1), (&[1, 3, 2], 2, 3), (&[2, 3, 1], 1, 2)]
        {
            let (expected, found) = (GroupId(expected), GroupId(found));
            let refused = BackupError::GroupsOutOfOrder { expected, found };
            assert_eq!(refusal(&parts(order)), refused, "{order:?}");
        }
        let one_of_one = [part(1, 3, |_| {}), part(1, 1, |_| {}), part(3, 3, |_| {})].concat();
        assert_eq!(refusal(&one_of_one), BackupError::Unrelated { group: GroupId(1) });
    }

    #[test]
    fn groups_of_different_clusters_or_maps_are_refused() {
        let changes: [fn(&mut BackupHeader); 4] = [
            |header| header.cluster = "test".into(),
            |header| header.cluster_id = Some(ClusterId([8; 16])),
            |header| header.share.as_mut().unwrap().groups = 4,
            |header| header.share.as_mut().unwrap().epoch = MapEpoch(2),
        ];
        for change in changes {
            let bytes = [part(1, 3, |_| {}), part(2, 3, change), part(3, 3, |_| {})].concat();
            assert_eq!(refusal(&bytes), BackupError::Unrelated { group: GroupId(2) });
        }
    }

    #[test]
    fn a_group_whose_leader_does_not_know_the_cluster_id_yet_belongs_to_the_others() {
        let part = |group, id: Option<u8>| {
            part(group, 3, |header| header.cluster_id = id.map(|id| ClusterId([id; 16])))
        };
        let read = |ids: [Option<u8>; 3]| {
            let bytes: Vec<u8> = (1..).zip(ids).flat_map(|(group, id)| part(group, id)).collect();
            read_parts(&bytes).map(|parts| parts.len())
        };
        for ids in [[None, Some(7), Some(7)], [Some(7), None, Some(7)], [None; 3]] {
            assert_eq!(read(ids), Ok(3), "{ids:?}");
        }
        let unrelated = Err(BackupError::Unrelated { group: GroupId(3) });
        assert_eq!(read([Some(7), None, Some(8)]), unrelated);
    }

    #[test]
    fn a_slot_of_two_groups_or_of_none_is_refused() {
        let slot = Slot::of("wallet");
        let owner = (1..=3)
            .find(|group| header(*group, 3, b"").share.unwrap().slots.contains(slot))
            .unwrap();
        let with = |change: &dyn Fn(u32, &mut SlotSet)| -> Vec<u8> {
            let parts = (1..=3).flat_map(|group| {
                part(group, 3, |header| change(group, &mut header.share.as_mut().unwrap().slots))
            });
            parts.collect()
        };
        let lost = with(&|_, slots| slots.remove(slot));
        assert_eq!(refusal(&lost), BackupError::SlotWithoutOwner { slot });
        let doubled = with(&|_, slots| slots.extend([slot]));
        let group = GroupId(2);
        assert_eq!(refusal(&doubled), BackupError::SlotOwnedTwice { slot, group });
        let moved = with(&|group, slots| match group == 1 + owner % 3 {
            true => slots.extend([slot]),
            false => slots.remove(slot),
        });
        assert_eq!(read_parts(&moved).unwrap().len(), 3);
    }
}
