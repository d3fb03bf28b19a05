//! The project's own commands: `cargo xtask <verb>`.
//!
//! One file per verb. A verb does all of its own set-up, so that a fresh clone needs nothing but a
//! Rust toolchain and a C compiler. This crate depends on nothing, so that it builds in a second
//! and before anything else does.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its terminal")]

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

mod book;
mod built;
mod chaos;
mod compare;
mod conformance;
mod dev_cluster;
mod failure;
mod go;
mod help;
mod java;
mod lint;
mod nodejs;
mod process;
mod python;
mod screenshots;
mod servers;
mod stories;
mod test;
mod tools;
mod typescript;
mod upgrade;

use crate::failure::Failure;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            if let Failure::Usage(_) = failure {
                eprint!("\n{}", help::USAGE);
            }
            failure.exit_code()
        }
    }
}

fn run(arguments: &[OsString]) -> Result<(), Failure> {
    let Some((verb, rest)) = arguments.split_first() else {
        help::run();
        return Ok(());
    };
    match verb.to_str() {
        Some("book") => book::run(rest),
        Some("chaos") => chaos::run(rest),
        Some("compare") => compare::run(rest),
        Some("conformance") => conformance::run(rest),
        Some("stories") => stories::run(rest),
        Some("go") => go::run(rest),
        Some("java") => java::run(rest),
        Some("lint") => lint::run(lint::Options::parse(rest)?),
        Some("python") => python::run(rest),
        Some("screenshots") => screenshots::run(rest),
        Some("test") => test::run(test::Options::parse(rest)?),
        Some("typescript") => typescript::run(rest),
        Some("upgrade") => upgrade::run(&upgrade::Options::parse(rest)?),
        Some("help" | "--help" | "-h") => {
            help::run();
            Ok(())
        }
        _ => Err(Failure::Usage(format!("there is no verb `{}`", verb.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_verb_is_wrong_usage() {
        let failure = run(&["frobnicate".into()]).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure}");
        assert_eq!(failure.to_string(), "there is no verb `frobnicate`");
    }
}
