//! `cargo xtask typescript`: lints, type checks, documents and tests the TypeScript library.

use std::ffi::OsString;

use crate::built;
use crate::failure::Failure;
use crate::nodejs::NodeJs;
use crate::process;
use crate::servers::{self, Server};

const LIBRARY: &str = "sdks/typescript";

/// The arguments are passed on to `node --test`.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    servers::see_to(&[
        Server { name: "PostgreSQL", program: "initdb", debian_package: "postgresql" },
        Server { name: "Redis", program: "redis-server", debian_package: "redis-server" },
    ])?;
    process::run(&mut process::cargo(["build", "--locked", "--quiet", "--package=holdfast"]))?;
    let nodejs = NodeJs::find_or_install()?;
    build(&nodejs)?;
    for script in ["lint", "docs"] {
        npm(&nodejs, &["run", "--silent", script])?;
    }
    let mut tests = nodejs.command("npm");
    tests.args(["run", "--silent", "test", "--"]).args(arguments);
    let holdfast = format!("holdfast{}", std::env::consts::EXE_SUFFIX);
    let binary = built::target_directory()?.join("debug").join(holdfast);
    tests.current_dir(process::repository_root().join(LIBRARY)).env("HOLDFAST_BIN", binary);
    process::run(&mut tests)
}

/// Builds the library, its tests and its driver. What they need is installed once for each state of the lock file.
pub(crate) fn build(nodejs: &NodeJs) -> Result<(), Failure> {
    let library = process::repository_root().join(LIBRARY);
    let (lock, stamp) = (library.join("package-lock.json"), library.join("node_modules/installed"));
    let locked = std::fs::read_to_string(&lock)
        .map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", lock.display())))?;
    if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == locked) {
        eprintln!("xtask: installing what {LIBRARY} needs");
        npm(nodejs, &["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])?;
        std::fs::write(&stamp, locked).map_err(|error| {
            Failure::Failed(format!("{} cannot be written: {error}", stamp.display()))
        })?;
    }
    npm(nodejs, &["run", "--silent", "build"])?;
    npm(nodejs, &["run", "--silent", "build:tests"])
}

fn npm(nodejs: &NodeJs, arguments: &[&str]) -> Result<(), Failure> {
    let library = process::repository_root().join(LIBRARY);
    process::run(nodejs.command("npm").args(arguments).current_dir(library))
}
