//! A controller that takes slots from the group, and gives them back: what a slot map with several groups will do. There
//! is one group, so no group serves the locks meanwhile.

use holdfast_core::{Command, LockName, MapEpoch, Slot, SlotSet};

use crate::fault::Undo;
use crate::history::RealTime;
use crate::names::Names;
use crate::node::Incoming;
use crate::world::{Due, World};

/// How often it looks whether slots are missing that should not be.
const MEND_US: u64 = 2_000_000;
/// So many of the names are in slots that are taken.
const TAKEN_PERCENT: u64 = 40;

#[derive(Debug, Default)]
pub(crate) struct SlotController {
    /// It has begun, and looks after the slots.
    is_at_work: bool,
    /// Faults that have taken slots and are not over.
    takings: usize,
}

impl World {
    pub(crate) fn take_slots(&mut self) -> Option<Undo> {
        if !std::mem::replace(&mut self.slot_controller.is_at_work, true) {
            self.agenda.plan(RealTime(self.now.0 + MEND_US), Due::MendSlots);
        }
        let mut slots = SlotSet::ALL;
        for name in self.all_names() {
            if self.fault_rng.percent(TAKEN_PERCENT) {
                slots.remove(Slot::of(&name));
            }
        }
        // Now and then it has an old map: the group refuses it.
        let rise = self.fault_rng.below(4);
        self.set_ownership(slots, rise)?;
        self.slot_controller.takings += 1;
        Some(Undo::GiveSlotsBack)
    }

    fn all_names(&self) -> Vec<LockName> {
        let [plain, mixed, semaphores] = self.plan.names;
        let of_client = |client| Names::new(client, plain, mixed, semaphores);
        let Names { plain, mixed, semaphores, .. } = of_client(0);
        let own = (0..self.clients.len()).map(|client| of_client(client).own);
        plain.into_iter().chain(mixed).chain(semaphores).chain(own).collect()
    }

    pub(crate) fn give_slots_back(&mut self) {
        self.slot_controller.takings = self.slot_controller.takings.saturating_sub(1);
    }

    /// Gives all slots back if none is meant to be missing. A leader may have been lost with the command before.
    pub(crate) fn mend_slots(&mut self) {
        self.agenda.plan(RealTime(self.now.0 + MEND_US), Due::MendSlots);
        let leader = self.leader().and_then(|leader| self.nodes[leader].replica());
        let Some(table) = leader.map(|replica| replica.table()) else { return };
        if self.slot_controller.takings == 0 && !table.ownership().slots().is_all() {
            self.set_ownership(SlotSet::ALL, 1);
        }
    }

    /// As of an epoch that is so much higher than the leader's.
    fn set_ownership(&mut self, slots: SlotSet, rise: u64) -> Option<()> {
        let leader = self.leader()?;
        let epoch = self.nodes[leader].replica()?.table().ownership().epoch();
        let epoch = MapEpoch(epoch.0 + rise);
        self.trace.line(self.now, || format!("controller: {} slots at {epoch}", slots.len()));
        let command = Command::SetOwnership { epoch, slots };
        let after = self.fault_rng.between(200, 50_000);
        self.schedule_input(leader, Incoming::Administer(Box::new(command)), after);
        Some(())
    }
}
