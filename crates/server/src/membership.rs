//! The nodes of the cluster and where they are reached, as this node knows them.
//!
//! The truth is in the logs: the shard publishes here what its replicas say. Where no log says an
//! address yet (a cluster that has just begun, or data of an older version), the configuration does.
//!
//! Each group has members of its own, and the others follow the root group. What concerns the node as a whole goes by
//! all groups together ([`Membership::now`]): a node is connected as long as one group has it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_proto::peer_v1::Timing;
use holdfast_replica::{
    Configuration, DirectoryId, GroupId, Member, Membership as Replicated, NodeId, Role,
};
use tokio::sync::watch;

use crate::config::{Address, NodeConfig};
use crate::groups::Groups;

/// Every node, this one included.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) cluster: String,
    pub(crate) me: NodeId,
    /// Has to be that of all nodes.
    pub(crate) timing: Timing,
    /// Has to be that of all nodes.
    pub(crate) groups: Groups,
    /// Where this node is reached by its own file, or only listens.
    listening: Member,
    /// From the configuration, without addresses to which no node can connect.
    configured: BTreeMap<NodeId, Member>,
    /// Whether others are told of those.
    announces: bool,
    of_groups: Mutex<BTreeMap<GroupId, Replicated>>,
    /// Of all groups together.
    current: watch::Sender<Arc<Replicated>>,
    electorate: watch::Sender<Electorate>,
}

/// Who votes and who learns, and the entry of the log that has made it so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Electorate {
    pub(crate) index: u64,
    pub(crate) configuration: Configuration,
}

impl Membership {
    /// A node that is to join knows no member, not even itself.
    pub(crate) fn of(config: &NodeConfig, initial_members: &[NodeId]) -> Membership {
        let me = config.node_id();
        let mut listening = Member::default();
        let mut configured = BTreeMap::new();
        for node in &config.nodes {
            let member = |of: fn(&Address) -> String| Member {
                peer_address: of(&node.peer),
                client_address: of(&node.client),
                ..Member::default()
            };
            if node.id == me.0 {
                listening = member(Address::to_string);
            }
            let is_for_others = node.id != me.0 || config.announce_addresses;
            let member = if is_for_others { member(dialled) } else { Member::default() };
            configured.insert(NodeId(node.id), member);
        }
        let mut first = Replicated::default();
        first.configuration.voters = initial_members.iter().copied().collect();
        first.members = initial_members.iter().map(|node| (*node, Member::default())).collect();
        first.highest = initial_members.iter().copied().max().unwrap_or_default();
        let (cluster, timing) = (config.cluster.clone(), config.timing());
        let groups = Groups::with_equal_shares(config.groups);
        let of_groups = groups.all().map(|group| (group, first.clone())).collect();
        let membership = Membership {
            cluster,
            me,
            timing,
            groups,
            listening,
            configured,
            announces: config.announce_addresses,
            of_groups: Mutex::new(of_groups),
            current: watch::Sender::default(),
            electorate: watch::Sender::default(),
        };
        membership.publish(GroupId::FIRST, first);
        membership
    }

    /// What the log of the group says now.
    pub(crate) fn publish(&self, group: GroupId, replicated: Replicated) {
        let mut of_groups = self.of_groups();
        of_groups.insert(group, replicated);
        let mut replicated = together(&of_groups);
        for (node, member) in &mut replicated.members {
            let Some(configured) = self.configured.get(node) else { continue };
            if member.peer_address.is_empty() {
                member.peer_address.clone_from(&configured.peer_address);
            }
            if member.client_address.is_empty() {
                member.client_address.clone_from(&configured.client_address);
            }
        }
        // Two groups that publish at the same time do it in the order of the lock.
        self.current.send_if_modified(|current| {
            let changed = **current != replicated;
            if changed {
                *current = Arc::new(replicated);
            }
            changed
        });
    }

    /// What the log says of that, as of this entry. Much else can change about members.
    pub(crate) fn elects(&self, index: u64, configuration: &Configuration) {
        self.electorate.send_if_modified(|electorate| {
            let changed = electorate.configuration != *configuration;
            if changed {
                *electorate = Electorate { index, configuration: configuration.clone() };
            }
            changed
        });
    }

    pub(crate) fn watch_electorate(&self) -> watch::Receiver<Electorate> {
        self.electorate.subscribe()
    }

