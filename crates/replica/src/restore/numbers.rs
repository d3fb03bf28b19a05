//! From where tokens and terms continue after a restore.
//!
//! The restored state does not show what was granted after it was written. Another cluster may also have been restored
//! from the same state before. So both numbers leap. The leaps include what differs between two restores: the clock,
//! and the floor that the operator gives.
//!
//! * Tokens continue at the highest of: the state's last token + 2^40, the clock's milliseconds x 2^20, the floor.
//!   The clock separates two restores only as long as it is ahead of the state's last token. If it is not, the operator
//!   has to give a floor.
//! * Terms are the upper part of best-effort tokens (term x 2^40 + counter), and there are 2^23 of them. They continue
//!   at the state's term + 2^16 + the state's age, or at the floor's share if that is higher.
//!
//! Caveat: no rule separates two restores of the same state with the same clock reading and the same floor. A restore
//! also cannot know of an earlier one with a clock that was ahead or with a high floor, if its state is older. Terms
//! separate two restores of the same state only if more seconds lie between them than the first cluster had elections.

use holdfast_core::FenceToken;

use super::RestoreError;

/// Best-effort tokens of one term: term x 2^40 + counter.
pub const TOKENS_PER_TERM_BITS: u32 = 40;
/// Terms from here on have no best-effort tokens below 2^63: the efficiency tier is off.
pub const BEST_EFFORT_TERM_END: u64 = 1 << (63 - TOKENS_PER_TERM_BITS);
/// A higher floor or clock counts as a mistake. So half of all numbers stay for the new cluster's grants.
pub const TOKEN_FLOOR_MAX: u64 = 1 << 62;

/// More grants than a cluster makes between its last backup and its end: at a million a second it takes 12 days.
const TOKEN_LEAP: u64 = 1 << 40;
/// The least number of tokens that must be left for the new cluster.
const TOKENS_LEFT_MIN: u64 = 1 << 40;
/// How much a floor may be above the leap, if the leap exceeds [`TOKEN_FLOOR_MAX`].
const FLOOR_ROOM: u64 = 1 << 57;
/// The grants per millisecond (as a power of two) for which the clock's share leaves room.
const TOKENS_PER_MS_BITS: u32 = 20;

/// More terms than a cluster has between its last backup and its end. A term begins with an election, and elections
/// are an election timeout apart: with the usual 0.5 s it takes nine hours of nothing but elections.
const TERM_LEAP: u64 = 1 << 16;
/// Up to this age of the state each second is a term more: no cluster has more than one term a second for long.
const FINE_AGE_S: u64 = 1 << 18;
/// Beyond that age, so many seconds are a term more.
const COARSE_STEP_S: u64 = 64;
/// So that a clock that is years ahead does not use up all terms.
const AGE_TERMS_MAX: u64 = 1 << 20;

/// What is known about the state, this machine's clock, and the operator's floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) last_token: u64,
    pub(crate) term: u64,
    pub(crate) clock_unix_ms: u64,
    /// When the state was written, by the clock of the node that wrote it.
    pub(crate) written_unix_ms: Option<u64>,
    pub(crate) token_floor: Option<u64>,
}

