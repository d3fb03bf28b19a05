//! What can go wrong, one narrow type per operation. Each tells whether the same call may succeed
//! later (`is_retryable`) and whether it may have taken effect (`may_have_happened`).

mod operation;

use holdfast_client_core::error::Unavailable;

use crate::efficiency::ServedBy;

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

/// Something that a lock outside of the cluster cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} needs a lock of the cluster, and this one is served by: {served_by}")]
pub struct NotInThisTier {
    pub what: &'static str,
    pub served_by: ServedBy,
}

#[cfg(feature = "redis")]
impl EfficiencyDown {
    pub(crate) fn circuit_open() -> EfficiencyDown {
        let message = "it has been of no use for a while, and is being tried".to_owned();
        EfficiencyDown { message, may_have_happened: false }
    }

    pub(crate) fn no_randomness() -> EfficiencyDown {
        let message = "the operating system gives no random numbers for an owner".to_owned();
        EfficiencyDown { message, may_have_happened: false }
    }

    /// The one who asked was not there to the end.
    pub(crate) fn unexplained() -> EfficiencyDown {
        let message = "it was not asked to the end".to_owned();
        EfficiencyDown { message, may_have_happened: true }
    }
}

impl From<Unavailable> for EfficiencyDown {
    fn from(unavailable: Unavailable) -> EfficiencyDown {
        let Unavailable { message, may_have_happened, .. } = unavailable;
        EfficiencyDown { message, may_have_happened }
    }
}
