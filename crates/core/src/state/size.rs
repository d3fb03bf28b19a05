//! What the parts of the table take: their memory, as an estimate.
//!
//! The estimate is made of lengths and fixed costs, so that all replicas count alike. It is kept up to date by each
//! change, and can be computed from the rest at any time; it is not in the snapshot. A wait counts as much as the holds
//! and the answer that it can become, so that a grant from a queue never needs more room than there is.

use crate::model::command::Owner;
use crate::model::name::LockName;

const SESSION: u64 = 640;
const LOCK: u64 = 128;
const HOLD: u64 = 256;
pub(crate) const WAIT: u64 = 256;
pub(crate) const ANSWER: u64 = 96;
pub(crate) const CYCLE_LINK: u64 = 48;
pub(crate) const LOSS: u64 = 32;
pub(crate) const TRAVELLER: u64 = 16;

pub(crate) fn of_owner(owner: &Owner) -> u64 {
    let texts = [&owner.application, &owner.host, &owner.note];
    SESSION + texts.iter().map(|text| text.len() as u64).sum::<u64>()
}

/// A lock without those who hold it or wait for it.
pub(crate) fn of_lock(name: &LockName) -> u64 {
    LOCK + name.len() as u64
}

pub(crate) fn of_hold(name: &LockName, metadata: &[u8]) -> u64 {
    HOLD + (name.len() + metadata.len()) as u64
}
