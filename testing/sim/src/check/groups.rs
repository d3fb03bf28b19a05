//! What has to hold over all groups together: no name is held in two groups at one moment, no slot is owned by two
//! groups at one moment, and the epoch of a group never goes back.
//!
//! Moments are those at which the first replica applied an entry.

use std::collections::BTreeMap;

use holdfast_core::{Event, LockName, MapEpoch, SlotSet};

use super::evidence::Evidence;
use super::findings::{At, Findings};
use super::holders::Holders;
use crate::history::{History, RealTime, Violation};

/// From one moment to another.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: RealTime,
    to: RealTime,
}

impl Interval {
    /// When both have begun and none has ended.
    fn overlap(self, other: Interval) -> Option<RealTime> {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        (from < to).then_some(from)
    }
}

/// The histories of all groups of one run, in the order of the groups.
pub fn check(histories: &[History]) -> Vec<Violation> {
    let mut findings = Findings::of("groups");
    // One group is judged by the other checkers.
    if histories.len() < 2 {
        return findings.into_violations();
    }
    let evidence: Vec<Evidence<'_>> = histories.iter().map(Evidence::of).collect();
    let held: Vec<_> = evidence.iter().map(held).collect();
    let owned: Vec<_> = evidence.iter().map(|it| owned(it, &mut findings)).collect();
    for second in 0..histories.len() {
        for first in 0..second {
            check_names(first, second, &held, &mut findings);
            check_slots(first, second, &owned, &mut findings);
        }
    }
    findings.into_violations()
}

/// When each name was held.
fn held<'a>(history: &'a Evidence<'_>) -> BTreeMap<&'a LockName, Vec<Interval>> {
    let mut holders = Holders::default();
    let mut since: BTreeMap<&LockName, RealTime> = BTreeMap::new();
    let mut held: BTreeMap<&LockName, Vec<Interval>> = BTreeMap::new();
    for entry in history.log() {
        for event in &entry.events {
            holders.follow(event);
            match event {
                Event::Granted { name, .. } => {
                    since.entry(name).or_insert(entry.first_applied);
                }
                Event::Released { name, .. } | Event::HoldEnded { name, .. }
                    if holders.of(name).is_empty() =>
                {
                    if let Some(from) = since.remove(name) {
                        let to = entry.first_applied;
                        held.entry(name).or_default().push(Interval { from, to });
                    }
                }
                _ => {}
            }
        }
    }
    for (name, from) in since {
        held.entry(name).or_default().push(Interval { from, to: history.end });
    }
    held
}

/// Which slots the group owned, and when.
fn owned(history: &Evidence<'_>, findings: &mut Findings) -> Vec<(Interval, SlotSet)> {
    let mut owned: Vec<(Interval, SlotSet)> = Vec::new();
    let mut epoch = MapEpoch(0);
    let always = Interval { from: RealTime(0), to: history.end };
    match &history.founding {
        Some((founded, slots)) => {
            epoch = *founded;
            owned.push((always, slots.clone()));
        }
        None => owned.push((always, SlotSet::ALL)),
    }
    for entry in history.log() {
        for event in &entry.events {
            let Event::OwnershipChanged { epoch: next, slots } = event else { continue };
            if *next <= epoch {
                let index = entry.index.0;
                findings.add(format!("the epoch of a group is {next} at {index}, after {epoch}"));
            }
            epoch = *next;
            if let Some((before, _)) = owned.last_mut() {
                before.to = entry.first_applied;
            }
            let from = entry.first_applied;
            owned.push((Interval { from, to: history.end }, slots.clone()));
        }
    }
    owned
}

fn check_names(
    first: usize,
    second: usize,
    held: &[BTreeMap<&LockName, Vec<Interval>>],
    findings: &mut Findings,
) {
    for (name, here) in &held[first] {
        let there = held[second].get(name).into_iter().flatten();
        for there in there {
            for at in here.iter().filter_map(|here| here.overlap(*there)) {
                let (first, second) = (first + 1, second + 1);
                findings.add(format!(
                    "{name} is held in group {first} and in group {second} at {}",
                    At(at)
                ));
            }
        }
    }
}

fn check_slots(
    first: usize,
    second: usize,
    owned: &[Vec<(Interval, SlotSet)>],
    findings: &mut Findings,
) {
    for (when, slots) in &owned[first] {
        for (then, others) in &owned[second] {
            let Some(at) = when.overlap(*then) else { continue };
            if let Some(slot) = slots.iter().find(|slot| others.contains(*slot)) {
                let (first, second) = (first + 1, second + 1);
                findings.add(format!(
                    "slot {slot} is owned by group {first} and by group {second} at {}",
                    At(at)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::Slot;

    use super::*;
    use crate::check::test_history::*;

    fn founded(slots: [u16; 2]) -> TestHistory {
        let mut history = TestHistory::default();
        let slots = slots.into_iter().filter_map(Slot::new).collect();
        history.history.founding = Some((MapEpoch(1), slots));
        history.history.end = ms(1_000);
        history
    }

    fn found(first: &TestHistory, second: &TestHistory) -> usize {
        check(&[first.history.clone(), second.history.clone()]).len()
    }

    #[test]
    fn a_name_that_is_held_in_two_groups_at_one_moment_is_found() {
        for (index, expected) in [(15, 1), (25, 0)] {
            let (mut first, mut second) = (founded([1, 2]), founded([3, 4]));
            first.log(10, [granted("a", 1, 1, 1)]);
            first.log(20, [released("a", 1, 1, 1)]);
            second.log(index, [granted("a", 2, 1, 1)]);
            assert_eq!(found(&first, &second), expected, "granted at {index}");
        }
    }

    #[test]
    fn a_name_with_two_holders_is_held_until_both_have_released_it() {
        let (mut first, mut second) = (founded([1, 2]), founded([3, 4]));
        first.log(10, [granted("a", 1, 1, 1), granted("a", 2, 1, 1)]);
        first.log(20, [released("a", 1, 1, 1)]);
        second.log(25, [granted("a", 3, 1, 1)]);
        second.log(27, [released("a", 3, 1, 1)]);
        first.log(30, [released("a", 2, 1, 1)]);
        assert_eq!(found(&first, &second), 1);
    }

    #[test]
    fn a_slot_of_two_groups_at_one_moment_is_found() {
        let gets = |slot| Event::OwnershipChanged {
            epoch: MapEpoch(2),
            slots: [slot].into_iter().filter_map(Slot::new).collect(),
        };
        for (index, expected) in [(5, 1), (15, 0)] {
            let (mut first, mut second) = (founded([1, 2]), founded([3, 4]));
            first.log(10, [gets(1)]);
            second.log(index, [gets(2)]);
            assert_eq!(found(&first, &second), expected, "given at {index}");
        }
    }

    #[test]
    fn an_epoch_that_goes_back_is_found() {
        for (epoch, expected) in [(2, 0), (1, 1)] {
            let (mut first, second) = (founded([1, 2]), founded([3, 4]));
            let slots = [1].into_iter().filter_map(Slot::new).collect();
            first.log(10, [Event::OwnershipChanged { epoch: MapEpoch(epoch), slots }]);
            assert_eq!(found(&first, &second), expected, "{epoch}");
        }
    }
}
