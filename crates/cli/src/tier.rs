//! Which of the two kinds of lock is meant.

use clap::ValueEnum;
use holdfast_client::{Guarantee, Tier};
use holdfast_proto::v1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierArg {
    /// The replicated lock table. A grant needs a quorum, and tokens only rise.
    Correctness,
    /// The leader's memory: fast, for work that is only wasted when it is done twice. The lock ends when the leader
    /// changes. Each tier has its own lock of a name.
    Efficiency,
}

impl TierArg {
    pub(crate) fn to_tier(self) -> Tier {
        match self {
            TierArg::Correctness => Tier::Correctness,
            TierArg::Efficiency => Tier::Efficiency,
        }
    }

    pub(crate) fn other(self) -> TierArg {
        match self {
            TierArg::Correctness => TierArg::Efficiency,
            TierArg::Efficiency => TierArg::Correctness,
        }
    }

    /// As `--tier` takes it.
    pub(crate) fn as_word(self) -> &'static str {
        match self {
            TierArg::Correctness => "correctness",
            TierArg::Efficiency => "efficiency",
        }
    }

    /// The lock of this tier, of what the cluster says about the name.
    pub(crate) fn part_of(self, status: v1::StatusResponse) -> v1::StatusResponse {
        match self {
            TierArg::Correctness => status,
            TierArg::Efficiency => {
                let v1::EfficiencyStatus { holders, waiters, holder_count, waiter_count } =
                    status.efficiency.unwrap_or_default();
                let name = status.name;
                let rest = v1::StatusResponse::default();
                v1::StatusResponse { name, holders, waiters, holder_count, waiter_count, ..rest }
            }
        }
    }

    pub(crate) fn to_wire(self) -> v1::Tier {
        match self {
            TierArg::Correctness => v1::Tier::Correctness,
            TierArg::Efficiency => v1::Tier::Efficiency,
        }
    }
}

/// As programs read it.
pub(crate) fn guarantee_word(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Linearizable => "linearizable",
        Guarantee::BestEffort => "best_effort",
    }
}

/// As [`guarantee_word`], of a grant. What is not known is not taken for the stronger one.
pub(crate) fn word_of_grant(guarantee: v1::Guarantee) -> &'static str {
    match guarantee {
        v1::Guarantee::Linearizable => guarantee_word(Guarantee::Linearizable),
        v1::Guarantee::Unspecified | v1::Guarantee::BestEffort => {
            guarantee_word(Guarantee::BestEffort)
        }
    }
}
