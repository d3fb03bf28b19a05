//! What can go wrong in a run. `world/strike.rs` says how each fault is done and undone.

pub(crate) mod partition;

pub(crate) use partition::between;

use holdfast_replica::GroupId;

use crate::history::RealTime;
use crate::network::Cut;

/// The kinds of faults, in the order of the table that `coverage` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// One node and the rest cannot hear each other.
    IsolatedNode,
    /// A minority is cut off, without the leader if that can be.
    Minority,
    /// A majority is cut off from the leader's side.
    Majority,
    /// The leader is cut off with a minority, and some clients are with it.
    SplitClients,
    /// Each node hears only its neighbours.
    Ring,
    /// Two halves, and one node that hears both.
    Bridge,
    /// A node sends and is not heard, or hears and cannot send.
    OneWay,
    /// A cut that comes and goes.
    Flapping,
    /// Some clients cannot reach some nodes.
    ClientsCutOff,
    Loss,
    Delay,
    Duplication,
    /// The power fails.
    Crash,
    /// The power fails everywhere at once.
    PowerCut,
    /// The power fails while a turn is written.
    TornWrite,
    /// The power fails while a snapshot is written.
    TornSnapshot,
    SyncError,
    DiskFull,
    SlowDisk,
    /// A node goes down again and again, soon after it came up.
    CrashLoop,
    /// All that a node knew is gone: its peers must not talk to it any more.
    WipedDisk,
    /// A bit of what was synced flips: the node must refuse to start.
    Corruption,
    PausedNode,
    /// A client, or in some runs all of them.
    PausedClient,
    /// A client stops for ever; another takes its place.
    DeadClient,
    LeaderTransfer,
    /// Nodes are told that the process of the leader has ended. It has, or it is cut off from them, or nothing is wrong.
    CrashReport,
    /// A node is added, as a learner at first, or a learner is made a voter.
    AddedNode,
    RemovedNode,
    /// A node takes the place of another one, which may be lost already.
    ReplacedNode,
    /// Who knows of a change of voters and who does not cannot hear each other.
    SplitOverChange,
    /// All nodes are lost, and the cluster begins again from a backup.
    Restore,
    /// The clock of a node or of a client stands still, and then goes on from there.
    StoppedClock,
    /// The clock of a node or of a client is ahead all at once.
    LeapingClock,
    /// A node's clock runs faster or slower than is trusted; for the whole run.
    WildClock,
    /// An administrator takes rights from clients, and gives them back later.
    Revocation,
    /// A controller takes slots from the group, and gives them back later.
    SlotsTaken,
    /// All messages of one group are lost, and other groups go on.
    GroupQuorumLoss,
}

impl FaultKind {
    pub const ALL: [FaultKind; 38] = [
        FaultKind::IsolatedNode,
        FaultKind::Minority,
        FaultKind::Majority,
        FaultKind::SplitClients,
        FaultKind::Ring,
        FaultKind::Bridge,
        FaultKind::OneWay,
        FaultKind::Flapping,
        FaultKind::ClientsCutOff,
        FaultKind::Loss,
        FaultKind::Delay,
        FaultKind::Duplication,
        FaultKind::Crash,
        FaultKind::PowerCut,
        FaultKind::TornWrite,
        FaultKind::TornSnapshot,
        FaultKind::SyncError,
        FaultKind::DiskFull,
        FaultKind::SlowDisk,
        FaultKind::CrashLoop,
        FaultKind::WipedDisk,
        FaultKind::Corruption,
        FaultKind::PausedNode,
        FaultKind::PausedClient,
        FaultKind::DeadClient,
        FaultKind::LeaderTransfer,
        FaultKind::CrashReport,
        FaultKind::AddedNode,
        FaultKind::RemovedNode,
        FaultKind::ReplacedNode,
        FaultKind::SplitOverChange,
        FaultKind::Restore,
        FaultKind::StoppedClock,
        FaultKind::LeapingClock,
        FaultKind::WildClock,
        FaultKind::Revocation,
        FaultKind::SlotsTaken,
        FaultKind::GroupQuorumLoss,
    ];

