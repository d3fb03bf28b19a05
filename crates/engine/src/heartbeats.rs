//! Heartbeats that come alone. Their clients do not wait for the answers, so such heartbeats make no turn of their own:
//! they go with the next input of a client, and a tick after the last of them did at the latest. Of 100,000 idle sessions
//! thousands then share one commit.
//!
//! They are carried out before all that came after them: a heartbeat must not overtake the end of its stream, or a client
//! that is gone would be taken for one that lives.

use std::time::Duration;

use holdfast_core::{Command, RequestId, Span};
use holdfast_replica::GroupId;

use crate::answer::StreamKey;

/// More than come within a tick.
const DEFERRED_MAX: usize = 8_192;
/// What a heartbeat waits is to be no more of a session's TTL.
const TICKS_PER_TTL_MIN: u32 = 60;

/// Whether the heartbeats of a session with this TTL may wait for a tick.
pub fn is_deferrable(ttl: Span, tick: Duration) -> bool {
    Duration::from_millis(ttl.as_ms()) >= tick * TICKS_PER_TTL_MIN
}

/// The operations of a stream's frame.
pub(crate) type Frame = (StreamKey, GroupId, Vec<(RequestId, Command)>);

#[derive(Debug, Default)]
pub(crate) struct DeferredHeartbeats {
    frames: Vec<Frame>,
    due: Duration,
}

impl DeferredHeartbeats {
    /// Tells whether there are too many, so that they must be carried out now.
    pub(crate) fn push(&mut self, frame: Frame) -> bool {
        self.frames.push(frame);
        self.frames.len() >= DEFERRED_MAX
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    pub(crate) fn take(&mut self, next_due: Duration) -> Vec<Frame> {
        self.due = next_due;
        std::mem::take(&mut self.frames)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_too_long_beside_a_short_ttl() {
        for (ttl_ms, expected) in [(100, false), (2_999, false), (3_000, true), (30_000, true)] {
            let deferrable = is_deferrable(Span::from_ms(ttl_ms), Duration::from_millis(50));
            assert_eq!(deferrable, expected, "{ttl_ms}");
        }
    }
}
