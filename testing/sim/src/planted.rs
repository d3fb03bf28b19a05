//! Bugs that are planted on purpose: [`ALL`] of them, each with the place where it is planted. A harness
//! that never caught a bug has shown nothing; these show what it catches.

mod here;

use holdfast_client_core::planted as client;
use holdfast_core::planted as core;
use holdfast_engine::planted as engine;
use holdfast_replica::planted as replica;
use holdfast_service::planted as service;
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
    Service(service::Bug),
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
            Planted::Service(bug) => service::activate(Some(bug)),
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
        service::activate(None);
        wal::activate(None);
        client::activate(None);
        here::activate(None);
    }
}

/// One line per bug: its name, its place, which it is, and what goes wrong in the runs that are to find it.
macro_rules! mutants {
    (@faults) => { &FaultKind::ALL };
    (@faults $faults:ident) => { $faults };
    ($($name:literal in $place:literal: $kind:ident($home:ident::$bug:ident) $(under $faults:ident)?;)*) => {
        /// Every bug that is planted.
        pub const ALL: &[Mutant] = &[$(Mutant {
            name: $name,
            place: $place,
            faults: mutants!(@faults $($faults)?),
            bug: Planted::$kind($home::Bug::$bug),
        }),*];
    };
}

/// Rights that come and go while leaders do.
const REVOCATIONS: &[FaultKind] =
    &[FaultKind::Revocation, FaultKind::Revocation, FaultKind::LeaderTransfer, FaultKind::Crash];

/// Slots that come and go while leaders do, and clients that send again.
const SLOTS_TAKEN: &[FaultKind] = &[
    FaultKind::SlotsTaken,
    FaultKind::SlotsTaken,
    FaultKind::LeaderTransfer,
    FaultKind::Crash,
    FaultKind::ClientsCutOff,
];

/// One group loses its leader or its quorum while others go on, and clients fall silent.
const GROUPS_APART: &[FaultKind] = &[
    FaultKind::GroupQuorumLoss,
    FaultKind::GroupQuorumLoss,
    FaultKind::LeaderTransfer,
    FaultKind::PausedClient,
];

/// Rights that come and go while groups lose their leaders, so that these adopt the policy late.
const POLICY_OF_GROUPS: &[FaultKind] = &[
    FaultKind::Revocation,
    FaultKind::Revocation,
    FaultKind::Revocation,
    FaultKind::GroupQuorumLoss,
    FaultKind::LeaderTransfer,
];

/// Slots that come and go in one of several groups.
const SLOTS_OF_GROUPS: &[FaultKind] =
    &[FaultKind::SlotsTaken, FaultKind::SlotsTaken, FaultKind::GroupQuorumLoss];

/// Nodes that come and go while groups lose their leaders, so that these follow late.
const MEMBERS_OF_GROUPS: &[FaultKind] = &[
    FaultKind::AddedNode,
    FaultKind::AddedNode,
    FaultKind::RemovedNode,
    FaultKind::RemovedNode,
    FaultKind::ReplacedNode,
    FaultKind::GroupQuorumLoss,
    FaultKind::GroupQuorumLoss,
    FaultKind::LeaderTransfer,
    FaultKind::Crash,
];

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

/// Leaders that are lost while all clients are silent, and the sessions of clients that never come back.
const SILENCE_AND_LOST_LEADERS: &[FaultKind] = &[
    FaultKind::PausedClient,
    FaultKind::PausedClient,
    FaultKind::DeadClient,
    FaultKind::DeadClient,
    FaultKind::Crash,
    FaultKind::IsolatedNode,
    FaultKind::LeaderTransfer,
    FaultKind::CrashReport,
];

const LOST_STREAMS: &[FaultKind] =
    &[FaultKind::ClientsCutOff, FaultKind::Loss, FaultKind::LeaderTransfer];

const LATE_ANSWERS: &[FaultKind] = &[FaultKind::Duplication, FaultKind::Loss];

const TRANSFERS_AND_DEATHS: &[FaultKind] = &[FaultKind::LeaderTransfer, FaultKind::DeadClient];

