//! Files of the log that are no longer needed, for another thread to remove.
//!
//! Removing a large file and syncing the directory takes as long as everything else that the disk has to do at that
//! moment. A shard does not wait for it: see [`Wal::defer_removal`](crate::Wal::defer_removal).

use crate::disk::Disk;
use crate::error::WriteError;
use crate::store::Store;

/// Files to remove, in this order. A crash before or within it leaves more files than needed, which the next open
/// takes into account.
#[derive(Debug)]
#[must_use = "the files stay on the disk until they are removed"]
pub struct Garbage<D> {
    pub(crate) store: Store<D>,
    pub(crate) names: Vec<String>,
}

impl<D: Disk> Garbage<D> {
    /// Removes each file durably before the next: a crash must not leave a gap between segments. So garbage that was
    /// taken first must be removed first.
    pub fn remove(self) -> Result<(), WriteError> {
        self.names.iter().try_for_each(|name| self.store.remove([name.as_str()]))
    }
}
