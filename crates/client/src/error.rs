//! What can go wrong, one narrow type per operation. Each tells whether the same call may succeed
//! later (`is_retryable`) and whether it may have taken effect (`may_have_happened`).

mod operation;

use holdfast_client_core::error::Unavailable;
#[cfg(feature = "redis")]
use holdfast_redis_locks::StoreDown;

pub use crate::served_by::NotInThisTier;
pub use operation::{
    AcquireError, CloseError, ConnectError, ConvertError, ProclaimError, ReleaseError, RenewError,
    TransferError,
};

/// The efficiency tier is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the efficiency tier is down: {message}")]
pub struct EfficiencyDown {
    /// Which servers were tried, and what came of it.
    pub message: String,
    pub may_have_happened: bool,
}

#[cfg(feature = "redis")]
impl From<StoreDown> for EfficiencyDown {
    fn from(StoreDown { message, may_have_happened }: StoreDown) -> EfficiencyDown {
        EfficiencyDown { message, may_have_happened }
    }
}

impl From<Unavailable> for EfficiencyDown {
    fn from(unavailable: Unavailable) -> EfficiencyDown {
        let Unavailable { message, may_have_happened, .. } = unavailable;
        EfficiencyDown { message, may_have_happened }
    }
}
