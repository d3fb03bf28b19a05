//! `cargo xtask stories`: builds the `holdfast` binary and plays the stories on it.

use std::ffi::OsString;

use crate::built::{self, Profile};
use crate::failure::Failure;
use crate::servers;

/// The options are the storyteller's own, and it explains them; but for `--release`, which takes optimised
/// binaries. Most of a story is waiting, so there is little to gain.
pub(crate) fn run(options: &[OsString]) -> Result<(), Failure> {
    let (release, options): (Vec<_>, Vec<_>) = options.iter().partition(|it| *it == "--release");
    let profile = if release.is_empty() { Profile::Debug } else { Profile::Release };
    servers::see_to(&[servers::FAKETIME])?;
    built::run_on_holdfast("holdfast-stories", profile, &options)
}
