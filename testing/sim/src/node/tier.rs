//! When a node's efficiency tier may grant, by what its engine says.

use holdfast_engine::{BootTime, TierChange};

#[derive(Debug, Default)]
pub(super) struct Tier {
    term: u64,
    /// None while this node does not lead.
    opens: Option<BootTime>,
    until: BootTime,
}

impl Tier {
    pub(super) fn change(&mut self, change: TierChange) {
        match change {
            TierChange::BeginTerm { term, opens } => {
                (self.term, self.opens, self.until) = (term, Some(opens), BootTime::default());
            }
            TierChange::EndTerm { .. } => self.opens = None,
            TierChange::Confirm { term, until } if term == self.term => {
                self.until = self.until.max(until);
            }
            TierChange::Invalidate => self.until = BootTime::default(),
            TierChange::Confirm { .. } | TierChange::Admit { .. } | TierChange::SessionEnded(_) => {
            }
        }
    }

    pub(super) fn grants(&self, now: BootTime) -> bool {
        self.opens.is_some_and(|opens| opens <= now) && now < self.until
    }
}
