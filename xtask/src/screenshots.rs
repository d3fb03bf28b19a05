//! `cargo xtask screenshots`: pictures of every view of the dashboard, for the documentation.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::built::target_directory;
use crate::failure::Failure;
use crate::process;

/// More than that is too much to fetch with the sources.
const ALL_BYTES_MAX: u64 = 3 * 1024 * 1024;

pub(crate) fn run(options: &[OsString]) -> Result<(), Failure> {
    if let Some(unknown) = options.first() {
        let unknown = unknown.display();
        return Err(Failure::Usage(format!("`screenshots` does not know `{unknown}`")));
    }
    let packages = ["--package=holdfast", "--package=holdfast-browser"];
    let build = ["build", "--locked", "--quiet", "--bins", "--examples"];
    process::run(process::cargo(build).args(packages))?;
    let built = target_directory()?.join("debug");
    let directory = process::repository_root().join("docs").join("screenshots");
    let program = built.join("examples").join("screenshots");
    process::run(process::program(program).arg(built.join("holdfast")).arg(&directory))?;
    let bytes = size(&directory)?;
    if bytes > ALL_BYTES_MAX {
        return Err(Failure::Failed(format!("the pictures have {bytes} bytes, too many")));
    }
    Ok(())
}

fn size(directory: &Path) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    let mut bytes = 0;
    for file in fs::read_dir(directory).map_err(failed)? {
        bytes += file.and_then(|file| file.metadata()).map_err(failed)?.len();
    }
    Ok(bytes)
}
