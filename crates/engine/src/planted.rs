//! Bugs that are planted on purpose. The simulation turns on one at a time, in the whole process, and has to find it.
//! Without the feature `planted` none can be turned on.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that an engine could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A turn is acknowledged before it is on disk, so that its leader answers.
    AnswerBeforeSync,
    /// A leader that steps down forgets the callers that wait in queues.
    ParkedCallerForgotten,
    /// What a session did not ask for goes to a stream that it has left.
    NoticeToOlderStream,
    /// A heartbeat is answered when it comes.
    HeartbeatBeforeCommit,
    /// Heartbeats that were deferred are never carried out.
    DeferredHeartbeatDropped,
    /// What a full disk refuses is carried out when there is room.
    RefusedButExecuted,
    /// A read is served before a quorum has confirmed the leadership.
    ReadBeforeReadIndex,
    /// The efficiency tier trusts a confirmation for longer than the next leader waits.
    LeaseTooLong,
    /// The efficiency tier serves a session that has ended until the last of its replicated holds has ended, too.
    TierServesEndingSession,
    /// A session that is resumed is not told what it lost.
    ResumeLosesLoss,
    /// A leader carries out a call twice, be it forwarded or not.
    CallCarriedOutTwice,
    /// The leader of the root group takes a heartbeat for another group as its own.
    HeartbeatCountedForAllGroups,
    /// A node that loses the leadership of a group ends the streams and fails the waiting callers of all groups.
    LostGroupEndsAllStreams,
    /// A node that loses the leadership of a group forgets the callers of other groups that wait in queues.
    LostGroupForgetsOtherCallers,
    /// The groups beside the root group never get its policy.
    PolicyNotOffered,
    /// A node takes no commands as long as one of its groups has no leader.
    LostGroupStopsOthers,
    /// A node stops when one group has removed it, though others may need its vote.
    StopsWhenOneGroupRemovedIt,
    /// The groups beside the root group never get its members.
    MembersNotFollowed,
}

const NONE: u8 = u8::MAX;

static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

/// This bug is active from now on, and no other of this crate.
#[cfg(feature = "planted")]
pub fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
}

impl Bug {
    #[inline]
    pub(crate) fn is_active(self) -> bool {
        cfg!(feature = "planted") && ACTIVE.load(Ordering::Relaxed) == self as u8
    }
}