const UNAWARE_LEADERS: &[FaultKind] =
    &[FaultKind::SplitClients, FaultKind::PausedNode, FaultKind::OneWay];

const FALSE_ALARMS: &[FaultKind] = &[FaultKind::CrashReport];

const CRASHES_IN_WRITES: &[FaultKind] =
    &[FaultKind::PowerCut, FaultKind::TornWrite, FaultKind::CrashLoop, FaultKind::SlowDisk];

const CRASHING_VOTERS: &[FaultKind] =
    &[FaultKind::CrashLoop, FaultKind::PowerCut, FaultKind::Delay];

mutants! {
    "grant-to-ended-session" in "core/state/session.rs": Core(core::GrantToEndedSession);
    "ended-session-keeps-holds" in "core/state/session.rs": Core(core::EndedSessionKeepsHolds);
    "renew-of-lost-hold" in "core/rules/renew.rs": Core(core::RenewOfLostHold);
    "renew-past-max-hold" in "core/state/hold.rs": Core(core::RenewPastMaxHold);
    "cancel-leaves-waiter" in "core/rules/cancel.rs": Core(core::CancelLeavesWaiter);
    "early-cancel-forgotten" in "core/rules/cancel.rs": Core(core::EarlyCancelForgotten);
    "cancel-of-hold-says-done" in "core/rules/cancel.rs": Core(core::CancelOfHoldSaysDone);
    "own-hold-satisfies-acquire" in "core/rules/acquire.rs": Core(core::OwnHoldSatisfiesAcquire);
    "acquire-not-once" in "core/rules/dedup.rs": Core(core::AcquireNotOnce);
    "refusal-not-once" in "core/rules/dedup.rs": Core(core::RefusalNotOnce);
    "release-ignores-token" in "core/rules/release.rs": Core(core::ReleaseIgnoresToken);
    "release-ignores-session" in "core/rules/release.rs": Core(core::ReleaseIgnoresSession);
    "passed-over-waiter-stalls" in "core/rules/promotion.rs": Core(core::PassedOverWaiterStalls);
    "promotes-two" in "core/rules/promotion.rs": Core(core::PromotesTwo);
    "last-in-first-out" in "core/state/queue.rs": Core(core::LastInFirstOut);
    "wait-without-end" in "core/rules/acquire.rs": Core(core::WaitWithoutEnd);
    "wait-ends-early" in "core/rules/acquire.rs": Core(core::WaitEndsEarly);
    "touch-not-indexed" in "core/state/table.rs": Core(core::TouchNotIndexed);
    "hold-deadline-left-behind" in "core/state/table.rs": Core(core::HoldDeadlineLeftBehind);
    "term-restarts-ttl" in "core/rules/tick.rs": Core(core::TermRestartsTtl);
    // Three leaders in a row within the grace of a session that has fallen silent.
    "grace-without-bound" in "core/rules/tick.rs": Core(core::GraceWithoutBound) under TRANSFERS_AND_DEATHS;
    "free-name-kept" in "core/state/table.rs": Core(core::FreeNameKept);
    "tokens-not-in-snapshot" in "core/state/snapshot.rs": Core(core::TokensNotInSnapshot);
    "answers-not-in-snapshot" in "core/state/snapshot.rs": Core(core::AnswersNotInSnapshot);
    "waiters-not-in-snapshot" in "core/state/snapshot.rs": Core(core::WaitersNotInSnapshot);
    "deadlines-not-rebuilt" in "core/state/snapshot.rs": Core(core::DeadlinesNotRebuilt);
    "shared-beside-exclusive" in "core/rules/admission.rs": Core(core::SharedBesideExclusive);
    "reader-overtakes-writer" in "core/rules/admission.rs": Core(core::ReaderOvertakesWriter);
    "permits-off-by-one" in "core/rules/admission.rs": Core(core::PermitsOffByOne);
    "acquire-all-in-part" in "core/rules/acquire.rs": Core(core::AcquireAllInPart);
    "upgrade-keeps-token" in "core/rules/promotion.rs": Core(core::UpgradeKeepsToken);
    "two-upgraders" in "core/rules/convert.rs": Core(core::TwoUpgraders);
    "transfer-keeps-token" in "core/rules/transfer.rs": Core(core::TransferKeepsToken);
    "freeze-lets-promotion-pass" in "core/rules/promotion.rs": Core(core::FreezeLetsPromotionPass);
    "lock-delay-forgotten-on-expiry" in "core/rules/teardown.rs": Core(core::LockDelayForgottenOnExpiry);
    "wounded-keeps-hold" in "core/rules/acquire.rs": Core(core::WoundedKeepsHold);
    "younger-waits" in "core/rules/acquire.rs": Core(core::YoungerWaits);
    "cycle-through-queue-missed" in "core/rules/deadlock.rs": Core(core::CycleThroughQueueMissed);
    "acquire-all-leaves-a-place" in "core/state/table.rs": Core(core::AcquireAllLeavesAPlace);
    "upgrade-loses-deadline" in "core/state/table.rs": Core(core::UpgradeLosesDeadline);
    "reentry-not-counted" in "core/rules/release.rs": Core(core::ReentryNotCounted);
    "break-ignores-token" in "core/rules/break_holds.rs": Core(core::BreakIgnoresToken);
    "permits-not-in-snapshot" in "core/state/snapshot.rs": Core(core::PermitsNotInSnapshot);
    "freezes-not-in-snapshot" in "core/state/snapshot.rs": Core(core::FreezesNotInSnapshot);
    "delays-not-in-snapshot" in "core/state/snapshot.rs": Core(core::DelaysNotInSnapshot);
    "walk-misses-change" in "core/state/snapshot_map.rs": Core(core::WalkMissesChange);
    "time-restarts-at-zero" in "replica/replica/leadership.rs": Replica(replica::TimeRestartsAtZero);
    "time-from-own-clock" in "replica/replica/leadership.rs": Replica(replica::TimeFromOwnClock);
    // A leader is lost after no client has written for a while.
    "forgets-heard-time" in "replica/leader_time.rs": Replica(replica::ForgetsLeaderTime) under SILENCE_AND_LOST_LEADERS;
    "stall-counts-in-full" in "replica/clock.rs": Replica(replica::StallCountsInFull);
    "expiry-outside-the-log" in "replica/replica/proposals.rs": Replica(replica::ExpiryOutsideTheLog);
    "answer-before-commit" in "replica/replica/proposals.rs": Replica(replica::AnswerBeforeCommit);
    "heartbeat-before-commit" in "replica/replica/proposals.rs": Replica(replica::HeartbeatBeforeCommit);
    // A client that reads at a leader which does not know yet that there is another.
    "read-without-quorum" in "replica/replica.rs": Replica(replica::ReadWithoutQuorum) under UNAWARE_LEADERS;
    // A leader that lives, is believed to be gone, and is cut off from all but its clients.
    "read-by-lease" in "replica/consensus.rs": Replica(replica::ReadByLease) under FALSE_ALARMS;
    "sent-before-durable" in "replica/consensus.rs": Replica(replica::SentBeforeDurable);
    "installed-snapshot-ignored" in "replica/replica.rs": Replica(replica::InstalledSnapshotIgnored);
    "answers-of-another-term" in "replica/pending.rs": Replica(replica::AnswersOfAnotherTerm);
    // One side goes by the voters of before and the other by those of after, and neither by both.
    "joint-state-skipped" in "replica/consensus/members.rs": Replica(replica::JointStateSkipped) under CHANGES_AND_SPLITS;
    "members-of-the-file" in "replica/replica.rs": Replica(replica::MembersOfTheFile);
    "beginning-is-served" in "replica/consensus/members.rs": Replica(replica::BeginningIsServed);
    "restore-keeps-tokens" in "replica/restore/numbers.rs": Replica(replica::RestoreKeepsTokens);
    // A first restore by a clock that is ahead or behind, and a second one.
    "restore-trusts-the-clock" in "replica/restore/numbers.rs": Replica(replica::RestoreTrustsTheClock) under RESTORES;
    "restore-leaps-no-term" in "replica/restore/numbers.rs": Replica(replica::RestoreLeapsNoTerm);
    "restore-opens-at-once" in "replica/restore.rs": Replica(replica::RestoreOpensAtOnce);
    "restore-keeps-sessions" in "core/rules/restore.rs": Core(core::RestoreKeepsSessions);
    "deferred-promotion-lost" in "core/rules/promotion.rs": Core(core::DeferredPromotionLost);
    "last-member-unchecked" in "core/rules/access.rs": Core(core::LastMemberUnchecked) under REVOCATIONS;
    "hidden-name-shown" in "service/hidden_names.rs": Service(service::HiddenNameShown) under REVOCATIONS;
    "stale-grants" in "core/state/table/access.rs": Core(core::StaleGrants) under REVOCATIONS;
    "revoked-waiter-granted" in "core/rules/access.rs": Core(core::RevokedWaiterGranted) under REVOCATIONS;
    "quota-not-asked" in "core/rules/room.rs": Core(core::QuotaNotAsked) under REVOCATIONS;
    "quota-without-waits" in "core/state/table/queues.rs": Core(core::QuotaWithoutWaits) under REVOCATIONS;
    "quota-begins-at-nothing" in "core/state/table/usage.rs": Core(core::QuotaBeginsAtNothing) under REVOCATIONS;
    "grant-without-ownership" in "core/state/ownership.rs": Core(core::GrantWithoutOwnership) under SLOTS_TAKEN;
    "epoch-not-raised" in "core/rules/ownership.rs": Core(core::EpochNotRaised) under SLOTS_TAKEN;
    "wrong-group-kept-as-answer" in "core/rules/ownership.rs": Core(core::WrongGroupKeptAsAnswer) under SLOTS_TAKEN;
    "ending-not-in-snapshot" in "core/state/snapshot.rs": Core(core::EndingNotInSnapshot);
    "grant-in-a-second-group" in "core/state/ownership.rs": Core(core::GrantWithoutOwnership) under GROUPS_APART;
    "epoch-of-a-group-not-raised" in "core/rules/ownership.rs": Core(core::EpochNotRaised) under SLOTS_OF_GROUPS;
    "heartbeat-counted-for-all-groups" in "engine/engine/inputs.rs": Engine(engine::HeartbeatCountedForAllGroups) under GROUPS_APART;
    "lost-group-ends-all-streams" in "engine/engine/effects.rs": Engine(engine::LostGroupEndsAllStreams) under GROUPS_APART;
    "lost-group-forgets-other-callers" in "engine/engine/effects.rs": Engine(engine::LostGroupForgetsOtherCallers) under GROUPS_APART;
    "lost-group-stops-others" in "engine/engine/inputs.rs": Engine(engine::LostGroupStopsOthers) under GROUPS_APART;
    "older-policy-adopted" in "core/rules/access.rs": Core(core::OlderPolicyAdopted) under POLICY_OF_GROUPS;
    "stale-grants-after-adoption" in "core/state/table/access.rs": Core(core::StaleGrantsAfterAdoption) under POLICY_OF_GROUPS;
    "adoption-ends-no-sessions" in "core/rules/access.rs": Core(core::AdoptionEndsNoSessions) under POLICY_OF_GROUPS;
    "policy-not-offered" in "engine/engine/policy.rs": Engine(engine::PolicyNotOffered) under POLICY_OF_GROUPS;
    "expiry-keeps-bytes" in "core/rules/teardown.rs": Core(core::ExpiryKeepsBytes);
    "rules-before-all-read-them" in "replica/replica/rules.rs": Replica(replica::RulesBeforeAllReadThem);
    "rules-of-the-build" in "replica/replica/rules.rs": Replica(replica::RulesOfTheBuild);
    // The power fails after the answer and before the sync.
    "answer-before-sync" in "engine/engine.rs": Engine(engine::AnswerBeforeSync) under CRASHES_IN_WRITES;
    "parked-caller-forgotten" in "engine/callers.rs": Engine(engine::ParkedCallerForgotten);
    "notice-to-older-stream" in "engine/streams.rs": Engine(engine::NoticeToOlderStream);
    "touch-answered-before-commit" in "engine/engine/inputs.rs": Engine(engine::HeartbeatBeforeCommit);
    "deferred-heartbeat-dropped" in "engine/engine/inputs.rs": Engine(engine::DeferredHeartbeatDropped);
    "refused-but-executed" in "engine/engine/inputs.rs": Engine(engine::RefusedButExecuted);
    // A client that reads at a leader which does not know yet that there is another.
    "read-before-read-index" in "engine/engine/inputs.rs": Engine(engine::ReadBeforeReadIndex) under UNAWARE_LEADERS;
    "lease-too-long" in "engine/leader_lease.rs": Engine(engine::LeaseTooLong);
    // A hold ends while the stream is broken, and the session comes back.
    "resume-loses-loss" in "engine/engine/effects.rs": Engine(engine::ResumeLosesLoss) under LOST_STREAMS;
    "tier-serves-ending-session" in "engine/engine/effects.rs": Engine(engine::TierServesEndingSession);
    "call-carried-out-twice" in "engine/engine/inputs.rs": Engine(engine::CallCarriedOutTwice);
    "no-sync" in "wal/wal.rs": Wal(wal::NoSync);
    "hard-state-not-written" in "wal/wal.rs": Wal(wal::HardStateNotWritten);
    // Two candidates of one term, and a voter that restarts while the request of the second is under way.
    "vote-not-written" in "wal/wal.rs": Wal(wal::VoteNotWritten) under CRASHING_VOTERS;
    "snapshot-checksum-ignored" in "wal/snapshot.rs": Wal(wal::SnapshotChecksumIgnored);
    "truncation-not-replayed" in "wal/replay.rs": Wal(wal::TruncationNotReplayed);
    "segment-deleted-too-soon" in "wal/wal.rs": Wal(wal::SegmentDeletedTooSoon);
    "checksum-ignored" in "wal/block.rs": Wal(wal::ChecksumIgnored);
    "no-margin" in "client-core/lease.rs": Client(client::NoMargin);
    "hold-deadline-ignored" in "client-core/lease.rs": Client(client::HoldDeadlineIgnored);
    "best-effort-kept-without-leader" in "client-core/lease.rs": Client(client::BestEffortKeptWithoutLeader);
    "linger-ignored" in "client-core/lease.rs": Client(client::LingerIgnored);
    "lease-from-answer" in "client-core/session/answers.rs": Client(client::LeaseFromAnswer);
    // The answer to a call comes after it was sent again.
    "lease-from-last-sending" in "client-core/in_flight.rs": Client(client::LeaseFromLastSending) under LATE_ANSWERS;
    "token-past-lease" in "client-core/hold.rs": Client(client::TokenPastLease);
    "resend-under-new-id" in "client-core/session/state.rs": Client(client::ResendUnderNewId);
    // A hold ends while the stream is broken, and the session comes back.
    "told-loss-ignored" in "client-core/session/answers.rs": Client(client::ResumeLosesLoss) under LOST_STREAMS;
    "abandoned-grant-kept" in "client-core/session/state.rs": Client(client::AbandonedGrantKept);
    "notice-ends-newer-hold" in "client-core/session/answers.rs": Client(client::NoticeEndsNewerHold);
    "follower-skips-joint-state" in "replica/consensus/members.rs": Replica(replica::FollowerSkipsJointState) under MEMBERS_OF_GROUPS;
    "vote-before-root-group" in "replica/replica/follow_members.rs": Replica(replica::VoteBeforeRootGroup) under MEMBERS_OF_GROUPS;
    "stops-when-one-group-removed-it" in "engine/engine.rs": Engine(engine::StopsWhenOneGroupRemovedIt) under MEMBERS_OF_GROUPS;
    "members-not-followed" in "engine/engine/members.rs": Engine(engine::MembersNotFollowed) under MEMBERS_OF_GROUPS;
    "refused-by-one-group" in "sim/node/turn.rs": Here(here::RefusedByOneGroup) under MEMBERS_OF_GROUPS;
    "wiped-node-comes-back" in "sim/world/strike.rs": Here(here::WipedNodeComesBack);
}
