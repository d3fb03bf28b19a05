//! The slots of each group, and a controller that takes some of them from a group and gives them back: what moves of
//! slots between groups will do. No group serves the locks meanwhile.

use holdfast_core::{Command, MapEpoch, SLOTS, Slot, SlotSet};
use holdfast_replica::{GroupId, found_group};

use crate::fault::Undo;
use crate::history::RealTime;
use crate::names::Names;
use crate::node::Incoming;
use crate::recorder::place;
use crate::world::{Due, World};

/// How often it looks whether slots are missing that should not be.
const MEND_US: u64 = 2_000_000;
/// So many of the names are in slots that are taken.
const TAKEN_PERCENT: u64 = 40;
/// The epoch of groups that are founded beside others.
const FOUNDING_EPOCH: MapEpoch = MapEpoch(1);

#[derive(Debug, Default)]
pub(crate) struct SlotController {
    /// It has begun, and looks after the slots.
    is_at_work: bool,
    /// Faults that have taken slots and are not over.
    takings: usize,
}

/// Which slots each group has, as long as none are taken.
#[derive(Debug)]
pub(crate) struct SlotMap {
    groups: Vec<SlotSet>,
}

impl SlotMap {
    /// The names of session `n` are in group `n % groups + 1`. The other slots are divided evenly.
    pub(crate) fn new<'a>(
        groups: usize,
        names_of_sessions: impl Iterator<Item = &'a Names>,
    ) -> SlotMap {
        let mut owners: Vec<usize> = (0..usize::from(SLOTS)).map(|slot| slot % groups).collect();
        for (session, names) in names_of_sessions.enumerate() {
            for name in names.in_own_group() {
                owners[usize::from(Slot::of(name).number())] = session % groups;
            }
        }
        let slots_of = |group: usize| {
            let owned = (0..SLOTS).filter(|slot| owners[usize::from(*slot)] == group);
            owned.filter_map(Slot::new).collect()
        };
        SlotMap { groups: (0..groups).map(slots_of).collect() }
    }

    pub(crate) fn slots(&self, group: GroupId) -> &SlotSet {
        &self.groups[place(group)]
    }
}

impl World {
    /// A single group begins with an empty log, and owns all slots. Several groups begin with their shares.
    pub(crate) fn found_groups(&mut self) {
        if self.plan.settings.groups == 1 {
            return;
        }
        let voters: Vec<_> = self.nodes.iter().map(|node| node.id).collect();
        let mut founded = Vec::new();
        for group in self.groups() {
            let slots = self.slot_map.slots(group).clone();
            founded.push((group, found_group(&voters, FOUNDING_EPOCH, slots.clone())));
            self.recorder.of(group).history.founding = Some((FOUNDING_EPOCH, slots));
        }
        for node in &mut self.nodes {
            if let Err(why) = node.init_data_dir(&founded) {
                self.recorder.violation("recovery", why);
            }
        }
    }

    pub(crate) fn take_slots(&mut self) -> Option<Undo> {
        let group = self.any_group();
        let controller = &mut self.slot_controllers[place(group)];
        if !std::mem::replace(&mut controller.is_at_work, true) {
            self.agenda.plan(RealTime(self.now.0 + MEND_US), Due::MendSlots(group));
        }
        let mut slots = self.slot_map.slots(group).clone();
        for name in self.names_of(group) {
            if self.fault_rng.percent(TAKEN_PERCENT) {
                slots.remove(Slot::of(&name));
            }
        }
        // Now and then it has an old map: the group refuses it.
        let rise = self.fault_rng.below(4);
        self.set_ownership(group, slots, rise)?;
        self.slot_controllers[place(group)].takings += 1;
        Some(Undo::GiveSlotsBack(group))
    }

    fn names_of(&self, group: GroupId) -> Vec<holdfast_core::LockName> {
        let mut sessions = self.clients.iter().filter(|client| client.group == group).peekable();
        let shared = sessions.peek().map(|client| client.names());
        let shared = shared.into_iter().flat_map(|names| {
            names.plain.iter().chain(&names.mixed).chain(&names.semaphores).cloned()
        });
        let shared: Vec<_> = shared.collect();
        shared.into_iter().chain(sessions.map(|client| client.names().own.clone())).collect()
    }

    pub(crate) fn give_slots_back(&mut self, group: GroupId) {
        let controller = &mut self.slot_controllers[place(group)];
        controller.takings = controller.takings.saturating_sub(1);
    }

    /// Gives all slots back if none is meant to be missing. A leader may have been lost with the command before.
    pub(crate) fn mend_slots(&mut self, group: GroupId) {
        self.agenda.plan(RealTime(self.now.0 + MEND_US), Due::MendSlots(group));
        let leader = self.leader(group).and_then(|leader| self.nodes[leader].replica(group));
        let Some(table) = leader.map(|replica| replica.table()) else { return };
        let wanted = self.slot_map.slots(group);
        let has_taken = self.slot_controllers[place(group)].takings > 0;
        if !has_taken && table.ownership().slots() != wanted {
            self.set_ownership(group, wanted.clone(), 1);
        }
    }

    /// As of an epoch that is so much higher than the leader's.
    fn set_ownership(&mut self, group: GroupId, slots: SlotSet, rise: u64) -> Option<()> {
        let leader = self.leader(group)?;
        let epoch = self.nodes[leader].replica(group)?.table().ownership().epoch();
        let epoch = MapEpoch(epoch.0 + rise);
        self.trace.line(self.now, || {
            format!("controller: group {group} gets {} slots at {epoch}", slots.len())
        });
        let command = Box::new(Command::SetOwnership { epoch, slots });
        let after = self.fault_rng.between(200, 50_000);
        self.schedule_input(leader, Incoming::Administer { group, command }, after);
        Some(())
    }
}
