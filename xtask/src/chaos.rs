//! `cargo xtask chaos`: builds the `holdfast` binary and lets the chaos program loose on it.

use std::ffi::OsString;

use crate::built::{self, Profile};
use crate::failure::Failure;
use crate::servers;

/// The options are the chaos program's own, and it explains them; but for `--debug`, which takes binaries
/// without optimisation: where the tests have been run, those are built already.
pub(crate) fn run(options: &[OsString]) -> Result<(), Failure> {
    let (debug, options): (Vec<_>, Vec<_>) = options.iter().partition(|it| *it == "--debug");
    let profile = if debug.is_empty() { Profile::Release } else { Profile::Debug };
    servers::see_to(&[servers::FAKETIME])?;
    built::run_on_holdfast("holdfast-chaos", profile, &options)
}
