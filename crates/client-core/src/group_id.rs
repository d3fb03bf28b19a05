//! The number of a Raft group of the cluster.

use std::fmt;

/// The number of a Raft group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u32);

impl GroupId {
    /// The only one of a cluster that tells no map.
    pub const ROOT: GroupId = GroupId(1);

    /// In messages, 0 is the root group.
    pub fn from_wire(number: u32) -> GroupId {
        if number == 0 { GroupId::ROOT } else { GroupId(number) }
    }

    /// The root group is left out, so that a client sends a cluster of one group what older clients send.
    pub fn to_wire(self) -> u32 {
        if self == GroupId::ROOT { 0 } else { self.0 }
    }

    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
