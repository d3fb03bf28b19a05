//! One file per verb.

pub(crate) mod coverage;
pub(crate) mod meta;
#[cfg(feature = "planted")]
pub(crate) mod mutants;
pub(crate) mod replay;
pub(crate) mod run;
mod seeds;
