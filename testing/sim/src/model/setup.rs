//! What is the same in all that is explored: times, names and session ids.

use holdfast_core::{LockName, SessionId};

use super::NAMES_MAX;

pub(super) const TTL_MS: u64 = 300;
pub(super) const LINGER_MS: u64 = 100;
/// As all clients say that do not leave it to an operator.
pub(super) const PERMITS: u32 = 2;

/// The names of the locks, made once.
#[derive(Debug)]
pub(super) struct Names(Vec<LockName>);

impl Names {
    pub(super) fn new() -> Names {
        Names(["a", "b"].iter().filter_map(|text| LockName::new(text).ok()).collect())
    }

    pub(super) fn number(&self, name: &LockName) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    pub(super) fn get(&self, number: usize) -> &LockName {
        &self.0[number.min(NAMES_MAX - 1)]
    }
}

pub(super) fn session_id(session: u8) -> SessionId {
    SessionId(u128::from(session) + 1)
}

pub(super) fn session_number(session: SessionId) -> u8 {
    u8::try_from(session.0.saturating_sub(1)).unwrap_or(u8::MAX)
}
