//! Bugs that are planted on purpose: [`ALL`] of them, each with the place where it is planted. A harness
//! that never caught a bug has shown nothing; these show what it catches.

mod here;

use holdfast_client_core::planted as client;
use holdfast_core::planted as core;
use holdfast_engine::planted as engine;
use holdfast_replica::planted as replica;
use holdfast_wal::planted as wal;

use crate::fault::FaultKind;

pub(crate) use here::Bug;

/// A bug, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub name: &'static str,
    /// The file, below `crates/`.
    pub place: &'static str,
    /// What goes wrong in the runs that are to find it: everything, or what it takes to bring out a bug that
    /// shows only in a rare coincidence.
    pub faults: &'static [FaultKind],
    bug: Planted,
}

#[derive(Clone, Copy, Debug)]
enum Planted {
    Core(core::Bug),
    Replica(replica::Bug),
    Engine(engine::Bug),
    Wal(wal::Bug),
    Client(client::Bug),
    Here(Bug),
}

/// As long as this lives, the bug is in the program. One at a time.
#[derive(Debug)]
pub struct Activated(());

impl Mutant {
    pub fn named(name: &str) -> Option<&'static Mutant> {
        ALL.iter().find(|mutant| mutant.name == name)
    }

    pub fn activate(&self) -> Activated {
        let activated = Activated(());
        match self.bug {
            Planted::Core(bug) => core::activate(Some(bug)),
            Planted::Replica(bug) => replica::activate(Some(bug)),
            Planted::Engine(bug) => engine::activate(Some(bug)),
            Planted::Wal(bug) => wal::activate(Some(bug)),
            Planted::Client(bug) => client::activate(Some(bug)),
            Planted::Here(bug) => here::activate(Some(bug)),
        }
        activated
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        core::activate(None);
        replica::activate(None);
        engine::activate(None);
        wal::activate(None);
        client::activate(None);
        here::activate(None);
    }
}

const fn mutant(name: &'static str, place: &'static str, bug: Planted) -> Mutant {
    Mutant { name, place, faults: &FaultKind::ALL, bug }
}

const fn rare(
    name: &'static str,
    place: &'static str,
    bug: Planted,
    faults: &'static [FaultKind],
) -> Mutant {
    Mutant { name, place, faults, bug }
}

const RESTORES: &[FaultKind] = &[FaultKind::Restore, FaultKind::Crash, FaultKind::PausedClient];

/// New voters, and votes that are long under way between sides that cannot hear each other.
const CHANGES_AND_SPLITS: &[FaultKind] = &[
    FaultKind::ReplacedNode,
    FaultKind::ReplacedNode,
    FaultKind::AddedNode,
    FaultKind::RemovedNode,
    FaultKind::SplitOverChange,
    FaultKind::Majority,
    FaultKind::SplitClients,
    FaultKind::Delay,
    FaultKind::PausedNode,
];

/// Leaders that are lost while everybody is silent, and the sessions of those who never come back.
const SILENCE_AND_LOST_LEADERS: &[FaultKind] = &[
    FaultKind::PausedClient,
    FaultKind::PausedClient,
    FaultKind::DeadClient,
    FaultKind::DeadClient,
    FaultKind::Crash,
    FaultKind::IsolatedNode,
    FaultKind::LeaderTransfer,
    FaultKind::SaidToBeGone,
];

