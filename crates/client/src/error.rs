//! What can go wrong, one narrow type per operation. Each tells whether the same call may succeed
//! later (`is_retryable`) and whether it may have taken effect (`may_have_happened`).

mod operation;

use holdfast_client_core::error::Unavailable;
use holdfast_proto::Guarantee;
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

/// The efficiency tier cannot be had like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the efficiency tier: {0}")]
pub struct InvalidEfficiency(pub String);

/// A lock was asked for with less than its name requires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` must not be held with less than the guarantee {}: this client requires it of {}; \
     leave out .tier(Tier::Efficiency), or use a name that the requirement does not cover",
    in_words(*required), scope(prefix)
)]
pub struct GuaranteeRequired {
    pub name: String,
    /// Empty: all names.
    pub prefix: String,
    pub required: Guarantee,
}

fn in_words(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Linearizable => "LINEARIZABLE",
        Guarantee::BestEffort => "BEST_EFFORT",
    }
}

fn scope(prefix: &str) -> String {
    match prefix {
        "" => "all names".to_owned(),
        prefix => format!("the names under `{prefix}`"),
    }
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
