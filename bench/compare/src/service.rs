//! What a lock service on this machine can do, whichever it is.

use holdfast_bench::{Cluster, Connections, Outcome, Servers, resident_bytes};

/// A service that runs on this machine.
pub(crate) trait Service: Connections {
    fn name(&self) -> &'static str;

    fn servers(&self) -> Servers;

    /// What each server has in memory, in bytes.
    fn memory(&self) -> Outcome<Vec<u64>> {
        self.servers().0.into_iter().map(resident_bytes).collect()
    }

    /// `kill -9` of the server that leads. False: it has none, or no other could take over.
    async fn kill_leader(&mut self) -> Outcome<bool> {
        Ok(false)
    }

    /// Starts the one that was killed again, and returns when all is as before.
    async fn bring_back(&mut self) -> Outcome {
        Ok(())
    }

    /// From here on connections are made to all nodes, or only to the one that leads.
    fn connect_to_all(&mut self, _all: bool) {}

    /// If it is one of Holdfast: with it one can do more than with those of others.
    fn own_cluster(&mut self) -> Option<&mut Cluster> {
        None
    }
}
