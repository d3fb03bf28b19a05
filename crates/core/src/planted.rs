//! Bugs that are planted on purpose, to show that the simulation finds them. They exist only with the
//! feature `planted`, which only the simulation turns on; one at a time is active, in the whole process.

use core::sync::atomic::{AtomicU8, Ordering};

/// A mistake that the lock table could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// The waits of a session that ends stay in their queues, and are granted.
    GrantToEndedSession,
    /// The holds of a session that ends stay.
    EndedSessionKeepsHolds,
    /// A hold that has expired can be renewed.
    RenewOfLostHold,
    /// A renewal moves the deadline past the max-hold.
    RenewPastMaxHold,
    /// A cancelled waiter stays in its queue.
    CancelLeavesWaiter,
    /// A cancellation that overtakes its acquire is not remembered.
    EarlyCancelForgotten,
    /// The cancellation of an acquire that was granted is told that nothing is held.
    CancelOfHoldSaysDone,
    /// A session that holds the lock is granted it again, under the same token.
    OwnHoldSatisfiesAcquire,
    /// A retry of a granted acquire is carried out again.
    AcquireNotOnce,
    /// A retry of a refused acquire is carried out again.
    RefusalNotOnce,
    /// A release frees whatever hold the session has of the name.
    ReleaseIgnoresToken,
    /// A release frees whatever hold there is of the name.
    ReleaseIgnoresSession,
    /// A waiter that cannot be granted any more ends the promotion.
    PassedOverWaiterStalls,
    /// One free lock wakes two waiters.
    PromotesTwo,
    /// The latest waiter is served first.
    LastInFirstOut,
    /// A wait does not end when its time is up.
    WaitWithoutEnd,
    /// A wait ends after half of its time.
    WaitEndsEarly,
    /// A heartbeat moves the deadline of its session, and the index keeps the old one.
    TouchNotIndexed,
    /// A released hold leaves its deadline in the index.
    HoldDeadlineLeftBehind,
    /// Every election gives every session its whole TTL again.
    TermRestartsTtl,
    /// Every election gives a grace, however many there were since the session was heard of.
    GraceWithoutBound,
    /// A name that nobody holds or waits for stays in the table.
    FreeNameKept,
    /// The counter of tokens is not in the snapshot.
    TokensNotInSnapshot,
    /// The kept answers are not in the snapshot.
    AnswersNotInSnapshot,
    /// The queues are not in the snapshot.
    WaitersNotInSnapshot,
    /// A table from a snapshot has an empty index of deadlines.
    DeadlinesNotRebuilt,
}

const NONE: u8 = u8::MAX;

static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

/// This bug is active from now on, and no other of this crate.
pub fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
}

impl Bug {
    pub(crate) fn is_active(self) -> bool {
        ACTIVE.load(Ordering::Relaxed) == self as u8
    }
}
