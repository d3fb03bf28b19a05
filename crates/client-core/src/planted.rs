//! Bugs that are planted on purpose, to show that the simulation finds them. They exist only with the
//! feature `planted`, which tests and the simulation turn on; one at a time is active, in the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that the client could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// No margin for clocks that run at different rates.
    NoMargin,
    /// The deadline of the hold itself is not looked at.
    HoldDeadlineIgnored,
    /// A best-effort hold is believed in though the leader that keeps it is lost.
    BestEffortKeptWithoutLeader,
    /// A session is trusted for its TTL, though the servers may end it a shorter linger time after its connection.
    LingerIgnored,
    /// A resumed session does not hear which of its holds ended while it had no stream.
    ResumeLosesLoss,
    /// What had no answer when the stream broke goes out again under another id.
    ResendUnderNewId,
    /// A guard gives its token though its lease is over.
    TokenPastLease,
    /// A lease is counted from when the answer came.
    LeaseFromAnswer,
    /// A lease is counted from the last sending of a request that was sent several times.
    LeaseFromLastSending,
    /// The end of an older hold of a name ends the present one too.
    NoticeEndsNewerHold,
    /// A circuit breaker that opened never tries a node.
    NeverHalfOpen,
    /// A request whose caller is gone, and that was granted, is not given back.
    AbandonedGrantKept,
    /// A request is acknowledged once it was sent, before its answer came.
    AckEarly,
    /// A request whose caller is gone is not cancelled.
    ForgetCancel,
    /// A request that was refused keeps the session alive.
    FailureIsSample,
    /// An older map of the groups takes the place of a newer one.
    OlderMapTaken,
    /// An acquire-all of locks in several groups is sent to the group of the first.
    SeveralGroupsSent,
    /// A session that is opened in another group than the root group does not say so.
    GroupNotTold,
    /// The map of the groups is ignored, as by a client that knows one group.
    MapIgnored,
}

const NONE: u8 = u8::MAX;

static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

/// This bug is active from now on, and no other of this crate.
pub fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
}

impl Bug {
    /// The wrong value while this bug is active.
    pub(crate) fn instead<T>(self, right: T, wrong: T) -> T {
        if self.is_active() { wrong } else { right }
    }

    pub(crate) fn is_active(self) -> bool {
        ACTIVE.load(Ordering::Relaxed) == self as u8
    }
}
