//! Checks the dependencies we did not write against `deny.toml`, with cargo-deny.
//!
//! A cargo-deny of the pinned version is used if there is one, and otherwise built into the target
//! directory, where it touches nothing else on the machine. The first lint of a clone is therefore
//! the slow one. Where it cannot be built, say for want of a network, CI fails; a developer is told
//! loudly what was not checked and can go on.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;

/// What `deny.toml` is written for. Each version is kept in a directory of its own.
const CARGO_DENY_VERSION: &str = "0.20.2";

pub(crate) fn check() -> Result<(), Failure> {
    cargo_deny(&["bans", "licenses", "sources"])
}

/// Apart from [`check`] because it fetches the advisory database over the network.
pub(crate) fn check_advisories() -> Result<(), Failure> {
    cargo_deny(&["advisories"])
}

fn cargo_deny(checks: &[&str]) -> Result<(), Failure> {
    let executable = match find_or_install() {
        Ok(executable) => executable,
        Err(failure) if is_ci() => return Err(failure),
        Err(failure) => {
            eprintln!("xtask: {failure}");
            eprintln!("xtask: SKIPPED, NOT CHECKED: {}", checks.join(", "));
            return Ok(());
        }
    };
    process::run(process::program(executable).args(["--locked", "check"]).args(checks))
}

fn find_or_install() -> Result<PathBuf, Failure> {
    let root = tools_directory()?.join(format!("cargo-deny-{CARGO_DENY_VERSION}"));
    let ours = root.join("bin").join(format!("cargo-deny{}", env::consts::EXE_SUFFIX));
    if ours.exists() {
        return Ok(ours);
    }
    let on_path = Path::new("cargo-deny");
    if is_pinned_version(on_path) {
        return Ok(on_path.to_path_buf());
    }
    eprintln!(
        "xtask: building cargo-deny {CARGO_DENY_VERSION}; this happens once, in a minute or two"
    );
    process::run(&mut install_into(&root))?;
    Ok(ours)
}

/// Within the target directory that this very program was built into, `target/debug/xtask`.
fn tools_directory() -> Result<PathBuf, Failure> {
    let program = env::current_exe()
        .map_err(|error| Failure::Failed(format!("xtask cannot find itself: {error}")))?;
    let target = program.ancestors().nth(2).unwrap_or(&program);
    Ok(target.join("tools"))
}

/// Builds without optimisation, which is three times faster; the checks take seconds either way.
fn install_into(root: &Path) -> Command {
    let mut install = process::cargo(["install", "cargo-deny", "--locked", "--quiet"]);
    install
        .arg(format!("--version={CARGO_DENY_VERSION}"))
        .arg("--root")
        .arg(root)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        // Without it cargo builds in a temporary directory and removes that afterwards.
        .env_remove("CARGO_TARGET_DIR");
    install
}

fn is_pinned_version(executable: &Path) -> bool {
    process::program(executable).arg("--version").output().is_ok_and(|output| {
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.trim() == format!("cargo-deny {CARGO_DENY_VERSION}")
    })
}

fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}
