//! Which figures are wanted: the rows of the table, and who takes part in each.

use std::time::Duration;

use clap::ValueEnum;
use holdfast_bench::workload::Heartbeats;

use crate::measure::Measure;
use crate::peer::PeerName;
use crate::task::{Kind, Task};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Uncontended: each client has a lock of its own.
    W1,
    /// One hot lock: all clients want it.
    W2,
    /// The leader is killed under load.
    W3,
    /// Memory for each held lock.
    W4,
    /// Mixed: own and hot locks, and several at once.
    W5,
    /// Linearizable reads.
    W6,
    /// Open load at rising rates.
    W7,
    /// The size that Holdfast is planned for; it alone.
    W8,
    /// 500,000 locks are held: what it costs others, while snapshots are taken and without; Holdfast alone.
    W9,
}

const COMING_BACK: Duration = Duration::from_secs(10);

/// A task that services do in turn, and what is read off it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) title: String,
    pub(crate) task: Task,
    pub(crate) measures: Vec<Measure>,
    pub(crate) who: Who,
    /// How often each service has its turn, unless that is the usual number.
    pub(crate) repeats: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// All except five nodes of Holdfast, and those in which many locks are held.
    AllServices,
    /// Five nodes of Holdfast as well.
    AllServicesAndFiveNodes,
    Holdfast,
    /// Three nodes of Holdfast in which many locks are held.
    Full,
    /// Those, and three in which none are.
    FullAndNot,
    /// Those that take many locks in seconds.
    TheFast,
}

/// How large it all is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) turn: Duration,
    /// How long it is loaded to see that no node is elected.
    pub(crate) loaded: Duration,
    /// A tenth of the locks, sessions and rates, and one kill: to see that it works.
    pub(crate) quick: bool,
}

impl Scale {
    /// Locks that are held in W4, W8 and W9.
    pub(crate) fn held(self) -> usize {
        self.of(500_000)
    }

    fn of(self, whole: usize) -> usize {
        if self.quick { whole / 10 } else { whole }
    }
}

impl Case {
    fn new(
        workload: Workload,
        title: impl Into<String>,
        kind: Kind,
        scale: Scale,
        measures: &[Measure],
    ) -> Case {
        Case {
            workload,
            title: title.into(),
            task: Task::new(kind, scale.turn),
            measures: measures.to_vec(),
            who: Who::AllServices,
            repeats: None,
        }
    }

    pub(crate) fn workload_name(&self) -> String {
        format!("{:?}", self.workload)
    }

    pub(crate) fn takes_part(&self, peer: PeerName) -> bool {
        match self.who {
            Who::AllServices => !matches!(peer, PeerName::Holdfast5 | PeerName::HoldfastFull),
            Who::AllServicesAndFiveNodes => peer != PeerName::HoldfastFull,
            Who::Holdfast => peer == PeerName::Holdfast,
            Who::Full => peer == PeerName::HoldfastFull,
            Who::FullAndNot => matches!(peer, PeerName::Holdfast | PeerName::HoldfastFull),
            Who::TheFast => {
                matches!(peer, PeerName::Holdfast | PeerName::Redis | PeerName::RedisFsync)
            }
        }
    }
}

/// In the order in which they are run: what leaves something behind comes last.
pub(crate) fn cases(wanted: &[Workload], scale: Scale) -> Vec<Case> {
    let all = uncontended(scale)
        .into_iter()
        .chain([hot(scale), mixed(scale)])
        .chain(reads(scale))
        .chain([ramp(scale), loaded(scale), failover(scale)])
        .chain(planned_size(scale))
        .chain(full(scale))
        .chain(memory(scale));
    all.filter(|case| wanted.contains(&case.workload)).collect()
}

fn uncontended(scale: Scale) -> Vec<Case> {
    use Measure::{Operations, P50, P99};
    let sizes = [(1, 1), (16, 8), (64, 8), (256, 8), (1_024, 8), (256, 256)];
    let case = |(clients, connections): (usize, usize)| {
        let title =
            format!("{} over {}", counted(clients, "client"), counted(connections, "connection"));
        let kind = Kind::Uncontended { clients, connections };
        match clients {
            // One client is what more nodes are felt by.
            1 => {
                let case = Case::new(Workload::W1, title, kind, scale, &[P50, P99]);
                Case { who: Who::AllServicesAndFiveNodes, ..case }
            }
            _ => Case::new(Workload::W1, title, kind, scale, &[Operations, P50, P99]),
        }
    };
    sizes.into_iter().map(case).collect()
}

fn hot(scale: Scale) -> Case {
    use Measure::{FarthestWait, HandOvers, P50, P99};
    let kind = Kind::Hot { clients: 64, connections: 8 };
    let measures = [HandOvers, P50, P99, FarthestWait];
    Case::new(Workload::W2, "64 clients want one lock", kind, scale, &measures)
}

