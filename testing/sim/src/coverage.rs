//! Which commands were on their way while which fault went on.

use holdfast_core::Batch;

use crate::fault::{ActiveFault, FaultKind};
use crate::workload::{CommandKind, Origin};

/// Counts, by fault and command.
#[derive(Clone, Debug)]
pub struct Coverage {
    counts: [[u64; CommandKind::ALL.len()]; FaultKind::ALL.len()],
    /// With or without a fault.
    totals: [u64; CommandKind::ALL.len()],
}

impl Default for Coverage {
    fn default() -> Coverage {
        let none = [0; CommandKind::ALL.len()];
        Coverage { counts: [none; FaultKind::ALL.len()], totals: none }
    }
}

impl Coverage {
    /// A client has just sent it.
    pub(crate) fn in_flight(&mut self, command: CommandKind, active: &[ActiveFault]) {
        self.totals[command as usize] += 1;
        for fault in active {
            self.counts[fault.kind as usize][command as usize] += 1;
        }
    }

    /// A leader has just put these into its log.
    pub(crate) fn proposed(&mut self, batch: &Batch, active: &[ActiveFault]) {
        for command in &batch.commands {
            self.in_flight(CommandKind::of(command), active);
        }
    }

    pub fn add(&mut self, other: &Coverage) {
        for (total, more) in self.totals.iter_mut().zip(other.totals) {
            *total += more;
        }
        for (row, more) in self.counts.iter_mut().zip(&other.counts) {
            for (count, more) in row.iter_mut().zip(more) {
                *count += more;
            }
        }
    }

    pub fn count(&self, fault: FaultKind, command: CommandKind) -> u64 {
        self.counts[fault as usize][command as usize]
    }

    /// How often a command was on its way at all.
    pub fn total(&self, command: CommandKind) -> u64 {
        self.totals[command as usize]
    }

    /// The pairs that never met.
    pub fn missing(&self) -> Vec<(FaultKind, CommandKind)> {
        let pairs = FaultKind::ALL
            .into_iter()
            .flat_map(|fault| CommandKind::ALL.into_iter().map(move |command| (fault, command)));
        let is_sent =
            |command: &CommandKind| !matches!(command.origin(), Origin::UnaryCall | Origin::Unsent);
        // Groups that are founded beside others adopt rules in their first seconds, if at all.
        let cannot_meet = (FaultKind::GroupQuorumLoss, CommandKind::AdoptRules);
        // Nor is a policy adopted where there is one group.
        let needs_one_group = |fault| FaultKind::possible(&[fault], 2).is_empty();
        let can_meet = |(fault, command): &(FaultKind, CommandKind)| {
            *command != CommandKind::AdoptPolicy || !needs_one_group(*fault)
        };
        pairs
            .filter(|pair| *pair != cannot_meet && can_meet(pair) && is_sent(&pair.1))
            .filter(|(fault, command)| self.count(*fault, *command) == 0)
            .collect()
    }
}
