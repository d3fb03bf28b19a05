//! Programs of the workspace that need a `holdfast` binary beside them.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::process;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
    /// As packages are built.
    Dist,
}

/// Builds both, and runs the program with `--holdfast` and the options.
pub(crate) fn run_on_holdfast(
    program: &str,
    profile: Profile,
    options: &[&OsString],
) -> Result<(), Failure> {
    let (profile, directory) = match profile {
        Profile::Debug => ("dev", "debug"),
        Profile::Release => ("release", "release"),
        Profile::Dist => ("dist", "dist"),
    };
    eprintln!("xtask: building the {directory} binaries");
    let build = ["build", "--profile", profile, "--locked", "--quiet"];
    let packages = ["--package=holdfast".to_owned(), format!("--package={program}")];
    process::run(process::cargo(build).args(packages))?;
    let built = target_directory()?.join(directory);
    let holdfast = built.join(format!("holdfast{}", std::env::consts::EXE_SUFFIX));
    let program = built.join(format!("{program}{}", std::env::consts::EXE_SUFFIX));
    process::run(process::program(program).arg("--holdfast").arg(holdfast).args(options))
}

/// That of this very program, `target/debug/xtask`.
pub(crate) fn target_directory() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("xtask cannot find itself: {error}")))?;
    let target = program.ancestors().nth(2).map(PathBuf::from);
    target.ok_or_else(|| Failure::Failed("xtask is not in a target directory".to_owned()))
}
