//! Which figures are wanted: the rows of the table, and who takes part in each.

use std::time::Duration;

use clap::ValueEnum;

use crate::peer::PeerName;
use crate::task::{Figures, Kind, Task};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Uncontended: each client has a lock of its own.
    W1,
    /// One hot lock: all clients want it.
    W2,
    /// Mixed.
    W5,
    /// Linearizable reads.
    W6,
}

/// A task that services do in turn, and what is read off it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) title: String,
    pub(crate) task: Task,
    pub(crate) measures: Vec<Measure>,
    /// None: everybody but [`PeerName::Holdfast5`].
    pub(crate) only: Option<Vec<PeerName>>,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Operations,
    HandOvers,
    Reads,
    P50,
    P99,
    /// How evenly the clients of W2 waited.
    FarthestWait,
}

impl Measure {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Measure::Operations => "operations/s",
            Measure::HandOvers => "hand-overs/s",
            Measure::Reads => "reads/s",
            Measure::P50 => "p50, us",
            Measure::P99 => "p99, us",
            Measure::FarthestWait => "farthest mean wait, %",
        }
    }

    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Measure::Operations | Measure::HandOvers | Measure::Reads)
    }

    pub(crate) fn of(self, figures: &Figures) -> Option<f64> {
        let Figures::Load(turn) = figures;
        match self {
            Measure::Operations | Measure::HandOvers | Measure::Reads => Some(turn.per_second),
            Measure::P50 => Some(turn.latency.p50_us),
            Measure::P99 => Some(turn.latency.p99_us),
            Measure::FarthestWait => turn.waits.map(|waits| waits.farthest_percent),
        }
    }
}

impl Case {
    pub(crate) fn workload_name(&self) -> String {
        format!("{:?}", self.workload)
    }

    pub(crate) fn takes_part(&self, peer: PeerName) -> bool {
        match &self.only {
            Some(only) => only.contains(&peer),
            None => peer != PeerName::Holdfast5,
        }
    }
}

/// In the order in which they are run.
pub(crate) fn cases(wanted: &[Workload], turn: Duration) -> Vec<Case> {
    let all = uncontended(turn).into_iter().chain([hot(turn), mixed(turn)]).chain(reads(turn));
    all.filter(|case| wanted.contains(&case.workload)).collect()
}

fn uncontended(turn: Duration) -> Vec<Case> {
    let sizes = [(1, 1), (16, 8), (64, 8), (256, 8), (1_024, 8), (256, 256)];
    let case = |(clients, connections): (usize, usize)| {
        let is_alone = clients == 1;
        let latencies = [Measure::P50, Measure::P99];
        let throughput = [Measure::Operations, Measure::P50, Measure::P99];
        Case {
            workload: Workload::W1,
            title: format!(
                "{} over {}",
                counted(clients, "client"),
                counted(connections, "connection")
            ),
            task: Task::new(Kind::Uncontended { clients, connections }, turn),
            measures: if is_alone { latencies.to_vec() } else { throughput.to_vec() },
            // One client is what more nodes are felt by.
            only: is_alone.then(|| PeerName::value_variants().to_vec()),
        }
    };
    sizes.into_iter().map(case).collect()
}

fn hot(turn: Duration) -> Case {
    Case {
        workload: Workload::W2,
        title: "64 clients want one lock".to_owned(),
        task: Task::new(Kind::Hot { clients: 64, connections: 8 }, turn),
        measures: vec![Measure::HandOvers, Measure::P50, Measure::P99, Measure::FarthestWait],
        only: None,
    }
}

fn mixed(turn: Duration) -> Case {
    Case {
        workload: Workload::W5,
        title: "256 clients, own and hot locks".to_owned(),
        task: Task::new(Kind::Mixed { clients: 256, connections: 8 }, turn),
        measures: vec![Measure::Operations, Measure::P50, Measure::P99],
        only: None,
    }
}

fn reads(turn: Duration) -> [Case; 2] {
    let alone = Case {
        workload: Workload::W6,
        title: "64 readers".to_owned(),
        task: Task::new(Kind::Reads { clients: 64, connections: 8 }, turn),
        measures: vec![Measure::Reads, Measure::P50, Measure::P99],
        only: None,
    };
    let beside = Case {
        workload: Workload::W6,
        title: "8 readers beside 64 writers".to_owned(),
        task: Task::new(Kind::ReadsBeside { readers: 8, writers: 64, connections: 8 }, turn),
        measures: vec![Measure::Reads, Measure::P50, Measure::P99],
        only: None,
    };
    [alone, beside]
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
