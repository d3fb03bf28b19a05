//! Marks in memory, for a service of one process.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{EnterError, Store};
use crate::in_process::{Cells, Full};
use crate::rule::{Claim, HighWaterMark};

/// The marks of at most so many resources. They end with the process: keep them with the data, and give
/// them back to [`InProcess::restored`].
#[derive(Debug, Clone)]
pub struct InProcess {
    marks: Arc<Cells<Mutex<HighWaterMark>>>,
}

impl InProcess {
    pub fn new(limit: usize) -> InProcess {
        InProcess { marks: Arc::new(Cells::new(limit)) }
    }

    /// With the marks that were kept with the data.
    pub fn restored(
        limit: usize,
        kept: impl IntoIterator<Item = (String, HighWaterMark)>,
    ) -> Result<InProcess, Full> {
        let store = InProcess::new(limit);
        for (resource, kept) in kept {
            let cell = store.marks.get_or_create(&resource)?;
            // No other thread knows the store yet.
            if let Ok(mut mark) = cell.try_lock() {
                *mark = HighWaterMark::from_token(mark.token().max(kept.token()));
            }
        }
        Ok(store)
    }
}

impl Store for InProcess {
    type Permit = OwnedMutexGuard<HighWaterMark>;

    async fn enter(&self, claim: &Claim) -> Result<Self::Permit, EnterError> {
        let cell = self
            .marks
            .get_or_create(claim.resource())
            .map_err(|full| EnterError::Unavailable(full.to_string()))?;
        let mut mark = cell.lock_owned().await;
        mark.raise(claim)?;
        Ok(mark)
    }
}
