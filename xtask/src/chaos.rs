//! `cargo xtask chaos`: builds the `holdfast` binary and lets the chaos program loose on it.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::process;

/// The options are the chaos program's own, and it explains them; but for `--debug`, which takes binaries
/// without optimisation: where the tests have been run, those are built already.
pub(crate) fn run(options: &[OsString]) -> Result<(), Failure> {
    let (debug, options): (Vec<_>, Vec<_>) = options.iter().partition(|it| *it == "--debug");
    let (profile, directory) =
        if debug.is_empty() { ("release", "release") } else { ("dev", "debug") };
    eprintln!("xtask: building the {directory} binaries");
    let packages = ["--package=holdfast", "--package=holdfast-chaos"];
    let build = ["build", "--profile", profile, "--locked", "--quiet"];
    process::run(process::cargo(build).args(packages))?;
    let built = target_directory()?.join(directory);
    let holdfast = built.join(format!("holdfast{}", std::env::consts::EXE_SUFFIX));
    let chaos = built.join(format!("holdfast-chaos{}", std::env::consts::EXE_SUFFIX));
    process::run(process::program(chaos).arg("--holdfast").arg(holdfast).args(options))
}

/// That of this very program, `target/debug/xtask`.
pub(crate) fn target_directory() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("xtask cannot find itself: {error}")))?;
    let target = program.ancestors().nth(2).map(PathBuf::from);
    target.ok_or_else(|| Failure::Failed("xtask is not in a target directory".to_owned()))
}
