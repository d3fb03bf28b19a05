//! A bug that is planted on purpose, to show that the conformance suite finds it. It exists only with the feature
//! `planted`.

use std::sync::atomic::{AtomicBool, Ordering};

static TRUSTS_ANY_NODE: AtomicBool = AtomicBool::new(false);

/// From now on this process does not check the certificates of the nodes that it connects to.
pub fn trust_any_node() {
    TRUSTS_ANY_NODE.store(true, Ordering::Relaxed);
}

pub(crate) fn trusts_any_node() -> bool {
    TRUSTS_ANY_NODE.load(Ordering::Relaxed)
}
