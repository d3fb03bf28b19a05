//! `cargo xtask conformance`: builds a cluster's binary and the suite, and tries the client libraries on them.
//!
//! The suite is built apart from `holdfast`, because it turns planted bugs of the Rust library on, and a node must not be
//! built with them.

use std::ffi::OsString;
use std::path::Path;

use crate::built;
use crate::failure::Failure;
use crate::process;
use crate::servers;

/// The libraries, and the command of each one's driver. `{built}` is the directory of the binaries.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("rust", &["{built}/holdfast-rust-driver"]),
    ("python-asyncio", &["python3", "sdks/python/conformance/driver.py"]),
    ("python-blocking", &["python3", "sdks/python/conformance/driver.py", "--sync"]),
];

/// Names of libraries, all of them by default; the other options are the suite's own.
pub(crate) fn run(options: &[OsString]) -> Result<(), Failure> {
    let is_library =
        |option: &&OsString| LIBRARIES.iter().any(|(name, _)| option.to_str() == Some(name));
    let (chosen, options): (Vec<_>, Vec<_>) = options.iter().partition(is_library);
    servers::see_to(&[servers::PYTHON])?;
    process::run(&mut process::cargo(["build", "--locked", "--quiet", "--package=holdfast"]))?;
    let suite = ["build", "--locked", "--quiet", "--package=holdfast-conformance"];
    process::run(process::cargo(suite).args(["--features=planted", "--bins"]))?;
    let built = built::target_directory()?.join("debug");
    for (name, driver) in LIBRARIES {
        if !chosen.is_empty() && !chosen.iter().any(|it| it.to_str() == Some(name)) {
            continue;
        }
        for verb in ["run", "misbehave"] {
            eprintln!("xtask: conformance of {name}: {verb}");
            play(verb, driver, &built, &options)?;
        }
    }
    Ok(())
}

fn play(verb: &str, driver: &[&str], built: &Path, options: &[&OsString]) -> Result<(), Failure> {
    let (directory, suffix) = (built.display().to_string(), std::env::consts::EXE_SUFFIX);
    let mut suite = process::program(built.join(format!("holdfast-conformance{suffix}")));
    suite.arg(verb).arg("--holdfast").arg(built.join(format!("holdfast{suffix}"))).args(options);
    suite.arg("--").args(driver.iter().map(|word| word.replace("{built}", &directory)));
    suite.env("PYTHONPATH", process::repository_root().join("sdks/python/src"));
    process::run(&mut suite)
}
