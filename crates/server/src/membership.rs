//! The nodes of the cluster and where they are reached.

use std::collections::BTreeMap;

use holdfast_replica::NodeId;

use crate::config::{Address, NodeConfig};

/// Every node, this one included. Fixed while the node runs.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) cluster: String,
    pub(crate) me: NodeId,
    members: BTreeMap<NodeId, Member>,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) client: Address,
    pub(crate) peer: Address,
}

impl Membership {
    pub(crate) fn of(config: &NodeConfig) -> Membership {
        let members = config
            .nodes
            .iter()
            .map(|node| {
                let member = Member { client: node.client.clone(), peer: node.peer.clone() };
                (NodeId(node.id), member)
            })
            .collect();
        Membership { cluster: config.cluster.clone(), me: config.node_id(), members }
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }

    /// The client address of a node; empty if it is not known, as the wire has it.
    pub(crate) fn client_address(&self, node: Option<NodeId>) -> String {
        node.and_then(|node| self.get(node))
            .map(|member| member.client.to_string())
            .unwrap_or_default()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.members.iter().map(|(node, member)| (*node, member))
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.all().filter(|(node, _)| *node != self.me)
    }
}
