//! A snapshot that is written a few entries at a time.

use alloc::vec::Vec;

use crate::model::codec::Fnv1a;

/// A snapshot that is being written.
#[derive(Clone, Debug)]
pub(crate) struct UnfinishedSnapshot {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Fnv1a,
    /// Up to here they are in the digest, or before the table.
    pub(super) digested: usize,
    pub(super) sessions_done: bool,
}