/// Every bug that is planted.
pub const ALL: &[Mutant] = &[
    mutant(
        "grant-to-ended-session",
        "core/state/session.rs",
        Planted::Core(core::Bug::GrantToEndedSession),
    ),
    mutant(
        "ended-session-keeps-holds",
        "core/state/session.rs",
        Planted::Core(core::Bug::EndedSessionKeepsHolds),
    ),
    mutant("renew-of-lost-hold", "core/rules/renew.rs", Planted::Core(core::Bug::RenewOfLostHold)),
    mutant("renew-past-max-hold", "core/state/hold.rs", Planted::Core(core::Bug::RenewPastMaxHold)),
    mutant(
        "cancel-leaves-waiter",
        "core/rules/cancel.rs",
        Planted::Core(core::Bug::CancelLeavesWaiter),
    ),
    mutant(
        "early-cancel-forgotten",
        "core/rules/cancel.rs",
        Planted::Core(core::Bug::EarlyCancelForgotten),
    ),
    mutant(
        "cancel-of-hold-says-done",
        "core/rules/cancel.rs",
        Planted::Core(core::Bug::CancelOfHoldSaysDone),
    ),
    mutant(
        "own-hold-satisfies-acquire",
        "core/rules/acquire.rs",
        Planted::Core(core::Bug::OwnHoldSatisfiesAcquire),
    ),
    mutant("acquire-not-once", "core/rules/dedup.rs", Planted::Core(core::Bug::AcquireNotOnce)),
    mutant("refusal-not-once", "core/rules/dedup.rs", Planted::Core(core::Bug::RefusalNotOnce)),
    mutant(
        "release-ignores-token",
        "core/rules/release.rs",
        Planted::Core(core::Bug::ReleaseIgnoresToken),
    ),
    mutant(
        "release-ignores-session",
        "core/rules/release.rs",
        Planted::Core(core::Bug::ReleaseIgnoresSession),
    ),
    mutant(
        "passed-over-waiter-stalls",
        "core/rules/promotion.rs",
        Planted::Core(core::Bug::PassedOverWaiterStalls),
    ),
    mutant("promotes-two", "core/rules/promotion.rs", Planted::Core(core::Bug::PromotesTwo)),
    mutant("last-in-first-out", "core/state/queue.rs", Planted::Core(core::Bug::LastInFirstOut)),
    mutant("wait-without-end", "core/rules/acquire.rs", Planted::Core(core::Bug::WaitWithoutEnd)),
    mutant("wait-ends-early", "core/rules/acquire.rs", Planted::Core(core::Bug::WaitEndsEarly)),
    mutant("touch-not-indexed", "core/state/table.rs", Planted::Core(core::Bug::TouchNotIndexed)),
    mutant(
        "hold-deadline-left-behind",
        "core/state/table.rs",
        Planted::Core(core::Bug::HoldDeadlineLeftBehind),
    ),
    mutant("term-restarts-ttl", "core/rules/tick.rs", Planted::Core(core::Bug::TermRestartsTtl)),
    // Three leaders in a row within the grace of a session that has fallen silent.
    rare(
        "grace-without-bound",
        "core/rules/tick.rs",
        Planted::Core(core::Bug::GraceWithoutBound),
        &[FaultKind::LeaderTransfer, FaultKind::DeadClient],
    ),
    mutant("free-name-kept", "core/state/table.rs", Planted::Core(core::Bug::FreeNameKept)),
    mutant(
        "tokens-not-in-snapshot",
        "core/state/snapshot.rs",
        Planted::Core(core::Bug::TokensNotInSnapshot),
    ),
    mutant(
        "answers-not-in-snapshot",
        "core/state/snapshot.rs",
        Planted::Core(core::Bug::AnswersNotInSnapshot),
    ),
    mutant(
        "waiters-not-in-snapshot",
        "core/state/snapshot.rs",
        Planted::Core(core::Bug::WaitersNotInSnapshot),
    ),
    mutant(
        "deadlines-not-rebuilt",
        "core/state/snapshot.rs",
        Planted::Core(core::Bug::DeadlinesNotRebuilt),
    ),
    mutant(
        "shared-beside-exclusive",
        "core/rules/admission.rs",
        Planted::Core(core::Bug::SharedBesideExclusive),
    ),
    mutant(
        "reader-overtakes-writer",
        "core/rules/admission.rs",
        Planted::Core(core::Bug::ReaderOvertakesWriter),
    ),
    mutant(
        "permits-off-by-one",
        "core/rules/admission.rs",
        Planted::Core(core::Bug::PermitsOffByOne),
    ),
    mutant(
        "acquire-all-in-part",
        "core/rules/acquire.rs",
        Planted::Core(core::Bug::AcquireAllInPart),
    ),
    mutant(
        "upgrade-keeps-token",
        "core/rules/promotion.rs",
        Planted::Core(core::Bug::UpgradeKeepsToken),
    ),
    mutant("two-upgraders", "core/rules/convert.rs", Planted::Core(core::Bug::TwoUpgraders)),
    mutant(
        "transfer-keeps-token",
        "core/rules/transfer.rs",
        Planted::Core(core::Bug::TransferKeepsToken),
    ),
    mutant(
        "freeze-lets-promotion-pass",
        "core/rules/promotion.rs",
        Planted::Core(core::Bug::FreezeLetsPromotionPass),
    ),
    mutant(
        "lock-delay-forgotten-on-expiry",
        "core/rules/teardown.rs",
        Planted::Core(core::Bug::LockDelayForgottenOnExpiry),
    ),
    mutant(
        "wounded-keeps-hold",
        "core/rules/acquire.rs",
        Planted::Core(core::Bug::WoundedKeepsHold),
    ),
    mutant("younger-waits", "core/rules/acquire.rs", Planted::Core(core::Bug::YoungerWaits)),
    mutant(
        "cycle-through-queue-missed",
        "core/rules/deadlock.rs",
        Planted::Core(core::Bug::CycleThroughQueueMissed),
    ),
    mutant(
        "acquire-all-leaves-a-place",
        "core/state/table.rs",
        Planted::Core(core::Bug::AcquireAllLeavesAPlace),
    ),
    mutant(
        "upgrade-loses-deadline",
        "core/state/table.rs",
        Planted::Core(core::Bug::UpgradeLosesDeadline),
    ),
    mutant(
        "reentry-not-counted",
        "core/rules/release.rs",
        Planted::Core(core::Bug::ReentryNotCounted),
    ),
    mutant(
        "break-ignores-token",
        "core/rules/break_holds.rs",
        Planted::Core(core::Bug::BreakIgnoresToken),
    ),
    mutant(
        "permits-not-in-snapshot",
        "core/state/snapshot.rs",
        Planted::Core(core::Bug::PermitsNotInSnapshot),
    ),
    mutant(
        "freezes-not-in-snapshot",
        "core/state/snapshot.rs",
        Planted::Core(core::Bug::FreezesNotInSnapshot),
    ),
    mutant(
        "delays-not-in-snapshot",
        "core/state/snapshot.rs",
        Planted::Core(core::Bug::DelaysNotInSnapshot),
    ),
    mutant(
        "walk-misses-change",
        "core/state/snapshot_map.rs",
        Planted::Core(core::Bug::WalkMissesChange),
    ),
    mutant(
        "time-restarts-at-zero",
        "replica/replica/office.rs",
        Planted::Replica(replica::Bug::TimeRestartsAtZero),
    ),
    mutant(
        "time-from-own-clock",
        "replica/replica/office.rs",
        Planted::Replica(replica::Bug::TimeFromOwnClock),
    ),
    // A leader is lost after nobody has written anything for a while.
    rare(
        "forgets-heard-time",
        "replica/heard_time.rs",
        Planted::Replica(replica::Bug::ForgetsHeardTime),
        SILENCE_AND_LOST_LEADERS,
    ),
    mutant(
        "stall-counts-in-full",
        "replica/clock.rs",
        Planted::Replica(replica::Bug::StallCountsInFull),
    ),
    mutant(
        "expiry-outside-the-log",
        "replica/replica/proposals.rs",
        Planted::Replica(replica::Bug::ExpiryOutsideTheLog),
    ),
    mutant(
        "answer-before-commit",
        "replica/replica/proposals.rs",
        Planted::Replica(replica::Bug::AnswerBeforeCommit),
    ),
    mutant(
        "heartbeat-before-commit",
        "replica/replica/proposals.rs",
        Planted::Replica(replica::Bug::HeartbeatBeforeCommit),
    ),
    // A client that reads at a leader which does not know yet that there is another.
    rare(
        "read-without-quorum",
        "replica/replica.rs",
        Planted::Replica(replica::Bug::ReadWithoutQuorum),
        &[FaultKind::SplitClients, FaultKind::PausedNode, FaultKind::OneWay],
    ),
    // A leader that lives, is believed to be gone, and is cut off from all but its clients.
    rare(
        "read-by-lease",
        "replica/consensus.rs",
        Planted::Replica(replica::Bug::ReadByLease),
        &[FaultKind::SaidToBeGone],
    ),
    mutant(
        "sent-before-durable",
        "replica/consensus.rs",
        Planted::Replica(replica::Bug::SentBeforeDurable),
    ),
    mutant(
        "installed-snapshot-ignored",
        "replica/replica.rs",
        Planted::Replica(replica::Bug::InstalledSnapshotIgnored),
    ),
    mutant(
        "answers-of-another-term",
        "replica/pending.rs",
        Planted::Replica(replica::Bug::AnswersOfAnotherTerm),
    ),
    // One side goes by the voters of before and the other by those of after, and neither by both.
    rare(
        "joint-state-skipped",
        "replica/consensus/members.rs",
        Planted::Replica(replica::Bug::JointStateSkipped),
        CHANGES_AND_SPLITS,
    ),
    mutant(
        "members-of-the-file",
        "replica/replica.rs",
        Planted::Replica(replica::Bug::MembersOfTheFile),
    ),
    mutant(
        "beginning-is-served",
        "replica/consensus/members.rs",
        Planted::Replica(replica::Bug::BeginningIsServed),
    ),
    mutant(
        "restore-keeps-tokens",
        "replica/anew/numbers.rs",
        Planted::Replica(replica::Bug::RestoreKeepsTokens),
    ),
    // A first restore by a clock that is ahead or behind, and a second one.
    rare(
        "restore-trusts-the-clock",
        "replica/anew/numbers.rs",
        Planted::Replica(replica::Bug::RestoreTrustsTheClock),
        RESTORES,
    ),
    mutant(
        "restore-leaps-no-term",
        "replica/anew/numbers.rs",
        Planted::Replica(replica::Bug::RestoreLeapsNoTerm),
    ),
    mutant(
        "restore-opens-at-once",
        "replica/anew.rs",
        Planted::Replica(replica::Bug::RestoreOpensAtOnce),
    ),
    mutant(
        "restore-keeps-sessions",
        "core/rules/restore.rs",
        Planted::Core(core::Bug::NewBeginningKeepsSessions),
    ),
    mutant(
        "deferred-promotion-lost",
        "core/rules/promotion.rs",
        Planted::Core(core::Bug::DeferredPromotionLost),
    ),
    mutant(
        "expiry-keeps-bytes",
        "core/rules/teardown.rs",
        Planted::Core(core::Bug::ExpiryKeepsBytes),
    ),
    mutant(
        "rules-before-all-read-them",
        "replica/replica/rules.rs",
        Planted::Replica(replica::Bug::RulesBeforeAllReadThem),
    ),
    mutant(
        "rules-of-the-build",
        "replica/replica/rules.rs",
        Planted::Replica(replica::Bug::RulesOfTheBuild),
    ),
    // The power fails after the answer and before the sync.
    rare(
        "answer-before-sync",
        "engine/engine.rs",
        Planted::Engine(engine::Bug::AnswerBeforeSync),
        &[FaultKind::PowerCut, FaultKind::TornWrite, FaultKind::CrashLoop, FaultKind::SlowDisk],
    ),
    mutant(
        "parked-caller-forgotten",
        "engine/callers.rs",
        Planted::Engine(engine::Bug::ParkedCallerForgotten),
    ),
    mutant(
        "notice-to-older-stream",
        "engine/streams.rs",
        Planted::Engine(engine::Bug::NoticeToOlderStream),
    ),
    mutant(
        "touch-answered-before-commit",
        "engine/engine/inputs.rs",
        Planted::Engine(engine::Bug::HeartbeatBeforeCommit),
    ),
    mutant(
        "deferred-heartbeat-dropped",
        "engine/engine/inputs.rs",
        Planted::Engine(engine::Bug::DeferredHeartbeatDropped),
    ),
    mutant(
        "refused-but-executed",
        "engine/engine/inputs.rs",
        Planted::Engine(engine::Bug::RefusedButExecuted),
    ),
    // A client that reads at a leader which does not know yet that there is another.
    rare(
        "read-before-read-index",
        "engine/engine/inputs.rs",
        Planted::Engine(engine::Bug::ReadBeforeReadIndex),
        &[FaultKind::SplitClients, FaultKind::PausedNode, FaultKind::OneWay],
    ),
    mutant("lease-too-long", "engine/leader_lease.rs", Planted::Engine(engine::Bug::LeaseTooLong)),
    // A hold ends while the stream is broken, and the session comes back.
    rare(
        "resume-loses-loss",
        "engine/engine/effects.rs",
        Planted::Engine(engine::Bug::ResumeLosesLoss),
        &[FaultKind::ClientsCutOff, FaultKind::Loss, FaultKind::LeaderTransfer],
    ),
    mutant(
        "call-carried-out-twice",
        "engine/engine/inputs.rs",
        Planted::Engine(engine::Bug::CallCarriedOutTwice),
    ),
    mutant("no-sync", "wal/wal.rs", Planted::Wal(wal::Bug::NoSync)),
    mutant("hard-state-not-written", "wal/wal.rs", Planted::Wal(wal::Bug::HardStateNotWritten)),
    // Two candidates of one term, and a voter that restarts while the request of the second is under way.
    rare(
        "vote-not-written",
        "wal/wal.rs",
        Planted::Wal(wal::Bug::VoteNotWritten),
        &[FaultKind::CrashLoop, FaultKind::PowerCut, FaultKind::Delay],
    ),
    mutant(
        "snapshot-checksum-ignored",
        "wal/snapshot.rs",
        Planted::Wal(wal::Bug::SnapshotChecksumIgnored),
    ),
    mutant(
        "truncation-not-replayed",
        "wal/replay.rs",
        Planted::Wal(wal::Bug::TruncationNotReplayed),
    ),
    mutant("segment-deleted-too-soon", "wal/wal.rs", Planted::Wal(wal::Bug::SegmentDeletedTooSoon)),
    mutant("checksum-ignored", "wal/block.rs", Planted::Wal(wal::Bug::ChecksumIgnored)),
    mutant("no-margin", "client-core/lease.rs", Planted::Client(client::Bug::NoMargin)),
    mutant(
        "hold-deadline-ignored",
        "client-core/lease.rs",
        Planted::Client(client::Bug::HoldDeadlineIgnored),
    ),
    mutant(
        "best-effort-kept-without-leader",
        "client-core/lease.rs",
        Planted::Client(client::Bug::BestEffortKeptWithoutLeader),
    ),
    mutant("linger-ignored", "client-core/lease.rs", Planted::Client(client::Bug::LingerIgnored)),
    mutant(
        "lease-from-answer",
        "client-core/session/answers.rs",
        Planted::Client(client::Bug::LeaseFromAnswer),
    ),
    mutant(
        "lease-from-last-sending",
        "client-core/in_flight.rs",
        Planted::Client(client::Bug::LeaseFromLastSending),
    ),
    mutant("token-past-lease", "client-core/hold.rs", Planted::Client(client::Bug::TokenPastLease)),
    mutant(
        "resend-under-new-id",
        "client-core/session/state.rs",
        Planted::Client(client::Bug::ResendUnderNewId),
    ),
    // A hold ends while the stream is broken, and the session comes back.
    rare(
        "told-loss-ignored",
        "client-core/session/answers.rs",
        Planted::Client(client::Bug::ResumeLosesLoss),
        &[FaultKind::ClientsCutOff, FaultKind::Loss, FaultKind::LeaderTransfer],
    ),
    mutant(
        "abandoned-grant-kept",
        "client-core/session/state.rs",
        Planted::Client(client::Bug::AbandonedGrantKept),
    ),
    mutant(
        "notice-ends-newer-hold",
        "client-core/session/answers.rs",
        Planted::Client(client::Bug::NoticeEndsNewerHold),
    ),
    mutant("wiped-node-comes-back", "sim/fault/strike.rs", Planted::Here(Bug::WipedNodeComesBack)),
];