fn failover(scale: Scale) -> Case {
    let kind = Kind::LeaderKilled { clients: 64, connections: 8 };
    let case = Case::new(Workload::W3, "leader killed", kind, scale, &[Measure::Silence]);
    Case { repeats: Some(if scale.quick { 1 } else { 5 }), ..case }
}

fn loaded(scale: Scale) -> Case {
    let title = format!("{} s of load, no node killed", scale.loaded.as_secs());
    let kind = Kind::Loaded { clients: 256, connections: 8 };
    let measures = [Measure::Elections, Measure::Operations, Measure::P99];
    let case = Case::new(Workload::W3, title, kind, scale, &measures);
    let task = Task::new(kind, scale.loaded);
    Case { task, who: Who::Holdfast, repeats: Some(1), ..case }
}

fn memory(scale: Scale) -> [Case; 2] {
    let case = |locks, who| {
        let title = format!("{locks} held locks");
        let case =
            Case::new(Workload::W4, title, Kind::Memory { locks }, scale, &[Measure::BytesPerLock]);
        Case { who, repeats: Some(1), ..case }
    };
    [case(scale.of(100_000), Who::AllServices), case(scale.held(), Who::TheFast)]
}

fn mixed(scale: Scale) -> Case {
    use Measure::{Operations, P50, P99};
    let kind = Kind::Mixed { clients: 256, connections: 8 };
    let title = "256 clients, own and hot locks";
    Case::new(Workload::W5, title, kind, scale, &[Operations, P50, P99])
}

fn reads(scale: Scale) -> [Case; 2] {
    let measures = [Measure::Reads, Measure::P50, Measure::P99];
    let alone = Kind::Reads { clients: 64, connections: 8 };
    let beside = Kind::ReadsBeside { readers: 8, writers: 64, connections: 8 };
    [
        Case::new(Workload::W6, "64 readers", alone, scale, &measures),
        Case::new(Workload::W6, "8 readers beside 64 writers", beside, scale, &measures),
    ]
}

fn ramp(scale: Scale) -> Case {
    let title = "highest rate with p99 below 10 ms";
    let case =
        Case::new(Workload::W7, title, Kind::Ramp { connections: 8 }, scale, &[Measure::Knee]);
    Case { repeats: Some(1), ..case }
}

fn planned_size(scale: Scale) -> [Case; 3] {
    let (sessions, locks) = (scale.of(500), scale.held());
    let rate = scale.of(50_000);
    let offered = Kind::Offered { sessions, locks, operations_per_second: rate as f64 };
    let title = format!("{sessions} sessions, {locks} held, {rate} operations/s");
    let offered = Case::new(
        Workload::W8,
        title,
        offered,
        scale,
        &[Measure::Operations, Measure::P50, Measure::P99],
    );
    let (many, rate) = (scale.of(100_000), scale.of(30_000));
    let kind = |heartbeats| Kind::Sessions {
        sessions: many,
        connections: scale.of(100),
        operations_per_second: rate as f64,
        heartbeats,
    };
    let measures = [
        Measure::IdlePercent,
        Measure::IdleLoadPercent,
        Measure::Operations,
        Measure::P50,
        Measure::P99,
    ];
    let title = format!("{many} sessions, {rate} operations/s");
    let together = Case::new(Workload::W8, title, kind(Heartbeats::Together), scale, &measures);
    let title = format!("{many} sessions, {rate} operations/s, a heartbeat each");
    let of_each = Case::new(Workload::W8, title, kind(Heartbeats::OfEach), scale, &measures);
    [offered, together, of_each].map(|case| Case { who: Who::Holdfast, repeats: Some(1), ..case })
}

fn full(scale: Scale) -> [Case; 2] {
    let held = scale.held();
    let kind = Kind::Uncontended { clients: 256, connections: 8 };
    let title = format!("256 clients over 8, none and {held} held");
    let pairs = Case::new(Workload::W9, title, kind, scale, &[Measure::Operations]);
    let kind = Kind::Snapshots { clients: 64, connections: 8 };
    let title = format!("64 clients over 8, {held} held, snapshots");
    let measures = [Measure::P99, Measure::P99Growth, Measure::Restart];
    let snapshots = Case::new(Workload::W9, title, kind, scale, &measures);
    // A node that was away must come back meanwhile.
    let task = Task::new(kind, (4 * scale.turn).max(COMING_BACK));
    [
        Case { who: Who::FullAndNot, repeats: Some(if scale.quick { 2 } else { 10 }), ..pairs },
        Case { task, who: Who::Full, ..snapshots },
    ]
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
