//! A limit on everything. They are part of the state machine: every replica must have the same, so
//! they are no setting of a node.

use crate::time::Span;

pub const NAME_BYTES_MAX: usize = 512;

/// What the table accepts. The default is what every node runs with; tests choose smaller ones to
/// reach them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub sessions_max: usize,
    pub holds_per_session_max: usize,
    pub waits_per_session_max: usize,
    pub waiters_per_resource_max: usize,
    /// Answers kept for a session until it says that it has them.
    pub unacknowledged_answers_max: usize,
    /// Ended holds that a session remembers, to tell `expired` from `already_released`.
    pub remembered_losses_max: usize,
    /// Ended sessions that are remembered, so that none is opened a second time.
    pub ended_sessions_max: usize,
    pub metadata_bytes_max: usize,
    /// Of each text in an owner's description.
    pub owner_text_bytes_max: usize,
    pub ttl_min: Span,
    pub ttl_max: Span,
    pub wait_max: Span,
    pub max_hold_max: Span,
    pub linger_max: Span,
    /// Deadlines that one tick works off. What is left is due at the next tick.
    pub expiries_per_tick_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const DAY: Span = Span::from_secs(24 * 60 * 60);
        Limits {
            sessions_max: 2_000_000,
            holds_per_session_max: 1_000_000,
            waits_per_session_max: 100_000,
            waiters_per_resource_max: 200_000,
            unacknowledged_answers_max: 8_192,
            remembered_losses_max: 1_024,
            ended_sessions_max: 10_000,
            metadata_bytes_max: 1_024,
            owner_text_bytes_max: 256,
            ttl_min: Span::from_ms(100),
            ttl_max: DAY,
            wait_max: DAY,
            max_hold_max: Span::from_secs(30 * 24 * 60 * 60),
            linger_max: DAY,
            expiries_per_tick_max: 1_000,
        }
    }
}