impl Known {
    /// All new tokens are higher than this.
    pub(crate) fn last_token_of_new_cluster(&self) -> Result<u64, RestoreError> {
        let Known { last_token, .. } = *self;
        let by_clock = self.clock_unix_ms.saturating_mul(1 << TOKENS_PER_MS_BITS);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RestoreKeepsTokens.is_active() {
            return Ok(last_token);
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RestoreTrustsTheClock.is_active() {
            return Ok(last_token.max(by_clock).max(self.token_floor.unwrap_or(0)));
        }
        let leapt = last_token.saturating_add(TOKEN_LEAP);
        if leapt > FenceToken::MAX.0 - TOKENS_LEFT_MIN {
            return Err(RestoreError::TokensRunOut { last_token });
        }
        let Some(floor) = self.token_floor else {
            if let Some(written_unix_ms) = self.written_unix_ms
                && self.clock_unix_ms < written_unix_ms
            {
                return Err(RestoreError::ClockBehind { safe: leapt });
            }
            if last_token >= by_clock {
                return Err(RestoreError::ClockBelowTokens { last_token, by_clock, safe: leapt });
            }
            if by_clock > TOKEN_FLOOR_MAX {
                return Err(RestoreError::ClockAhead { by_clock, safe: leapt });
            }
            return Ok(leapt.max(by_clock));
        };
        // Tokens of the state may be above what a floor is usually allowed to be.
        let floor_max = TOKEN_FLOOR_MAX.max(leapt.saturating_add(FLOOR_ROOM));
        let floor_max = floor_max.min(FenceToken::MAX.0 - TOKENS_LEFT_MIN);
        if floor <= last_token {
            return Err(RestoreError::FloorTooLow { floor, last_token, safe: leapt });
        }
        if floor > floor_max {
            return Err(RestoreError::FloorTooHigh { floor, floor_max });
        }
        // An operator gives a floor because the clock is far ahead, so that clock does not count.
        let by_clock = Some(by_clock).filter(|by_clock| *by_clock <= TOKEN_FLOOR_MAX);
        Ok(leapt.max(floor).max(by_clock.unwrap_or(0)))
    }

    /// The terms of all new leaders are higher than this.
    pub(crate) fn last_term_of_new_cluster(&self) -> Result<u64, RestoreError> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RestoreLeapsNoTerm.is_active() {
            return Ok(self.term.saturating_add(1));
        }
        let age_ms = self.clock_unix_ms.saturating_sub(self.written_unix_ms.unwrap_or(u64::MAX));
        let leapt = self.term.checked_add(TERM_LEAP + terms_of_age(age_ms / 1_000));
        let leapt = leapt.filter(|term| *term < u64::MAX / 2).ok_or(RestoreError::TermsRunOut)?;
        // The first leader has a term more, and all its tokens are above the floor.
        Ok(leapt.max(self.token_floor.unwrap_or(0) >> TOKENS_PER_TERM_BITS))
    }
}

