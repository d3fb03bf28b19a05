//! One call that can be abandoned, as its caller and the session's task both know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug, Clone, Default)]
pub(crate) struct Ticket(Arc<Called>);

#[derive(Debug, Default)]
struct Called {
    /// Of the request that was last made for it; a lost session's ids are given again by the next.
    request_id: AtomicU64,
    was_sent: AtomicBool,
}

impl Ticket {
    pub(super) fn note_staged(&self, request_id: u64) {
        self.0.request_id.store(request_id, Ordering::Relaxed);
    }

    /// 0 before there is one.
    pub(super) fn request_id(&self) -> u64 {
        self.0.request_id.load(Ordering::Relaxed)
    }

    pub(super) fn note_sent(&self) {
        self.0.was_sent.store(true, Ordering::Relaxed);
    }

    /// For a caller who runs out of patience: whether the cluster may have heard of it.
    pub(crate) fn was_sent(&self) -> bool {
        self.0.was_sent.load(Ordering::Relaxed)
    }

    pub(super) fn is_of_same_call(&self, other: &Ticket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
