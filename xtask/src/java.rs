//! `cargo xtask java`: checks the format of the Java library, tests it against a real node, and builds its reference.

use std::ffi::OsString;

use crate::built;
use crate::failure::Failure;
use crate::process;
use crate::servers::{self, Server};

const LIBRARY: &str = "sdks/java";

pub(crate) const JAVA: [Server; 2] = [
    Server { name: "Java", program: "javac", debian_package: "openjdk-17-jdk-headless" },
    Server { name: "Maven", program: "mvn", debian_package: "maven" },
];

/// What fences are tried on.
const DATABASES: [Server; 2] = [
    Server { name: "PostgreSQL", program: "initdb", debian_package: "postgresql" },
    Server { name: "Redis", program: "redis-server", debian_package: "redis-server" },
];

/// The arguments are passed on to Maven.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    servers::see_to(&JAVA)?;
    servers::see_to(&DATABASES)?;
    process::run(&mut process::cargo(["build", "--locked", "--quiet", "--package=holdfast"]))?;
    let holdfast = format!("holdfast{}", std::env::consts::EXE_SUFFIX);
    let holdfast = built::target_directory()?.join("debug").join(holdfast);
    process::run(maven(&["verify"]).args(arguments).env("HOLDFAST_BIN", holdfast))
}

/// Builds the driver of the conformance suite, and nothing that it does not need.
pub(crate) fn build_driver() -> Result<(), Failure> {
    servers::see_to(&JAVA)?;
    let goals = ["package", "--projects=conformance", "--also-make", "-DskipTests"];
    process::run(maven(&goals).args(["-Dmaven.javadoc.skip", "-Dspotless.check.skip"]))
}

fn maven(goals: &[&str]) -> std::process::Command {
    let mut command = process::program("mvn");
    command.args(["--quiet", "--batch-mode", "--no-transfer-progress"]).args(goals);
    command.current_dir(process::repository_root().join(LIBRARY));
    command
}
