//! Heartbeats that come alone, on their way to the engine, which defers them: they do not wake the shard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::Command;

use super::inbox::Input;

/// More than come within a tick; past it the shard is woken.
const HELD_BACK_MAX: usize = 8_192;

/// Whether the heartbeats of a stream may wait. The engine says so once it knows the session's TTL; the reader of the
/// stream's frames asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deferrable(Arc<AtomicBool>);

impl Deferrable {
    pub(super) fn set(&self, is_deferrable: bool) {
        self.0.store(is_deferrable, Ordering::Relaxed);
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
    use holdfast_engine::StreamKey;
    use holdfast_replica::NodeId;

    use super::super::FIRST_GROUP;
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
        assert!(held_back.offer(Input::PeerRefuses(NodeId(2))).is_err());
        let taken = (0..2 * HELD_BACK_MAX).filter(|_| held_back.offer(frame(1)).is_ok()).count();
        assert_eq!((taken, held_back.take().len()), (HELD_BACK_MAX, HELD_BACK_MAX));
        assert!(held_back.offer(frame(1)).is_ok(), "there is room again");
    }
}
