//! The groups of the cluster, and which of them an action is for.
//!
//! A group owns the same slots on all nodes, because all nodes have the same number of groups and no slot moves. If the
//! map were wrong all the same, the group would refuse: its lock table checks the slot of every name.

use holdfast_core::command::Action;
use holdfast_core::{Command, LockName, MapEpoch, Ownership, Slot};
use holdfast_proto::GroupMap;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{self, Failure, Reason};
use holdfast_replica::{GroupId, GroupShare, NodeId, SnapshotFile, found_group};

/// Of a group that is founded with some of the slots.
const FOUNDING_EPOCH: MapEpoch = MapEpoch(1);

/// Which group owns which slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    map: GroupMap,
}

impl Groups {
    /// So many groups with equal shares of the slots. A single group owns all of them.
    pub(crate) fn with_equal_shares(count: u32) -> Groups {
        let map = match count {
            0 | 1 => GroupMap::of_one_group(String::new()),
            _ => GroupMap::with_equal_shares(FOUNDING_EPOCH, count),
        };
        Groups { map }
    }

    /// In the order of their numbers; the root group is the first.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = GroupId> + '_ {
        self.map.groups().map(GroupId)
    }

    /// One group owns all slots.
    pub(crate) fn is_one(&self) -> bool {
        self.map.groups().len() == 1
    }

    pub(crate) fn owner_of(&self, name: &str) -> GroupId {
        if self.is_one() {
            return GroupId::FIRST;
        }
        GroupId(self.map.owner_of(Slot::of(name)))
    }

    /// The group that carries the command out. `named` is the group that the request names, for commands that are about no
    /// lock. If the locks of an acquire-all are in several groups, the group of the first one refuses it.
    pub(crate) fn of_command(&self, command: &Command, named: GroupId) -> GroupId {
        if self.is_one() {
            return GroupId::FIRST;
        }
        name_of(command).map_or(named, |name| self.owner_of(name.as_str()))
    }

    /// The group with this number.
    pub(crate) fn with_number(&self, number: u32) -> Result<GroupId, Failure> {
        if self.map.groups().any(|group| group == number) {
            return Ok(GroupId(number));
        }
        let last = self.all().len();
        let words =
            format!("there is no group {number} in this cluster: its groups are 1 to {last}");
        let map_epoch = self.map.epoch().0;
        Err(Failure { map_epoch, ..refused(Reason::WrongGroup, words) })
    }

    /// What a cluster with several groups cannot do yet is refused as a whole.
    pub(crate) fn only_with_one(&self, what: &str) -> Result<(), Failure> {
        if self.is_one() {
            return Ok(());
        }
        let words = format!(
            "this cluster has several groups, and this version cannot {what} in all of them at once"
        );
        Err(refused(Reason::SeveralGroups, words))
    }

    /// What a backup says of the group. None while one group owns all slots.
    pub(crate) fn share_of(&self, group: GroupId) -> Option<GroupShare> {
        let share = || GroupShare {
            groups: self.map.groups().len() as u32,
            epoch: self.map.epoch(),
            slots: self.map.slots_of(group.0),
        };
        (!self.is_one()).then(share)
    }

    /// Whether the lock table of the group has the slots that this map gives to the group.
    pub(crate) fn are_slots_of(&self, group: GroupId, ownership: &Ownership) -> bool {
        match self.share_of(group) {
            None => ownership.slots().is_all(),
            Some(GroupShare { epoch, slots, .. }) => {
                (ownership.epoch(), ownership.slots()) == (epoch, &slots)
            }
        }
    }

    /// For clients. None while one group owns all slots.
    pub(crate) fn to_message(&self, leader_of: impl Fn(GroupId) -> String) -> Option<v1::GroupMap> {
        let with_leaders = || self.map.encode_with_leaders(|group| leader_of(GroupId(group)));
        (!self.is_one()).then(with_leaders)
    }

    /// What each founder of the group has on its disk. None if the group begins with an empty log, and so owns all
    /// slots. None without founders, too: a node that joins begins with a snapshot of the group's leader.
    pub(crate) fn founding_state(&self, group: GroupId, voters: &[NodeId]) -> Option<SnapshotFile> {
        let found = || found_group(voters, self.map.epoch(), self.map.slots_of(group.0));
        (!self.is_one() && !voters.is_empty()).then(found)
    }
}

