//! The founding of a group that owns some of the slots.
//!
//! A group whose log begins empty owns all slots at epoch 0. So a group beside others begins with a snapshot: its table
//! owns its slots from the beginning. All founders write the same bytes, as if all of them had applied one entry.

use holdfast_core::{
    Command, Limits, LockTable, LogIndex, LogicalTime, MapEpoch, RulesVersion, SlotSet,
};

use crate::id::NodeId;
use crate::log_store::{Durable, HardState, SnapshotFile};
use crate::membership::Membership;
use crate::snapshot_body;

/// The entry that the snapshot stands for.
pub const FOUNDING_INDEX: u64 = 1;
/// Its term.
const FOUNDING_TERM: u64 = 1;

/// What each founder of a group has on its disk. The epoch is above 0: epoch 0 means all slots.
pub fn found_group(voters: &[NodeId], epoch: MapEpoch, slots: SlotSet) -> SnapshotFile {
    let (index, term) = (FOUNDING_INDEX, FOUNDING_TERM);
    let mut table = LockTable::new(Limits::default());
    let mut events = Vec::new();
    for command in [
        Command::AdoptRules { version: RulesVersion::SEVEN },
        Command::SetOwnership { epoch, slots },
    ] {
        table.apply(LogIndex(index), LogicalTime::ZERO, command, &mut events);
    }
    let data = snapshot_body::encode(&Membership::founded_by(voters), &table);
    SnapshotFile { index, term, data }
}

impl Durable {
    /// Of a node that has this snapshot and nothing else.
    pub fn of_snapshot(snapshot: SnapshotFile) -> Durable {
        let hard_state = HardState { term: snapshot.term, vote: 0, commit: snapshot.index };
        Durable { hard_state, snapshot: Some(snapshot), entries: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::Slot;

    use super::*;
    use crate::restore::read_snapshot;

    #[test]
    fn a_founded_group_owns_its_slots_and_no_others() {
        let slots: SlotSet = (7..9).filter_map(Slot::new).collect();
        let voters = [1, 2, 3].map(NodeId);
        let founded = found_group(&voters, MapEpoch(1), slots.clone());
        assert_eq!(founded, found_group(&voters, MapEpoch(1), slots.clone()), "the same bytes");
        let (membership, table) = read_snapshot(&founded.data).unwrap();
        assert_eq!(membership, Membership::founded_by(&voters));
        assert_eq!((table.ownership().epoch(), table.ownership().slots()), (MapEpoch(1), &slots));
        assert_eq!(table.rules(), RulesVersion::SEVEN);
    }
}