    /// All groups together. A member is a node that one group has, and a removed node one that all groups have removed. The
    /// roles and the id of the cluster are those of the root group.
    pub(crate) fn now(&self) -> Arc<Replicated> {
        Arc::clone(&self.current.borrow())
    }

    /// Looks at the members of one group.
    pub(crate) fn in_group<T>(&self, group: GroupId, look: impl FnOnce(&Replicated) -> T) -> T {
        look(self.of_groups().get(&group).unwrap_or(&Replicated::default()))
    }

    /// Whether the node votes in the group.
    pub(crate) fn is_voter(&self, group: GroupId, node: NodeId) -> bool {
        self.in_group(group, |members| members.role(node) == Some(Role::Voter))
    }

    /// Whether one group knows the node by another directory than this one.
    pub(crate) fn has_other_directory(&self, node: NodeId, shown: DirectoryId) -> bool {
        self.of_groups().values().any(|members| {
            let known = members.members.get(&node).and_then(|member| member.directory);
            known.is_some_and(|known| known != shown)
        })
    }

    fn of_groups(&self) -> MutexGuard<'_, BTreeMap<GroupId, Replicated>> {
        self.of_groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Replicated>> {
        self.current.subscribe()
    }

    /// Where this node is reached by its own file, or only listens; member or not.
    pub(crate) fn listening(&self) -> &Member {
        &self.listening
    }

    /// Where others reach this node: as it is configured, or else as the log says.
    pub(crate) fn own(&self) -> Member {
        let configured = self.configured.get(&self.me).cloned().unwrap_or_default();
        let said = self.now().members.get(&self.me).cloned().unwrap_or_default();
        let or = |first: String, second: String| if first.is_empty() { second } else { first };
        Member {
            peer_address: or(configured.peer_address, said.peer_address),
            client_address: or(configured.client_address, said.client_address),
            ..Member::default()
        }
    }

    /// What the cluster may learn from the configuration.
    pub(crate) fn announced(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        let configured = self.configured.iter().filter(|_| self.announces);
        configured.map(|(node, member)| (*node, member))
    }

    pub(crate) fn peer_address(&self, node: NodeId) -> Option<String> {
        let now = self.now();
        let address = now.members.get(&node)?.peer_address.clone();
        (!address.is_empty()).then_some(address)
    }

    /// The client address of a node; empty if it is not known, as the wire has it.
    pub(crate) fn client_address(&self, node: Option<NodeId>) -> String {
        let Some(node) = node else { return String::new() };
        match self.now().members.get(&node) {
            Some(member) => member.client_address.clone(),
            None if node == self.me => self.listening.client_address.clone(),
            None => String::new(),
        }
    }

    pub(crate) fn client_addresses(&self) -> Vec<String> {
        let now = self.now();
        let addresses = now.members.values().map(|member| member.client_address.clone());
        addresses.filter(|address| !address.is_empty()).collect()
    }
}

/// The root group comes first.
fn together(of_groups: &BTreeMap<GroupId, Replicated>) -> Replicated {
    let mut groups = of_groups.values();
    let mut all = groups.next().cloned().unwrap_or_default();
    for group in groups {
        // A group without an id knows of no removal yet.
        let highest = if group.cluster.is_some() { group.highest } else { NodeId::default() };
        all.highest = all.highest.min(highest);
        for (node, member) in &group.members {
            all.members.entry(*node).or_insert_with(|| member.clone());
        }
    }
    all
}

