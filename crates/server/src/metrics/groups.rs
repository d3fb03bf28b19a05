//! What a node counts and measures of each group.

use holdfast_replica::{Leadership, Replica};

/// Holds that began in a group since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupGrants {
    /// As far as this node has applied the log, whoever led. After a restart the end of the log is applied again.
    pub(crate) applied: u64,
    /// Those that happened while this node led the group: the nodes' numbers can be added up.
    pub(crate) led: u64,
}

impl GroupGrants {
    pub(crate) fn count(&mut self, is_leader: bool) {
        self.applied += 1;
        self.led += u64::from(is_leader);
    }
}

/// How a group stands, as this node sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupLevels {
    /// 0 if none is known.
    pub(crate) leader: u64,
    pub(crate) is_here: bool,
    pub(crate) term: u64,
    pub(crate) applied_index: u64,
    pub(crate) locks: u64,
    pub(crate) waiters: u64,
    pub(crate) grants: GroupGrants,
}

impl GroupLevels {
    pub(crate) fn of(replica: &Replica, grants: GroupGrants) -> GroupLevels {
        let Leadership { leader, is_here, term } = replica.leadership();
        let table = replica.table();
        GroupLevels {
            leader: leader.map_or(0, |node| node.0),
            is_here,
            term,
            applied_index: replica.applied_index(),
            locks: table.lock_count() as u64,
            waiters: table.waiter_count() as u64,
            grants,
        }
    }
}
