//! What can be done to a cluster.

use std::fmt;

/// Nodes, or whichever leads the group when the time comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Nodes(Vec<u64>),
    Leader { group: u32 },
}

/// One fault. It begins, lasts, and is healed by the same hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`; started again when it heals.
    Kill(Target),
    /// `kill -9` of all nodes in one moment; started again when it heals.
    KillAll,
    /// SIGSTOP, and SIGCONT when it heals.
    Freeze(Target),
    /// SIGTERM to one node after the other, each started again before the next one's turn.
    RollingRestart,
    /// Nothing passes between these nodes and the others; both sides keep their connections.
    Isolate(Target),
    /// Nothing passes from the first to the second; the other way is open.
    OneWay { from: u64, to: u64 },
    /// Every node is alone.
    NoQuorum,
    /// Connections between peers are broken, and may be made again at once.
    BreakPeers,
    /// What passes between peers takes this much longer.
    Delay { ms: u64 },
    /// Connections of clients to all nodes are broken, and may be made again at once.
    BreakClients,
    /// Nothing passes between clients and this node.
    SilenceClients { node: u64 },
    /// The wall clock of a node jumps by so many seconds, and back when it heals.
    ClockJump { node: u64, seconds: i64 },
}

impl Fault {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Fault::Kill(Target::Leader { .. }) => "kill -9 of the leader",
            Fault::Kill(Target::Nodes(nodes)) if nodes.len() > 1 => "kill -9 of a minority",
            Fault::Kill(_) => "kill -9 of a node",
            Fault::KillAll => "kill -9 of all",
            Fault::Freeze(Target::Leader { .. }) => "freeze of the leader",
            Fault::Freeze(_) => "freeze of nodes",
            Fault::RollingRestart => "rolling restart",
            Fault::Isolate(Target::Leader { .. }) => "isolated leader",
            Fault::Isolate(_) => "isolated nodes",
            Fault::OneWay { .. } => "one-way cut",
            Fault::NoQuorum => "no quorum",
            Fault::BreakPeers => "peer connections broken",
            Fault::Delay { .. } => "peer delay",
            Fault::BreakClients => "client connections broken",
            Fault::SilenceClients { .. } => "client silence",
            Fault::ClockJump { .. } => "wall clock jump",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Fault::Kill(Target::Nodes(nodes))
            | Fault::Freeze(Target::Nodes(nodes))
            | Fault::Isolate(Target::Nodes(nodes)) => write!(f, ": {nodes:?}"),
            Fault::Kill(Target::Leader { group })
            | Fault::Freeze(Target::Leader { group })
            | Fault::Isolate(Target::Leader { group }) => write!(f, " of group {group}"),
            Fault::OneWay { from, to } => write!(f, ": {from} to {to}"),
            Fault::Delay { ms } => write!(f, ": {ms} ms"),
            Fault::SilenceClients { node } => write!(f, ": node {node}"),
            Fault::ClockJump { node, seconds } => write!(f, ": node {node} by {seconds} s"),
            _ => Ok(()),
        }
    }
}
