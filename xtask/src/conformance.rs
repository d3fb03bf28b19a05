//! `cargo xtask conformance`: builds a cluster's binary and the suite, and tries the client libraries on them.
//!
//! The suite is built apart from `holdfast`, because it turns planted bugs of the Rust library on, and a node must not be
//! built with them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::thread::ScopedJoinHandle;

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

/// How many libraries are tried at a time. The suite waits for most of its time.
const AT_ONCE: usize = 2;

/// The driver of one library, built.
#[derive(Debug)]
struct Driver {
    name: &'static str,
    command: &'static [&'static str],
    path: OsString,
}

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
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|it| *it == name);
    let libraries = LIBRARIES.iter().filter(|(name, _)| is_chosen(name));
    let mut drivers = VecDeque::new();
    for (name, command) in libraries {
        let path = build_driver(name, &built)?;
        drivers.push_back(Driver { name, command, path });
    }
    let drivers = Mutex::new(drivers);
    let next = || drivers.lock().map_or(None, |mut drivers| drivers.pop_front());
    std::thread::scope(|scope| {
        let try_all = || {
            while let Some(driver) = next() {
                driver.conform(&built, &options)?;
            }
            Ok(())
        };
        let tries: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(try_all)).collect();
        // All are awaited, so a failure of one ends none of the others in the middle.
        let ended: Vec<_> = tries.into_iter().map(joined).collect();
        ended.into_iter().collect()
    })
}

/// Returns the `PATH` with which the driver runs.
fn build_driver(library: &str, built: &Path) -> Result<OsString, Failure> {
    match library {
        "go" => go::build_driver(built)?,
        "typescript" => {
            let nodejs = NodeJs::find_or_install()?;
            typescript::build(&nodejs)?;
            return Ok(nodejs.path().to_owned());
        }
        "java" => java::build_driver()?,
        _ => {}
    }
    Ok(std::env::var_os("PATH").unwrap_or_default())
}

fn joined(thread: ScopedJoinHandle<'_, Result<(), Failure>>) -> Result<(), Failure> {
    let ended = |_| Err(Failure::Failed("a thread of the conformance suite panicked".to_owned()));
    thread.join().unwrap_or_else(ended)
}

impl Driver {
    /// Whether the library passes, and whether each misbehaviour is caught.
    fn conform(&self, built: &Path, options: &[&OsString]) -> Result<(), Failure> {
        // Side by side, because both wait most of the time. Lines of `misbehave` begin with "caught" or "ESCAPED".
        std::thread::scope(|scope| {
            let misbehaving = scope.spawn(|| self.play("misbehave", built, options));
            let conforms = self.play("run", built, options);
            conforms.and(joined(misbehaving))
        })
    }

    fn play(&self, verb: &str, built: &Path, options: &[&OsString]) -> Result<(), Failure> {
        let (directory, suffix) = (built.display().to_string(), std::env::consts::EXE_SUFFIX);
        let mut suite = process::program(built.join(format!("holdfast-conformance{suffix}")));
        suite.arg(verb);
        suite.arg("--holdfast").arg(built.join(format!("holdfast{suffix}"))).args(options);
        suite.arg("--").args(self.command.iter().map(|word| word.replace("{built}", &directory)));
        suite.env("PATH", &self.path);
        suite.env("PYTHONPATH", process::repository_root().join("sdks/python/src"));
        process::run_labelled(self.name, &mut suite)
    }
}
