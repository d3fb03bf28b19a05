//! Who cannot hear whom, for each kind of partition. A cut is one direction of one link.

use crate::message::Endpoint;
use crate::network::Cut;
use crate::rng::Rng;

/// Both directions between every one of these and every one of those.
pub(crate) fn between(these: &[Endpoint], those: &[Endpoint]) -> Vec<Cut> {
    let pairs = these.iter().flat_map(|a| those.iter().map(|b| (*a, *b)));
    pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect()
}

fn places(nodes: &[usize]) -> Vec<Endpoint> {
    nodes.iter().copied().map(Endpoint::Node).collect()
}

fn all_but(node: usize, nodes: &[usize]) -> Vec<Endpoint> {
    let others = nodes.iter().copied().filter(|other| *other != node);
    others.map(Endpoint::Node).collect()
}

pub(crate) fn isolated(node: usize, nodes: &[usize]) -> Vec<Cut> {
    between(&[Endpoint::Node(node)], &all_but(node, nodes))
}

/// A minority on one side; `member` belongs to it, or is sure not to.
pub(crate) fn minority(member: usize, inside: bool, nodes: &[usize], rng: &mut Rng) -> Vec<Cut> {
    let mut others = all_but(member, nodes);
    rng.shuffle(&mut others);
    let mut small = others.split_off(others.len() - others.len() / 2);
    if inside {
        others.extend(small.pop());
        small.push(Endpoint::Node(member));
    } else {
        others.push(Endpoint::Node(member));
    }
    between(&small, &others)
}

/// A minority with the member in it, and a few clients that reach no other node; the rest of the clients
/// reach only the rest of the nodes.
pub(crate) fn with_clients(
    member: usize,
    nodes: &[usize],
    clients: usize,
    rng: &mut Rng,
) -> Vec<Cut> {
    let mut those = all_but(member, nodes);
    rng.shuffle(&mut those);
    let mut these = those.split_off(those.len() + 1 - (those.len() / 2).max(1));
    these.push(Endpoint::Node(member));
    let mut with_those: Vec<Endpoint> = (0..clients).map(Endpoint::Client).collect();
    rng.shuffle(&mut with_those);
    let with_these = with_those.split_off(clients / 2);
    let mut cuts = between(&these, &those);
    cuts.extend(between(&these, &with_those));
    cuts.extend(between(&those, &with_these));
    cuts
}

/// Each node hears only the two beside it. With three nodes or fewer all would, so there one link is cut.
pub(crate) fn ring(nodes: &[usize], rng: &mut Rng) -> Vec<Cut> {
    let mut order = places(nodes);
    let count = order.len();
    rng.shuffle(&mut order);
    if count <= 3 {
        let (first, others) = order.split_at(count.min(1));
        return between(first, &others[..others.len().min(1)]);
    }
    let mut cuts = Vec::new();
    for a in 0..count {
        for b in a + 2..count {
            if (a, b) != (0, count - 1) {
                cuts.extend(between(&order[a..=a], &order[b..=b]));
            }
        }
    }
    cuts
}

/// Two halves that only one node can hear both of.
pub(crate) fn bridge(nodes: &[usize], rng: &mut Rng) -> Vec<Cut> {
    let mut order = places(nodes);
    rng.shuffle(&mut order);
    order.pop();
    let (left, right) = order.split_at(order.len() / 2);
    between(left, right)
}

/// The node is not heard, or hears nothing.
pub(crate) fn one_way(node: usize, nodes: &[usize], hears: bool) -> Vec<Cut> {
    let here = Endpoint::Node(node);
    let others = all_but(node, nodes).into_iter();
    others.map(|other| if hears { (here, other) } else { (other, here) }).collect()
}

pub(crate) fn clients(nodes: &[usize], clients: usize, rng: &mut Rng) -> Vec<Cut> {
    let mut these: Vec<Endpoint> = (0..clients).map(Endpoint::Client).collect();
    rng.shuffle(&mut these);
    these.truncate(1 + rng.index(clients));
    let mut those = places(nodes);
    rng.shuffle(&mut those);
    those.truncate(1 + rng.index(nodes.len()));
    between(&these, &those)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minority_is_one_and_holds_the_member_only_if_it_should() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            for (count, small) in [(3, 1), (5, 2)] {
                let cut_off = |inside| {
                    let nodes: Vec<usize> = (0..count).collect();
                    let cuts = minority(0, inside, &nodes, &mut Rng::new(seed));
                    cuts.iter().filter(|(from, _)| *from == Endpoint::Node(0)).count()
                };
                assert_eq!(cut_off(true), count - small);
                assert_eq!(cut_off(false), small);
            }
            // 2 x 3 links between nodes, 2 x 4 and 3 x 4 to clients; each in both directions.
            let five = [0, 1, 2, 3, 4];
            assert_eq!(with_clients(3, &five, 8, &mut rng).len(), 2 * (6 + 8 + 12));
            assert_eq!(ring(&five, &mut rng).len(), 10);
            assert_eq!(bridge(&five, &mut rng).len(), 8);
        }
    }
}