fn terms_of_age(age_s: u64) -> u64 {
    let coarse = age_s.saturating_sub(FINE_AGE_S) / COARSE_STEP_S;
    (age_s.min(FINE_AGE_S) + coarse).min(AGE_TERMS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_2026: u64 = 1_790_000_000_000;
    const HOUR_MS: u64 = 3_600_000;

    fn known(last_token: u64) -> Known {
        Known {
            last_token,
            term: 7,
            clock_unix_ms: IN_2026,
            written_unix_ms: Some(IN_2026 - HOUR_MS),
            token_floor: None,
        }
    }

    fn token(known: Known) -> u64 {
        known.last_token_of_new_cluster().unwrap()
    }

    #[test]
    fn tokens_continue_at_the_highest_of_the_leap_the_clock_and_the_floor() {
        assert_eq!(token(known(500)), IN_2026 << 20);
        let near = (IN_2026 << 20) - 1;
        assert_eq!(token(known(near)), near + TOKEN_LEAP, "the clock alone is no distance");
        for (floor, expected) in [(501, IN_2026 << 20), (1 << 62, 1 << 62)] {
            assert_eq!(token(Known { token_floor: Some(floor), ..known(500) }), expected);
        }
        let floor = Some(near + 2);
        assert_eq!(token(Known { token_floor: floor, ..known(near + 1) }), near + 1 + TOKEN_LEAP);
        const IN_2100: u64 = 4_102_444_800_000;
        assert_eq!(token(Known { clock_unix_ms: IN_2100, ..known(1) }), IN_2100 << 20);
    }

    #[test]
    fn a_state_whose_tokens_the_clock_has_not_reached_is_refused_unless_there_is_a_floor() {
        let last_token = 4_000_000_000_000_000_001;
        let refused = known(last_token).last_token_of_new_cluster().unwrap_err();
        let words = refused.to_string();
        let safe = last_token + TOKEN_LEAP;
        assert!(words.contains(&format!("--token-floor {safe}")), "{words}");
        let with_floor = Known { token_floor: Some(safe), ..known(last_token) };
        assert_eq!(token(with_floor), safe);
        for floor in [1, last_token] {
            let low = Known { token_floor: Some(floor), ..known(last_token) };
            let words = low.last_token_of_new_cluster().unwrap_err().to_string();
            assert!(words.contains("not above the last token"), "{words}");
        }
        let exactly = Known { last_token: IN_2026 << 20, ..known(0) };
        assert!(exactly.last_token_of_new_cluster().is_err());
    }

    #[test]
    fn a_clock_before_the_state_or_in_the_far_future_is_refused_unless_there_is_a_floor() {
        for clock_unix_ms in [IN_2026 - 2 * HOUR_MS, 5_000_000_000_000] {
            let wrong = Known { clock_unix_ms, ..known(500) };
            let words = wrong.last_token_of_new_cluster().unwrap_err().to_string();
            assert!(words.contains("the clock of this machine"), "{words}");
            assert!(words.contains("--token-floor"), "{words}");
            assert!(token(Known { token_floor: Some(1 << 61), ..wrong }) >= 1 << 61);
        }
        let unknown_age = Known { written_unix_ms: None, clock_unix_ms: 1_000, ..known(500) };
        assert_eq!(token(unknown_age), 500 + TOKEN_LEAP);
    }

    #[test]
    fn numbers_that_run_out_are_errors() {
        let high = Known { token_floor: Some(TOKEN_FLOOR_MAX + 1), ..known(500) };
        assert!(matches!(high.last_token_of_new_cluster(), Err(RestoreError::FloorTooHigh { .. })));
        // Beyond what a floor may usually be, and yet there is a way.
        let last_token = TOKEN_FLOOR_MAX + 5;
        let safe = last_token + TOKEN_LEAP;
        assert_eq!(token(Known { token_floor: Some(safe), ..known(last_token) }), safe);
        for last_token in [FenceToken::MAX.0, FenceToken::MAX.0 - 2 * TOKEN_LEAP + 1] {
            for token_floor in [None, Some(FenceToken::MAX.0), Some(u64::MAX)] {
                let full = Known { token_floor, ..known(last_token) };
                let error = full.last_token_of_new_cluster().unwrap_err();
                assert!(matches!(error, RestoreError::TokensRunOut { .. }), "{error}");
            }
        }
        let terms = Known { term: u64::MAX - 1, ..known(1) };
        assert!(matches!(terms.last_term_of_new_cluster(), Err(RestoreError::TermsRunOut)));
    }

    #[test]
    fn terms_leap_by_more_than_elections_can_and_differ_from_one_restore_to_the_next() {
        let term = |known: Known| known.last_term_of_new_cluster().unwrap();
        let first = known(500);
        assert_eq!(term(first), 7 + TERM_LEAP + 3_600);
        let second = Known { clock_unix_ms: IN_2026 + 60_000, ..first };
        assert_eq!(term(second), term(first) + 60);
        assert_eq!(term(Known { written_unix_ms: None, ..first }), 7 + TERM_LEAP);
        // Best-effort tokens are above the floor as well.
        let floor = 4_000_000_000_000_000_000;
        let with_floor = Known { token_floor: Some(floor), ..first };
        assert!((term(with_floor) + 1) << TOKENS_PER_TERM_BITS > floor);
    }

    #[test]
    fn neither_an_old_backup_nor_a_clock_far_ahead_uses_up_the_terms() {
        let mut last = 0;
        for age_s in [0, 1, FINE_AGE_S, FINE_AGE_S + 64, 365 * 86_400, 3 * 365 * 86_400] {
            assert!(terms_of_age(age_s) >= last);
            last = terms_of_age(age_s);
        }
        assert_eq!(terms_of_age(u64::MAX / 1_000), AGE_TERMS_MAX);
        const { assert!(7 * (TERM_LEAP + AGE_TERMS_MAX) < BEST_EFFORT_TERM_END) };
        let day = TERM_LEAP + terms_of_age(86_400);
        assert!(50 * day < BEST_EFFORT_TERM_END, "fifty restores of backups a day old");
    }
}
