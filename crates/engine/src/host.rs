//! What an engine is run by.

use std::fmt::Debug;

use holdfast_core::{Command, Event, LogicalTime, Outcome};

use crate::answer::Wait;

/// The names by which a host knows its callers and streams, and what it measures. The engine carries these values in and
/// out and looks at none of them; nothing that it decides depends on this trait.
pub trait Host: Debug {
    /// Who waits for the answer to a command.
    type Call: Debug;
    /// Who waits for a read.
    type Read: Debug;
    /// Who waits for the heartbeats of many sessions.
    type Touches: Debug;
    /// Who waits for a change of the membership.
    type Change: Debug;
    /// Who wants another node to lead.
    type HandOver: Debug;
    /// What takes the lists of a stream. Dropped when the stream ends.
    type Stream: Debug;
    /// What the host wants to remember of a command until it is settled.
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
    fn happened(&mut self, _is_leader: bool, _: LogicalTime, _: &Event) {}
}
