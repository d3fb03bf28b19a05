//! What is broken at the moment, and whether a quorum could work nevertheless.

use std::collections::BTreeSet;

/// A quorum is up if enough nodes run and reach each other in both directions. That is a condition for
/// service, not a promise of it in that very moment: a leader has to be elected first.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    nodes: u64,
    pub(crate) down: BTreeSet<u64>,
    pub(crate) frozen: BTreeSet<u64>,
    /// From, to.
    pub(crate) cut: BTreeSet<(u64, u64)>,
}

impl Health {
    pub(crate) fn of(nodes: u64) -> Health {
        Health { nodes, down: BTreeSet::new(), frozen: BTreeSet::new(), cut: BTreeSet::new() }
    }

    pub(crate) fn has_quorum(&self) -> bool {
        let majority = self.nodes / 2 + 1;
        // A cluster has at most seven nodes, so all sets of them can be looked at.
        (0_u64..1 << self.nodes)
            .filter(|set| u64::from(set.count_ones()) >= majority)
            .any(|set| self.works_together(set))
    }

    fn works_together(&self, set: u64) -> bool {
        let has = |node: u64| set & (1 << (node - 1)) != 0;
        let sound = |node: &u64| !self.down.contains(node) && !self.frozen.contains(node);
        (1..=self.nodes).filter(|node| has(*node)).all(|node| sound(&node))
            && !self.cut.iter().any(|(from, to)| has(*from) && has(*to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_five_may_be_gone_in_any_way() {
        let mut health = Health::of(5);
        assert!(health.has_quorum());
        health.down.insert(1);
        health.frozen.insert(2);
        assert!(health.has_quorum());
        health.cut.insert((3, 4));
        assert!(!health.has_quorum());
    }

    #[test]
    fn a_wire_cut_one_way_costs_one_node() {
        let mut health = Health::of(5);
        health.cut.insert((1, 2));
        health.down.insert(3);
        assert!(health.has_quorum());
        health.down.insert(4);
        assert!(!health.has_quorum());
    }
}
