//! The host that runs an engine: the server, or the simulation.

use std::fmt::Debug;

use holdfast_core::{Command, Event, LogicalTime, Outcome};
use holdfast_replica::GroupId;

use crate::answer::Wait;

/// The host's handles for callers and streams, and its metrics. The engine stores and returns these values without
/// reading them. None of its decisions depends on this trait.
pub trait Host: Debug {
    /// The caller of a command.
    type Call: Debug;
    /// The caller of a read.
    type Read: Debug;
    /// The caller of the heartbeats of many sessions.
    type Touches: Debug;
    /// The caller of a membership change.
    type Change: Debug;
    /// The caller of a leadership transfer.
    type HandOver: Debug;
    /// The receiver of a stream's lists. Dropped when the stream ends.
    type Stream: Debug;
    /// What the host remembers about a command until it is settled.
    type Mark: Copy + Debug;

    /// A command was handed to its replica.
    fn asked(&mut self, command: &Command, wait: Option<Wait>) -> Self::Mark;
    /// It was applied, or its wait in the queue has ended.
    fn settled(&mut self, _: Self::Mark, _: Option<Wait>, _: &Outcome, _was_queued: bool) {}
    fn failed(&mut self, _: Self::Mark, _: Option<Wait>) {}
    fn touches_asked(&mut self, _sessions: usize) {}
    fn touches_settled(&mut self, _known: usize, _unknown: usize) {}
    fn touches_failed(&mut self, _sessions: usize) {}
    fn read_settled(&mut self, _is_served: bool) {}
    fn happened(&mut self, _: GroupId, _is_leader: bool, _: LogicalTime, _: &Event) {}
}
