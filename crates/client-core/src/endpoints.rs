//! Chooses the node to try next: the leader if a node has named one, else the known nodes in turn.

use std::str::FromStr;

/// No cluster has more nodes.
const REPORTED_MAX: usize = 64;

/// A comma-separated list of `host:port` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoints {
    #[error("no endpoint given; write one or more host:port, separated by commas")]
    Empty,
    #[error("'{0}' is not an endpoint; write host:port, for example 127.0.0.1:7420")]
    NotHostAndPort(String),
}

/// A non-empty list of `host:port` texts, and the present position in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// The configured nodes and those that the cluster has reported, in the order in which they are tried.
    addresses: Vec<String>,
    /// The configured nodes. They are never forgotten: their names may resolve to other nodes later.
    configured: Vec<String>,
    /// The nodes of the cluster, as last reported.
    reported: Vec<String>,
    next: usize,
    /// The named leader. It is tried once, before the list.
    leader_hint: Option<String>,
    /// The node that could not be reached last. Followers may name a dead leader for a while.
    unreachable: Option<String>,
    /// The number of failures since a node was last reached.
    unreachable_count: usize,
    /// Ignore the nodes that the cluster reports.
    is_fixed: bool,
}

impl FromStr for Endpoints {
    type Err = InvalidEndpoints;

    fn from_str(text: &str) -> Result<Endpoints, InvalidEndpoints> {
        let addresses = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| checked_address(part).map(str::to_owned))
            .collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() {
            return Err(InvalidEndpoints::Empty);
        }
        let configured = addresses.clone();
        let reported = Vec::new();
        Ok(Endpoints {
            addresses,
            configured,
            reported,
            next: 0,
            leader_hint: None,
            unreachable: None,
            unreachable_count: 0,
            is_fixed: false,
        })
    }
}

/// A scheme is taken off, since people copy addresses from elsewhere with one.
fn checked_address(text: &str) -> Result<&str, InvalidEndpoints> {
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let not_an_endpoint = || InvalidEndpoints::NotHostAndPort(text.to_owned());
    let (host, port) = address.rsplit_once(':').ok_or_else(not_an_endpoint)?;
    let port_fits = port.parse::<u16>().is_ok_and(|port| port > 0);
    if !is_host(host) || !port_fits {
        return Err(not_an_endpoint());
    }
    Ok(address)
}

/// A name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !text.is_empty() && text.bytes().all(is_allowed)
        }
    }
}

impl Endpoints {
    /// No others than these.
    pub fn fix(&mut self) {
        self.is_fixed = true;
    }

    /// The same nodes, for a session in another group, which this node leads; an empty address is none.
    pub fn of_other_group(&self, leader: &str) -> Endpoints {
        let mut endpoints = Endpoints {
            leader_hint: None,
            unreachable: None,
            unreachable_count: 0,
            ..self.clone()
        };
        endpoints.follow_leader(leader);
        endpoints
    }

    /// The node to try now. Calling it again gives another one, so a node that fails is left behind.
    pub fn next_address(&mut self) -> String {
        if let Some(leader) = self.leader_hint.take() {
            return leader;
        }
        let address = self.addresses[self.next % self.addresses.len()].clone();
        self.next = (self.next + 1) % self.addresses.len();
        address
    }

    /// A node has named the leader. An empty hint means that it knows none.
    pub fn follow_leader(&mut self, leader: &str) {
        if self.may_follow(leader) {
            self.leader_hint = Some(leader.to_owned());
        }
    }

    pub fn may_follow(&self, leader: &str) -> bool {
        let is_dead = self.unreachable.as_deref() == Some(leader);
        checked_address(leader).is_ok() && !is_dead && !self.is_fixed
    }

    /// This node could not be reached. A hint that names it is ignored until another node fails, too. In its turn it is
    /// still tried.
    pub fn could_not_reach(&mut self, address: &str) {
        self.unreachable = Some(address.to_owned());
        self.unreachable_count += 1;
        let place = self.addresses.iter().position(|known| known == address);
        let is_reported = |address: &String| self.reported.contains(address);
        let known_follow = |place: usize| self.addresses[place + 1..].iter().any(is_reported);
        let was_replaced =
            !self.reported.is_empty() && !self.reported.iter().any(|one| one == address);
        if let (true, Some(place)) = (was_replaced, place.filter(|place| known_follow(*place))) {
            // The cluster does not report it either, so the other nodes are tried first from now on.
            let address = self.addresses.remove(place);
            self.addresses.push(address);
            if self.next > place {
                self.next -= 1;
            }
        }
    }

    pub fn reached(&mut self) {
        self.unreachable = None;
        self.unreachable_count = 0;
    }

    /// No node could be reached in a whole round: there is no hurry to begin the next.
    pub fn has_tried_all(&self) -> bool {
        self.unreachable_count >= self.addresses.len()
    }

