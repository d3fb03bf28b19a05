//! Bugs that are planted on purpose, to show that the simulation finds them. They exist only with the
//! feature `planted`, which only the simulation turns on; one at a time is active, in the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that a replica could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A new leader counts from zero.
    TimeRestartsAtZero,
    /// A new leader stamps with the reading of its own clock.
    TimeFromOwnClock,
    /// A new leader goes on from its log alone.
    ForgetsLeaderTime,
    /// A leader counts a turn that stalled in full.
    StallCountsInFull,
    /// A leader ends what is due in its own table, without an entry in the log.
    ExpiryOutsideTheLog,
    /// A command is answered when it is proposed.
    AnswerBeforeCommit,
    /// A heartbeat is answered when it is proposed.
    HeartbeatBeforeCommit,
    /// A leader serves reads without asking whether it still leads.
    ReadWithoutQuorum,
    /// A leader serves reads without a quorum, as long as no other leader should have been elected.
    ReadByLease,
    /// Votes and acknowledgements leave before the turn is on disk.
    SentBeforeDurable,
    /// The table stays as it is when a snapshot is installed.
    InstalledSnapshotIgnored,
    /// A deposed leader answers its callers with what others wrote at their index.
    AnswersOfAnotherTerm,
    /// A change of voters counts at once, without a joint state.
    JointStateSkipped,
    /// A node that restarts goes by the members in its file.
    MembersOfTheFile,
    /// Nodes that are added are served the log from its beginning.
    BeginningIsServed,
    /// A restored cluster goes on with the tokens of the backup.
    RestoreKeepsTokens,
    /// A restored cluster takes the clock's token, or the backup's where that is higher, without a leap and
    /// without a question.
    RestoreTrustsTheClock,
    /// A restored cluster goes on with the backup's term, plus one.
    RestoreLeapsNoTerm,
    /// A restored cluster grants at once.
    RestoreOpensAtOnce,
    /// A leader adopts new rules though some member cannot read that yet.
    RulesBeforeAllReadThem,
    /// A node of a new build follows the new rules at once, without an entry in the log.
    RulesOfTheBuild,
    /// A group beside the root group removes a voter without a joint state.
    FollowerSkipsJointState,
    /// A group beside the root group gives a vote that the root group has not given yet.
    VoteBeforeRootGroup,
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
