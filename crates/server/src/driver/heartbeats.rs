//! Heartbeats that come alone. Nobody waits for their answers, so they neither wake the driver nor make a turn of their
//! own: they go with whatever comes next, and a tick after the last of them did at the latest. Of 100,000 idle sessions
//! thousands then share one commit.
//!
//! - Only sessions beside whose TTL a tick is nothing have their heartbeats treated so.
//! - They are handled before all that came to the driver after them: a heartbeat must not overtake the end of its stream,
//!   or a client that is gone would be taken for one that lives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_core::{Command, Span};

use super::inbox::Input;

/// More than come within a tick; past it the driver is woken.
const HELD_BACK_MAX: usize = 8_192;
/// What a heartbeat waits is to be no more of a session's TTL.
const TICKS_PER_TTL_MIN: u32 = 60;

/// Whether the heartbeats of a stream may wait. The driver learns the session's TTL; whoever reads the frames asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct MayWait(Arc<AtomicBool>);

impl MayWait {
    pub(super) fn set_for(&self, ttl: Span, tick: Duration) {
        let may_wait = Duration::from_millis(ttl.as_ms()) >= tick * TICKS_PER_TTL_MIN;
        self.0.store(may_wait, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Frames of a heartbeat each, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct HeldBack(Mutex<Vec<Input>>);

impl HeldBack {
    /// What is more than one heartbeat, or too much, comes back.
    pub(super) fn offer(&self, input: Input) -> Result<(), Box<Input>> {
        let is_heartbeat = match &input {
            Input::Frame { operations, .. } => {
                matches!(operations[..], [(_, Command::Touch { .. })])
            }
            _ => false,
        };
        let mut held_back = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_heartbeat || held_back.len() >= HELD_BACK_MAX {
            return Err(Box::new(input));
        }
        held_back.push(input);
        Ok(())
    }

    pub(super) fn take(&self) -> Vec<Input> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::{RequestId, SessionId, StreamId};

    use super::super::{FIRST_GROUP, StreamKey};
    use super::*;

    fn frame(operations: usize) -> Input {
        let stream = StreamKey { session: SessionId(1), stream: StreamId(1) };
        let touch = Command::Touch { session: SessionId(1), acked_through: RequestId(0) };
        let operations = vec![(RequestId(1), touch); operations];
        Input::Frame { stream, group: FIRST_GROUP, operations }
    }

    #[test]
    fn only_lone_heartbeats_are_held_back_and_no_more_than_there_is_room_for() {
        let held_back = HeldBack::default();
        assert!(held_back.offer(frame(0)).is_err() && held_back.offer(frame(2)).is_err());
        assert!(
            held_back
                .offer(Input::PeerMessages {
                    from: holdfast_replica::NodeId(2),
                    messages: Vec::new()
                })
                .is_err()
        );
        let taken = (0..2 * HELD_BACK_MAX).filter(|_| held_back.offer(frame(1)).is_ok()).count();
        assert_eq!((taken, held_back.take().len()), (HELD_BACK_MAX, HELD_BACK_MAX));
        assert!(held_back.offer(frame(1)).is_ok(), "there is room again");
    }

    #[test]
    fn beside_a_short_ttl_a_tick_is_too_long() {
        let may_wait = MayWait::default();
        assert!(!may_wait.get(), "nothing is known yet");
        for (ttl_ms, expected) in [(100, false), (2_999, false), (3_000, true), (30_000, true)] {
            may_wait.set_for(Span::from_ms(ttl_ms), Duration::from_millis(50));
            assert_eq!(may_wait.get(), expected, "{ttl_ms}");
        }
    }
}
