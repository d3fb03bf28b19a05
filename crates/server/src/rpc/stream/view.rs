//! What is around a lock that somebody looks at on a stream.

use std::sync::Arc;

use holdfast_core::{LockName, RequestId};
use holdfast_proto::v1::{Answer, answer};

use super::super::Rpc;
use super::super::reads::status_on_stream;
use crate::driver::{ReadAnswer, Unavailable};
use crate::membership::Membership;
use crate::memory_tier::MemoryTier;

#[derive(Clone, Debug)]
pub(super) struct View {
    membership: Arc<Membership>,
    memory: Arc<MemoryTier>,
}

impl View {
    pub(super) fn of(rpc: &Rpc) -> View {
        View { membership: Arc::clone(&rpc.membership), memory: Arc::clone(rpc.door.memory()) }
    }

    /// Of a node that has nothing in memory.
    #[cfg(test)]
    pub(super) fn of_nothing() -> View {
        let config = crate::NodeConfig::dev_cluster(1, std::path::Path::new("/tmp/dev"), 7420);
        let membership = Arc::new(Membership::of(&config.unwrap().remove(0), &[]));
        View { membership, memory: Arc::new(MemoryTier::new()) }
    }

    /// Some session uses the tier in memory.
    pub(super) fn is_of_both_tiers(&self) -> bool {
        self.memory.is_in_use()
    }

    /// How the lock stands in both tiers.
    pub(super) fn status(
        &self,
        request: RequestId,
        name: &LockName,
        answer: &Result<Box<ReadAnswer>, Unavailable>,
    ) -> Answer {
        let result = match status_on_stream(&self.membership, &self.memory, name, answer) {
            Ok(status) => answer::Result::Status(Box::new(status)),
            Err(failure) => answer::Result::Failure(failure),
        };
        Answer { request_id: request.0, result: Some(result) }
    }
}
