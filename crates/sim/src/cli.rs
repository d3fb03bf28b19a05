//! One file per verb.

pub(crate) mod coverage;
pub(crate) mod meta;
pub(crate) mod replay;
pub(crate) mod run;
mod seeds;