    pub fn all(&self) -> &[String] {
        &self.addresses
    }

    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The cluster has reported its nodes. New ones are tried after the others, and removed ones are forgotten. So a
    /// client finds the cluster even after all of its configured nodes were replaced.
    pub fn learn(&mut self, addresses: &[String]) {
        if self.is_fixed {
            return;
        }
        let reported = addresses.iter().filter(|address| checked_address(address).is_ok());
        self.reported = reported.take(REPORTED_MAX).cloned().collect();
        let next = self.addresses.get(self.next).cloned();
        self.addresses
            .retain(|address| self.configured.contains(address) || self.reported.contains(address));
        for address in &self.reported {
            if !self.addresses.contains(address) {
                self.addresses.push(address.clone());
            }
        }
        let place = self.addresses.iter().position(|address| Some(address) == next.as_ref());
        self.next = place.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_are_tried_in_turn() {
        let mut endpoints: Endpoints = "a:1, http://b:2/,c:3".parse().unwrap();
        let tried: Vec<_> = (0..4).map(|_| endpoints.next_address()).collect();
        assert_eq!(tried, ["a:1", "b:2", "c:3", "a:1"]);
    }

    #[test]
    fn a_leader_that_was_named_is_tried_once_before_the_others() {
        let mut endpoints: Endpoints = "a:1,b:2".parse().unwrap();
        endpoints.follow_leader("b:2");
        endpoints.follow_leader("");
        let tried: Vec<_> = (0..3).map(|_| endpoints.next_address()).collect();
        assert_eq!(tried, ["b:2", "a:1", "b:2"]);
    }

    #[test]
    fn a_hint_that_names_a_dead_node_is_not_followed_until_a_node_was_reached() {
        let mut endpoints: Endpoints = "a:1,b:2".parse().unwrap();
        endpoints.could_not_reach("b:2");
        endpoints.follow_leader("b:2");
        assert_eq!(endpoints.next_address(), "a:1");
        endpoints.reached();
        endpoints.follow_leader("b:2");
        assert_eq!(endpoints.next_address(), "b:2");
    }

    #[test]
    fn nodes_reported_by_the_cluster_are_added_once() {
        let mut endpoints: Endpoints = "a:1".parse().unwrap();
        endpoints.learn(&["a:1".into(), "b:2".into(), "nonsense".into(), "b:2".into()]);
        let tried: Vec<_> = (0..3).map(|_| endpoints.next_address()).collect();
        assert_eq!(tried, ["a:1", "b:2", "a:1"]);
    }

    #[test]
    fn fixed_endpoints_stay_unchanged() {
        let mut endpoints: Endpoints = "tunnel:1".parse().unwrap();
        endpoints.fix();
        endpoints.learn(&["a:1".into()]);
        endpoints.follow_leader("a:1");
        assert_eq!([endpoints.next_address(), endpoints.next_address()], ["tunnel:1"; 2]);
    }

    #[test]
    fn removed_nodes_are_forgotten_but_for_the_configured_ones() {
        let mut endpoints: Endpoints = "a:1".parse().unwrap();
        endpoints.learn(&["a:1".into(), "b:2".into()]);
        endpoints.learn(&["c:3".into(), "d:4".into()]);
        let tried: Vec<_> = (0..4).map(|_| endpoints.next_address()).collect();
        assert_eq!(tried, ["a:1", "c:3", "d:4", "a:1"]);
    }

    #[test]
    fn a_node_that_was_replaced_is_tried_last_once_it_is_not_reached() {
        let mut endpoints: Endpoints = "a:1,b:2".parse().unwrap();
        endpoints.learn(&["c:3".into(), "d:4".into()]);
        for old in ["a:1", "b:2"] {
            assert_eq!(endpoints.next_address(), old);
            endpoints.could_not_reach(old);
            assert!(!endpoints.has_tried_all());
        }
        let tried: Vec<_> = (0..5).map(|_| endpoints.next_address()).collect();
        assert_eq!(tried, ["c:3", "d:4", "a:1", "b:2", "c:3"]);
    }

    #[test]
    fn replaced_nodes_do_not_keep_the_client_from_the_others() {
        let mut endpoints: Endpoints = "a:1,b:2".parse().unwrap();
        endpoints.learn(&["c:3".into(), "d:4".into()]);
        for _ in 0..3 {
            let mut tried: Vec<_> = (0..4)
                .map(|_| {
                    let address = endpoints.next_address();
                    endpoints.could_not_reach(&address);
                    address
                })
                .collect();
            tried.sort();
            assert_eq!(tried, ["a:1", "b:2", "c:3", "d:4"]);
        }
    }

    #[test]
    fn invalid_endpoints_are_refused_with_an_error() {
        assert_eq!(" , ".parse::<Endpoints>(), Err(InvalidEndpoints::Empty));
        for wrong in ["localhost", "a:", ":7420", "a:0", "a:70000", "a b:1", "a:1,b"] {
            let parsed = wrong.parse::<Endpoints>();
            assert!(matches!(parsed, Err(InvalidEndpoints::NotHostAndPort(_))), "{wrong}");
        }
        assert!("[::1]:7420".parse::<Endpoints>().is_ok());
    }
}
