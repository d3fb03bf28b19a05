//! File descriptors. They belong to the process, which may run several nodes, and the log and the peers go first: what
//! is left beyond a reserve is for clients.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For each node: its log and snapshots, listeners, peers, and connections to the leader.
const RESERVED_PER_NODE: usize = 128;
/// With less a node could serve hardly any client.
const FOR_CLIENTS_MIN: usize = 64;
/// With less a node serves few clients, which is worth a line in the log.
const ADVISED: usize = 4_096;

/// Nodes of this process.
static NODES: AtomicUsize = AtomicUsize::new(0);
/// Descriptors that the clients of all nodes of this process use.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The process may not have as many as a node needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process may have {limit} open files, and a node needs at least {needed}; raise the hard limit: `ulimit -n`, \
     or LimitNOFILE of the systemd unit"
)]
pub struct TooFewDescriptors {
    pub limit: usize,
    pub needed: usize,
}

/// The share of one node that runs. It counts until the last clone is dropped.
#[derive(Debug)]
pub(crate) struct Descriptors {
    limit: usize,
}

/// Cheap to clone.
pub(crate) type NodeDescriptors = std::sync::Arc<Descriptors>;

impl Descriptors {
    /// Raises the limit of this process as far as it may, and checks that it is enough for one more node.
    pub(crate) fn of_node() -> Result<NodeDescriptors, TooFewDescriptors> {
        let limit = raise_limit();
        let needed = RESERVED_PER_NODE + FOR_CLIENTS_MIN;
        if limit < needed {
            return Err(TooFewDescriptors { limit, needed });
        }
        NODES.fetch_add(1, Ordering::Relaxed);
        let descriptors = Descriptors { limit };
        if limit < ADVISED {
            let for_clients = descriptors.for_clients();
            tracing::warn!(
                limit,
                for_clients,
                "this process may have few open files, and a connection takes one; raise the hard limit: \
                 `ulimit -n`, or LimitNOFILE of the systemd unit"
            );
        }
        Ok(std::sync::Arc::new(descriptors))
    }

    /// As many as clients want.
    #[cfg(test)]
    pub(crate) fn without_limit() -> NodeDescriptors {
        NODES.fetch_add(1, Ordering::Relaxed);
        std::sync::Arc::new(Descriptors { limit: usize::MAX / 2 })
    }

    /// All that are left after the reserve. Many nodes in one process share what there is.
    pub(crate) fn for_clients(&self) -> usize {
        let reserved = NODES.load(Ordering::Relaxed) * RESERVED_PER_NODE;
        self.limit - reserved.min(self.limit / 2)
    }

    /// `closing` of those that are taken are about to come back. `left` of each node are for others.
    pub(super) fn has_room(&self, closing: usize, left: usize) -> bool {
        let taken = TAKEN.load(Ordering::Relaxed).saturating_sub(closing);
        taken + left * NODES.load(Ordering::Relaxed) < self.for_clients()
    }

    pub(super) fn take(&self, count: usize) {
        TAKEN.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, count: usize) {
        TAKEN.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        NODES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// To the hard limit. Gives what the process has then.
fn raise_limit() -> usize {
    /// Where there is no hard limit, no more than this makes sense.
    const ENOUGH: u64 = 1 << 20;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current.unwrap_or(ENOUGH);
    let wanted = maximum.unwrap_or(ENOUGH.max(current));
    let limit = if wanted > current {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
            Ok(()) => wanted,
            Err(error) => {
                tracing::warn!(%error, current, "the limit on open files cannot be raised");
                current
            }
        }
    } else {
        current
    };
    usize::try_from(limit).unwrap_or(usize::MAX / 2)
}
