//! Checks the dependencies we did not write against `deny.toml`, with cargo-deny.
//!
//! Where cargo-deny cannot be built, say for want of a network, CI fails; a developer is told loudly what was not
//! checked and can go on.

use std::env;

use crate::failure::Failure;
use crate::process;
use crate::tools::Tool;

/// What `deny.toml` is written for.
const CARGO_DENY: Tool =
    Tool { name: "cargo-deny", version: "0.20.2", options: &[], prints: "cargo-deny 0.20.2" };

pub(crate) fn check() -> Result<(), Failure> {
    cargo_deny(&["bans", "licenses", "sources"])
}

/// Apart from [`check`] because it fetches the advisory database over the network.
pub(crate) fn check_advisories() -> Result<(), Failure> {
    cargo_deny(&["advisories"])
}

fn cargo_deny(checks: &[&str]) -> Result<(), Failure> {
    let executable = match CARGO_DENY.find_or_install() {
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

fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}
