//! Deferred heartbeats. A client does not wait for the answer to a heartbeat. So a frame with nothing but a heartbeat
//! does not cause a turn: it is carried out with the next input of a client, or after a tick at the latest. Of 100,000
//! idle sessions, thousands then share one commit.
//!
//! Deferred heartbeats are carried out before later inputs. A heartbeat must not be applied after the end of its
//! stream, or a client that has disconnected would count as alive.

use std::time::Duration;

use holdfast_core::{Command, RequestId, Span};

use crate::answer::StreamKey;

/// More than come within a tick.
const DEFERRED_MAX: usize = 8_192;
/// A session's TTL must have at least so many ticks, so that the delay of a heartbeat is small beside it.
const TICKS_PER_TTL_MIN: u32 = 60;

/// Whether the heartbeats of a session with this TTL may wait for a tick.
pub fn is_deferrable(ttl: Span, tick: Duration) -> bool {
    Duration::from_millis(ttl.as_ms()) >= tick * TICKS_PER_TTL_MIN
}

/// The operations of a stream's frame.
pub(crate) type Frame = (StreamKey, Vec<(RequestId, Command)>);

#[derive(Debug, Default)]
pub(crate) struct DeferredHeartbeats {
    frames: Vec<Frame>,
    due: Duration,
}

impl DeferredHeartbeats {
    /// Returns whether there are too many, so that they must be carried out now.
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
    fn heartbeats_of_short_ttls_are_not_deferrable() {
        for (ttl_ms, expected) in [(100, false), (2_999, false), (3_000, true), (30_000, true)] {
            let deferrable = is_deferrable(Span::from_ms(ttl_ms), Duration::from_millis(50));
            assert_eq!(deferrable, expected, "{ttl_ms}");
        }
    }
}
