//! Which group owns which slots, and where each group is led: what a client learns from the welcome.
//!
//! A map gives each slot to exactly one group. A message that does not is refused, so that no request is sent by it.

use std::collections::BTreeMap;

use holdfast_core::{MapEpoch, SLOTS, Slot, SlotSet};

use crate::v1;

/// How many groups a cluster can have.
pub const GROUPS_MAX: u32 = 64;

/// A [`v1::GroupMap`] that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMap {
    epoch: MapEpoch,
    /// The owner of each slot.
    owners: Box<[u32]>,
    /// The client address of each group's leader; empty if it is not known.
    leaders: BTreeMap<u32, String>,
}

/// The message is no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGroupMap {
    #[error("group {0} is not one of 1 to {GROUPS_MAX}")]
    NoSuchGroup(u32),
    #[error("group {0} is in the map twice, or not in the order of the numbers")]
    GroupsOutOfOrder(u32),
    #[error("a run of {count} slots that begins at slot {first} is not within the {SLOTS} slots")]
    NoSuchSlots { first: u32, count: u32 },
    #[error("slot {0} is owned by two groups")]
    OwnedTwice(u16),
    #[error("slot {0} is owned by no group")]
    NotOwned(u16),
}

impl GroupMap {
    /// Of a cluster with one group.
    pub fn of_one_group(leader: String) -> GroupMap {
        GroupMap {
            epoch: MapEpoch::default(),
            owners: vec![1; usize::from(SLOTS)].into_boxed_slice(),
            leaders: BTreeMap::from([(1, leader)]),
        }
    }

    /// So many groups, 1 to [`GROUPS_MAX`], with consecutive slots each. The numbers of their slots differ by one at most.
    pub fn with_equal_shares(epoch: MapEpoch, groups: u32) -> GroupMap {
        let groups = groups.clamp(1, GROUPS_MAX);
        let owner = |slot: u16| 1 + u32::from(slot) * groups / u32::from(SLOTS);
        let owners = (0..SLOTS).map(owner).collect();
        let leaders = (1..=groups).map(|group| (group, String::new())).collect();
        GroupMap { epoch, owners, leaders }
    }

    /// Each group with its leader's client address and its slots.
    pub fn new<'a>(
        epoch: MapEpoch,
        groups: impl IntoIterator<Item = (u32, String, &'a SlotSet)>,
    ) -> Result<GroupMap, InvalidGroupMap> {
        let groups = groups.into_iter().map(|(group, leader, slots)| v1::GroupRoute {
            group,
            leader,
            slots: runs(slots),
        });
        GroupMap::decode(v1::GroupMap { epoch: epoch.0, groups: groups.collect() })
    }

    pub fn decode(message: v1::GroupMap) -> Result<GroupMap, InvalidGroupMap> {
        let mut owners = vec![0_u32; usize::from(SLOTS)].into_boxed_slice();
        let mut leaders = BTreeMap::new();
        let mut last = 0;
        for v1::GroupRoute { group, leader, slots } in message.groups {
            if group == 0 || group > GROUPS_MAX {
                return Err(InvalidGroupMap::NoSuchGroup(group));
            }
            if group <= last {
                return Err(InvalidGroupMap::GroupsOutOfOrder(group));
            }
            last = group;
            for v1::SlotRun { first, count } in slots {
                let no_such_slots = || InvalidGroupMap::NoSuchSlots { first, count };
                let end = first.checked_add(count).filter(|end| *end <= u32::from(SLOTS));
                let end = end.filter(|_| count > 0).ok_or_else(no_such_slots)?;
                for (number, owner) in
                    (first as u16..).zip(&mut owners[first as usize..end as usize])
                {
                    if *owner != 0 {
                        return Err(InvalidGroupMap::OwnedTwice(number));
                    }
                    *owner = group;
                }
            }
            leaders.insert(group, leader);
        }
        match (0..SLOTS).zip(&*owners).find(|(_, owner)| **owner == 0) {
            Some((number, _)) => Err(InvalidGroupMap::NotOwned(number)),
            None => Ok(GroupMap { epoch: MapEpoch(message.epoch), owners, leaders }),
        }
    }

    pub fn encode(&self) -> v1::GroupMap {
        let groups = self.leaders.iter().map(|(group, leader)| {
            let leader = leader.clone();
            v1::GroupRoute { group: *group, leader, slots: runs(&self.slots_of(*group)) }
        });
        v1::GroupMap { epoch: self.epoch.0, groups: groups.collect() }
    }

    /// The same map with other leaders.
    pub fn encode_with_leaders(&self, leader_of: impl Fn(u32) -> String) -> v1::GroupMap {
        let mut message = self.encode();
        for route in &mut message.groups {
            route.leader = leader_of(route.group);
        }
        message
    }

    pub fn epoch(&self) -> MapEpoch {
        self.epoch
    }

    /// The groups, in the order of their numbers.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.leaders.keys().copied()
    }

    /// The group that owns the slot.
    pub fn owner_of(&self, slot: Slot) -> u32 {
        self.owners[usize::from(slot.number())]
    }

    pub fn slots_of(&self, group: u32) -> SlotSet {
        let slots = (0..SLOTS).filter_map(Slot::new);
        slots.filter(|slot| self.owner_of(*slot) == group).collect()
    }

    /// The client address of the group's leader; empty if it is not known.
    pub fn leader_of(&self, group: u32) -> &str {
        self.leaders.get(&group).map_or("", String::as_str)
    }
}

