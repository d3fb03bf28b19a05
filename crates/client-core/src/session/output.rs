//! What comes out of a session.

use holdfast_proto::SessionId;

#[cfg(doc)]
use super::SessionMachine;
use super::request::Outcome;
use crate::error::{LossReason, Rejection};

/// What the driver has to do.
#[derive(Debug)]
pub enum Output<C> {
    /// Connect to this node. The answer is [`SessionMachine::handle_connected`] or [`SessionMachine::handle_connect_failed`].
    Connect { address: String },
    /// Leave the present connection, and give up an attempt to make one. With a farewell, which is an empty frame, the
    /// servers know that the session goes on elsewhere. Without it they take the client for gone.
    Disconnect { with_farewell: bool },
    /// The caller gets this.
    Completed { caller: C, outcome: Outcome },
    /// See [`SessionMachine::caller_mut`].
    Queued(Queued),
    /// The client's first session is open.
    Opened,
    /// The client's first session will not be opened. [`Output::Finished`] follows.
    NotOpened(NotOpened),
    /// [`SessionMachine::endpoints`] or [`SessionMachine::map`] changed, or the session is a new one.
    EndpointsLearned,
    /// [`SessionMachine::circuit`] or [`SessionMachine::connect_errors`] changed.
    ConnectivityChanged,
    /// The session is over; there is nothing that could be ended on behalf of this client.
    SessionEnded { session: SessionId, reason: LossReason },
    /// Nothing more will come.
    Finished,
}

/// A request stands in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    pub call: u64,
    /// 1 is next.
    pub position: u64,
}

/// Why the client's first session is not there.
#[derive(Debug)]
pub enum NotOpened {
    Refused(Rejection),
    /// Nothing listens at any of the endpoints.
    NotReached,
}
