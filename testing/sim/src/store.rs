//! The resource that the locks protect: it takes a write only with a token that is not lower than the
//! highest it has seen for that name.

use std::collections::BTreeMap;

use holdfast_core::{FenceToken, LockName};

#[derive(Debug, Default)]
pub(crate) struct FencedStore {
    highest: BTreeMap<LockName, FenceToken>,
}

impl FencedStore {
    /// Whether the write is accepted.
    pub(crate) fn write(&mut self, name: &LockName, token: FenceToken) -> bool {
        let highest = self.highest.entry(name.clone()).or_insert(token);
        let accepted = token >= *highest;
        *highest = token.max(*highest);
        accepted
    }
}
