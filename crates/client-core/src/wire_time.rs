//! Time spans as messages carry them.

use std::time::Duration;

/// In milliseconds, as many as fit.
pub fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
