//! High-water marks in memory, for a resource that lives in one process: a file, a device, a cache, a
//! connection to something that cannot check tokens itself.
//!
//! [`HighWaterMarks::write`] runs the write while the resource's mark is locked, so that no other
//! passes in between. Writes to different resources do not wait for each other.
//!
//! The marks are as durable as the process. If the data outlives it, keep the mark with the data
//! (within the same write; [`Claim::token`] is the new mark) and give all of them back to
//! [`HighWaterMarks::restored`]. A mark is never dropped to make room for another, because that would let a
//! late writer in: past the limit, writes to further resources are refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::rule::{Claim, HighWaterMark, Refusal};

/// The marks of at most so many resources.
#[derive(Debug)]
pub struct HighWaterMarks {
    marks: Cells<Mutex<HighWaterMark>>,
}

/// Why a write was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Full(#[from] Full),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the marks of {limit} resources are kept, and none may be dropped: raise the limit, or forget \
     those of resources that are gone for good"
)]
pub struct Full {
    pub limit: usize,
}

impl HighWaterMarks {
    pub fn new(limit: usize) -> HighWaterMarks {
        HighWaterMarks { marks: Cells::new(limit) }
    }

    /// With the marks that were kept with the data.
    pub fn restored(
        limit: usize,
        kept: impl IntoIterator<Item = (String, HighWaterMark)>,
    ) -> Result<HighWaterMarks, Full> {
        let marks = HighWaterMarks::new(limit);
        for (resource, kept) in kept {
            let cell = marks.marks.get_or_create(&resource)?;
            let mut mark = lock(&cell);
            // Of two for one resource the higher one counts.
            *mark = HighWaterMark::from_token(mark.token().max(kept.token()));
        }
        Ok(marks)
    }

    /// Runs `write` if the claim passes, and lets no other request at the resource meanwhile. It must not
    /// call this for the same resource again: it would wait for itself.
    ///
    /// The mark is raised before `write` runs, and stays raised if it fails.
    pub fn write<T>(&self, claim: &Claim, write: impl FnOnce() -> T) -> Result<T, CheckError> {
        let cell = self.marks.get_or_create(claim.resource())?;
        let mut mark = lock(&cell);
        mark.raise(claim)?;
        Ok(write())
    }

    /// Shows the token without a write: from now on no lower one passes. To be done before
    /// reading what a later write depends on.
    pub fn check(&self, claim: &Claim) -> Result<(), CheckError> {
        self.write(claim, || ())
    }

    pub fn highest(&self, resource: &str) -> HighWaterMark {
        self.marks.get(resource).map_or(HighWaterMark::NONE, |cell| *lock(&cell))
    }

    /// Drops the mark of a resource that is gone for good. A late holder may write to it again.
    pub fn forget(&self, resource: &str) {
        self.marks.remove(resource);
    }
}

/// A mark is raised before a write runs, so it is right even if that panicked.
fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One cell for each resource, up to a limit. A cell is locked by those who use it, not by the map.
#[derive(Debug)]
pub(crate) struct Cells<Cell> {
    limit: usize,
    by_resource: Mutex<HashMap<String, Arc<Cell>>>,
}

impl<Cell: Default> Cells<Cell> {
    pub(crate) fn new(limit: usize) -> Cells<Cell> {
        Cells { limit, by_resource: Mutex::default() }
    }

    pub(crate) fn get(&self, resource: &str) -> Option<Arc<Cell>> {
        lock(&self.by_resource).get(resource).map(Arc::clone)
    }

    pub(crate) fn get_or_create(&self, resource: &str) -> Result<Arc<Cell>, Full> {
        let mut by_resource = lock(&self.by_resource);
        if let Some(cell) = by_resource.get(resource) {
            return Ok(Arc::clone(cell));
        }
        if by_resource.len() >= self.limit {
            return Err(Full { limit: self.limit });
        }
        let cell = Arc::<Cell>::default();
        by_resource.insert(resource.to_owned(), Arc::clone(&cell));
        Ok(cell)
    }

    pub(crate) fn remove(&self, resource: &str) {
        lock(&self.by_resource).remove(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Accepts, admit};
    use crate::token::{Fence, Guarantee};

    fn claim(resource: &str, number: u64) -> Claim {
        let fence = Fence::new(Guarantee::Linearizable, resource, number).unwrap();
        admit(fence, resource, Accepts::Linearizable).unwrap()
    }

    #[test]
    fn a_write_that_is_refused_does_not_run() {
        let marks = HighWaterMarks::new(10);
        assert_eq!(marks.write(&claim("a", 7), || "written"), Ok("written"));
        let refused = marks.write(&claim("a", 6), || panic!("it ran"));
        assert!(matches!(refused, Err(CheckError::Refused(Refusal::Stale { highest: 7, .. }))));
        assert_eq!(marks.write(&claim("b", 6), || "another resource"), Ok("another resource"));
    }

    #[test]
    fn past_the_limit_further_resources_are_refused_and_known_ones_are_not() {
        let marks = HighWaterMarks::new(2);
        marks.check(&claim("a", 1)).unwrap();
        marks.check(&claim("b", 1)).unwrap();
        assert_eq!(marks.check(&claim("c", 1)), Err(CheckError::Full(Full { limit: 2 })));
        assert_eq!(marks.check(&claim("a", 2)), Ok(()));
        marks.forget("b");
        assert_eq!(marks.check(&claim("c", 1)), Ok(()));
    }

    #[test]
    fn after_a_restart_the_kept_marks_count() {
        let kept = [("a", 5), ("a", 9), ("a", 7), ("b", 0)];
        let kept =
            kept.map(|(resource, token)| (resource.into(), HighWaterMark::from_token(token)));
        let marks = HighWaterMarks::restored(10, kept).unwrap();
        assert_eq!(marks.highest("a").token(), 9);
        assert!(marks.check(&claim("a", 8)).is_err());
        assert!(marks.check(&claim("a", 9)).is_ok());
        assert!(marks.check(&claim("b", 1)).is_ok());
    }

    #[test]
    fn a_write_that_panics_leaves_its_mark_and_the_resource_usable() {
        let marks = HighWaterMarks::new(10);
        let panicking = std::panic::AssertUnwindSafe(|| {
            let _ = marks.write(&claim("a", 5), || panic!("in the midst of it"));
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert!(marks.check(&claim("a", 4)).is_err());
        assert!(marks.check(&claim("a", 5)).is_ok());
    }
}