    /// Those of them that can strike nodes with so many groups. A backup has one group.
    pub(crate) fn possible(kinds: &[FaultKind], groups: usize) -> Vec<FaultKind> {
        let is_possible = |kind: &FaultKind| match kind {
            FaultKind::GroupQuorumLoss => groups > 1,
            FaultKind::Restore => groups == 1,
            _ => true,
        };
        kinds.iter().copied().filter(is_possible).collect()
    }

    pub fn named(name: &str) -> Option<FaultKind> {
        FaultKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            FaultKind::IsolatedNode => "isolated-node",
            FaultKind::Minority => "minority",
            FaultKind::Majority => "majority",
            FaultKind::SplitClients => "split-clients",
            FaultKind::Ring => "ring",
            FaultKind::Bridge => "bridge",
            FaultKind::OneWay => "one-way",
            FaultKind::Flapping => "flapping",
            FaultKind::ClientsCutOff => "clients-cut-off",
            FaultKind::Loss => "loss",
            FaultKind::Delay => "delay",
            FaultKind::Duplication => "duplication",
            FaultKind::Crash => "crash",
            FaultKind::PowerCut => "power-cut",
            FaultKind::TornWrite => "torn-write",
            FaultKind::TornSnapshot => "torn-snapshot",
            FaultKind::SyncError => "sync-error",
            FaultKind::DiskFull => "disk-full",
            FaultKind::SlowDisk => "slow-disk",
            FaultKind::CrashLoop => "crash-loop",
            FaultKind::WipedDisk => "wiped-disk",
            FaultKind::Corruption => "corruption",
            FaultKind::PausedNode => "paused-node",
            FaultKind::PausedClient => "paused-client",
            FaultKind::DeadClient => "dead-client",
            FaultKind::LeaderTransfer => "leader-transfer",
            FaultKind::CrashReport => "crash-report",
            FaultKind::AddedNode => "added-node",
            FaultKind::RemovedNode => "removed-node",
            FaultKind::ReplacedNode => "replaced-node",
            FaultKind::SplitOverChange => "split-over-change",
            FaultKind::Restore => "restore",
            FaultKind::StoppedClock => "stopped-clock",
            FaultKind::LeapingClock => "leaping-clock",
            FaultKind::WildClock => "wild-clock",
            FaultKind::Revocation => "revocation",
            FaultKind::SlotsTaken => "slots-taken",
            FaultKind::GroupQuorumLoss => "group-quorum-loss",
        }
    }
}

/// A fault that goes on.
#[derive(Debug)]
pub(crate) struct ActiveFault {
    pub(crate) number: u64,
    pub(crate) kind: FaultKind,
    pub(crate) undo: Undo,
}

/// How a fault ends.
#[derive(Debug)]
pub(crate) enum Undo {
    Nothing,
    Mend(Vec<Cut>),
    /// The cut is there only half of the time.
    StopFlapping {
        cuts: Vec<Cut>,
        is_cut: bool,
    },
    /// Until then it is crashed again whenever it has come up.
    StopCrashing(usize),
    /// Until then the leader is sent away again and again.
    StopTransfers,
    /// Until then the leader is said to be gone, again and again.
    StopRumours,
    ImproveNetwork,
    Restart(Vec<usize>),
    MakeRoom(usize),
    HealDisk(usize),
    /// If it was the whole machine that stood still, its clock goes on too.
    ResumeNode {
        node: usize,
        with_clock: bool,
    },
    ResumeClient {
        client: usize,
        with_clock: bool,
    },
    /// All that were paused at once.
    EndSilence,
    StartNodeClock(usize),
    StartClientClock(usize),
    ReplaceClient(usize),
    /// Until then rights are missing.
    GiveRightsBack(GroupId),
    /// Until then slots are missing.
    GiveSlotsBack(GroupId),
    /// Until then the group has no quorum.
    MendGroup(QuorumLoss),
}

/// A group that has no quorum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuorumLoss {
    pub(crate) group: GroupId,
    pub(crate) began: RealTime,
    /// Nothing else was wrong when it began.
    pub(crate) is_alone: bool,
}