/// No two runs touch.
fn runs(slots: &SlotSet) -> Vec<v1::SlotRun> {
    let mut runs: Vec<v1::SlotRun> = Vec::new();
    for slot in slots.iter() {
        let number = u32::from(slot.number());
        match runs.last_mut() {
            Some(run) if run.first + run.count == number => run.count += 1,
            _ => runs.push(v1::SlotRun { first: number, count: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn run(first: u32, count: u32) -> v1::SlotRun {
        v1::SlotRun { first, count }
    }

    fn map(groups: &[(u32, &[v1::SlotRun])]) -> v1::GroupMap {
        let groups = groups.iter().map(|(group, slots)| v1::GroupRoute {
            group: *group,
            leader: format!("node-{group}:1"),
            slots: slots.to_vec(),
        });
        v1::GroupMap { epoch: 5, groups: groups.collect() }
    }

    #[test]
    fn a_map_gives_each_slot_to_its_group() {
        let message = map(&[(1, &[run(0, 100), run(200, 3896)]), (64, &[run(100, 100)])]);
        let decoded = GroupMap::decode(message.clone()).unwrap();
        let owner = |number| decoded.owner_of(Slot::new(number).unwrap());
        assert_eq!([owner(0), owner(99), owner(100), owner(199), owner(4095)], [1, 1, 64, 64, 1]);
        assert_eq!(decoded.epoch(), MapEpoch(5));
        assert_eq!((decoded.leader_of(64), decoded.leader_of(2)), ("node-64:1", ""));
        assert_eq!(decoded.groups().collect::<Vec<_>>(), [1, 64]);
        assert_eq!(decoded.slots_of(64).len(), 100);
        assert_eq!(decoded.encode(), message);
        let moved = decoded.encode_with_leaders(|group| format!("{group}"));
        assert_eq!(moved.groups[1].leader, "64");
    }

    #[test]
    fn a_map_that_is_not_complete_is_refused() {
        use InvalidGroupMap as Invalid;
        type Groups<'a> = &'a [(u32, &'a [v1::SlotRun])];
        let cases: [(Groups<'_>, Invalid); 9] = [
            (&[], Invalid::NotOwned(0)),
            (&[(1, &[run(0, 4095)])], Invalid::NotOwned(4095)),
            (&[(0, &[run(0, 4096)])], Invalid::NoSuchGroup(0)),
            (&[(65, &[run(0, 4096)])], Invalid::NoSuchGroup(65)),
            (&[(2, &[run(0, 4096)]), (1, &[])], Invalid::GroupsOutOfOrder(1)),
            (&[(1, &[run(0, 4096)]), (1, &[])], Invalid::GroupsOutOfOrder(1)),
            (&[(1, &[run(0, 4096)]), (2, &[run(7, 1)])], Invalid::OwnedTwice(7)),
            (&[(1, &[run(0, 4097)])], Invalid::NoSuchSlots { first: 0, count: 4097 }),
            (&[(1, &[run(u32::MAX, 2)])], Invalid::NoSuchSlots { first: u32::MAX, count: 2 }),
        ];
        for (groups, refusal) in cases {
            assert_eq!(GroupMap::decode(map(groups)), Err(refusal));
        }
        let empty_run = map(&[(1, &[run(0, 4096), run(9, 0)])]);
        let refusal = Invalid::NoSuchSlots { first: 9, count: 0 };
        assert_eq!(GroupMap::decode(empty_run), Err(refusal));
    }

    #[test]
    fn equal_shares_cover_all_slots_and_differ_by_one_slot_at_most() {
        for count in [1, 2, 3, 16, 63, 64] {
            let map = GroupMap::with_equal_shares(MapEpoch(1), count);
            assert_eq!(GroupMap::decode(map.encode()), Ok(map.clone()));
            assert_eq!(map.groups().len(), count as usize);
            let sizes: Vec<usize> = map.groups().map(|group| map.slots_of(group).len()).collect();
            assert_eq!(sizes.iter().sum::<usize>(), usize::from(SLOTS));
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 1, "{sizes:?}");
        }
    }

    #[test]
    fn one_group_owns_all_slots() {
        let map = GroupMap::of_one_group("a:1".into());
        assert!(map.slots_of(1).is_all());
        assert_eq!(GroupMap::decode(map.encode()), Ok(map));
    }

    #[test]
    fn a_map_of_64_groups_is_small() {
        let share = u32::from(SLOTS) / GROUPS_MAX;
        let slots = |group: u32| -> SlotSet {
            let first = (group - 1) * share;
            (first..first + share).filter_map(|number| Slot::new(number as u16)).collect()
        };
        let slots: Vec<SlotSet> = (1..=GROUPS_MAX).map(slots).collect();
        let leader = || "node-2.example.test:7400".to_owned();
        let groups = (1..).zip(&slots).map(|(group, slots)| (group, leader(), slots));
        let map = GroupMap::new(MapEpoch(1), groups).unwrap();
        assert!(map.encode().encoded_len() < 3_000, "{}", map.encode().encoded_len());
    }
}
