//! Why a campaign ended without leadership.

use holdfast_client_core::error::{Cycle, LossReason, Lost, Rejection, Unavailable};
use holdfast_proto::v1::Reason;

use crate::error::AcquireError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CampaignError {
    #[error("not elected within the wait")]
    TimedOut,
    /// The candidate holds something that the leader waits for. Release it, and campaign again.
    #[error("to wait would be a deadlock: {0}")]
    Deadlock(Cycle),
    /// It had been elected, and lost the election before it was told.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The session ended during the campaign, and the candidacy with it. The next campaign opens a new one.
    #[error("the session ended during the campaign: {0}")]
    SessionLost(LossReason),
    #[error("the candidacy was refused: {0}")]
    Rejected(Rejection),
    #[error(transparent)]
    Unavailable(Unavailable),
    #[error("the client is closed")]
    Closed,
}

impl CampaignError {
    pub fn is_retryable(&self) -> bool {
        match self {
            CampaignError::TimedOut
            | CampaignError::Deadlock(_)
            | CampaignError::Lost(_)
            | CampaignError::SessionLost(_)
            | CampaignError::Unavailable(_) => true,
            CampaignError::Rejected(rejection) => rejection.is_retryable(),
            CampaignError::Closed => false,
        }
    }

    /// It may have been elected for a while, or may yet be; the library resigns then.
    pub fn may_have_happened(&self) -> bool {
        match self {
            CampaignError::TimedOut | CampaignError::Deadlock(_) | CampaignError::Closed => false,
            CampaignError::Lost(_) | CampaignError::SessionLost(_) => true,
            CampaignError::Rejected(rejection) => rejection.may_have_happened,
            CampaignError::Unavailable(unavailable) => unavailable.may_have_happened,
        }
    }
}

impl From<AcquireError> for CampaignError {
    fn from(error: AcquireError) -> CampaignError {
        match error {
            // Busy is a wait of no time, and a campaign has no age to die of.
            AcquireError::Busy | AcquireError::TimedOut | AcquireError::Died { .. } => {
                CampaignError::TimedOut
            }
            AcquireError::Deadlock(cycle) => CampaignError::Deadlock(cycle),
            AcquireError::Lost(lost) => CampaignError::Lost(lost),
            AcquireError::SessionLost(reason) => CampaignError::SessionLost(reason),
            AcquireError::Rejected(rejection) => CampaignError::Rejected(rejection),
            AcquireError::Unavailable(unavailable) => CampaignError::Unavailable(unavailable),
            AcquireError::Closed => CampaignError::Closed,
            // An election does not ask the tier that can say so.
            AcquireError::EfficiencyDown(_)
            | AcquireError::GuaranteeRequired(_)
            | AcquireError::NotInThisTier(_) => CampaignError::Rejected(Rejection {
                reason: Reason::Unspecified,
                message: error.to_string(),
                may_have_happened: error.may_have_happened(),
                retry_after: None,
                map_epoch: 0,
            }),
        }
    }
}
