//! What a turn has shown.

use holdfast_bench::{Cores, Turn};
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figures {
    Load(Turn),
    Silence { milliseconds: f64 },
    Loaded { elections: u64, load: Turn },
    Memory { bytes_per_lock: f64 },
    Ramp { steps: Vec<Step> },
    Sessions { idle: Cores, load: Turn },
    Snapshots { without: Turn, during: Turn, restarts_seconds: Vec<f64> },
}

/// One rate, and how it was borne.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Step {
    pub(crate) offered_per_second: f64,
    pub(crate) done_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Operations failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

impl Step {
    /// All that was asked for was done, soon.
    pub(crate) fn is_borne(&self) -> bool {
        self.failure.is_none()
            && self.done_per_second > 0.95 * self.offered_per_second
            && self.p99_us < 10_000.0
    }
}
