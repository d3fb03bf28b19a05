//! `cargo xtask conformance`: builds a cluster's binary and the suite, and tries the client libraries on them.
//!
//! The suite is built apart from `holdfast`, because it turns planted bugs of the Rust library on, and a node must not be
//! built with them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::built;
use crate::failure::Failure;
use crate::go;
use crate::java;
use crate::nodejs::NodeJs;
use crate::process;
use crate::servers;
use crate::typescript;

/// The libraries, and the command of each one's driver. `{built}` is the directory of the binaries.
const LIBRARIES: [(&str, &[&str]); 6] = [
    ("rust", &["{built}/holdfast-rust-driver"]),
    ("python-asyncio", &["python3", "sdks/python/conformance/driver.py"]),
    ("python-blocking", &["python3", "sdks/python/conformance/driver.py", "--sync"]),
    ("go", &["{built}/holdfast-go-driver"]),
    ("typescript", &["node", "sdks/typescript/build/conformance/driver.js"]),
    (
        "java",
        &[
            "java",
            // Each scenario starts a process, and none runs long.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-cp",
            "sdks/java/conformance/target/classes:sdks/java/conformance/target/lib/*",
            "holdfast.conformance.Driver",
        ],
    ),
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
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        match name {
            "go" => go::build_driver(&built)?,
            "typescript" => {
                let nodejs = NodeJs::find_or_install()?;
                typescript::build(&nodejs)?;
                path = nodejs.path().to_owned();
            }
            "java" => java::build_driver()?,
            _ => {}
        }
        eprintln!("xtask: conformance of {name}");
        // Side by side, because both wait most of the time. Lines of `misbehave` begin with "caught" or "ESCAPED".
        std::thread::scope(|scope| {
            let misbehaving = scope.spawn(|| play("misbehave", driver, &path, &built, &options));
            let conforms = play("run", driver, &path, &built, &options);
            let ended =
                |_| Err(Failure::Failed("the thread of `misbehave` ended early".to_owned()));
            conforms.and(misbehaving.join().unwrap_or_else(ended))
        })?;
    }
    Ok(())
}

fn play(
    verb: &str,
    driver: &[&str],
    path: &OsStr,
    built: &Path,
    options: &[&OsString],
) -> Result<(), Failure> {
    let (directory, suffix) = (built.display().to_string(), std::env::consts::EXE_SUFFIX);
    let mut suite = process::program(built.join(format!("holdfast-conformance{suffix}")));
    suite.arg(verb).arg("--holdfast").arg(built.join(format!("holdfast{suffix}"))).args(options);
    suite.arg("--").args(driver.iter().map(|word| word.replace("{built}", &directory)));
    suite.env("PATH", path);
    suite.env("PYTHONPATH", process::repository_root().join("sdks/python/src"));
    process::run(&mut suite)
}