/// A lock that the command is about; of several the first.
fn name_of(command: &Command) -> Option<&LockName> {
    match command {
        Command::Acquire(acquire) => Some(&acquire.name),
        Command::AcquireAll(acquire) => acquire.members.first().map(|member| &member.name),
        Command::Convert { hold, .. }
        | Command::Release { hold, .. }
        | Command::Renew { hold, .. }
        | Command::Proclaim { hold, .. }
        | Command::Transfer { hold, .. } => Some(&hold.name),
        Command::Intervene(intervention) => match &intervention.action {
            Action::Break { name, .. }
            | Action::Transfer { name, .. }
            | Action::SetPermits { name, .. }
            | Action::Reopen { name } => Some(name),
            Action::Freeze { .. }
            | Action::Thaw { .. }
            | Action::KillSession { .. }
            | Action::SetLimits { .. } => None,
        },
        Command::OpenSession(_)
        | Command::AttachStream { .. }
        | Command::DetachStream { .. }
        | Command::Touch { .. }
        | Command::CloseSession { .. }
        | Command::Cancel { .. }
        | Command::Abandon { .. }
        | Command::BeginTerm { .. }
        | Command::Tick
        | Command::EventsPublished { .. }
        | Command::AdoptRules { .. }
        | Command::AdoptPolicy(_)
        | Command::ChangeAccess(_)
        | Command::SetOwnership { .. }
        | Command::MoveSlots(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::{Call, HoldRef};
    use holdfast_core::{FenceToken, RequestId, SessionId};

    use super::*;

    fn release(name: &str) -> Command {
        let call =
            Call { session: SessionId(1), request: RequestId(1), acked_through: RequestId(0) };
        let hold = HoldRef {
            name: LockName::new(name).unwrap(),
            token: FenceToken(1),
            acquire: RequestId(0),
        };
        Command::Release { call, hold }
    }

    #[test]
    fn a_request_goes_to_the_group_of_its_lock_and_else_to_the_group_that_it_names() {
        let groups = Groups::with_equal_shares(16);
        let owner = groups.owner_of("orders/42");
        assert_eq!(groups.map.owner_of(Slot::of("orders/42")), owner.0);
        let named = GroupId(if owner == GroupId(3) { 4 } else { 3 });
        assert_eq!(groups.of_command(&release("orders/42"), named), owner);
        let close = Command::CloseSession { session: SessionId(1) };
        assert_eq!(groups.of_command(&close, named), named);
        assert_eq!(groups.owner_of("{a}/x"), groups.owner_of("y/{a}"));
    }

    #[test]
    fn a_single_group_owns_all_slots_and_clients_get_no_map() {
        let groups = Groups::with_equal_shares(1);
        assert!(groups.is_one());
        assert_eq!(groups.of_command(&release("a"), GroupId::FIRST), GroupId::FIRST);
        assert_eq!(groups.to_message(|_| String::new()), None);
        assert_eq!(groups.founding_state(GroupId::FIRST, &[NodeId(1)]), None);
        assert_eq!(groups.only_with_one("do this"), Ok(()));
        let several = Groups::with_equal_shares(2);
        assert!(several.founding_state(GroupId::FIRST, &[NodeId(1)]).is_some());
        assert_eq!(several.founding_state(GroupId::FIRST, &[]), None, "a node that joins");
    }

    #[test]
    fn a_group_that_the_cluster_does_not_have_is_refused_with_the_epoch_of_the_map() {
        let groups = Groups::with_equal_shares(4);
        assert_eq!(groups.with_number(4), Ok(GroupId(4)));
        let failure = groups.with_number(5).unwrap_err();
        assert_eq!((failure.reason(), failure.map_epoch), (Reason::WrongGroup, 1));
        let refusal = groups.only_with_one("freeze names").unwrap_err();
        assert_eq!(refusal.reason(), Reason::SeveralGroups);
        assert!(refusal.message.contains("freeze names"), "{}", refusal.message);
    }
}
