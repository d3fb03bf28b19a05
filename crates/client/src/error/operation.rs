//! One narrow type per operation.

use holdfast_client_core::endpoints::InvalidEndpoints;
use holdfast_client_core::error::{
    Cycle, LossReason, Lost, Rejection, RequestError, Since, Unavailable,
};
use holdfast_proto::v1::Reason;

use super::{EfficiencyDown, GuaranteeRequired, InvalidEfficiency, NotInThisTier};
use crate::auth_file::AuthFileError;
use crate::tls::TlsError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error(transparent)]
    InvalidEndpoints(#[from] InvalidEndpoints),
    #[error(transparent)]
    InvalidEfficiency(#[from] InvalidEfficiency),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    AuthFile(#[from] AuthFileError),
    #[error("the operating system gives no random numbers for a session id")]
    NoRandomness,
    #[error("the linger time is below 100 ms; take a longer one, or none: then it is the TTL")]
    LingerTooShort,
    /// Of the blocking client, which has one in the background.
    #[error("the operating system gives no thread")]
    NoThread,
    #[error("the session was refused: {0}")]
    Rejected(Rejection),
    #[error(transparent)]
    Unavailable(Unavailable),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    #[error("the lock is held by another client")]
    Busy,
    /// Nothing is held. If the connection broke during the wait and the lock was asked for with a TTL of its own,
    /// it may have been granted and have run out meanwhile, unseen.
    #[error("the lock did not become free within the wait")]
    TimedOut,
    /// To wait would have closed a cycle of waits. Release what you hold, and begin again.
    #[error("to wait would be a deadlock: {0}")]
    Deadlock(Cycle),
    /// An older actor is in the way, and the request was to wait for younger ones only. Release what
    /// you hold and ask again with this `since`: then the actor keeps its age.
    #[error("an older actor is in the way; release what you hold and ask again")]
    Died { since: Since },
    /// It had been granted, and ended before the caller got it.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The session ended while the request was waiting. The next request opens a new one.
    #[error("the session ended while waiting: {0}")]
    SessionLost(LossReason),
    #[error("the lock was refused: {0}")]
    Rejected(Rejection),
    #[error(transparent)]
    Unavailable(Unavailable),
    #[error("the client is closed")]
    Closed,
    /// And the policy is to fail: see [`WhenDown`](crate::WhenDown).
    #[error(transparent)]
    EfficiencyDown(EfficiencyDown),
    /// The efficiency tier was asked for where it must not be used.
    #[error(transparent)]
    GuaranteeRequired(#[from] GuaranteeRequired),
    #[error(transparent)]
    NotInThisTier(#[from] NotInThisTier),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    #[error("the release was refused: {0}")]
    Rejected(Rejection),
    /// The release is not given up: the session goes on trying.
    #[error(transparent)]
    Unavailable(Unavailable),
    /// The release is not given up: it is tried until the lock's TTL is over.
    #[error(transparent)]
    EfficiencyDown(EfficiencyDown),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error("the renewal was refused: {0}")]
    Rejected(Rejection),
    #[error(transparent)]
    Unavailable(Unavailable),
    #[error(transparent)]
    EfficiencyDown(EfficiencyDown),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    #[error("others hold the lock too")]
    Busy,
    #[error("the others did not go within the wait")]
    TimedOut,
    /// To wait would have closed a cycle of waits. Release what you hold, and begin again.
    #[error("to wait would be a deadlock: {0}")]
    Deadlock(Cycle),
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error("the conversion was refused: {0}")]
    Rejected(Rejection),
    #[error(transparent)]
    Unavailable(Unavailable),
    #[error(transparent)]
    NotInThisTier(#[from] NotInThisTier),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProclaimError {
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error("the proclamation was refused: {0}")]
    Rejected(Rejection),
    #[error(transparent)]
    Unavailable(Unavailable),
    #[error(transparent)]
    NotInThisTier(#[from] NotInThisTier),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The lock is held as before.
    #[error("that session does not wait for this lock alone, exclusively")]
    NoSuchWaiter,
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error("the transfer was refused: {0}")]
    Rejected(Rejection),
    /// The guard gives no token any more: another client may hold the lock.
    #[error(transparent)]
    Unavailable(Unavailable),
    #[error(transparent)]
    NotInThisTier(#[from] NotInThisTier),
}

/// The session could not be closed in words; it ends by its linger time or TTL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct CloseError(#[from] pub Unavailable);

impl ConnectError {
    pub fn is_retryable(&self) -> bool {
        match self {
            ConnectError::Unavailable(_) => true,
            ConnectError::Rejected(rejection) => rejection.is_retryable(),
            ConnectError::InvalidEndpoints(_)
            | ConnectError::InvalidEfficiency(_)
            | ConnectError::Tls(_)
            | ConnectError::AuthFile(_)
            | ConnectError::NoRandomness
            | ConnectError::LingerTooShort
            | ConnectError::NoThread => false,
        }
    }

    pub fn may_have_happened(&self) -> bool {
        match self {
            ConnectError::Unavailable(unavailable) => unavailable.may_have_happened,
            ConnectError::Rejected(rejection) => rejection.may_have_happened,
            ConnectError::InvalidEndpoints(_)
            | ConnectError::InvalidEfficiency(_)
            | ConnectError::Tls(_)
            | ConnectError::AuthFile(_)
            | ConnectError::NoRandomness
            | ConnectError::LingerTooShort
            | ConnectError::NoThread => false,
        }
    }
}

impl AcquireError {
    pub fn is_retryable(&self) -> bool {
        match self {
            AcquireError::Busy
            | AcquireError::TimedOut
            | AcquireError::Deadlock(_)
            | AcquireError::Died { .. }
            | AcquireError::Lost(_)
            | AcquireError::SessionLost(_)
            | AcquireError::Unavailable(_)
            | AcquireError::EfficiencyDown(_) => true,
            AcquireError::Rejected(rejection) => rejection.is_retryable(),
            AcquireError::Closed
            | AcquireError::GuaranteeRequired(_)
            | AcquireError::NotInThisTier(_) => false,
        }
    }

    /// The lock may have been granted for a while, or may yet be; the library releases it then.
    pub fn may_have_happened(&self) -> bool {
        match self {
            AcquireError::Busy
            | AcquireError::TimedOut
            | AcquireError::Deadlock(_)
            | AcquireError::Died { .. }
            | AcquireError::Closed
            | AcquireError::GuaranteeRequired(_)
            | AcquireError::NotInThisTier(_) => false,
            AcquireError::Lost(_) | AcquireError::SessionLost(_) => true,
            AcquireError::Rejected(rejection) => rejection.may_have_happened,
            AcquireError::Unavailable(unavailable) => unavailable.may_have_happened,
            AcquireError::EfficiencyDown(down) => down.may_have_happened,
        }
    }
}

impl ReleaseError {
    pub fn is_retryable(&self) -> bool {
        matches!(self, ReleaseError::Unavailable(_) | ReleaseError::EfficiencyDown(_))
    }

    pub fn may_have_happened(&self) -> bool {
        match self {
            ReleaseError::Rejected(rejection) => rejection.may_have_happened,
            ReleaseError::Unavailable(unavailable) => unavailable.may_have_happened,
            ReleaseError::EfficiencyDown(down) => down.may_have_happened,
        }
    }
}

impl RenewError {
    pub fn is_retryable(&self) -> bool {
        matches!(self, RenewError::Unavailable(_) | RenewError::EfficiencyDown(_))
    }

    pub fn may_have_happened(&self) -> bool {
        match self {
            RenewError::Lost(_) => false,
            RenewError::Rejected(rejection) => rejection.may_have_happened,
            RenewError::Unavailable(unavailable) => unavailable.may_have_happened,
            RenewError::EfficiencyDown(down) => down.may_have_happened,
        }
    }
}

impl ConvertError {
    pub fn is_retryable(&self) -> bool {
        match self {
            ConvertError::Busy | ConvertError::TimedOut | ConvertError::Unavailable(_) => true,
            ConvertError::Rejected(rejection) => rejection.is_retryable(),
            ConvertError::Deadlock(_) | ConvertError::Lost(_) | ConvertError::NotInThisTier(_) => {
                false
            }
        }
    }

    pub fn may_have_happened(&self) -> bool {
        match self {
            ConvertError::Rejected(rejection) => rejection.may_have_happened,
            ConvertError::Unavailable(unavailable) => unavailable.may_have_happened,
            _ => false,
        }
    }
}

impl ProclaimError {
    pub fn is_retryable(&self) -> bool {
        match self {
            ProclaimError::Lost(_) | ProclaimError::NotInThisTier(_) => false,
            ProclaimError::Rejected(rejection) => rejection.is_retryable(),
            ProclaimError::Unavailable(_) => true,
        }
    }

    pub fn may_have_happened(&self) -> bool {
        match self {
            ProclaimError::Lost(_) | ProclaimError::NotInThisTier(_) => false,
            ProclaimError::Rejected(rejection) => rejection.may_have_happened,
            ProclaimError::Unavailable(unavailable) => unavailable.may_have_happened,
        }
    }
}

impl TransferError {
    pub fn is_retryable(&self) -> bool {
        match self {
            TransferError::NoSuchWaiter
            | TransferError::Lost(_)
            | TransferError::NotInThisTier(_) => false,
            TransferError::Rejected(rejection) => rejection.is_retryable(),
            TransferError::Unavailable(_) => true,
        }
    }

    pub fn may_have_happened(&self) -> bool {
        match self {
            TransferError::NoSuchWaiter
            | TransferError::Lost(_)
            | TransferError::NotInThisTier(_) => false,
            TransferError::Rejected(rejection) => rejection.may_have_happened,
            TransferError::Unavailable(unavailable) => unavailable.may_have_happened,
        }
    }
}

impl CloseError {
    pub fn is_retryable(&self) -> bool {
        true
    }

    pub fn may_have_happened(&self) -> bool {
        self.0.may_have_happened
    }
}

impl From<Rejection> for RenewError {
    fn from(rejection: Rejection) -> RenewError {
        RenewError::Rejected(rejection)
    }
}

impl From<RequestError> for AcquireError {
    fn from(error: RequestError) -> AcquireError {
        match error {
            RequestError::Busy => AcquireError::Busy,
            RequestError::TimedOut => AcquireError::TimedOut,
            RequestError::Deadlock(cycle) => AcquireError::Deadlock(cycle),
            RequestError::Died { since } => AcquireError::Died { since },
            RequestError::Lost(lost) => AcquireError::Lost(lost),
            RequestError::SessionLost(reason) => AcquireError::SessionLost(reason),
            RequestError::Rejected(rejection) => AcquireError::Rejected(rejection),
            RequestError::Unavailable(unavailable) => AcquireError::Unavailable(unavailable),
            RequestError::Closed => AcquireError::Closed,
            error @ (RequestError::NoSuchWaiter | RequestError::NotServed) => {
                AcquireError::Rejected(unexpected(&error))
            }
        }
    }
}

/// For errors whose operations are about a hold.
macro_rules! from_request_error {
    ($error:ident $(, $own:pat => $as:expr)*) => {
        impl From<RequestError> for $error {
            fn from(error: RequestError) -> $error {
                match error {
                    $($own => $as,)*
                    RequestError::Lost(lost) => $error::Lost(lost),
                    RequestError::SessionLost(reason) => $error::Lost(Lost { reason }),
                    RequestError::Closed => {
                        $error::Lost(Lost { reason: LossReason::SessionClosed })
                    }
                    RequestError::Rejected(rejection) => $error::Rejected(rejection),
                    RequestError::Unavailable(unavailable) => $error::Unavailable(unavailable),
                    error => $error::Rejected(unexpected(&error)),
                }
            }
        }
    };
}

from_request_error!(RenewError);
from_request_error!(ProclaimError);
from_request_error!(TransferError, RequestError::NoSuchWaiter => TransferError::NoSuchWaiter);
from_request_error!(
    ConvertError,
    RequestError::Busy => ConvertError::Busy,
    RequestError::TimedOut => ConvertError::TimedOut,
    RequestError::Deadlock(cycle) => ConvertError::Deadlock(cycle)
);

/// An answer that no request of this kind gets.
fn unexpected(error: &RequestError) -> Rejection {
    let message = format!("an answer that does not fit the request: {error:?}");
    Rejection {
        reason: Reason::Unspecified,
        message,
        may_have_happened: true,
        retry_after: None,
        map_epoch: 0,
    }
}

#[cfg(feature = "redis")]
impl From<holdfast_redis_locks::StoreDown> for ReleaseError {
    fn from(down: holdfast_redis_locks::StoreDown) -> ReleaseError {
        ReleaseError::EfficiencyDown(down.into())
    }
}

#[cfg(feature = "redis")]
impl From<holdfast_redis_locks::RenewError> for RenewError {
    fn from(error: holdfast_redis_locks::RenewError) -> RenewError {
        match error {
            holdfast_redis_locks::RenewError::Lost(lost) => RenewError::Lost(lost),
            holdfast_redis_locks::RenewError::Down(down) => RenewError::EfficiencyDown(down.into()),
        }
    }
}
