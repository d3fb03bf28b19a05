//! The programs of others that tests and comparisons start.
//!
//! Those who need the programs find them by themselves, and start each on a free port and with a directory of its own; here
//! it is only seen to that they are installed. On Debian, as root, they are installed by apt-get, without the
//! system's own servers being started. Elsewhere it is said what to do.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::process;

pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// A program in PATH, or a file of the package by its whole path.
    pub(crate) program: &'static str,
    pub(crate) debian_package: &'static str,
}

pub(crate) const PYTHON: Server =
    Server { name: "Python", program: "python3", debian_package: "python3" };

/// Wall clocks that jump.
pub(crate) const FAKETIME: Server =
    Server { name: "libfaketime", program: "faketime", debian_package: "faketime" };

/// As [`install_missing`]. A developer can go on without; CI cannot.
pub(crate) fn see_to(needed: &[Server]) -> Result<(), Failure> {
    let Err(message) = install_missing(needed) else { return Ok(()) };
    if env::var_os("CI").is_some_and(|ci| ci == "true") {
        return Err(Failure::Failed(message));
    }
    eprintln!("xtask: {message}. What needs them is SKIPPED.");
    Ok(())
}

/// Installs what is not there. If it cannot, it says what is missing and what to do.
pub(crate) fn install_missing(needed: &[Server]) -> Result<(), String> {
    let missing: Vec<&Server> =
        needed.iter().filter(|server| find(server.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|server| server.name).collect();
    let packages: Vec<_> = missing.iter().map(|server| server.debian_package).collect();
    let not_installed = |advice: &str| format!("{} not installed; {advice}", names.join(" and "));
    if !(is_root() && find("apt-get").is_some()) {
        let advice = format!("on Debian, `apt-get install {}` does it", packages.join(" "));
        return Err(not_installed(&advice));
    }
    eprintln!("xtask: {} missing: apt-get installs them", packages.join(" and "));
    install(&packages).map_err(|failure| not_installed(&failure.to_string()))
}

fn install(packages: &[&str]) -> Result<(), Failure> {
    let _no_service_starts = NoServiceStarts::declare();
    if apt_get("install", packages).is_ok() {
        return Ok(());
    }
    // The lists of packages may be old, or not there at all.
    apt_get("update", &[])?;
    apt_get("install", packages)
}

fn apt_get(verb: &str, packages: &[&str]) -> Result<(), Failure> {
    let mut command = process::program("apt-get");
    command.args(["-qq", "-y", verb]).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    if verb == "install" {
        command.arg("--no-install-recommends");
    }
    process::read(&mut command).map(drop)
}

/// Debian's packages start the server that they bring, unless a policy forbids it.
struct NoServiceStarts {
    policy: Option<PathBuf>,
}

impl NoServiceStarts {
    /// Where there is a policy already it is left alone.
    fn declare() -> NoServiceStarts {
        let policy = PathBuf::from("/usr/sbin/policy-rc.d");
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&policy)
            .and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n"));
        NoServiceStarts { policy: created.is_ok().then_some(policy) }
    }
}

impl Drop for NoServiceStarts {
    fn drop(&mut self) {
        if let Some(policy) = &self.policy {
            let _ = fs::remove_file(policy);
        }
    }
}

fn is_root() -> bool {
    process::read(process::program("id").arg("-u")).is_ok_and(|user| user.trim() == "0")
}

/// In PATH, or where Debian keeps the programs of PostgreSQL's server.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    env::split_paths(&path)
        .chain(versions.map(|version| version.path().join("bin")))
        .map(|directory| directory.join(program))
        .find(|program| Path::is_file(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_path_and_only_if_it_is_there() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }
}
