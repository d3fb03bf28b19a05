//! What to do with a seed.

use std::time::Duration;

use crate::fault::FaultKind;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long faults go on; the run takes a little longer, to settle.
    pub length: Duration,
    /// Keep a trace that people can read.
    pub readable: bool,
    pub coverage: bool,
    /// How many groups each node runs; by the seed if none.
    pub groups: Option<u32>,
    /// What may go wrong.
    pub faults: &'static [FaultKind],
}

impl Default for Options {
    fn default() -> Options {
        Options {
            length: Duration::from_secs(20 * 60),
            readable: false,
            coverage: false,
            groups: None,
            faults: &FaultKind::ALL,
        }
    }
}
