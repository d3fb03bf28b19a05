//! Which kind of lock is asked for.

use holdfast_proto::{Guarantee, v1};

/// Which kind of lock is asked for. The same name in both is two locks, which know nothing of each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// For work that is damaged when it is done twice: the replicated lock table. Its tokens never go back.
    #[default]
    Correctness,
    /// For work that is only wasted when it is done twice: the leader's memory, without log and disk. What is
    /// held there ends with the leader's term, and for a moment two can hold it; the guard says
    /// [`Guarantee::BestEffort`], and fence checkers refuse its token unless they are told to take it.
    Efficiency,
}

impl Tier {
    pub fn to_wire(self) -> v1::Tier {
        match self {
            Tier::Correctness => v1::Tier::Correctness,
            Tier::Efficiency => v1::Tier::Efficiency,
        }
    }

    /// An unspecified one is taken as correctness.
    pub fn from_wire(tier: v1::Tier) -> Tier {
        match tier {
            v1::Tier::Efficiency => Tier::Efficiency,
            v1::Tier::Unspecified | v1::Tier::Correctness => Tier::Correctness,
        }
    }

    /// Where a hold is to be found that was granted with this guarantee.
    pub fn of(guarantee: Guarantee) -> Tier {
        match guarantee {
            Guarantee::Linearizable => Tier::Correctness,
            Guarantee::BestEffort => Tier::Efficiency,
        }
    }
}

/// What a grant says. A guarantee that this version does not know is not taken for the stronger one.
pub fn guarantee_of(grant: &v1::Grant) -> Guarantee {
    match grant.guarantee() {
        v1::Guarantee::Linearizable => Guarantee::Linearizable,
        v1::Guarantee::Unspecified | v1::Guarantee::BestEffort => Guarantee::BestEffort,
    }
}
