//! What is read off the figures of a turn: one row of the table each.

use crate::figures::Figures;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Operations,
    HandOvers,
    Reads,
    P50,
    P99,
    /// How evenly the clients of W2 waited.
    FarthestWait,
    Silence,
    Elections,
    BytesPerLock,
    Knee,
    /// Of one core, by the servers, while no client asks for anything.
    IdlePercent,
    /// The same by the load.
    IdleLoadPercent,
    /// While snapshots are taken, sent and installed, divided by that without.
    P99Growth,
    /// The longest.
    Restart,
}

impl Measure {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Measure::Operations | Measure::Knee => "operations/s",
            Measure::HandOvers => "hand-overs/s",
            Measure::Reads => "reads/s",
            Measure::P50 => "p50, us",
            Measure::P99 => "p99, us",
            Measure::FarthestWait => "farthest mean wait, %",
            Measure::Silence => "without success, ms",
            Measure::Elections => "elections",
            Measure::BytesPerLock => "bytes a lock and server",
            Measure::IdlePercent => "idle, % of a core",
            Measure::IdleLoadPercent => "idle, % of a core, load",
            Measure::P99Growth => "p99, times that without",
            Measure::Restart => "restart, s",
        }
    }

    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Measure::Operations | Measure::HandOvers | Measure::Reads | Measure::Knee)
    }

    /// None if the figures are of another kind.
    pub(crate) fn of(self, figures: &Figures) -> Option<f64> {
        let load = match figures {
            Figures::Load(load)
            | Figures::Loaded { load, .. }
            | Figures::Sessions { load, .. }
            | Figures::Snapshots { during: load, .. } => Some(load),
            _ => None,
        };
        match (self, figures) {
            (Measure::Silence, Figures::Silence { milliseconds }) => Some(*milliseconds),
            (Measure::Elections, Figures::Loaded { elections, .. }) => Some(*elections as f64),
            (Measure::BytesPerLock, Figures::Memory { bytes_per_lock }) => Some(*bytes_per_lock),
            (Measure::IdlePercent, Figures::Sessions { idle, .. }) => Some(100.0 * idle.servers),
            (Measure::IdleLoadPercent, Figures::Sessions { idle, .. }) => Some(100.0 * idle.client),
            (Measure::Knee, Figures::Ramp { steps }) => {
                let borne = steps.iter().take_while(|step| step.is_borne());
                Some(borne.last().map_or(0.0, |step| step.offered_per_second))
            }
            (Measure::P99Growth, Figures::Snapshots { without, during, .. }) => {
                Some(during.latency.p99_us / without.latency.p99_us)
            }
            (Measure::Restart, Figures::Snapshots { restarts_seconds, .. }) => {
                restarts_seconds.iter().copied().reduce(f64::max)
            }
            (Measure::Operations | Measure::HandOvers | Measure::Reads, _) => {
                load.map(|load| load.per_second)
            }
            (Measure::P50, _) => load.map(|load| load.latency.p50_us),
            (Measure::P99, _) => load.map(|load| load.latency.p99_us),
            (Measure::FarthestWait, _) => load?.waits.map(|waits| waits.farthest_percent),
            _ => None,
        }
    }
}