/// Empty if it is an address to listen on only.
fn dialled(address: &Address) -> String {
    if address.is_unspecified() { String::new() } else { address.to_string() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use holdfast_replica::ClusterId;

    use super::*;

    #[test]
    fn the_log_takes_precedence_and_the_configuration_fills_the_gaps() {
        let config = NodeConfig::dev_cluster(3, Path::new("/tmp/dev"), 7420).unwrap().remove(0);
        let membership = Membership::of(&config, &[1, 2, 3].map(NodeId));
        assert_eq!(membership.client_addresses().len(), 3);
        let mut said = Replicated::default();
        let elsewhere = Member { client_address: "elsewhere:1".into(), ..Member::default() };
        said.members.insert(NodeId(2), elsewhere);
        said.members.insert(NodeId(4), Member::default());
        membership.publish(GroupId::FIRST, said);
        assert_eq!(membership.client_addresses(), ["elsewhere:1"]);
        assert_eq!(membership.peer_address(NodeId(2)).as_deref(), Some("127.0.0.1:7431"));
        assert_eq!(membership.peer_address(NodeId(3)), None, "it is no member any more");
        assert_eq!(membership.client_address(Some(NodeId(1))), "127.0.0.1:7420");
    }

    #[test]
    fn a_joining_node_knows_no_members() {
        let config = NodeConfig::dev_cluster(1, Path::new("/tmp/dev"), 7420).unwrap().remove(0);
        let membership = Membership::of(&NodeConfig { join: true, ..config }, &[]);
        assert!(membership.now().members.is_empty());
        assert_eq!(membership.own().peer_address, "127.0.0.1:7421");
    }

    #[test]
    fn a_node_is_removed_when_all_groups_have_removed_it() {
        let config = NodeConfig::dev_cluster(3, Path::new("/tmp/dev"), 7420).unwrap().remove(0);
        let membership =
            Membership::of(&NodeConfig { groups: 2, ..config }, &[1, 2, 3].map(NodeId));
        let said = |voters: &[u64], highest: u64| {
            let mut said = Replicated { highest: NodeId(highest), ..Replicated::default() };
            said.cluster = Some(ClusterId([1; 16]));
            said.configuration.voters = voters.iter().copied().map(NodeId).collect();
            said.members = voters.iter().map(|node| (NodeId(*node), Member::default())).collect();
            said
        };
        membership.publish(GroupId(1), said(&[1, 2], 3));
        assert!(!membership.now().was_removed(NodeId(3)), "group 2 says nothing yet");
        membership.publish(GroupId(2), said(&[1, 2, 3], 3));
        let now = membership.now();
        assert!(now.is_member(NodeId(3)) && !now.was_removed(NodeId(3)));
        assert_eq!((now.role(NodeId(3)), now.role(NodeId(2))), (None, Some(Role::Voter)));
        assert!(membership.is_voter(GroupId(2), NodeId(3)));
        assert!(!membership.is_voter(GroupId(1), NodeId(3)));
        membership.publish(GroupId(2), said(&[1, 2], 3));
        assert!(membership.now().was_removed(NodeId(3)));
        // Added to the root group and removed from it, and group 2 has never had it.
        membership.publish(GroupId(1), said(&[1, 2], 4));
        assert!(!membership.now().was_removed(NodeId(4)));
        membership.publish(GroupId(2), said(&[1, 2], 4));
        assert!(membership.now().was_removed(NodeId(4)));
    }

    #[test]
    fn the_directory_that_one_group_knows_counts_for_all() {
        let config = NodeConfig::dev_cluster(1, Path::new("/tmp/dev"), 7420).unwrap().remove(0);
        let membership = Membership::of(&NodeConfig { groups: 2, ..config }, &[NodeId(1)]);
        let mut said = Replicated::default();
        let member = Member { directory: Some(DirectoryId([7; 16])), ..Member::default() };
        said.members.insert(NodeId(2), member);
        assert!(!membership.has_other_directory(NodeId(2), DirectoryId([8; 16])));
        membership.publish(GroupId(2), said);
        assert!(membership.has_other_directory(NodeId(2), DirectoryId([8; 16])));
        assert!(!membership.has_other_directory(NodeId(2), DirectoryId([7; 16])));
    }

    #[test]
    fn addresses_that_are_not_announced_are_used_only_locally() {
        let config = NodeConfig::dev_cluster(3, Path::new("/tmp/dev"), 7420).unwrap().remove(0);
        let config = NodeConfig { announce_addresses: false, ..config };
        let membership = Membership::of(&config, &[1, 2, 3].map(NodeId));
        assert_eq!(membership.peer_address(NodeId(2)).as_deref(), Some("127.0.0.1:7431"));
        assert_eq!(membership.own(), Member::default());
        assert_eq!(membership.announced().count(), 0);
        assert_eq!(membership.listening().peer_address, "127.0.0.1:7421");
    }

    #[test]
    fn a_listen_only_address_is_not_announced() {
        let mut config = NodeConfig::dev_cluster(1, Path::new("/tmp/dev"), 7420).unwrap().remove(0);
        config.nodes[0].peer = Address::new("0.0.0.0:7421").unwrap();
        let membership = Membership::of(&config, &[NodeId(1)]);
        assert_eq!(membership.own().peer_address, "");
        let mut said = Replicated::default();
        let member = Member { peer_address: "node-1:7421".into(), ..Member::default() };
        said.members.insert(NodeId(1), member);
        membership.publish(GroupId::FIRST, said);
        assert_eq!(membership.own().peer_address, "node-1:7421");
    }
}
