//! Values of the wire's enumerations. A value that this build does not know comes from a newer client.

use holdfast_core::command::{Mode, Policy};

use crate::failure::refused;
use crate::v1::{self, Failure, Reason};

pub(super) fn mode(number: i32, permits: u32) -> Result<Mode, Failure> {
    match (v1::Mode::try_from(number), permits) {
        (Ok(v1::Mode::Permit), limit) => Ok(Mode::Permit { limit }),
        (Ok(v1::Mode::Unspecified | v1::Mode::Exclusive), 0) => Ok(Mode::Exclusive),
        (Ok(v1::Mode::Shared), 0) => Ok(Mode::Shared),
        (Ok(_), _) => {
            let words = "permits are for MODE_PERMIT alone; leave them 0, or set the mode";
            Err(refused(Reason::InvalidPermits, words))
        }
        (Err(_), _) => {
            let words = format!("this node does not know the mode {number}; upgrade it, or use 1");
            Err(refused(Reason::InvalidMode, words))
        }
    }
}

pub(super) fn policy(number: i32) -> Result<Policy, Failure> {
    match v1::Policy::try_from(number) {
        Ok(v1::Policy::Unspecified | v1::Policy::Detect) => Ok(Policy::Detect),
        Ok(v1::Policy::Wait) => Ok(Policy::Wait),
        Ok(v1::Policy::WaitDie) => Ok(Policy::WaitDie),
        Ok(v1::Policy::WoundWait) => Ok(Policy::WoundWait),
        Err(_) => {
            let words =
                format!("this node does not know the policy {number}; upgrade it, or use 1");
            Err(refused(Reason::InvalidPolicy, words))
        }
    }
}

pub fn tier(number: i32) -> Result<v1::Tier, Failure> {
    v1::Tier::try_from(number).map_err(|_| {
        let words = format!("this node does not know the tier {number}; upgrade it, or use 1");
        refused(Reason::InvalidTier, words)
    })
}
