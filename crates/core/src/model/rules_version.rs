//! The version of the rules that [`LockTable::apply`](crate::LockTable::apply) follows.
//!
//! All replicas must compute the same table from the same log. During an upgrade, node by node, some of them run an
//! older build. So a change of what `apply` does gets a new version of the rules, and the table follows the version
//! that its log has adopted by [`Command::AdoptRules`](crate::Command::AdoptRules), whichever build runs it. The leader
//! proposes that command when every member is known to read it.
//!
//! A table of rules 1 is written byte for byte as older builds write it.

use core::fmt;

use crate::model::codec::{DecodeError, Reader, Sink};

/// Which rules a lock table follows. A later version is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulesVersion(u8);

impl RulesVersion {
    /// Every log begins with these. They are what builds did before rules had a version.
    pub const ONE: RulesVersion = RulesVersion(1);
    pub const TWO: RulesVersion = RulesVersion(2);
    pub const THREE: RulesVersion = RulesVersion(3);
    /// The table has a policy, and sessions with an identity are checked against it.
    pub const FOUR: RulesVersion = RulesVersion(4);
    /// Changes of the policy and interventions are checked in log order, and the last administrator stays.
    pub const FIVE: RulesVersion = RulesVersion(5);
    /// The policy has quotas.
    pub const SIX: RulesVersion = RulesVersion(6);
    /// The table owns some slots, and grants in no others.
    pub const SEVEN: RulesVersion = RulesVersion(7);
    /// One log entry ends a bounded number of the holds and waits of ended sessions.
    pub const EIGHT: RulesVersion = RulesVersion(8);
    /// The table can adopt the policy of another group.
    pub const NINE: RulesVersion = RulesVersion(9);
    /// Slots move from one group to another, with what is in them.
    pub const TEN: RulesVersion = RulesVersion(10);
    /// The newest that this build knows.
    pub const NEWEST: RulesVersion = RulesVersion::TEN;
    /// The newest that a leader adopts. No server moves slots yet, so the formats of rules 10 can still change.
    pub const ADOPTED: RulesVersion = RulesVersion::NINE;

    pub fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn encode(self, sink: &mut impl Sink) {
        sink.varint(u64::from(self.0));
    }

    /// Refuses a version that this build does not know: to go on without it would make this replica differ.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<RulesVersion, DecodeError> {
        let found = reader.varint()?;
        let known = RulesVersion::NEWEST.0;
        match u8::try_from(found) {
            Ok(number) if (1..=known).contains(&number) => Ok(RulesVersion(number)),
            _ => Err(DecodeError::UnknownRules { found, known }),
        }
    }
}

impl fmt::Display for RulesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
