//! The limits of the table. They are part of the state machine: every replica must have the same ones, so they are not
//! settings of a node.

use crate::model::time::Span;

pub const NAME_BYTES_MAX: usize = 512;

/// What the table accepts. Every node uses the default. Tests choose smaller limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub sessions_max: usize,
    pub holds_per_session_max: usize,
    /// Places in queues: an acquire-all has one for each name.
    pub waits_per_session_max: usize,
    pub waiters_per_lock_max: usize,
    pub names_per_acquire_max: usize,
    /// Re-entries of one hold.
    pub reentries_max: u32,
    pub permits_max: u32,
    /// Locks whose number of permits an operator has set.
    pub stored_permits_max: usize,
    pub freezes_max: usize,
    /// The most waiters, holders and places that all searches for cycles of waits in one log entry visit. Under the
    /// first rules this counts for each command. After that, requests are queued without a search.
    pub deadlock_walk_max: usize,
    /// The most places of acquire-alls, and names under thawed prefixes, that the promotions of one log entry visit.
    /// The rest is done in the next entries. Before rules 3 there was no bound.
    pub promotion_walk_max: usize,
    /// The most holds and queue places of sessions that end in one log entry which that entry ends at once, and also the
    /// most that it ends of sessions which earlier entries have ended. Sessions with more are left for the next entries.
    /// Before rules 8 there was no bound.
    pub ended_parts_per_entry_max: usize,
    /// The most steps that one log entry takes to take out what is in slots that leave. A lock that is passed by is a
    /// step, a hold or a wait that is taken out eight. The rest is done in the next entries.
    pub move_steps_max: usize,
    /// A part of what was in the slots has no more holds and waits when it has so many bytes. It stands in one log entry.
    pub move_part_bytes: usize,
    /// Answers kept for a session until it acknowledges them.
    pub unacknowledged_answers_max: usize,
    /// The least number of newest answers kept for a session that never acknowledges any.
    pub silent_answers_kept: usize,
    /// Ended holds that a session remembers, to distinguish `expired` from `already_released`.
    pub remembered_losses_max: usize,
    /// Ended sessions that are remembered, so that none is opened twice. Under the first rules exactly so many, since
    /// rules 2 at least so many.
    pub ended_sessions_max: usize,
    /// Since rules 2, all are remembered that ended within this span.
    pub ended_sessions_span: Span,
    /// With so many remembered, no session is opened until the oldest are forgotten.
    pub ended_sessions_in_span_max: usize,
    pub metadata_bytes_max: usize,
    /// Bytes of each text in an owner's description.
    pub owner_text_bytes_max: usize,
    /// Bytes of the name and of the reason of an operator.
    pub intervention_text_bytes_max: usize,
    pub ttl_min: Span,
    pub ttl_max: Span,
    pub wait_max: Span,
    pub max_hold_max: Span,
    pub linger_max: Span,
    /// Longer than most jobs that a dead holder may have left running, and short enough that a mistake closes a name
    /// for part of a day only. An operator can reopen it sooner.
    pub lock_delay_max: Span,
    pub freeze_max: Span,
    /// Deadlines that one tick handles. The rest is due at the next tick.
    pub expiries_per_tick_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const DAY: Span = Span::from_secs(24 * 60 * 60);
        Limits {
            sessions_max: 2_000_000,
            holds_per_session_max: 1_000_000,
            waits_per_session_max: 100_000,
            waiters_per_lock_max: 200_000,
            names_per_acquire_max: 256,
            reentries_max: 1_000_000,
            permits_max: 1_000_000,
            stored_permits_max: 100_000,
            freezes_max: 64,
            deadlock_walk_max: 10_000,
            promotion_walk_max: 10_000,
            ended_parts_per_entry_max: 1_000,
            move_steps_max: 10_000,
            move_part_bytes: 256 * 1_024,
            unacknowledged_answers_max: 8_192,
            silent_answers_kept: 4_096,
            remembered_losses_max: 1_024,
            ended_sessions_max: 10_000,
            ended_sessions_span: Span::from_secs(120),
            ended_sessions_in_span_max: 1_000_000,
            metadata_bytes_max: 1_024,
            owner_text_bytes_max: 256,
            intervention_text_bytes_max: 512,
            ttl_min: Span::from_ms(100),
            ttl_max: DAY,
            wait_max: DAY,
            max_hold_max: Span::from_secs(30 * 24 * 60 * 60),
            linger_max: DAY,
            lock_delay_max: Span::from_secs(60 * 60),
            freeze_max: Span::from_secs(30 * 24 * 60 * 60),
            expiries_per_tick_max: 1_000,
        }
    }
}
