//! Bugs that are planted on purpose, to show that tests find them. They exist only with the feature `planted`, which
//! only tests turn on; one at a time is active, in the whole process.

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
    /// A name without holders and waiters stays in the table.
    FreeNameKept,
    /// The counter of tokens is not in the snapshot.
    TokensNotInSnapshot,
    /// The kept answers are not in the snapshot.
    AnswersNotInSnapshot,
    /// The queues are not in the snapshot.
    WaitersNotInSnapshot,
    /// A table from a snapshot has an empty index of deadlines.
    DeadlinesNotRebuilt,
    /// A reader is let in beside a writer.
    SharedBesideExclusive,
    /// A reader is let in though a writer waits.
    ReaderOvertakesWriter,
    /// A semaphore gives out one permit more than it has.
    PermitsOffByOne,
    /// An acquire-all is granted what is free of it.
    AcquireAllInPart,
    /// A reader becomes the writer under the token that it had.
    UpgradeKeepsToken,
    /// Two readers of one lock may both wait to become the writer.
    TwoUpgraders,
    /// A lock that is handed over keeps its token.
    TransferKeepsToken,
    /// What becomes free under a frozen prefix goes to the next in line.
    FreezeLetsPromotionPass,
    /// A session that expires leaves no door closed.
    LockDelayForgottenOnExpiry,
    /// A wounded holder is told so, and holds.
    WoundedKeepsHold,
    /// A younger actor waits for an older one though it was to die.
    YoungerWaits,
    /// Those ahead in a queue are not looked at for cycles.
    CycleThroughQueueMissed,
    /// Of a wait in several queues one place stays when it ends.
    AcquireAllLeavesAPlace,
    /// An upgrade loses the deadline of the hold.
    UpgradeLosesDeadline,
    /// The first release frees what was entered twice.
    ReentryNotCounted,
    /// An operator breaks whatever is held, whichever token was meant.
    BreakIgnoresToken,
    /// The numbers of permits that operators set are not in the snapshot.
    PermitsNotInSnapshot,
    /// Freezes are not in the snapshot.
    FreezesNotInSnapshot,
    /// Doors that a lock delay closes are not in the snapshot.
    DelaysNotInSnapshot,
    /// A snapshot that is written in slices has an entry as it is when the walk comes to it.
    WalkMissesChange,
    /// The bytes of a session that expires still count.
    ExpiryKeepsBytes,
    /// A restored table keeps its sessions.
    RestoreKeepsSessions,
    /// A promotion for which a log entry has no steps left is forgotten.
    DeferredPromotionLost,
    /// The last member of an acquire-all is not compared with the policy.
    LastMemberUnchecked,
    /// What a session may do is not computed again after a change of the policy.
    StaleGrants,
    /// A request that waited is granted though its principal may not have it any more.
    RevokedWaiterGranted,
    /// A principal may take more than its quota.
    QuotaNotAsked,
    /// A place in a queue does not count, so a principal that waits may hold more than its quota.
    QuotaWithoutWaits,
    /// What was taken before a quota was set, or a snapshot was read, does not count.
    QuotaBeginsAtNothing,
    /// Locks are granted in slots that the group does not own.
    GrantWithoutOwnership,
    /// The slots change, and the epoch stays.
    EpochNotRaised,
    /// The refusal of a lock of another group is kept, and the retry gets it although the slot has come.
    WrongGroupKeptAsAnswer,
    /// What is left of a session that is ending is not in the snapshot.
    EndingNotInSnapshot,
    /// A group adopts a policy that is not newer than its own.
    OlderPolicyAdopted,
    /// What a session may do is not computed again after the adoption of a policy.
    StaleGrantsAfterAdoption,
    /// The sessions that a change of the policy has ended go on in the groups that adopt the policy.
    AdoptionEndsNoSessions,
    /// A group grants locks in slots that it has sealed.
    GrantWhileSealed,
    /// The group that gets slots goes on with its own tokens.
    CounterNotHandedOver,
    /// The waiters of a lock are lost when it moves.
    WaitersNotMoved,
    /// A copy of a commit puts what was in the slots in once more.
    AdoptedTwice,
    /// The group that gets slots keeps its epoch.
    MoveKeepsEpoch,
    /// The slots go back to their group before the other one has aborted.
    ReturnBeforeAbort,
    /// What has moved keeps the times of the other group.
    MovedTimesNotShifted,
    /// The answer to a heartbeat does not tell that holds have left.
    DeparturesNotTold,
    /// A session does not remember the requests whose holds have left.
    DepartedRequestsForgotten,
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

    /// Nothing, if this bug is active.
    pub(crate) fn hide<T>(self, told: Option<T>) -> Option<T> {
        told.filter(|_| !self.is_active())
    }
}
