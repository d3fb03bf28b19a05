//! Which slots the table may grant in.

use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::name::LockName;
use crate::model::slot::{MapEpoch, Slot, SlotSet};

/// The slots of this table's group, as of an epoch of the map. A table whose log says nothing of it owns all slots, at
/// epoch 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub(crate) epoch: MapEpoch,
    pub(crate) slots: SlotSet,
}

impl Ownership {
    pub fn epoch(&self) -> MapEpoch {
        self.epoch
    }

    pub fn slots(&self) -> &SlotSet {
        &self.slots
    }

    /// Whether the name is in one of the slots.
    pub fn covers(&self, name: &LockName) -> bool {
        if self.slots.is_all() {
            return true;
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::GrantWithoutOwnership.is_active() {
            return true;
        }
        self.slots.contains(Slot::of(name))
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.varint(self.epoch.0);
        self.slots.write(sink);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Ownership, DecodeError> {
        Ok(Ownership { epoch: MapEpoch(reader.varint()?), slots: SlotSet::read(reader)? })
    }
}
