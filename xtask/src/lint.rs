//! `cargo xtask lint`: everything that can be said about the code without running it.
//!
//! All checks run even when an early one fails: one round of lint shows all there is to mend.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::process;

mod api_compatibility;
mod core_purity;
mod dependency_direction;
mod markdown;
mod module_circles;
mod sources;
mod third_party;

pub(crate) struct Options {
    advisories: bool,
    /// Only write down what is new in the client API.
    record_api: bool,
}

impl Options {
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Options, Failure> {
        let mut options = Options { advisories: false, record_api: false };
        for argument in arguments {
            match argument.to_str() {
                Some("--advisories") => options.advisories = true,
                Some("--record-api") => options.record_api = true,
                _ => {
                    let unknown = argument.display();
                    return Err(Failure::Usage(format!("`lint` does not know `{unknown}`")));
                }
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    if options.record_api {
        return api_compatibility::record();
    }
    let checks: [(&str, Check); 9] = [
        ("formatting", formatting),
        ("the compatibility of the client API", api_compatibility::check),
        ("the purity of holdfast-core", core_purity::check),
        ("the direction of dependencies", dependency_direction::check),
        ("circles between modules", module_circles::check),
        ("Markdown", markdown::check),
        ("clippy", clippy),
        ("documentation", documentation),
        ("third-party dependencies", third_party::check),
    ];
    let advisories: Option<(&str, Check)> =
        options.advisories.then_some(("advisories", third_party::check_advisories));

    let mut failed = Vec::new();
    for (subject, check) in checks.into_iter().chain(advisories) {
        eprintln!("xtask: checking {subject}");
        if let Err(failure) = check() {
            eprintln!("xtask: {failure}");
            failed.push(subject);
        }
    }
    if failed.is_empty() {
        eprintln!("xtask: lint passed");
        Ok(())
    } else {
        Err(Failure::Failed(format!("lint failed: {}", failed.join(", "))))
    }
}

type Check = fn() -> Result<(), Failure>;

fn formatting() -> Result<(), Failure> {
    process::run(&mut process::cargo(["fmt", "--all", "--", "--check"]))
}

fn clippy() -> Result<(), Failure> {
    process::run(&mut process::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-Dwarnings",
    ]))
}

fn documentation() -> Result<(), Failure> {
    let document = |what: &[&str]| {
        let mut command = process::cargo(["doc", "--no-deps", "--locked"]);
        process::run(command.args(what).env("RUSTDOCFLAGS", "-D warnings"))
    };
    document(&["--workspace"])?;
    // Most of its checkers stand behind features that nothing in the workspace turns on.
    document(&["-p", "holdfast-fence", "--all-features"])
}
